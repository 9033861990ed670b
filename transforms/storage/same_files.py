"""Which files are the same one: a disk may have a file under several paths, through links and mounts."""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transforms.base.errors import StoreError
from transforms.storage.files import NOT_THERE, is_inside

_Identity = tuple[int, int]  # its device and its number there


class Places:
    """Files and folders, with all that is below them, by whichever paths they are reached.

    Args:
        urls: full urls of a disk or of a store, of what exists or may exist.

    Raises:
        StoreError: if a folder on a disk cannot be listed.
    """

    def __init__(self, urls: Sequence[str]):
        self._urls = [url for url in urls if "://" in url]
        self._identities = set[_Identity]()
        for path in (url for url in urls if "://" not in url):
            with _not_there():
                self._identities |= {_identity_of(os.stat(path)), _identity_of(os.lstat(path))}
            if os.path.isdir(path):
                for parent, folders, names in os.walk(path, onerror=_raise):
                    for name in (*folders, *names):
                        with _not_there():  # a build that is running has just renamed it
                            self._identities.add(_identity_of(os.lstat(posixpath.join(parent, name))))
        self._has_folder = functools.cache(self._has_folder_or_parent)

    def have(self, url: str) -> bool:
        """Return whether a file is one of them, or is in one of them. url: a full one."""
        if "://" in url:
            return any(is_inside(url, each) for each in self._urls)
        with _not_there():  # it was removed after it was listed
            is_one = _identity_of(os.stat(url)) in self._identities
            return is_one or self._has_folder(posixpath.dirname(os.path.realpath(url)))
        return False

    def _has_folder_or_parent(self, folder: str) -> bool:
        parent = posixpath.dirname(folder)
        is_one = _identity_of(os.stat(folder)) in self._identities
        return is_one or (parent != folder and self._has_folder(parent))


@contextmanager
def _not_there() -> Iterator[None]:
    """Inside, a path that does not exist is passed over."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise


def _identity_of(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise StoreError(error.filename, "listed", error.strerror or str(error), is_transient=False) from None
