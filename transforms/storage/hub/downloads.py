"""Files of the Hub at a commit: downloaded as a whole into the cache of huggingface_hub, or read by ranges.

A file that is downloaded costs two requests, and the other tasks of it are likely read on the same machine. A range
costs a request, and the Hub limits these: ranges are for a small part of a large file, and for a look at a file.
"""

from __future__ import annotations

import functools
import io
from typing import Any

from transforms.storage.hub.client import ask
from transforms.storage.hub.urls import HubFile
from transforms.storage.ranges import RangeReader, complete

# A larger file is downloaded only if a task needs at least half of it.
_ALWAYS_WHOLE = 2 << 30
# How much is asked for at once if ranges are read: not more than is needed.
_AT_ONCE, _OF_A_LOOK = 16 << 20, 1 << 20


def open_hub_file(file: HubFile, size: int, reads: int) -> io.BufferedReader:
    """Open a file for reading.

    Args:
        file: the file.
        size: its bytes.
        reads: about how many of them will be read in this process; 0 for a look at it, which downloads nothing.

    Raises:
        FileNotFoundError: if its commit has no such file.
        StoreError: if the Hub refuses or fails.
    """
    if reads and (size <= _ALWAYS_WHOLE or 2 * reads >= size):
        return open(download(file), "rb")
    reader = RangeReader(file.url, {"size": size}, functools.partial(read_hub_range, file), is_pinned=True)
    return io.BufferedReader(reader, buffer_size=min(reads or _OF_A_LOOK, _AT_ONCE))


def download(file: HubFile) -> str:
    """Return the path of a file in the cache of huggingface_hub, into which one process of this machine downloads it.

    Raises:
        FileNotFoundError, StoreError: as open_hub_file does.
    """

    def request(hub: Any) -> str:
        return hub.hf_hub_download(file.repository, file.path, repo_type="dataset", revision=file.commit)

    return ask(file.url, "read", file.repository, request, file.commit)


def read_hub_range(file: HubFile, start: int, stop: int) -> bytes:
    """Return the bytes of a file from start to stop, which is not after its end. Raises as open_hub_file does."""

    def request(_: Any) -> bytes:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        url = hf_hub_url(file.repository, file.path, repo_type="dataset", revision=file.commit)
        headers = build_hf_headers(library_name="chatmill")
        headers |= {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        response = get_session().get(url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
        hf_raise_for_status(response)
        content = response.content[start:stop] if response.status_code == 200 else response.content
        return complete(content, start, stop - start)

    return ask(file.url, "read", file.repository, request, file.commit) if stop > start else b""
