"""The options by which rows are cut, packed and written."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.base import kinds
from transforms.base.declaring import StepOptions, option
from transforms.base.errors import ParameterError
from transforms.outputs import OUTPUT_FORMATS
from transforms.rows.columns import OUTPUT_COLUMNS
from transforms.rows.packing import PACKINGS, longer_of
from transforms.rows.parts import PART_COLUMNS
from transforms.rows.truncation import TRUNCATIONS


@dataclass(frozen=True, kw_only=True)
class PackOptions(StepOptions):
    """How rows are cut and packed: the options of TruncateOrPack.

    Raises:
        ParameterError: if a value is not one that the option takes, or packing has no max_length.
    """

    max_length: int | None = option("Rows", "the maximum number of tokens in a row", kinds.length, None, common=True)
    truncation: str = option(
        "Rows",
        "what to do with a row that is longer than max_length; keep_start or keep_end: keep that end of it; turns: cut "
        "it after the last turn that fits; windows: several rows, each with the turns that fit, after earlier ones as "
        "context; drop: drop the record",
        kinds.one_of(TRUNCATIONS),
        "keep_start",
        common=True,
    )
    window_overlap: int | None = option(
        "Rows",
        "with truncation windows, the tokens of earlier turns that a window begins with at most, which are not trained "
        "on again",
        kinds.length,
        None,
        "a quarter of max_length",
    )
    packing: str = option(
        "Rows",
        "how to pack several examples into each row, up to max_length; bfd: best fit decreasing, longer examples are "
        "truncated; bfd_split: longer examples are split; ffd: first fit decreasing; wrapped: all tokens in one "
        "sequence, cut at max_length",
        kinds.one_of(PACKINGS),
        "none",
        common=True,
    )
    shift_labels: bool = option(
        "Rows",
        "write input_ids[:-1] and labels[1:], for trainers that do not shift labels themselves",
        kinds.flag,
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.packing != "none" and self.max_length is None:
            raise ParameterError("packing", self.packing, "it needs a max_length, such as 4096.")
        if self.truncation in ("turns", "windows") and longer_of(self.packing) != "truncate":
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
class WriteOptions(StepOptions):
    """What is written of the rows: the options of WriteShards."""

    output_format: tuple[str, ...] = option(
        "Output",
        "the formats of the shards, one or several",
        kinds.list_of(OUTPUT_FORMATS),
        ("parquet",),
        ",".join(OUTPUT_FORMATS),
        common=True,
    )
    write_columns: tuple[str, ...] | None = option(
        "Output",
        f"the columns to write, of {', '.join(OUTPUT_COLUMNS)}",
        kinds.list_of(OUTPUT_COLUMNS),
        None,
        None,
        "input_ids,labels; with packing also seq_lengths",
    )
    provenance: bool = option(
        "Output", "add the columns origin_file and origin_position (byte offset or number)", kinds.flag, False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        found = [name for name in PART_COLUMNS if name in (self.write_columns or ())]
        if found and len(found) < len(PART_COLUMNS):
            problem = f"{found[0]} is read together with the others of {', '.join(PART_COLUMNS)}. Write all of them."
            raise ParameterError("write_columns", self.write_columns, problem)


SHUFFLES = ("none", "global")
DEDUPS = ("none", "exact")
MIXES_BY = ("trained_tokens", "examples")


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(StepOptions):
    """Which examples of the whole corpus are packed and written, and in which order: the options of the exchange."""

    shuffle: str = option(
        "Rows",
        "the order of the examples; none: that of the files; global: pseudo-random, by the seed, across all files and "
        "sources, so that a packed row and a shard have examples from everywhere",
        kinds.one_of(SHUFFLES),
        "none",
        common=True,
    )
    shards: int | None = option(
        "Rows",
        "with shuffle global, how many shards are written, each with all kinds of examples",
        kinds.positive,
        None,
        default_help="one for some megabytes of input",
    )

    dedup: str = option(
        "Rows",
        "what to do with duplicates, across all files and sources; exact: of the records that are rendered to the same "
        "tokens, keep the first one of the input and drop the others",
        kinds.one_of(DEDUPS),
        "none",
        common=True,
    )

    epochs: float = option(
        "Rows",
        "how often each record is in the dataset: 0.3 is a sample, 2.5 each twice and half of them three times; with "
        "shuffle global",
        kinds.weight,
        1.0,
        of_source=True,
    )
    weight: float | None = option(
        "Rows",
        "the share of a source of a recipe in what mix_by counts, in proportion to the weights of the others; without "
        "mix_tokens the dataset is as large as it can be with the epochs of each source",
        kinds.weight,
        None,
        of_source=True,
    )
    max_examples: int | None = option(
        "Rows", "how many records of each source are used at most", kinds.positive, None, of_source=True
    )
    max_tokens: int | None = option(
        "Rows", "how many trained tokens each source has at most", kinds.positive, None, of_source=True
    )
    mix_tokens: int | None = option(
        "Rows",
        "how many trained tokens the dataset has, in whole examples; sources with fewer are repeated",
        kinds.positive,
        None,
    )
    mix_by: str = option(
        "Rows",
        "what weights are shares of: trained tokens, which have labels, or examples",
        kinds.one_of(MIXES_BY),
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
