"""Versions: what shows whether a file is still the one that was planned.

A version is the size of a file and one field of what its store says of it. Only that field is compared later: stores
say less in a listing than of one file, or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from transforms.base.errors import UserError

# Of an object, what changes whenever it is written again, under the names that fsspec's file systems give it: best
# first. Some stores (http) may report none; there a file of another size is another one.
_FIELDS = (
    "mtime_ns", "generation", "etag", "ETag", "blob_id", "md5Hash", "mtime", "created", "last_modified", "LastModified",
    "Last-Modified",
)  # fmt: skip
# When it was written last: of a disk, S3, Google's and Azure's stores, and in memory.
_TIMES = ("mtime", "LastModified", "updated", "last_modified", "created")


def file_version(entry: Mapping[str, Any]) -> str:
    """Return the version of a file. entry: what its store says of it, as fsspec's `info` returns it."""
    field = next((field for field in _FIELDS if entry.get(field)), None)
    return f"{entry['size']}" + (f" {field} {entry[field]}" if field else "")


def modification_time(entry: Mapping[str, Any]) -> float:
    """Return when a file was last written, in seconds since 1970; the end of time if its store does not say it."""
    time = next((entry[field] for field in _TIMES if entry.get(field)), math.inf)
    if isinstance(time, str):
        time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    return time.timestamp() if isinstance(time, datetime) else float(time)


def check_version(url: str, version: str, entry: Mapping[str, Any]) -> None:
    """Raise UserError if a file is not of a version. entry: what its store says of it now."""
    size, *rest = version.split(" ", 2)
    if size != str(entry["size"]):
        change = f"it had {int(size):,} bytes and has {entry['size']:,}"
    elif rest and rest[1] != str(entry.get(rest[0], rest[1])):
        change = f"its {rest[0]} was {rest[1]} and is {entry[rest[0]]}"
    else:
        return
    help = "Restore it to go on, or overwrite the output to build from the file as it is now."
    raise UserError(f"{url}: the file has changed since the job was planned ({change}). Nothing was committed. {help}")
