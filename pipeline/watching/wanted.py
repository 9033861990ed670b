"""Wanted: whether a file that is listed is to be taken, by what the dataset has of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pipeline.watching.arrivals import FoundFile, Key
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.listing import InputFile

_ADVICE = "--rewritten replace rebuilds what came from it, append adds it again"


class Wanted:
    """Says which files are to be taken, and of those that are left out why, once.

    Args:
        rewritten: what to do with a file that the dataset has in another version; one of REWRITTEN.
        show: prints a line.
    """

    def __init__(self, rewritten: str, show: Callable[[str], None]):
        self._rewritten = rewritten
        self._show = show
        self._left_out: set[tuple[Key, str]] = set()

    def has(self, file: FoundFile, taken: Mapping[Key, Collection[str]]) -> bool:
        """Return whether the dataset does not have a file, or has another version of it that is not left out.

        Args:
            file: as it is listed.
            taken: the versions of each file that the dataset has.
        """
        versions = taken.get(file.key, ())
        if not versions or file.version in versions:
            return not versions
        if self._rewritten == "refuse":
            self.leave_out(file, f"it changed since it was added, and is left out: {_ADVICE}")
        return (file.key, file.version) not in self._left_out

    def leave_out(self, file: FoundFile, problem: str) -> None:
        """Take no notice of a file as it is now, and say so once."""
        if (file.key, file.version) not in self._left_out:
            self._left_out.add((file.key, file.version))
            self._show(f"warning: {file.url}: {problem}")


def replaceable(files: Sequence[InputFile], listed: Mapping[Key, str], snapshot: Snapshot) -> list[InputFile]:
    """Return those files that can take the place of their other versions.

    What was built together is built together again: all of it has to be there as it was, or be replaced, too.

    Args:
        files: those that the dataset has in other versions.
        listed: the versions of all files that are there.
        snapshot: the newest one.
    """
    chosen = {file.key: file for file in files}
    while True:
        missing = set[Key]()
        for increment in snapshot.increments:
            of_it = {file.key: file.version for file in increment.inputs}
            if any(key not in chosen and listed.get(key) != version for key, version in of_it.items()):
                missing |= of_it.keys() & chosen.keys()
        if not missing:
            return list(chosen.values())
        for key in missing:
            del chosen[key]
