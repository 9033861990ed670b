"""The format of a file: from its name, if that is certain, and otherwise from its first bytes."""

from __future__ import annotations

from collections.abc import Iterable

from transforms.files.formats import DEFAULT_FORMAT, SNIFFED_BYTES, input_format, recognized_format
from transforms.files.unknown import is_compressed_with, kind_of_text, not_this_table, unknown_kind
from transforms.storage.files import open_input, read_range

_FIRST_BYTES = 512


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
        named = recognized_format(start) if among is None else recognized_format(start, among)
        if named is None and (problem := unknown_kind(start) or kind_of_text(start)):
            raise ValueError(problem)
        named = named or DEFAULT_FORMAT
    elif recognizes := input_format(named).recognizes:
        if not recognizes(start):
            raise ValueError(f"it is not {named}: " + (unknown_kind(start) or kind_of_text(start) or _other(start)))
    elif problem := unknown_kind(start) or not_this_table(start, named):
        raise ValueError(problem)
    if not compression and (last := input_format(named).last_bytes) and not _ends_with(url, size, last):
        raise ValueError(f"it begins like {named} and does not end like it: it is cut short. Restore it.")
    return named


def _ends_with(url: str, size: int, last: bytes) -> bool:
    return read_range(url, max(size - len(last), 0), size) == last


def _decompressed_start(url: str, compression: str, size: int) -> bytes:
    start = read_range(url, 0, min(_FIRST_BYTES, size))
    if not is_compressed_with(start, compression):
        problem = f"it is not compressed with {compression}, as its name says"
        raise ValueError(f"{problem}; {unknown_kind(start) or 'name it without that suffix.'}")
    with open_input(url, compression) as file:
        return file.read(SNIFFED_BYTES)


def _other(start: bytes) -> str:
    return f"it looks like {recognized_format(start) or DEFAULT_FORMAT}. Give it another suffix, or choose the format."
