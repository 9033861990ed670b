"""The format of a file: from its name, if that is certain, and otherwise from its first bytes.

A file that holds no records is reported before the work, with what people have in its place by mistake.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable

from transforms.files.formats import DEFAULT_FORMAT, SNIFFED_BYTES, input_format, recognized_format
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
_OBJECT = re.compile(rb"^(?:\xef\xbb\xbf)?\s*\[?\s*\{\s*(?:[\"}]|\Z)", re.MULTILINE)


def detect_format(
    url: str, named: str | None, compression: str | None, size: int, among: Iterable[str] | None = None
) -> str:
    """Return the name of the format of a file, if it can be one.

    named: the format that its suffix shows, or None. compression: that its suffix shows. size: its bytes. among: the
    names of the formats that its first bytes may show; all by default.

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
    is_table = certain is not None and not input_format(certain).recognizes
    format = recognized_format(start, [certain] if certain else among)
    if not format:
        other = None if is_table else recognized_format(start)
        problem = _find_mistake(start, is_table)
        if not problem and (other or (certain and not is_table)):
            problem = f"{other or DEFAULT_FORMAT}. Give it another suffix, or choose the format."
        if problem:
            raise ValueError(f"it looks like {problem}")
        format = certain or DEFAULT_FORMAT
    if not compression and (last := input_format(format).last_bytes) and not _ends_with(url, size, last):
        raise ValueError(f"it begins like {format} and does not end like it: it is cut short. Restore it.")
    return format


def _ends_with(url: str, size: int, last: bytes) -> bool:
    return read_range(url, max(size - len(last), 0), size) == last


def _decompressed_start(url: str, compression: str, size: int) -> bytes:
    start = read_range(url, 0, min(_FIRST_BYTES, size))
    if not re.match(_COMPRESSED[compression], start):
        mistake = _find_mistake(start, is_table=True)
        advice = f"It looks like {mistake}" if mistake else "Name it without that suffix."
        raise ValueError(f"it is not compressed with {compression}, as its name says. {advice}")
    with open_input(url, compression) as file:
        return file.read(SNIFFED_BYTES)


def _find_mistake(start: bytes, is_table: bool) -> str | None:
    """Describe a file that has no records, and what to do; None if it may have some. is_table: any text is one."""
    if mistake := next((what for what, begins in _MISTAKES.items() if re.match(begins, start, re.DOTALL)), None):
        return mistake
    text = start.removeprefix(BOM_UTF8).lstrip()
    if not text or _OBJECT.search(start) or recognized_format(start):
        return None
    if b"\0" in start[:64]:
        return f"binary data (it begins with {start[:8]!r}). Convert it."
    line = text.splitlines()[0][:40].decode(errors="replace")
    advice = "Convert it to JSON lines, name it by its format, or choose this."
    return None if is_table else f"text without JSON objects (it begins with {line!r}). {advice}"
