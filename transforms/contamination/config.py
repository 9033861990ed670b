"""The options of the comparison with evaluation sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from transforms.base.errors import ParameterError
from transforms.base.options import Configuration, Names, PositiveInt, one_name, option

CONTAMINATED = ("report", "drop")


@dataclass(frozen=True, kw_only=True)
class ContaminationOptions(Configuration):
    """What conversations are compared with, and what becomes of those that have something in common with it.

    Raises:
        ParameterError: if a value is not one that the option takes, or there is nothing to compare with.
    """

    decontaminate: Names = option(
        "Rows",
        "evaluation sets, as files, folders, globs or urls in any format that inputs may have: records that share a "
        "run of words with one of their records are reported, or dropped",
        (),
        metavar="URL,..",
        default_help="none",
    )
    decontaminate_words: PositiveInt = option("Rows", "with decontaminate, how many words such a run has", 13)
    contaminated: Annotated[str, one_name(CONTAMINATED)] = option(
        "Rows",
        "what to do with a record that shares a run of words with evaluation sets; report: keep and count it, and list "
        "it in records/; drop: leave it out",
        "report",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contaminated != "report" and not self.decontaminate:
            raise ParameterError("contaminated", self.contaminated, "it needs evaluation sets: give decontaminate.")
