"""Names: how a dataset on the Hub is written, in short or as a url.

ORG/NAME:CONFIG@REVISION
hf://datasets/ORG/NAME:CONFIG@REVISION
hf://datasets/ORG/NAME@REVISION/PATH        a file, a folder or a glob of the repository
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from transforms.base.errors import UserError
from transforms.files.formats import format_of_suffix
from transforms.storage.compression import COMPRESSION_OF_SUFFIX

_PREFIX = "hf://datasets/"
# What the Hub allows, without a dot or a dash at the beginning.
_NAME = r"[A-Za-z0-9_][\w.-]*"
_SHORT = re.compile(rf"({_NAME}/{_NAME})(:[^@/:]+)?(@.+)?", re.ASCII)
_LONG = re.compile(
    rf"{_PREFIX}({_NAME}/{_NAME})(?::([^@/:]+))?(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?", re.ASCII | re.DOTALL
)
_EXPECTED = f"expected {_PREFIX}ORG/NAME[:CONFIG][@REVISION], or a file, folder or glob of it: {_PREFIX}ORG/NAME/PATH"


class HubName(NamedTuple):
    """What is named on the Hub.

    repository: ORG/NAME. config: a configuration of it, if one is named. revision: a branch, a tag or a commit; None
    for the main branch. path: a file, a folder or a glob; empty for the dataset.
    """

    repository: str
    config: str | None
    revision: str | None
    path: str

    @property
    def url(self) -> str:
        """The name in full."""
        config = f":{self.config}" if self.config else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{_PREFIX}{self.repository}{config}{revision}" + (f"/{self.path}" if self.path else "")


def hub_name(url: str) -> HubName | None:
    """Return what a url names on the Hub; None if it is not a url of a dataset there.

    Raises:
        UserError: if it begins like one, and is not.
    """
    if not url.startswith(_PREFIX):
        return None
    found = _LONG.fullmatch(url)
    if not found or (found[2] and found[4]):
        raise UserError(f"{url}: {_EXPECTED}.")
    return HubName(found[1], found[2], unquote(found[3]) if found[3] else None, (found[4] or "").strip("/"))


def in_full(
    pattern: str, is_here: Callable[[str], bool] = lambda path: os.path.exists(os.path.expanduser(path))
) -> str:
    """Return the url of a dataset that is named in short; other patterns as they are.

    A file or folder of this name wins. What ends like a file of records is a path, even if there is no such file.

    Args:
        pattern: a file, folder, glob, url or name.
        is_here: whether there is a file or folder.
    """
    found = _SHORT.fullmatch(pattern)
    if not found or pattern.lower().endswith((*format_of_suffix(), *COMPRESSION_OF_SUFFIX)) or is_here(pattern):
        return pattern
    return f"{_PREFIX}{pattern}"
