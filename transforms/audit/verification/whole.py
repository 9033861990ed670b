"""Verify a dataset: read all of it, and find what contradicts what must hold, or what its manifest says."""

from __future__ import annotations

import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, repeat

from transforms.audit.verification.ledger_check import ledger_faults, ledger_of_shards
from transforms.audit.verification.manifest_check import (
    MANIFEST,
    derived_faults,
    expected_examples,
    log_faults,
    rejects_faults,
    stored_files_faults,
    sums_faults,
)
from transforms.audit.verification.repeated import repeated_faults
from transforms.audit.verification.row_check import Checked, Fault
from transforms.audit.verification.shards import Expected, Task, check_shard, tasks_of
from transforms.base.cores import cores
from transforms.base.errors import InputError, StoreError
from transforms.catalog.consumers import about_rows
from transforms.catalog.layout import PARTS, increment_of
from transforms.catalog.log import Log
from transforms.outputs import ShardEntry, increment_stem_of, stem_of
from transforms.reading.reader import Dataset, Unfinished
from transforms.rows.packing import longer_of
from transforms.storage.walking import names_below
from transforms.tokens.backend import load_decoder

# Less is read in this process, since another one takes half a second to start.
_BYTES_OF_A_PROCESS = 16 << 20
_BYTES_OF_A_BATCH, _TASKS_OF_A_BATCH = 16 << 20, 64


@dataclass
class Verification:
    """What was found in a dataset.

    Attributes:
        url: of its folder.
        figures: what was read: shards, bytes, rows, examples, tokens, trained_tokens; as far as it is known.
        faults: what is wrong; none if it is sound.
        notes: what was not checked, and why.
    """

    url: str
    figures: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(url: str, processes: int | None = None) -> Verification:
    """Read a dataset completely and check it.

    Args:
        url: of its folder.
        processes: that read shards; by default one for each core, and fewer if the dataset is small.

    Raises:
        UserError: if there is no dataset, or a later version of Chatmill wrote it.
        StoreError: if its store fails.
    """
    found = Verification(url)
    try:
        dataset = Dataset(url)
    except Unfinished:
        found.faults.append(
            Fault("_SUCCESS", "it is missing: the dataset is not finished, or was not copied completely")
        )
        return found
    except InputError as error:
        found.faults.append(Fault(MANIFEST, str(error)))
        return found
    names = names_below(dataset.url)
    found.faults += _listing_faults(dataset, names, found.notes)
    found.faults += sums_faults(dataset)
    if dataset.snapshot:
        found.faults += stored_files_faults(dataset)
        found.faults += derived_faults(dataset)
        found.faults += log_faults(dataset)
    elif any(name.startswith("_chatmill/") for name in names):
        found.faults.append(Fault("_chatmill/log", "it is missing, and other files of _chatmill/ are there"))
    else:
        found.notes.append("_chatmill/ is not in this copy: the tokenizer and the log were not checked")
    if dataset.snapshot or any(name.startswith("rejects/") for name in names):
        found.faults += rejects_faults(dataset)
    elif dataset.manifest["rejects"]:
        found.notes.append("rejects/ is not in this copy")
    if dataset.snapshot or any(name.startswith("ledger/") for name in names):
        found.faults += ledger_faults(dataset)
    elif dataset.manifest.get("ledger"):
        found.notes.append("ledger/ is not in this copy")
    _verify_shards(dataset, {*names}, processes, found)
    return found


def _listing_faults(dataset: Dataset, names: Sequence[str], notes: list[str]) -> Iterator[Fault]:
    """Yield files that are missing, and files that nothing names. Adds to the notes what does not belong there."""
    manifest = dataset.manifest
    named = {shard["path"] for shard in manifest["shards"]} | {*manifest["rejects"]}
    named |= {file["path"] for file in manifest.get("ledger", ())}
    present, read = {*names}, {increment_stem_of(path) for path in named}
    if "README.md" not in present:
        yield Fault("README.md", "the dataset card is missing")
    if dataset.snapshot:  # other versions may have some files of the same increments
        named |= {path for each in Log(dataset.folder).increments() for path in each.files.paths()}
    for name in names:
        part, _, rest = name.partition("/")
        if rest and part in PARTS and part != "_chatmill" and name not in named:
            if increment_of(name) and increment_stem_of(name) not in read:
                continue  # of an increment that this version does not have: nobody who reads this one reads it
            yield Fault(name, "the manifest does not name this file, and readers of the folder would read it")
        elif part not in PARTS and not part.startswith("."):
            notes.append(f"{name} is not a part of the dataset")


def _verify_shards(dataset: Dataset, names: set[str], processes: int | None, found: Verification) -> None:
    shards = dataset.shards()
    missing = [shard for shard in shards if shard["path"] not in names]
    found.faults += [Fault(shard["path"], "the file is missing") for shard in missing]
    folder: str | None = dataset.tokenizer_folder
    try:
        vocabulary = max(load_decoder(dataset.tokenizer_folder).get_vocab().values()) + 1
    except StoreError:
        raise
    except Exception:  # of transformers, for files that are not a tokenizer's, which is a fault already or a note
        folder = vocabulary = None
    options, tokenizer = dataset.options, dataset.manifest["job"]["tokenizer"]
    about, has_all = about_rows(options, tokenizer), options.get("ledger") == "all"
    expected = Expected(dataset.url, dataset.layout, folder, vocabulary, about, has_all)
    ledgers = ledger_of_shards(dataset.manifest)
    twins = {stem_of(shard["path"]): shard for shard in dataset.readable()}
    tasks = [
        task
        for shard in shards
        if shard["path"] in names
        for task in tasks_of(dataset.url, shard, twins.get(stem_of(shard["path"])), ledgers.get(shard["path"]))
    ]
    of_files: defaultdict[str, Checked] = defaultdict(Checked)
    for task, checked in _run(expected, tasks, processes):
        of_files[task.shard["path"]].add(checked)
    for shard in shards:
        if shard["path"] in of_files:
            found.faults += of_files[shard["path"]].faults
            found.faults += _sums_of_shard(shard, of_files[shard["path"]])
    first_format = [shard for shard in shards if shard["format"] == shards[0]["format"]] if shards else []
    total = Checked()
    for shard in first_format:
        total.add(of_files[shard["path"]])
    figures = {"shards": len(shards), "bytes": sum(shard["bytes"] for shard in shards), "rows": total.rows}
    figures |= {"examples": total.examples, "tokens": total.tokens, "trained_tokens": total.trained_tokens}
    found.figures = {name: value for name, value in figures.items() if value is not None}
    if not found.faults:
        of_shards = [(shard, of_files[shard["path"]]) for shard in first_format]
        found.faults += _examples_faults(dataset, total, of_shards)


def _sums_of_shard(shard: ShardEntry, found: Checked) -> Iterator[Fault]:
    if any(not fault.rows for fault in found.faults):
        return  # not all of it was read
    for what in ("rows", "tokens", "trained_tokens"):
        value = getattr(found, what)
        if value is not None and value != shard[what]:
            yield Fault(shard["path"], f"it has {value:,} {what}; the manifest has {shard[what]:,}")


def _examples_faults(dataset: Dataset, total: Checked, of_shards: list[tuple[ShardEntry, Checked]]) -> Iterator[Fault]:
    """Compare the examples with the outcomes of the records, and find records that are in the dataset twice."""
    manifest, packing = dataset.manifest, dataset.layout.packing
    is_split = longer_of(packing) != "truncate"
    expected = expected_examples(manifest)
    if not is_split and total.examples is not None and total.examples != expected:
        yield Fault(MANIFEST, f"the rows hold {total.examples:,} examples, and the records have {expected:,}")
    written = manifest["statistics"].get("span_ends", {})
    if total.span_ends is not None and total.rows and dict(sorted(total.span_ends.items())) != written:
        problem = f"spans of trained tokens end with {_counted(total.span_ends)}; the manifest has {_counted(written)}"
        yield Fault(MANIFEST, problem)
    if total.parts is not None and dict(total.parts) != (of_parts := manifest["statistics"].get("parts", {})):
        problem = f"the trained tokens are of the parts {_counted(total.parts)}; the manifest has {_counted(of_parts)}"
        yield Fault(MANIFEST, problem)
    records = manifest["records"]["kept"] + manifest["records"]["truncated"]
    # A file that was rewritten has its records in two increments.
    for _, of_increment in groupby(of_shards, key=lambda each: increment_of(each[0]["path"])):
        known = [(shard["path"], shard.get("source", 0), checked) for shard, checked in of_increment]
        yield from repeated_faults(known, is_split or expected != records)


def _counted(ends: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} {count:,}" for name, count in sorted(ends.items())) or "nothing"


def _run(expected: Expected, tasks: Sequence[Task], processes: int | None) -> Iterator[tuple[Task, Checked]]:
    """Do tasks, in several processes if it is worth it; yield what each found, in order."""
    total = sum(task.shard["bytes"] for task in tasks)
    processes = processes or min(cores(), -(-total // _BYTES_OF_A_PROCESS))
    if processes <= 1:
        yield from ((task, check_shard(expected, task)) for task in tasks)
        return
    batches = list(_batches(tasks))
    # Not forked: the clients of stores, and Arrow, have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_ignore_interrupts) as pool:
        try:
            for batch, found in zip(batches, pool.map(_check, repeat(expected), batches), strict=True):
                yield from zip(batch, found, strict=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Put small tasks together: to hand one to a process takes as long as to read a hundred kilobytes."""
    batch: list[Task] = []
    size = 0
    for task in tasks:
        batch.append(task)
        size += task.shard["bytes"]
        if size >= _BYTES_OF_A_BATCH or len(batch) == _TASKS_OF_A_BATCH or task.groups is not None:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check(expected: Expected, tasks: list[Task]) -> list[Checked]:
    return [check_shard(expected, task) for task in tasks]


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
