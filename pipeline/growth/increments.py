"""Increments: which files the next one of a dataset consists of. pipeline/growth/append.py builds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from pipeline.cli.sources import Source
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.dataset.derived import is_stale
from transforms.dataset.layout import Folder, is_alive, last_written
from transforms.dataset.versions import Version
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan
from transforms.storage.files import exists, read_bytes
from transforms.storage.writing import remove, remove_if_empty


def select(
    files: Sequence[InputFile], version: Version | None, on_changed_file: str, sources: Sequence[Source]
) -> list[InputFile]:
    """Select what a dataset does not have yet.

    Args:
        files: the inputs, as they are listed now.
        version: the newest one; None if there is none.
        on_changed_file: what to do with a file of which the dataset has another version; one of ON_CHANGED_FILE.
        sources: of the build, for errors.

    Returns:
        The files of the next increment, in the order in which they were listed; none if there is nothing new.

    Raises:
        UserError: if a file changed, and that is to be an error.
    """
    taken = version.taken() if version else {}
    new = [file for file in files if file.version not in taken.get(file.key, ())]
    changed = [file for file in new if file.key in taken]
    if changed and on_changed_file == "error":
        more = len(changed) - 1
        others = f", and so did {counted(more, 'other')}" if more else ""
        raise UserError(
            f"{sources[changed[0].source].option('input')} {changed[0].url}: it changed since it was added{others}. "
            "--on_changed_file append adds it again; --overwrite builds all inputs again."
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


def planned_files(folder: Folder) -> list[InputFile]:
    """Return the inputs of an increment that was begun; none if their list is missing or damaged."""
    try:
        return decode_plan(read_bytes(folder.plan))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def begun_since_commit(folder: Folder, version: Version | None) -> list[str]:
    """Return the ids of the increments that were begun, and are worked on since the newest commit.

    The others were given up for what was committed then.

    Args:
        folder: of the dataset.
        version: the newest one; None if there is none.
    """
    since = datetime.fromisoformat(version.time).timestamp() if version else 0.0
    return [id for id in folder.begun() if last_written(Folder(folder.output, id)) >= since]


def forget(folder: Folder, begun: Iterable[str]) -> None:
    """Let increments be forgotten that were begun, unless they may be being built. Their files stay until `expire`."""
    for of_increment in (Folder(folder.output, id) for id in begun):
        if not is_alive(of_increment):
            remove(of_increment.work)
    remove_if_empty(folder.building)


def is_unclean(folder: Folder, version: Version | None) -> bool:
    """Return whether a process that was killed left something that is to be removed or written again.

    Args:
        folder: of the dataset.
        version: the newest one; None if there is none.

    Raises:
        InputError: if the file of a later version was lost.
    """
    if (version and is_stale(folder, version)) or exists(folder.lock):  # in this order: it may be one that was lost
        return True
    return any((version and version.has(id)) or not is_alive(Folder(folder.output, id)) for id in folder.begun())
