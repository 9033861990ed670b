"""The options by which rows are cut, packed and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from transforms.base.errors import ParameterError
from transforms.base.options import (
    Configuration,
    Flag,
    Length,
    PositiveInt,
    Values,
    Weight,
    Wrong,
    choose,
    one_name,
    option,
    read_list,
    some_names,
)
from transforms.outputs import OUTPUT_FORMATS
from transforms.rows.columns import OUTPUT_COLUMNS
from transforms.rows.packing import PACKINGS, longer_segments
from transforms.rows.parts import PART_COLUMNS
from transforms.rows.truncation import TRUNCATIONS
from transforms.steps.checks import ACTIONS, CHECKS, GROUPS, split_value


@dataclass(frozen=True, kw_only=True)
class PackOptions(Configuration):
    """How rows are cut and packed: the options of TruncateOrPack.

    Raises:
        ParameterError: if a value is not one that the option takes, or packing has no max_length.
    """

    max_length: Length = option("Rows", "the maximum number of tokens in a row", common=True)
    truncation: Annotated[str, one_name(TRUNCATIONS)] = option(
        "Rows",
        "what to do with a row that is longer than max_length; keep_start or keep_end: keep that end of it; turns: cut "
        "it after the last turn that fits; windows: several rows, each with the turns that fit, after earlier ones as "
        "context; drop: drop the record",
        "keep_start",
        common=True,
    )
    window_overlap: Length = option(
        "Rows",
        "with truncation windows, the tokens of earlier turns that a window begins with at most, which are not trained "
        "on again",
        default_help="a quarter of max_length",
    )
    packing: Annotated[str, one_name(PACKINGS)] = option(
        "Rows",
        "how to pack several examples into each row, up to max_length; bfd: best fit decreasing, longer examples are "
        "truncated; bfd_split: longer examples are split; ffd: first fit decreasing; wrapped: all tokens in one "
        "sequence, cut at max_length",
        "none",
        common=True,
    )
    shift_labels: Flag = option(
        "Rows",
        "write input_ids[:-1] and labels[1:], for trainers that do not shift labels themselves",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.packing != "none" and self.max_length is None:
            raise ParameterError("packing", self.packing, "it needs a max_length, such as 4096.")
        if self.truncation in ("turns", "windows") and longer_segments(self.packing) != "truncate":
            problem = f"packing {self.packing} cuts longer rows in its own way."
            raise ParameterError("truncation", self.truncation, problem)
        if self.truncation == "windows" and self.max_length is not None and self.max_length < 2:
            raise ParameterError("max_length", self.max_length, "expected at least 2 with truncation windows.")
        if self.window_overlap is not None:
            if self.truncation != "windows":
                raise ParameterError("window_overlap", self.window_overlap, "it needs truncation windows.")
            if self.max_length is not None and self.window_overlap >= self.max_length:
                problem = f"expected less than max_length {self.max_length}."
                raise ParameterError("window_overlap", self.window_overlap, problem)


@dataclass(frozen=True, kw_only=True)
class WriteOptions(Configuration):
    """What is written of the rows: the options of WriteShards."""

    output_format: Annotated[tuple[str, ...], some_names(OUTPUT_FORMATS)] = option(
        "Output",
        "the formats of the shards, one or several",
        ("parquet",),
        metavar=",".join(OUTPUT_FORMATS),
    )
    write_columns: Annotated[tuple[str, ...], some_names(OUTPUT_COLUMNS)] | None = option(
        "Output",
        f"the columns to write, of {', '.join(OUTPUT_COLUMNS)}",
        default_help="input_ids,labels; with packing also seq_lengths",
    )
    provenance: Flag = option(
        "Output",
        "add the columns origin_file and origin_position (byte offset or number)",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in PART_COLUMNS if name in (self.write_columns or ())]
        if given and len(given) < len(PART_COLUMNS):
            problem = f"{given[0]} is read together with the others of {', '.join(PART_COLUMNS)}. Write all of them."
            raise ParameterError("write_columns", self.write_columns, problem)


SHUFFLES = ("none", "global")
DEDUPS = ("none", "exact")
MIXES_BY = ("trained_tokens", "examples")


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(Configuration):
    """Which examples of the whole corpus are packed and written, and in which order: the options of the exchange."""

    shuffle: Annotated[str, one_name(SHUFFLES)] = option(
        "Rows",
        "the order of the examples; none: that of the files; global: pseudo-random, by the seed, across all files and "
        "sources, so that a packed row and a shard have examples from everywhere",
        "none",
        common=True,
    )
    shards: PositiveInt | None = option(
        "Rows",
        "with shuffle global, how many shards are written, each with all kinds of examples",
        default_help="one for some megabytes of input",
    )

    dedup: Annotated[str, one_name(DEDUPS)] = option(
        "Rows",
        "what to do with duplicates, across all files and sources; exact: of the records that are rendered to the same "
        "tokens, with the same of them trained on, keep the first one of the input and drop the others",
        "none",
        common=True,
    )

    epochs: Weight = option(
        "Rows",
        "how often each record is in the dataset: 0.3 is a sample, 2.5 each twice and half of them three times; with "
        "shuffle global",
        1.0,
        per_source=True,
    )
    weight: Weight | None = option(
        "Rows",
        "the share of a source of a recipe in what mix_by counts, in proportion to the weights of the others; without "
        "mix_tokens the dataset is as large as it can be with the epochs of each source",
        per_source=True,
    )
    max_examples: PositiveInt | None = option(
        "Rows",
        "how many records of each source are used at most",
        per_source=True,
    )
    max_tokens: PositiveInt | None = option("Rows", "how many trained tokens each source has at most", per_source=True)
    mix_tokens: PositiveInt | None = option(
        "Rows",
        "how many trained tokens the dataset has, in whole examples; sources with fewer are repeated",
    )
    mix_by: Annotated[str, one_name(MIXES_BY)] = option(
        "Rows",
        "what weights are shares of: trained tokens, which have labels, or examples",
        "trained_tokens",
    )

    @property
    def is_exchanged(self) -> bool:
        """Whether examples go from the tasks that read them to others."""
        return self.shuffle != "none" or self.dedup != "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shuffle == "none":
            for name in ("shards", "epochs", "weight", "max_examples", "max_tokens", "mix_tokens"):
                if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                    raise ParameterError(name, value, "it needs shuffle global.")
        if self.mix_by == "examples" and (self.mix_tokens or self.max_tokens):
            name = "mix_tokens" if self.mix_tokens else "max_tokens"
            raise ParameterError(name, getattr(self, name), "with mix_by examples, tokens are not counted.")


def _read_actions(text: str) -> dict[str, str]:
    actions, names = dict[str, str](), list[str]()
    for part in read_list(text):
        name, _, action = part.rpartition("=")
        names.append(name or action)
        if name:
            actions, names = actions | dict.fromkeys(names, action), []
    if names:
        raise Wrong(f"{names[0]}: expected an action after it, such as {names[0]}=drop.")
    return actions


def _check_actions(actions: Mapping[str, str]) -> Mapping[str, str]:
    for given, action in actions.items():
        name, value = split_value(given)
        choose(name, (*CHECKS, *GROUPS))
        choose(action, ACTIONS, f"{given}: ")
        takes = CHECKS[name].value if name in CHECKS else ""
        if bool(value) != bool(takes) or (takes == "INT" and not value.isdecimal()):
            raise Wrong(f"{given}: expected {name}{':' * bool(takes)}{takes}.")
        if takes == "INT" and action == "reject":
            raise Wrong(f"{given}: expected report, drop or off: tokens are counted after records are rejected.")
    return actions


_CHECK_ACTIONS = Values("a mapping, such as {tools: drop}", "NAME,..=ACTION", _read_actions, check=_check_actions)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Configuration):
    """What contents are checked for."""

    check: Annotated[Mapping[str, str], _CHECK_ACTIONS] | None = option(
        "Rows",
        "what to do with a record in which a check, or one of a group of checks, finds something, such as "
        "undeclared_tool,text=drop; report: keep and count it, and list it in records/; drop; reject; off: do not look "
        "(docs/checks.md lists the checks)",
        default_help="report, for most checks",
        common=True,
    )
