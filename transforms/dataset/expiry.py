"""Expire: old versions of a dataset are dropped, and the files that no other version names are removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from transforms.base.errors import UserError
from transforms.dataset.derived import finish_commit
from transforms.dataset.description import read_job
from transforms.dataset.layout import (
    PUBLISHED,
    STORED,
    Folder,
    check_no_links,
    find_increment_id,
    is_alive,
    is_stored,
    last_written,
)
from transforms.dataset.reader import Dataset, dataset_url
from transforms.dataset.versions import builds, drop_before, history, newest, numbers
from transforms.storage.files import join
from transforms.storage.lock import locked
from transforms.storage.versions import modification_time
from transforms.storage.walking import entries_below
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
    folder = Folder(dataset_url(url))
    if not numbers(folder):
        Dataset(url)  # says why there is none
        raise UserError(f"{url}: its versions are missing. Copy its folder _chatmill, too.")
    before = time.time() - older_than
    check_no_links(folder)
    with locked(folder.lock, folder.output, when_held):
        # In this order: an increment that is committed meanwhile is one that is being built, or in a version.
        files = {
            join(part, name): modification_time(entry)
            for part in (*PUBLISHED, *STORED)
            for name, entry in entries_below(join(folder.output, part)).items()
        }
        begun = [Folder(folder.output, id) for id in folder.begun()]
        in_work = [each for each in begun if is_alive(each) or last_written(each) >= before]
        jobs, last = _find_jobs(in_work), newest(folder)
        if not last:
            raise UserError(f"{url}: its versions were removed meanwhile.")
        times = [
            (version.number, datetime.fromisoformat(version.time).timestamp()) for version in history(folder, last)
        ]
        first = _first_kept(times, before, keep)
        drop_before(folder, first)
        finish_commit(folder, last)
        for each in begun:
            if each not in in_work:
                remove(each.work)
        remove_if_empty(folder.building)
        in_work_ids = {each.increment for each in in_work if not last.has(each.increment)}
        kept = [*builds(folder, last)]
        named = {file.path for version in kept for file in version.files()}
        all_jobs = [*(jobs or ()), *(version.job for version in kept)]
        needed = tuple({url for job in all_jobs for url in folder.stored(job)})
        removed = 0
        for path, modified in files.items():
            if is_stored(path):
                is_needed = jobs is None or join(folder.output, path).startswith(needed)
            else:
                is_needed = path in named or find_increment_id(path) in (None, *in_work_ids)
            if modified < before and not is_needed:
                remove(join(folder.output, path))
                remove_if_empty(join(folder.output, *path.split("/")[:3]))
                removed += 1
    return Expired(sum(number < first for number, _ in times), removed, first, last.number)


def _find_jobs(in_work: Iterable[Folder]) -> list[dict[str, Any]] | None:
    """The jobs of increments that are being built; None if one of them is missing or damaged."""
    try:
        return [read_job(each.job) for each in in_work]
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _first_kept(times: Sequence[tuple[int, float]], before: float, keep: int) -> int:
    """The first version to keep: the newest one at that time. times: each version, the newest first, and when."""
    kept = next((at for at, (_, time) in enumerate(times) if time <= before), len(times) - 1)
    return times[min(max(kept, keep - 1), len(times) - 1)][0]
