"""Exports: what trainers read that need another layout than that of the shards, one file each in `layouts`.

A layout is a module of `layouts` with an `EXPORT`, an Export. No other file lists the layouts. Their names are found
without importing the modules; a library that few people have is imported inside of their functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from transforms.catalog.consumer import Consumer, Problem

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout
    from transforms.reading.row_examples import RowExamples

EXPORTS: tuple[str, ...] = tuple(
    module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("layouts"))])
)

# Creates a file of a name in the folder of its split.
CreateFile: TypeAlias = Callable[[str], RawIOBase]


class Place(NamedTuple):
    """What a shard of an export is.

    number: from 0. shards: how many its split has. multiple: of tokens to which each example is padded.
    eos_token_id, vocabulary: of the tokenizer: its id, and how many ids there are; 0 for a layout without
    `needs_tokenizer`.
    """

    number: int
    shards: int
    multiple: int = 1
    eos_token_id: int = 0
    vocabulary: int = 0


class Written(NamedTuple):
    """What was written of some rows.

    longest: tokens of the longest row in the trainer, with padding. padding: tokens that were added to examples.
    """

    longest: int
    padding: int = 0


class ShardWriter(Protocol):
    """Writes the files of one shard, which may be larger than the memory."""

    def write(self, examples: RowExamples) -> Written:
        """Write the examples of some rows, at least one, whose labels are not shifted."""

    def close(self) -> None:
        """Write what is left. The files are closed later."""


class ShardFile(NamedTuple):
    """A file of a shard. name: in the folder of its split. sha256: of its content, in hexadecimal."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Export(Consumer):
    """What is known of a trainer that reads an export.

    Attributes:
        writer: makes a writer of the files of one shard. The same examples must give the same bytes.
        ending: makes what is written when all shards are there: from the files of each split, in order, the content of
            each file by its path.
        packs: whether a row may hold several examples. Otherwise a row is an example.
        pads: whether its writers pad each example to the multiple that rows have room for.
        needs_tokenizer: whether its writers need the ids of the tokenizer.
        package: the Python package that the writer needs beyond Chatmill's own; none if it is empty.
    """

    writer: Callable[[CreateFile, Place], ShardWriter]
    ending: Callable[[Mapping[str, Sequence[ShardFile]]], Mapping[str, bytes]] = lambda splits: {}
    packs: bool = False
    pads: bool = False
    needs_tokenizer: bool = False
    package: str = ""


def export_of(name: str) -> Export:
    """Import the layout of a trainer. name: one of EXPORTS."""
    export: Export = importlib.import_module(f"{__name__}.layouts.{name}").EXPORT
    return export


def export_problems(export: Export, layout: RowLayout) -> Iterator[Problem]:
    """Find why rows of a layout cannot be exported for a trainer."""
    if layout.packed and not export.packs:
        text = f"{export.title} reads each row as one example, so that examples would attend to others. Do not pack."
        yield Problem("packing", text)
    if "input_ids" not in layout.columns:
        yield Problem("write_columns", f"{export.title} needs input_ids, too.")
    # A row with shifted labels has lost its last token: it is in the labels alone.
    if "labels" not in layout.columns and ("loss_mask" not in layout.columns or layout.shift_labels):
        yield Problem("write_columns", f"{export.title} needs labels, too.")
    if layout.packed and not {"seq_lengths", "position_ids"} & {*layout.columns}:
        yield Problem("write_columns", f"{export.title} needs seq_lengths, too: where each example begins.")
    yield from export.problems(layout)


def no_problems(layout: RowLayout) -> Iterator[Problem]:
    """Find no further problem."""
    return iter(())
