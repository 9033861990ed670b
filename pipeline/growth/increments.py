"""Increments: which files the next one of a dataset consists of. pipeline/growth/append.py builds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pipeline.cli.sources import Source
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.catalog.layout import Folder
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan
from transforms.storage.files import read_bytes
from transforms.storage.writing import remove


class Selected(NamedTuple):
    """The input of the next increment.

    files: in the order in which they were listed; none if there is nothing new.
    replaces: the ids of the increments that it takes the place of.
    """

    files: list[InputFile]
    replaces: tuple[str, ...] = ()


def select(
    files: Sequence[InputFile],
    snapshot: Snapshot,
    rewritten: str,
    sources: Sequence[Source],
    retry_failed: bool = False,
) -> Selected:
    """Select what a dataset does not have yet.

    Args:
        files: the inputs, as they are listed now.
        snapshot: the newest one.
        rewritten: what to do with a file of which the dataset has another version; one of REWRITTEN.
        sources: of the build, for errors.
        retry_failed: whether the files of failed increments are to be taken again, in the place of these.

    Raises:
        UserError: if a file was rewritten, and is to be refused; or if what its increment has of other files cannot be
            built again.
    """
    failed = [each for each in snapshot.increments if retry_failed and each.status == "failed"]
    taken = snapshot.taken(without=[each.id for each in failed])
    new = {file.key for file in files if file.version not in taken.get(file.key, ())}
    again = [file for file in files if file.key in new and file.key in taken]
    replaces: tuple[str, ...] = ()
    if again and rewritten == "refuse":
        more = len(again) - 1
        others = f", and so did {counted(more, 'other')}" if more else ""
        raise UserError(
            f"{sources[again[0].source].option('input')} {again[0].url}: it changed since it was added{others}. "
            "--rewritten replace rebuilds what came from it; --rewritten append adds it again."
        )
    if again and rewritten == "replace":
        rewritten_files = {file.key for file in again}
        listed = {file.key: file.version for file in files}
        replaced = [each for each in snapshot.increments if any(file.key in rewritten_files for file in each.inputs)]
        for file in (file for each in replaced for file in each.inputs if file.key not in rewritten_files):
            if listed.get(file.key) != file.version:
                raise UserError(
                    f"--rewritten replace: {again[0].url} was built together with {file.url}, which "
                    f"{'has changed' if file.key in listed else 'is no longer an input'}. List it as it was, or "
                    "give --rewritten append."
                )
            new.add(file.key)
        replaces = tuple(each.id for each in replaced)
    retried = [each.id for each in failed if any(file.key in new for file in each.inputs)]
    return Selected([file for file in files if file.key in new], tuple(dict.fromkeys((*replaces, *retried))))


def left_out(snapshot: Snapshot, files: Iterable[InputFile], output: str) -> str | None:
    """Return a warning of the records of a version that a build from scratch does not read, since their files are gone.

    Args:
        snapshot: of the version that the build replaces.
        files: the inputs of the build.
        output: the folder of the dataset, as the user calls it.
    """
    listed = {file.key[1] for file in files}
    gone, records, is_exact = list[str](), 0, True
    for increment in snapshot.increments:
        if missing := [file.url for file in increment.inputs if file.key[1] not in listed]:
            gone += missing
            records += increment.sums["records"]["read"]
            is_exact &= len(missing) == len(increment.inputs)
    if not gone:
        return None
    return (
        f"warning: {'' if is_exact else 'up to '}{counted(records, 'record')} of version {snapshot.version} will not "
        f"be in the new one: {counted(len(gone), 'input file')} of it {'is' if len(gone) == 1 else 'are'} no longer "
        f"listed, such as {gone[0]}. {output}@{snapshot.version} can be read until it expires."
    )


def planned_files(folder: Folder) -> list[InputFile]:
    """Return the inputs of an increment that was begun; none if their list is missing or damaged."""
    try:
        return decode_plan(read_bytes(folder.plan))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def forget(folder: Folder, begun: Iterable[str]) -> None:
    """Let increments be forgotten that were begun. Their files stay until `expire`: somebody may yet commit them."""
    for id in begun:
        remove(Folder(folder.output, id).work)
