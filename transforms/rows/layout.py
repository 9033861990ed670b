"""How the rows of a dataset are laid out, as its options say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.rows.columns import PROVENANCE_COLUMNS, default_columns
from transforms.rows.parts import KINDS


@dataclass(frozen=True)
class RowLayout:
    """How the rows of a dataset are laid out, as far as a trainer has to know it.

    Attributes:
        columns: all columns, in order.
        formats: of OUTPUT_FORMATS.
        packing: one of PACKINGS.
        max_length: tokens in a row at most; None for any number.
        shift_labels: whether labels are shifted.
    """

    columns: tuple[str, ...]
    formats: tuple[str, ...]
    packing: str = "none"
    max_length: int | None = None
    shift_labels: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RowLayout:
        """Return the layout that the options of a job give. options: by the name that job.json has for each."""
        packing = options.get("packing", "none")
        columns = tuple(options.get("write_columns") or default_columns(packing != "none"))
        columns += PROVENANCE_COLUMNS if options.get("provenance") else ()
        return cls(
            columns=columns + tuple(options.get("keep_columns") or ()),
            formats=tuple(options.get("output_format") or ("parquet",)),
            packing=packing,
            max_length=options.get("max_length"),
            shift_labels=options.get("shift_labels", False),
        )

    @property
    def packed(self) -> bool:
        """Whether a row may hold several examples."""
        return self.packing != "none"

    @property
    def has_ids(self) -> bool:
        """Whether the rows have all their tokens."""
        return "input_ids" in self.columns

    @property
    def has_segments(self) -> bool:
        """Whether the columns say where the examples of a row begin."""
        return not self.packed or bool({"seq_lengths", "position_ids"} & {*self.columns})

    def described(self) -> dict[str, Any]:
        """Return what the manifest and the shards say of the layout, as JSON."""
        return {
            "columns": list(self.columns),
            "packing": self.packing,
            "max_length": self.max_length,
            "shift_labels": self.shift_labels,
            **({"part_kinds": list(KINDS)} if "part_kinds" in self.columns else {}),
        }


def why_not_records(layout: Mapping[str, Any]) -> str | None:
    """Say why the rows of a dataset are not records of token ids, and what to do; None if they are.

    layout: as the manifest and the shards describe it.
    """
    if layout.get("packing", "none") == "none" and not layout.get("shift_labels"):
        return None
    problem = "its rows are packed, so that one has several examples, or their labels are shifted"
    return f"{problem}. Build from its inputs again, without packing and shift_labels."
