"""Files of the Hub on this machine: downloaded once for all its processes, into a folder that stays within bounds.

A file that is downloaded costs two requests, and comes through xet if hf_xet is installed. A range of it costs a
request, and the Hub limits these. So a worker downloads the file that its task is in, since the other tasks of the
file are likely read on the same machine; ranges are for a small part of a large file, and for a look at a file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from transforms.storage.hub.client import ask
from transforms.storage.hub.folder import locked, shared_folder
from transforms.storage.hub.urls import HubFile
from transforms.storage.ranges import RangeReader, complete

# A larger file is downloaded only if a task needs at least half of it.
_ALWAYS_WHOLE = 2 << 30
# What is downloaded takes at most this part of what the disk has free without it.
_MOST_OF_DISK = 0.5
# How much is asked for at once if ranges are read: not more than is needed.
_AT_ONCE, _OF_A_LOOK = 16 << 20, 1 << 20
_DOWNLOADED, _COMING = ".file", ".coming"


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
    opened = _opened(_path(file)) or _opened(_in_cache_of_hub(file))
    if opened is None and reads and (size <= _ALWAYS_WHOLE or 2 * reads >= size):
        opened = _downloaded(file, size)
    if opened is not None:
        return opened
    reader = RangeReader(file.url, {"size": size}, functools.partial(read_hub_range, file), is_pinned=True)
    return io.BufferedReader(reader, buffer_size=min(reads or _OF_A_LOOK, _AT_ONCE))


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


def size_of(file: HubFile) -> int:
    """Return how many bytes a file has. Raises as open_hub_file does."""

    def request(_: Any) -> int:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.utils import get_token

        url = hf_hub_url(file.repository, file.path, repo_type="dataset", revision=file.commit)
        return get_hf_file_metadata(url, token=get_token()).size or 0

    return ask(file.url, "read", file.repository, request, file.commit)


def _path(file: HubFile) -> str:
    """Where a file is if it is on this machine."""
    name = hashlib.sha256(file.url.encode(errors="surrogatepass")).hexdigest()[:32]
    return os.path.join(shared_folder(), f"{name}{_DOWNLOADED}")


def _in_cache_of_hub(file: HubFile) -> str | None:
    """Where a file is if huggingface_hub or `datasets` has downloaded it before."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(file.repository, file.path, revision=file.commit, repo_type="dataset")
    return found if isinstance(found, str) else None


def _opened(path: str | None) -> io.BufferedReader | None:
    """Open a file of this machine, which then counts as used; None if it is not there."""
    with suppress(FileNotFoundError):
        if path is not None:
            opened = open(path, "rb")  # noqa: SIM115
            with suppress(OSError):  # of the cache of others
                os.utime(path, ns=(time.time_ns(),) * 2)  # a disk's own clock may stand for some milliseconds
            return opened
    return None


def _downloaded(file: HubFile, size: int) -> io.BufferedReader | None:
    """Download a file, unless another process does, and open it; None if there is no room for it."""
    path = _path(file)
    coming = path.removesuffix(_DOWNLOADED) + f"-{size}{_COMING}"
    with locked(Path(path).stem):
        if opened := _opened(path):
            return opened
        shutil.rmtree(coming, ignore_errors=True)  # of a process that was killed
        if not _make_room(coming, size):
            return None
        try:
            os.replace(ask(file.url, "read", file.repository, _download(file, coming), file.commit), path)
            return _opened(path)
        finally:
            shutil.rmtree(coming, ignore_errors=True)


def _download(file: HubFile, folder: str) -> Any:
    """Returns the request that downloads a file into a folder, and returns its path there."""

    def request(hub: Any) -> str:
        return hub.hf_hub_download(
            file.repository, file.path, repo_type="dataset", revision=file.commit, local_dir=folder
        )

    return request


def _make_room(coming: str, size: int) -> bool:
    """Reserve room for a file by making its folder, and remove what was used longest ago if there is not enough.

    A process that reads a removed file goes on: the disk has it until it is closed.
    """
    with locked("room"):
        shared = Path(shared_folder())
        found = sorted(((each.stat(), each) for each in shared.glob(f"*{_DOWNLOADED}")), key=lambda e: e[0].st_mtime_ns)
        reserved = sum(int(each.name.rpartition("-")[2].removesuffix(_COMING)) for each in shared.glob(f"*{_COMING}"))
        held = sum(status.st_size for status, _ in found)
        most = int((shutil.disk_usage(shared).free + held) * _MOST_OF_DISK) - reserved
        if size > most:
            return False
        for status, path in found:
            if held + size <= most:
                break
            path.unlink(missing_ok=True)
            held -= status.st_size
        os.makedirs(coming)
    return True
