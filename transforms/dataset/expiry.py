"""Expire: old versions of a dataset are dropped, and the files that no other version names are removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from posixpath import dirname
from typing import Any, NamedTuple

import msgspec

from transforms.base.errors import UserError
from transforms.dataset.derived import check_not_lost, finish_commit
from transforms.dataset.description import evaluations_of, formatters_of, read_description
from transforms.dataset.layout import (
    PUBLISHED,
    STORED,
    Folder,
    check_no_links,
    increment_of,
    is_alive,
    is_stored,
    last_written,
)
from transforms.dataset.reader import Dataset, url_of_all
from transforms.dataset.versions import builds, drop_before, history
from transforms.storage.files import join
from transforms.storage.lock import Lock
from transforms.storage.walking import modified_below, names_below
from transforms.storage.writing import remove, remove_if_empty


class Expired(NamedTuple):
    """What was expired.

    versions: how many. files: how many of them were removed. oldest, newest: the versions that are kept.
    """

    versions: int
    files: int
    oldest: int
    newest: int


def expire(url: str, older_than: float, keep: int = 1, when_held: Callable[[str], None] = lambda _: None) -> Expired:
    """Drop the versions of a dataset that were replaced by a newer one long ago, and remove files that no other names.

    A version that was the newest one within `older_than` is kept: its readers have its files. First versions
    go, then README.md says so, and then files are removed: if this is killed, it can be repeated.

    Args:
        url: of the dataset's folder.
        older_than: seconds. Files of a job that no version names, such as those of a build that was killed, are removed
            too, if they are older and belong to no increment that may be being built: also tokenizers, formatters and
            evaluation sets. Of such an increment, the newest file is younger than a day, or than `older_than`.
        keep: how many of the newest versions are always kept.
        when_held: is called if another process writes to the dataset, for which this waits.

    Raises:
        UserError: if there is no finished dataset, or a folder of it is a link.
        InputError: if a version is damaged.
        StoreError: if the store fails.
    """
    dataset = Dataset(url_of_all(url))
    if not dataset.stored_version:
        raise UserError(f"{url}: its versions are missing. Copy its folder _chatmill, too.")
    folder = dataset.folder
    before = time.time() - older_than
    check_no_links(folder)
    with Lock(folder.lock, folder.output) as lock:
        lock.take(when_held)
        check_not_lost(folder)
        made = [(version.number, datetime.fromisoformat(version.time).timestamp()) for version in history(folder)]
        first = _first_kept(made, before, keep)
        newest = next(builds(folder))
        drop_before(folder, first)
        finish_commit(folder, newest)
        for begun in (Folder(folder.output, id) for id in folder.begun()):
            if not is_alive(begun) and last_written(begun) < before:
                remove(begun.work)
        remove_if_empty(folder.building)
        # In this order: an increment that is committed meanwhile is one that is being built, or in a version.
        found = {part: modified_below(join(folder.output, part)) for part in PUBLISHED}
        stored = {part: modified_below(join(folder.state, part)) for part in STORED}
        in_work = {name.partition("/")[0] for name in names_below(folder.building)}
        jobs = _jobs_in_work(folder)
        kept = [*builds(folder)]
        named = {file.path for version in kept for file in version.files()}
        removed = 0 if jobs is None else _remove_stored(folder, stored, [*jobs, *(each.job for each in kept)], before)
        for part, files in found.items():
            for name, modified in files.items():
                path = join(part, name)
                if modified < before and path not in named and increment_of(path) not in (None, *in_work):
                    remove(join(folder.output, path))
                    removed += 1
    return Expired(sum(number < first for number, _ in made), removed, first, newest.number)


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


def _first_kept(made: Sequence[tuple[int, float]], before: float, keep: int) -> int:
    """The first version to keep: the newest one at that time. made: each version, the newest first, and when."""
    kept = next((at for at, (_, time) in enumerate(made) if time <= before), len(made) - 1)
    return made[min(max(kept, keep - 1), len(made) - 1)][0]
