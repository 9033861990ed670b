"""Append: which files are new to a dataset, what becomes of those that changed, and how it goes on again and again."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Generator, Iterable, Sequence

from pipeline.cli.console import show
from pipeline.existing import planned_files
from pipeline.job import Request
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Version
from transforms.files.listing import Accepts, InputFile, Key


def select_new(request: Request, files: Sequence[InputFile], version: Version | None) -> list[InputFile]:
    """Select the files of the next increment, in order: with --append what a dataset does not have yet, otherwise all.

    Args:
        request: of the run.
        files: the inputs, as they are listed now.
        version: the newest one; None if there is none.

    Raises:
        UserError: if a file changed, and that is to be an error.
    """
    taken = version.taken() if version and request.options.append else {}
    new = [file for file in files if file.version not in taken.get(file.key, ())]
    changed = [file for file in new if file.key in taken]
    if changed and request.options.on_changed_file == "error":
        more = len(changed) - 1
        others = f", and so did {counted(more, 'other')}" if more else ""
        raise UserError(
            f"{request.sources[changed[0].source].option('input')} {changed[0].url}: it changed since it was added"
            f"{others}. --on_changed_file append adds it again; --overwrite builds all inputs again."
        )
    return new


def left_out(version: Version, files: Iterable[InputFile], output: str) -> str | None:
    """Return a warning of the records of a version that a build from scratch does not read, since their files are gone.

    Args:
        version: that the build replaces.
        files: the inputs of the build.
        output: the folder of the dataset, as the user calls it.
    """
    listed = {file.key[1] for file in files}
    gone, records, is_exact = list[str](), 0, True
    for increment in version.increments:
        if missing := [file.url for file in increment.inputs if file.key[1] not in listed]:
            gone += missing
            records += increment.counts.records.read
            is_exact &= len(missing) == len(increment.inputs)
    if not gone:
        return None
    return (
        f"warning: {'' if is_exact else 'up to '}{counted(records, 'record')} of version {version.number} will not "
        f"be in the new one: {counted(len(gone), 'input file')} of it {'is' if len(gone) == 1 else 'are'} no longer "
        f"listed, such as {gone[0]}. {output}@{version.number} can be read until it expires."
    )


def looks(seconds: int, folder: Folder) -> Generator[Accepts, None, None]:
    """Yield for each look at the inputs which files have settled since the one before, until SIGTERM.

    All that lasts is in the dataset: its versions, and an increment that was begun, which the next run finishes first.

    Args:
        seconds: from one look to the next.
        folder: of the dataset.
    """
    before: dict[Key, str] = {}
    now = {file.key: file.version for id in folder.begun() for file in planned_files(Folder(folder.output, id))}
    signals: list[int] = []

    def has_settled(key: Key, version: str) -> bool:
        now[key] = version
        return before.get(key) == version

    def stop(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        show("stopping after the current increment")

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        while not signals:
            next_look, before, now = time.monotonic() + seconds, now, {}
            yield has_settled
            gc.collect()  # a graph is full of cycles, and holds what it read
            while not signals and time.monotonic() < next_look:
                time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, previous)
