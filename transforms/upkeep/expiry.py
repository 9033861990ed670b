"""Expire: old versions of a dataset are dropped, and the files that no other version names are removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from posixpath import dirname
from typing import Any, NamedTuple

import msgspec

from transforms.catalog.description import evaluations_of, formatters_of, read_description
from transforms.catalog.layout import (
    PUBLISHED,
    STORED,
    Folder,
    check_no_links,
    increment_of,
    is_alive,
    is_stored,
    last_written,
)
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Entry
from transforms.publish.derived import repair
from transforms.reading.reader import Dataset, url_of_all
from transforms.storage.files import join
from transforms.storage.lock import Lock
from transforms.storage.walking import modified_below, names_below
from transforms.storage.writing import remove, remove_if_empty


class Expired(NamedTuple):
    """What was expired.

    versions: how many. files: how many were removed, but for those of the log. oldest, newest: the versions that are
    kept.
    """

    versions: int
    files: int
    oldest: int
    newest: int


def expire(url: str, older_than: float, keep: int = 1, when_held: Callable[[str], None] = lambda _: None) -> Expired:
    """Drop the versions of a dataset that were replaced by a newer one long ago, and remove files that no other names.

    A version that was the newest one within `older_than` is kept: its readers have its files. First the log
    says which versions there are, then README.md, and then files are removed: if this is killed, it can be repeated.

    Args:
        url: of the dataset's folder.
        older_than: seconds. Files of a job that no version names, such as those of a build that was killed, are removed
            too, if they are older and belong to no increment that may be being built: also tokenizers, formatters and
            evaluation sets. Of such an increment, the newest file is younger than a day, or than `older_than`.
        keep: how many of the newest versions are always kept.
        when_held: is called if another process writes to the dataset, for which this waits.

    Raises:
        UserError: if there is no finished dataset, or a folder of it is a link.
        InputError: if the log is damaged.
        StoreError: if the store fails.
    """
    folder = Dataset(url_of_all(url)).folder
    log = Log(folder)
    before = time.time() - older_than
    check_no_links(folder)
    with Lock(folder.lock, folder.output) as lock:
        lock.take(when_held)
        entries = log.versions()
        first = _first_kept(entries, before, keep)
        log.drop_before(entries[first].version)
        newest = log.snapshot(entries[-1].version)
        repair(folder, newest)
        for begun in (Folder(folder.output, id) for id in folder.begun()):
            if not is_alive(begun) and last_written(begun) < before:
                remove(begun.work)
        remove_if_empty(folder.increments)
        # In this order: an increment that is committed meanwhile is one that is being built, or has its entry.
        found = {part: modified_below(join(folder.output, part)) for part in PUBLISHED}
        stored = {part: modified_below(join(folder.state, part)) for part in STORED}
        in_work = {name.partition("/")[0] for name in names_below(folder.increments)}
        jobs = _jobs_in_work(folder)
        kept = log.versions()
        oldest = log.snapshot(kept[0].version)
        increments = (*oldest.increments, *(entry.add for entry in kept))
        named = {path for increment in increments for path in increment.files.paths()}
        jobs_kept = (oldest.job, *(entry.job for entry in kept if entry.job))
        removed = 0 if jobs is None else _remove_stored(folder, stored, [*jobs, *jobs_kept], before)
        for part, files in found.items():
            for name, modified in files.items():
                path = join(part, name)
                if modified < before and path not in named and increment_of(path) not in (None, *in_work):
                    remove(join(folder.output, path))
                    removed += 1
    return Expired(first, removed, entries[first].version, newest.version)


def _jobs_in_work(folder: Folder) -> list[dict[str, Any]] | None:
    """The jobs of the increments that are being built; None if one of them is missing or damaged."""
    try:
        return [read_description(Folder(folder.output, id).job).job for id in folder.begun()]
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _remove_stored(
    folder: Folder, stored: Mapping[str, Mapping[str, float]], jobs: Sequence[dict[str, Any]], before: float
) -> int:
    """Remove the tokenizers, formatters and evaluation sets that are older and that no job has. Returns how many files
    these were.
    """
    needed = {folder.tokenizer(job["tokenizer"]) for job in jobs}
    needed |= {folder.formatter(sha256) for job in jobs for sha256 in formatters_of(job)}
    needed |= {dirname(folder.evaluations(sha256)) for job in jobs if (sha256 := evaluations_of(job))}
    removed = 0
    for part, files in stored.items():
        for name, modified in files.items():
            of_job = join(folder.state, part, name.partition("/")[0])
            if modified < before and of_job not in needed and is_stored(f"{part}/{name}"):
                remove(join(folder.state, part, name))
                remove_if_empty(of_job)
                removed += 1
    return removed


def _first_kept(entries: Sequence[Entry], before: float, keep: int) -> int:
    """The number of the first entry to keep: the newest version at that time."""
    later = (number for number, entry in enumerate(entries) if datetime.fromisoformat(entry.time).timestamp() > before)
    return max(min(next(later, len(entries)) - 1, len(entries) - keep), 0)
