"""Finish: from the receipts to a dataset under its final names, with its manifest, its card and _SUCCESS.

Each step of it may be done again, by a retry or by a run that is resumed: what has its final name already is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import apache_beam as beam
import msgspec

from pipeline.card import dataset_card
from pipeline.job import Folder, Job, read_job
from transforms.errors import InputError
from transforms.model.batches import Split
from transforms.model.receipts import FirstExample, Receipt, read_receipts
from transforms.storage.files import join, publish, remove, write_whole

_FOLDERS = {"parquet": "data", "tfrecord": "tfrecord"}
_AT_ONCE = 16
_IN_BATCH = 256

Name = tuple[str, str]  # of a file as its attempt wrote it, and its final path below the output


def names(receipts: Sequence[Receipt], max_reject_fraction: float) -> list[Name]:
    """The final name of each file that the receipts tell of; of rejects alone, where too many records were rejected."""
    rejects = _named_rejects(receipts)
    if _refused(receipts, max_reject_fraction):
        return rejects
    shards = [shard for receipt in receipts for shard in receipt.shards]
    return rejects + [(shard.file, path) for shard, path in zip(shards, _final_paths(shards), strict=True)]


def give_names(output: str, named: Sequence[Name]) -> None:
    """Give files their final names. It may be done again, also while another does it."""
    folder = Folder(output)

    def give(file: str, path: str) -> None:
        publish(join(folder.shards, file), join(folder.output, path))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda name: give(*name), named))


def mark(output: str, receipts: Sequence[Receipt], max_reject_fraction: float) -> None:
    """Write the manifest, the card and, once all else is done, that the dataset is whole.

    Raises InputError where too many records were rejected, or no row is left; the rejects are then to be read all the
    same, but nothing is marked.
    """
    folder = Folder(output)
    job = _job(folder)
    manifest: dict[str, Any] = {"records": _records(receipts)}
    if _refused(receipts, max_reject_fraction):
        raise InputError(_rejects_message(manifest["records"], receipts, max_reject_fraction, folder))
    shards = [shard for receipt in receipts for shard in receipt.shards]
    if not shards:
        raise InputError(f"no row is left of {manifest['records']['read']:,} records: {_told(manifest['records'])}.")
    paths = _final_paths(shards)
    once = [shard for receipt in receipts for shard in receipt.shards_once()]
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
        "first_examples": msgspec.to_builtins(
            dict(sorted(_first(receipt.first_examples for receipt in receipts).items()))
        ),
        "shards": sorted(
            (
                {"path": path} | {key: getattr(shard, key) for key in _SHARD_FACTS}
                for shard, path in zip(shards, paths, strict=True)
            ),
            key=lambda shard: shard["path"],
        ),
        "rejects": [path for _, path in _named_rejects(receipts)],
        "job": msgspec.to_builtins(job),
    }
    write_whole(folder.manifest, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    write_whole(folder.card, dataset_card(manifest).encode())
    remove(folder.shards)  # what was copied, and shards of attempts that no receipt names
    write_whole(folder.success, b"")


def _job(folder: Folder) -> Job:
    job = read_job(folder)
    assert job, f"{folder.job} is gone"
    return job


_SHARD_FACTS = ("split", "format", "rows", "tokens", "trained_tokens", "bytes", "sha256")


def _check_complete(job: Job, receipts: Sequence[Receipt]) -> None:
    """Each split has each of its parts once, and each record one outcome."""
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
            raise ValueError(f"split {receipt.split}: {receipt.read} records were read, and {ended} have a outcome")


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


def _first(examples: Iterable[Mapping[str, FirstExample]]) -> dict[str, FirstExample]:
    """For each name the first of its examples."""
    first: dict[str, FirstExample] = {}
    for of_receipt in examples:
        first = {**of_receipt, **first}
    return first


def _refused(receipts: Sequence[Receipt], max_reject_fraction: float) -> bool:
    """Whether too many records were rejected."""
    rejected = sum(sum(receipt.rejected.values()) for receipt in receipts)
    return rejected > max_reject_fraction * sum(receipt.read for receipt in receipts)


def _rejects_message(
    records: dict[str, Any], receipts: Sequence[Receipt], max_reject_fraction: float, folder: Folder
) -> str:
    rejected = sum(records["rejected"].values())
    examples = _first(receipt.first_rejects for receipt in receipts)
    commonest = Counter(records["rejected"]).most_common(5)
    lines = [
        f"  {reason} ({count:,}): {examples[reason].source}, {examples[reason].position}: {examples[reason].detail}"
        for reason, count in commonest
    ]
    return (
        f"{rejected:,} of {records['read']:,} records were rejected, more than --max_reject_fraction "
        f"{max_reject_fraction}. "
        f"They are in {join(folder.output, 'rejects')}; mend them, or allow more and run again. The commonest:\n"
        + "\n".join(lines)
    )


def _told(records: dict[str, Any]) -> str:
    outcomes = records["dropped"] | records["rejected"]
    return ", ".join(f"{reason} {count:,}" for reason, count in outcomes.items()) or "the inputs hold none"


def _named_rejects(receipts: Sequence[Receipt]) -> list[Name]:
    files = [receipt.rejects_file for receipt in receipts if receipt.rejects_file]
    return [(file, f"rejects/rejects-{i:05d}-of-{len(files):05d}.parquet") for i, file in enumerate(files)]


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
    """PCollection[Receipt] -> the finished dataset, once all receipts are there.

    Files are given their names by all workers; the dataset is marked once all of them have theirs.
    """

    def __init__(self, output: str, max_reject_fraction: float):
        super().__init__()
        self._output = output
        self._max_reject_fraction = max_reject_fraction

    def expand(self, receipts):
        # Grouped and not combined to a list, which would be one element of 600 MB for a million receipts.
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        named = (
            every
            | "names" >> beam.FlatMap(_batches_of_names, self._output, self._max_reject_fraction)
            | beam.Reshuffle()
            | "give names" >> beam.Map(_give_names, self._output)
            | "named" >> beam.CombineGlobally(sum)
        )
        return every | "mark" >> beam.Map(
            _mark, beam.pvalue.AsSingleton(named), self._output, self._max_reject_fraction
        )


def _batches_of_names(receipts: Iterable[Receipt], output: str, max_reject_fraction: float) -> Iterator[list[Name]]:
    in_order = _in_order(receipts)
    _check_complete(_job(Folder(output)), in_order)
    named = names(in_order, max_reject_fraction)
    for i in range(0, len(named), _IN_BATCH):
        yield named[i : i + _IN_BATCH]


def _give_names(named: list[Name], output: str) -> int:
    give_names(output, named)
    return len(named)


def _mark(receipts: Iterable[Receipt], _named: int, output: str, max_reject_fraction: float) -> None:
    mark(output, _in_order(receipts), max_reject_fraction)


def _in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    return sorted(receipts, key=lambda receipt: (receipt.split, receipt.part))
