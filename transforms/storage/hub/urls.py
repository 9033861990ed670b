"""The urls of files on the Hub: `hf://datasets/ORG/NAME@COMMIT/PATH`, whose content never changes."""

from __future__ import annotations

import re
from typing import NamedTuple

_URL = re.compile(r"(hf://datasets/([^/@:]+/[^/@:]+))@([0-9a-f]{40})/(.+)", re.DOTALL)


class HubFile(NamedTuple):
    """A file of a dataset on the Hub.

    repository: ORG/NAME. commit: 40 hexadecimal digits. path: in the repository.
    """

    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """Where it is, for any process."""
        return f"hf://datasets/{self.repository}@{self.commit}/{self.path}"


def hub_file(url: str) -> HubFile | None:
    """Return the file of a url; None if the url is not that of a file on the Hub at a commit."""
    found = _URL.fullmatch(url) if url.startswith("hf://") else None
    return HubFile(found[2], found[3], found[4]) if found else None


def without_commit(url: str) -> str:
    """Return the url of the same file in any commit; other urls as they are."""
    found = _URL.fullmatch(url) if url.startswith("hf://") else None
    return f"{found[1]}/{found[4]}" if found else url
