"""Finish: from the receipts to a dataset under its final names, with its manifest, its card and _SUCCESS.

Each step of it may be done again, by a retry or by a run that is resumed: what is moved already is left where it is.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import apache_beam as beam
import msgspec
from fsspec.implementations.local import LocalFileSystem

from pipeline.card import dataset_card
from pipeline.job import Folder, Job, read_job
from transforms.batches import Split
from transforms.errors import InputError
from transforms.files import exists, file_system, join, make_folder, write_whole
from transforms.receipts import Found, Receipt, read_receipts

_FOLDERS = {"parquet": "data", "tfrecord": "tfrecord"}
_MOVES_AT_ONCE = 16


def finish(output: str, receipts: Sequence[Receipt], max_reject_fraction: float) -> None:
    """Give the dataset its final names, and mark it as whole.

    Raises InputError where too many records were rejected, or no row is left; the rejects are then to be read all the
    same, but nothing is marked.
    """
    folder = Folder(output)
    job = read_job(folder)
    assert job, f"{folder.job} is gone"
    receipts = sorted(receipts, key=lambda receipt: (receipt.split, receipt.part))
    _check_complete(job, receipts)
    manifest: dict[str, Any] = {"records": _records(receipts)}
    rejects = [receipt.rejects_file for receipt in receipts if receipt.rejects_file]
    reject_paths = [f"rejects/rejects-{i:05d}-of-{len(rejects):05d}.parquet" for i in range(len(rejects))]
    _move(folder, list(zip(rejects, reject_paths, strict=True)))
    _check_rejects(manifest["records"], receipts, max_reject_fraction, folder)

    shards = [shard for receipt in receipts for shard in receipt.shards]
    if not shards:
        raise InputError(f"no row is left of {manifest['records']['read']:,} records: {_told(manifest['records'])}.")
    paths = _final_paths(shards)
    _move(folder, [(shard.file, path) for shard, path in zip(shards, paths, strict=True)])
    once = [shard for shard in shards if shard.format == job.options["output_format"][0]]
    rows = sum(shard.rows for shard in once)
    notes = _summed(receipt.notes for receipt in receipts)
    survivors = manifest["records"]["kept"] + manifest["records"]["truncated"] + notes.get("parity_rows_added", 0)
    if job.options["packing"] == "none" and rows != survivors:
        raise ValueError(f"{rows} rows were written, of records that are to have {survivors}")
    manifest |= {
        "rows": rows,
        "tokens": sum(shard.tokens for shard in once),
        "trained_tokens": sum(shard.trained_tokens for shard in once),
        "trained_tokens_lost": sum(receipt.trained_tokens_lost for receipt in receipts),
        "notes": notes,
        "noted": msgspec.to_builtins(dict(sorted(_first(receipt.note_examples for receipt in receipts).items()))),
        "shards": sorted(
            (
                {"path": path} | {key: getattr(shard, key) for key in _SHARD_FACTS}
                for shard, path in zip(shards, paths, strict=True)
            ),
            key=lambda shard: shard["path"],
        ),
        "rejects": reject_paths,
        "job": msgspec.to_builtins(job),
    }
    write_whole(folder.manifest, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    write_whole(folder.card, dataset_card(manifest).encode())
    _remove_leftovers(folder)
    write_whole(folder.success, b"")


_SHARD_FACTS = ("split", "format", "rows", "tokens", "trained_tokens", "bytes", "sha256")


def _check_complete(job: Job, receipts: Sequence[Receipt]) -> None:
    """Each split has each of its parts once, and each record one fate."""
    splits = [list(parts) for _, parts in groupby(receipts, key=lambda receipt: receipt.split)]
    for number, parts in enumerate(splits):
        names = [(part.split, part.part) for part in parts]
        if (
            names != [(number, i) for i in range(len(parts))]
            or [part.last for part in parts].index(True) != len(parts) - 1
        ):
            raise ValueError(f"split {number} has the receipts {names}; expected each of its parts once")
    if len(splits) != job.splits:
        raise ValueError(f"{len(splits)} splits have receipts, of {job.splits} that were planned")
    for receipt in receipts:
        ended = receipt.kept + receipt.truncated + sum(receipt.dropped.values()) + sum(receipt.rejected.values())
        if receipt.read != ended:
            raise ValueError(f"split {receipt.split}: {receipt.read} records were read, and {ended} have a fate")


def _records(receipts: Sequence[Receipt]) -> dict[str, Any]:
    return {
        "read": sum(receipt.read for receipt in receipts),
        "kept": sum(receipt.kept for receipt in receipts),
        "truncated": sum(receipt.truncated for receipt in receipts),
        "dropped": _summed(receipt.dropped for receipt in receipts),
        "rejected": _summed(receipt.rejected for receipt in receipts),
    }


def _summed(counts) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _first(examples: Iterable[Mapping[str, Found]]) -> dict[str, Found]:
    """For each name the first of its examples."""
    first: dict[str, Found] = {}
    for of_receipt in examples:
        first = {**of_receipt, **first}
    return first


def _check_rejects(records: dict[str, Any], receipts: Sequence[Receipt], max_fraction: float, folder: Folder) -> None:
    rejected = sum(records["rejected"].values())
    if rejected <= max_fraction * records["read"]:
        return
    examples = _first(receipt.reject_examples for receipt in receipts)
    commonest = Counter(records["rejected"]).most_common(5)
    lines = [
        f"  {reason} ({count:,}): {examples[reason].source}, {examples[reason].place}: {examples[reason].detail}"
        for reason, count in commonest
    ]
    raise InputError(
        f"{rejected:,} of {records['read']:,} records were rejected, more than --max_reject_fraction {max_fraction}. "
        f"They are in {join(folder.output, 'rejects')}; mend them, or allow more and run again. The commonest:\n"
        + "\n".join(lines)
    )


def _told(records: dict[str, Any]) -> str:
    fates = records["dropped"] | records["rejected"]
    return ", ".join(f"{reason} {count:,}" for reason, count in fates.items()) or "the inputs hold none"


def _final_paths(shards: Sequence[Any]) -> list[str]:
    totals = Counter((shard.format, shard.split) for shard in shards)
    so_far: Counter[tuple[str, str]] = Counter()
    paths = []
    for shard in shards:
        kind = (shard.format, shard.split)
        suffix = shard.file.partition(".")[2]
        paths.append(f"{_FOLDERS[shard.format]}/{shard.split}-{so_far[kind]:05d}-of-{totals[kind]:05d}.{suffix}")
        so_far[kind] += 1
    return paths


def _move(folder: Folder, names: list[tuple[str, str]]) -> None:
    """Give shards their final names. On object stores, which cannot rename, that is a copy on the server."""
    system, _ = file_system(folder.output)
    for parent in sorted({posixpath.dirname(final) for _, final in names}):
        make_folder(join(folder.output, parent))

    def move(name: str, final: str) -> None:
        source, target = (file_system(url)[1] for url in (join(folder.shards, name), join(folder.output, final)))
        if not system.exists(source):
            if not system.exists(target):
                raise FileNotFoundError(f"{source} is named by a receipt and is gone. Run again with --overwrite.")
        elif isinstance(system, LocalFileSystem):
            os.replace(source, target)
        else:
            system.mv(source, target)

    with ThreadPoolExecutor(_MOVES_AT_ONCE) as pool:
        list(pool.map(lambda pair: move(*pair), names))


def _remove_leftovers(folder: Folder) -> None:
    """Shards of attempts that no receipt names."""
    if exists(folder.shards):
        system, path = file_system(folder.shards)
        system.rm(path, recursive=True)


class SkipFinished(beam.PTransform):
    """PCollection[Split] -> .unfinished: PCollection[Split], and .finished: PCollection[Receipt] of the others."""

    def __init__(self, receipts: str):
        super().__init__()
        self._receipts = receipts

    def expand(self, splits):
        return splits | beam.ParDo(_SkipFinished(self._receipts)).with_outputs("finished", main="unfinished")


class _SkipFinished(beam.DoFn):
    def __init__(self, receipts: str):
        self._receipts = receipts

    def process(self, split: Split) -> Iterator[Any]:
        receipts = read_receipts(self._receipts, split.number)
        if receipts is None:
            yield split
        for receipt in receipts or ():
            yield beam.pvalue.TaggedOutput("finished", receipt)


class FinishDataset(beam.PTransform):
    """PCollection[Receipt] -> the finished dataset, once all receipts are there."""

    def __init__(self, output: str, max_reject_fraction: float):
        super().__init__()
        self._output = output
        self._max_reject_fraction = max_reject_fraction

    def expand(self, receipts):
        every = receipts | beam.CombineGlobally(beam.combiners.ToListCombineFn())
        return every | beam.Map(_finish, self._output, self._max_reject_fraction)


def _finish(receipts: list[Receipt], output: str, max_reject_fraction: float) -> None:
    finish(output, receipts, max_reject_fraction)
