"""The format of a file: from its name, if that is certain, and otherwise from its first bytes.

A file that holds no records is reported before the work, with what people have in its place by mistake.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable

import msgspec

from transforms.files.formats import DEFAULT_FORMAT, SNIFFED_BYTES, input_format, recognized_format
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import open_input, read_range

_FIRST_BYTES = 512
_COMPRESSED = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9]"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
# How files begin that hold no records, and what they are.
_MISTAKES = tuple(
    (re.compile(pattern, re.DOTALL), found)
    for pattern, found in (
        (
            rb"version https://git-lfs",
            "a Git LFS pointer, not the file that it stands for. Fetch it with git lfs pull.",
        ),
        (rb"PK\x03\x04", "a zip archive, or an Office document. Unpack it, or save its table as CSV."),
        (rb"[^{\[].{256}ustar", "a tar archive. Unpack it."),
        (
            rb"(?i)\s*<(!doctype html|html|head|\?xml|error)",
            "an HTML or XML page, such as the error page of a download. Download the file again.",
        ),
        (
            rb"\xff\xfe|\xfe\xff|(\x00[\t\n\r -~]){2}|([\t\n\r -~]\x00){2}",
            "text in UTF-16. Convert it to UTF-8.",
        ),
    )
)
# JSON lines whose first line is damaged are JSON lines.
_OBJECT = re.compile(rb"^\s*\{\s*\"", re.MULTILINE)
_JSON = re.compile(rb"\s*(\{\s*\"|\[\s*\{)")
_QUOTED = re.compile(rb'"[^"]*"')
_DELIMITERS = {"csv": b",", "tsv": b"\t"}
_SHOWN = 40


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
    if named and not compression and (last := input_format(named).last_bytes) and _ends_with(url, size, last):
        return named
    # Some stores refuse a range that ends after the file.
    start = _decompressed_start(url, compression, size) if compression else read_range(url, 0, min(SNIFFED_BYTES, size))
    if named is None or not input_format(named).suffix_is_certain:
        named = recognized_format(start, among)
        if named is None and (problem := _mistake(start) or _text_without_records(start)):
            raise ValueError(problem)
        named = named or DEFAULT_FORMAT
    elif recognizes := input_format(named).recognizes:
        if not recognizes(start):
            raise ValueError(f"it is not {named}: {_mistake(start) or _text_without_records(start) or _other(start)}")
    elif problem := _mistake(start) or _not_this_table(start, named):
        raise ValueError(problem)
    if not compression and (last := input_format(named).last_bytes) and not _ends_with(url, size, last):
        raise ValueError(f"it begins like {named} and does not end like it: it is cut short. Restore it.")
    return named


def _ends_with(url: str, size: int, last: bytes) -> bool:
    return read_range(url, max(size - len(last), 0), size) == last


def _decompressed_start(url: str, compression: str, size: int) -> bytes:
    start = read_range(url, 0, min(_FIRST_BYTES, size))
    if not _COMPRESSED[compression].match(start):
        problem = f"it is not compressed with {compression}, as its name says"
        raise ValueError(f"{problem}; {_mistake(start) or 'name it without that suffix.'}")
    with open_input(url, compression) as file:
        return file.read(SNIFFED_BYTES)


def _mistake(start: bytes) -> str | None:
    """Describe a file that cannot be text with records, and what to do; None if it can be."""
    for suffix, compression in COMPRESSION_OF_SUFFIX.items():
        if _COMPRESSED[compression].match(start):
            return f"it looks like {compression}. Let its name end in {suffix}."
    for pattern, found in _MISTAKES:
        if pattern.match(start):
            return f"it looks like {found}"
    if b"\0" in start[:64] and not _OBJECT.search(start):
        return (
            _other(start) if recognized_format(start) else f"it is binary (it begins with {start[:8]!r}). Convert it."
        )
    return None


def _text_without_records(start: bytes) -> str | None:
    """Describe text without a line that is a record, and what to do; None if it may be JSON lines."""
    if start.startswith(b'{"'):  # most files
        return None
    lines = [line.strip() for line in start.removeprefix(BOM_UTF8).splitlines() if line.strip()]
    is_python = bool(lines) and lines[0].startswith(b"{'") and not any(map(_is_json, lines))
    if not lines or (not is_python and any(line.startswith((b"{", b"[{")) for line in lines)):
        return None
    kind, advice = "plain text", "Convert it to JSON lines, or leave it out."
    if is_python:
        kind, advice = "Python's notation of dicts", "Write them as JSON, with json.dumps."
    elif _is_json(lines[0]):
        kind, advice = "JSON lines that are not objects", "Write each record as an object, or as a list of messages."
    elif table := next((name for name in _DELIMITERS if _is_table(lines, _DELIMITERS[name])), None):
        kind, advice = table.upper(), f"Let its name end in .{table}, or choose the format {table}."
    first = lines[0].decode(errors="replace")
    shown = first if len(first) <= _SHOWN else first[:_SHOWN] + "..."
    return f"it looks like {kind} (it begins with {shown!r}). {advice}"


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
        return True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _is_table(lines: list[bytes], delimiter: bytes) -> bool:
    counts = {line.count(delimiter) for line in lines[:3]}
    return len(lines) > 1 and len(counts) == 1 and 0 not in counts


def _not_this_table(start: bytes, named: str) -> str | None:
    """Describe a file that is not the table that its name says, and what to do; None if it can be that table."""
    content = start.removeprefix(BOM_UTF8)
    if _JSON.match(content):
        return f"it is not {named}: it looks like JSON. Let its name end in .json or .jsonl."
    header = _QUOTED.sub(b"", content.lstrip().partition(b"\n")[0])
    found = next((delimiter for delimiter in (b",", b"\t", b";", b"|") if delimiter in header), None)
    if found is None or _DELIMITERS[named] in header:
        return None
    kind = next((kind for kind, delimiter in _DELIMITERS.items() if delimiter == found), None)
    advice = f"Let its name end in .{kind}." if kind else f"Convert it to {named}."
    return f"it is not {named}: the cells of its header are separated by {found.decode()!r}. {advice}"


def _other(start: bytes) -> str:
    return f"it looks like {recognized_format(start) or DEFAULT_FORMAT}. Give it another suffix, or choose the format."
