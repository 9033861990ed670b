"""First files: the few files on the Hub that are looked at, for the format and the compression of those like them.

The Hub limits how many requests anyone may make, and a dataset may have thousands of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from transforms.storage.hub.urls import hub_file
from transforms.storage.versions import version_of

if TYPE_CHECKING:
    from transforms.files.listing import InputFile

_LOOKED_AT = 4


def look_at_first(
    entries: Mapping[str, Mapping[str, Any]], kind_of: Callable[[str], Hashable], make: Callable[..., InputFile]
) -> Callable[[str], InputFile | None]:
    """Look at the first files of each kind on the Hub.

    Args:
        entries: what the Hub or a store says of each file, by its url.
        kind_of: what those files have in common that are alike, such as their suffix.
        make: looks at a file, and makes the input file of its url and entry.

    Returns:
        A function of a url that returns its input file: one that was looked at, or one of the same format. None if it
        is not on the Hub, or if those of its kind differ.
    """
    looked_at: dict[Hashable, list[InputFile]] = defaultdict(list)
    for url, entry in entries.items():
        if hub_file(url) and len(alike := looked_at[kind_of(url)]) < _LOOKED_AT:
            alike.append(make(url, entry))
    known = {file.url: file for alike in looked_at.values() for file in alike}

    def input_file(url: str) -> InputFile | None:
        alike = looked_at.get(kind_of(url), []) if hub_file(url) else []
        if url in known or len({file.format for file in alike}) != 1:
            return known.get(url)
        size = entries[url]["size"]
        unpacked = sum(file.unpacked for file in alike) * size // sum(file.bytes for file in alike)
        return msgspec.structs.replace(
            alike[0], url=url, bytes=size, version=version_of(entries[url]), unpacked=unpacked
        )

    return input_file
