"""What changes a dataset holds its folder, one after the other, and leaves it as the log says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transforms.catalog.layout import Folder, check_no_links
from transforms.catalog.snapshot import Snapshot
from transforms.publish.derived import derive, is_stale
from transforms.storage.claim import Claim, Holder
from transforms.storage.files import exists
from transforms.storage.writing import remove, remove_if_empty


@contextmanager
def held(folder: Folder, when_held: Callable[[Holder | None], None]) -> Iterator[Claim]:
    """Hold the folder of a dataset inside.

    Args:
        folder: of the dataset.
        when_held: is called once if another one holds it, for which this waits.

    Raises:
        UserError: if a folder of the dataset is a link.
        Unavailable: in the end, if another process took it over, because this one did not renew its lock.
    """
    check_no_links(folder)
    claim, lost = Claim(folder.claims, folder.output), list[Exception]()
    claim.take(when_held=when_held)
    try:
        with claim.kept(lost.append):
            yield claim
    finally:
        claim.release()
    if lost:
        raise lost[0]


def repair(folder: Folder, snapshot: Snapshot, report: str | None = None) -> None:
    """Do what a process that was killed after its commit did not do.

    What is derived from the newest snapshot of the log is written, and the work folders of increments that were
    committed are removed.

    Args:
        folder: of the dataset.
        snapshot: the newest one.
        report: one of REPORTS; None for a report if there is one.
    """
    if is_stale(folder, snapshot):
        derive(folder, snapshot, report or ("html" if exists(folder.report) else "none"))
    for id in filter(snapshot.has, folder.begun()):
        remove(Folder(folder.output, id).work)
    remove_if_empty(folder.increments)
