"""Plan an export: which rows of a dataset each of its shards has.

A shard is a range of the rows of a split, in the order of the dataset. So nothing is shuffled, and a shard can be
written by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from transforms.base.errors import InputError, ParameterError, UserError
from transforms.catalog.consumers import problems
from transforms.catalog.description import library_versions
from transforms.catalog.layout import SPLITS
from transforms.exports import Place, export_of
from transforms.reading.reader import Dataset
from transforms.storage.files import exists, full_url, is_inside, join, kind_of, read_bytes
from transforms.storage.walking import names_in
from transforms.storage.writing import write_atomically
from transforms.tokens.tokenizer import load_tokenizer

# What of an export is there while it is being written, below its folder.
STATE = "_export"
RECEIPTS = f"{STATE}/receipts"
CLAIMS = "_claims"
_PLAN = f"{STATE}/plan.json"
SUMMARY = "export.json"


class ShardPlan(msgspec.Struct, frozen=True):
    """A shard of an export: the rows start:stop of a split, numbered from 0.

    number: from 0, of count; -1 for rows that are dropped, and only counted.
    """

    split: str
    number: int
    count: int
    start: int
    stop: int

    @property
    def receipt(self) -> str:
        """The path of its receipt, relative to the folder of the export."""
        return join(RECEIPTS, f"{self.split}-{self.number:05d}.json" if self.number >= 0 else f"{self.split}.json")


class ExportPlan(msgspec.Struct, frozen=True):
    """What an export has. The same plan writes the same bytes, on any runner and with any number of workers.

    consumer: one of EXPORTS. manifest: sha256 of that of the dataset. version: of the dataset. versions: of the
    libraries that can change the output. The others are those of Place.
    """

    consumer: str
    version: int
    manifest: str
    versions: dict[str, str]
    shards: tuple[ShardPlan, ...]
    multiple: int = 1
    eos_token_id: int = 0
    vocabulary: int = 0

    def place(self, shard: ShardPlan) -> Place:
        """Return what the writer of a shard must know of it."""
        return Place(shard.number, shard.count, self.multiple, self.eos_token_id, self.vocabulary)


_decode = msgspec.json.Decoder(ExportPlan).decode


def plan_export(
    dataset: Dataset,
    consumer: str,
    shards: int | None = None,
    rows_per_shard: int | None = None,
    drop_remainder: bool = False,
) -> ExportPlan:
    """Plan an export.

    Args:
        dataset: the version that is exported.
        consumer: one of EXPORTS.
        shards: how many each split has; their rows differ by at most one.
        rows_per_shard: of each shard but the last one of a split. Without both, there is a shard for each of the
            dataset.
        drop_remainder: whether all shards of a split have the same number of rows, and the rows that are left after
            them are dropped.

    Raises:
        ParameterError: if a value does not go with the others, or with the dataset.
        UserError: if the dataset has no rows, or the trainer would not train on them as it should.
    """
    export = export_of(consumer)
    if found := problems(consumer, dataset.layout):
        raise UserError(f"{dataset.name}: it was built with another {found[0].option}: {found[0].text}")
    if shards and rows_per_shard:
        raise ParameterError("rows_per_shard", rows_per_shard, "shards says already how many rows a shard has.")
    if drop_remainder and not (shards or rows_per_shard):
        raise ParameterError("drop_remainder", True, "expected shards or rows_per_shard, too.")
    planned = [shard for split in SPLITS for shard in _ranges(dataset, split, shards, rows_per_shard, drop_remainder)]
    if not planned:
        raise UserError(f"{dataset.name}: the dataset has no rows.")
    eos, vocabulary, multiple = 0, 0, dataset.layout.pad_to_multiple_of if export.pads else 1
    if export.needs_tokenizer:
        tokenizer = load_tokenizer(dataset.tokenizer_folder)
        eos, vocabulary = tokenizer.eos_token_id, len(tokenizer)
        if eos is None and multiple > 1:
            raise UserError(
                f"{dataset.name}: it was built with pad_to_multiple_of {multiple}, and its tokenizer has no eos_token, "
                "with which examples are padded."
            )
    return ExportPlan(
        consumer,
        dataset.version,
        hashlib.sha256(msgspec.json.encode(dataset.manifest, order="sorted")).hexdigest(),
        library_versions(),
        tuple(planned),
        multiple,
        eos or 0,
        vocabulary,
    )


def _ranges(
    dataset: Dataset, split: str, shards: int | None, rows_per_shard: int | None, drop_remainder: bool
) -> Iterator[ShardPlan]:
    """The shards of a split, and what is dropped of it."""
    rows = dataset.row_count(split)
    if not rows:
        return
    if shards:
        if shards > rows:
            raise ParameterError("shards", shards, f"{split} has {rows:,} rows. Give at most as many.")
        ends = [rows * (number + 1) // shards for number in range(shards)]
        if drop_remainder:
            ends = [rows // shards * (number + 1) for number in range(shards)]
    elif rows_per_shard:
        ends = [*range(rows_per_shard, rows + 1, rows_per_shard)]
        if drop_remainder and not ends:
            problem = f"{split} has {rows:,} rows, so that all of them would be dropped."
            raise ParameterError("rows_per_shard", rows_per_shard, problem)
        if not drop_remainder and (not ends or ends[-1] < rows):
            ends.append(rows)
    else:
        ends = [*accumulate(shard["rows"] for shard in dataset.readable(split) if shard["rows"])]
    for number, (start, stop) in enumerate(pairwise([0, *ends])):
        yield ShardPlan(split, number, len(ends), start, stop)
    if ends[-1] < rows:
        yield ShardPlan(split, -1, len(ends), ends[-1], rows)


def is_finished(output: str, dataset: Dataset, plan: ExportPlan) -> bool:
    """Return whether an export is finished.

    Args:
        output: the url of its folder.
        dataset: that is exported.
        plan: of the export.

    Raises:
        ParameterError: if the folder holds something else, or another export.
        InputError: if the folder has no readable summary.
        StoreError: if a store fails.
    """
    if is_inside(full_url(output), full_url(dataset.url)):
        raise ParameterError("output", output, "it is in the folder of the dataset. Give a folder of its own.")
    kind = kind_of(output)
    if kind == "file":
        raise ParameterError("output", output, "there is a file of that name. Give a folder.")
    if exists(join(output, SUMMARY)):
        if _planned(join(output, SUMMARY)) != plan:
            raise ParameterError("output", output, "another export is there. Give another folder, or remove it.")
        return True
    if exists(url := join(output, _PLAN)):
        if read_bytes(url) != _content(plan):
            problem = "another export was begun there, or with other versions of libraries. Give another folder, or "
            raise ParameterError("output", output, problem + "remove it.")
    elif kind == "directory" and {*names_in(output)} - {STATE, CLAIMS}:
        raise ParameterError("output", output, "the folder holds other files. Give one that is empty or new.")
    return False


def begin(output: str, dataset: Dataset, plan: ExportPlan) -> bool:
    """Write a plan into the folder of an export, unless it is there already. The folder is claimed.

    Args:
        output: the url of the folder.
        dataset: that is exported.
        plan: of the export.

    Returns:
        Whether something is left to do: False if this export is finished.

    Raises:
        ParameterError, InputError, StoreError: as is_finished.
    """
    if is_finished(output, dataset, plan):
        return False
    write_atomically(join(output, _PLAN), _content(plan))
    return True


def _content(plan: ExportPlan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2)


def _planned(url: str) -> ExportPlan:
    """The plan in a summary. Raises InputError if it has none."""
    try:
        summary: dict[str, Any] = msgspec.json.decode(read_bytes(url))
        return _decode(msgspec.json.encode(summary["plan"]))
    except (msgspec.MsgspecError, KeyError) as error:
        raise InputError(f"{url}: it is not the summary of an export ({error!r}). Remove the folder.") from None
