"""The format of a file: from its name, if that is certain, and otherwise from its first bytes.

A file that holds no records is reported before the work, with what people have in its place by mistake.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable

from transforms.files.formats import DEFAULT_FORMAT, INPUT_FORMATS, SNIFFED_BYTES, input_format, recognized_format
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import open_input, read_range

_FIRST_BYTES = 512
_COMPRESSED = {
    "gzip": rb"\x1f\x8b",
    "bz2": rb"BZh[1-9]",
    "xz": rb"\xfd7zXZ\0",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}
# What people have by mistake in place of records, and how it begins.
_MISTAKES = {
    f"{name}. Let its name end in {suffix}.": _COMPRESSED[name] for suffix, name in COMPRESSION_OF_SUFFIX.items()
}
_MISTAKES |= {
    "a Git LFS pointer, not the file that it stands for. Fetch it with git lfs pull.": rb"version https://git-lfs",
    "a zip archive, or an Office document. Unpack it, or save its table as CSV.": rb"PK\x03\x04",
    "a tar archive. Unpack it.": rb"[^{\[].{256}ustar",
    "an HTML or XML page, such as an error. Download it again.": rb"(?i)\s*<(!doctype html|html|head|\?xml|error)",
    "text in UTF-16. Convert it to UTF-8.": rb"\xff\xfe|\xfe\xff|(\x00[\t\n\r -~]){2}|([\t\n\r -~]\x00){2}",
}
# JSON lines whose first line is damaged are JSON lines.
_OBJECT = re.compile(rb"^\s*\{\s*\"", re.MULTILINE)
_RECORDS = re.compile(rb"\{\s*\"|\[\s*\{")
_NO_OBJECT = re.compile(rb'("([^"\\]|\\.)*"|\[["\d\[].*\]|-?\d[\d.eE+-]*|true|false|null)$')
_QUOTED = re.compile(rb'"[^"]*"')
_DELIMITERS = {"csv": b",", "tsv": b"\t", "a table with ';' between its cells": b";"}


def detect_format(
    url: str, named: str | None, compression: str | None, size: int, among: Iterable[str] | None = None
) -> str:
    """Find the format of a file, and whether it can be one.

    Args:
        url: of the file.
        named: the format that its suffix shows, or None.
        compression: that its suffix shows.
        size: its bytes.
        among: the names of the formats that its first bytes may show; all by default.

    Returns:
        The name of the format.

    Raises:
        ValueError: if the file has none of the formats, or not that of its name: what it looks like, and what to do.
        InputError: if it is compressed, and corrupt.
        StoreError: if its store fails.
    """
    last = input_format(named).last_bytes if named and not compression else b""
    if named and last and _ends_with(url, size, last):
        return named
    # Some stores refuse a range that ends after the file.
    start = _decompressed_start(url, compression, size) if compression else read_range(url, 0, min(SNIFFED_BYTES, size))
    certain = named if named and input_format(named).suffix_is_certain else None
    found = recognized_format(start, [certain] if certain else among)
    problem = None if found else _mistake(start)
    if certain in _DELIMITERS:
        found, problem = certain, problem or _other_table(start, certain)
    elif not found and not problem:
        other = recognized_format(start)
        problem = None if other else _text_without_records(start)
        if not problem and (other or certain):
            problem = f"{other or DEFAULT_FORMAT}. Give it another suffix, or choose the format."
    if problem:
        raise ValueError(f"it looks like {problem}")
    found = found or DEFAULT_FORMAT
    if not compression and (last := input_format(found).last_bytes) and not _ends_with(url, size, last):
        raise ValueError(f"it begins like {found} and does not end like it: it is cut short. Restore it.")
    return found


def _ends_with(url: str, size: int, last: bytes) -> bool:
    return read_range(url, max(size - len(last), 0), size) == last


def _decompressed_start(url: str, compression: str, size: int) -> bytes:
    start = read_range(url, 0, min(_FIRST_BYTES, size))
    if not re.match(_COMPRESSED[compression], start):
        advice = f"It looks like {found}" if (found := _mistake(start)) else "Name it without that suffix."
        raise ValueError(f"it is not compressed with {compression}, as its name says. {advice}")
    with open_input(url, compression) as file:
        return file.read(SNIFFED_BYTES)


def _mistake(start: bytes) -> str | None:
    """Describe a file that cannot be text with records, and what to do; None if it can be."""
    if found := next((found for found, pattern in _MISTAKES.items() if re.match(pattern, start, re.DOTALL)), None):
        return found
    is_binary = b"\0" in start[:64] and not _OBJECT.search(start) and not recognized_format(start)
    return f"binary data (it begins with {start[:8]!r}). Convert it." if is_binary else None


def _text_without_records(start: bytes) -> str | None:
    """Describe text without a line that is a record, and what to do; None if it may be JSON lines."""
    lines = [line.strip() for line in start.removeprefix(BOM_UTF8).splitlines() if line.strip()]
    if not lines:
        return None
    if all(line.startswith(b"{'") for line in lines):
        kind, advice = "Python's notation of dicts", "Write them as JSON, with json.dumps."
    elif any(line.startswith((b"{", b"[{")) for line in lines):
        return None
    elif _NO_OBJECT.match(lines[0]):
        kind, advice = "JSON lines that are not objects", "Write each record as an object, or as a list of messages."
    elif (table := _table(lines)) in INPUT_FORMATS:
        kind, advice = table.upper(), f"Let its name end in .{table}, or choose the format {table}."
    else:
        kind, advice = "plain text", "Convert it to JSON lines, or leave it out."
    return f"{kind} (it begins with {lines[0][:40].decode(errors='replace')!r}). {advice}"


def _other_table(start: bytes, named: str) -> str | None:
    """Describe a file that is not the table that its name says, and what to do; None if it can be that table."""
    content = start.removeprefix(BOM_UTF8).lstrip()
    if _RECORDS.match(content):
        return "JSON. Let its name end in .json or .jsonl."
    header = _QUOTED.sub(b"", content.partition(b"\n")[0])
    tables = [table for table, delimiter in _DELIMITERS.items() if delimiter in header]
    return f"{tables[0]}. Let its name say so, or convert it to {named}." if tables and named not in tables else None


def _table(lines: list[bytes]) -> str:
    """Return what a table is that has a delimiter as often in each of its first lines; empty if none is."""
    first = [_QUOTED.sub(b"", line) for line in lines[:3]]
    for table, delimiter in _DELIMITERS.items():
        if len(first) > 1 and delimiter in first[0] and len({line.count(delimiter) for line in first}) == 1:
            return table
    return ""
