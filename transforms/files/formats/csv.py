"""CSV with a header: comma-separated cells, which may be in double quotes, as the standard library reads them.

No type is inferred, so that "007", "NA" and "true" stay what they are; an empty cell without quotes is null. A row
that has another number of cells than the header, a quote in the wrong place, or bytes that are not UTF-8 costs only
itself.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import BinaryIO, TypeAlias

from transforms.base.errors import RecordError
from transforms.files.formats import Chunk, InputFormat, in_chunks, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.records.preference import with_labels

_Row: TypeAlias = list[str] | RecordError  # which says what is wrong with it

_LONGEST_ROW = 1 << 25  # in characters
_MOST_COLUMNS = 1000
_ESCAPED_BYTE = re.compile(r"[\udc80-\udcff]")


def delimited(suffix: str, delimiter: str) -> InputFormat:
    """Make the format of tables of text whose cells have a delimiter between them."""
    return InputFormat(suffixes=(suffix,), read=functools.partial(_read, delimiter), position_unit="row")


def _read(
    delimiter: str, file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int
) -> Iterator[Chunk]:
    """Yield the rows after the header as records, in chunks. A record's position is the number of its row, from 0.

    Raises:
        ValueError: if the header is malformed, has a name twice or too many columns, or a row is longer than 32 MiB.
    """
    with closing(_rows(file, delimiter)) as rows:
        names = _names(*next(rows, ([], "")))
        find_cells = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^{delimiter}\r\n]*)(?:{delimiter}|[\r\n]*\Z)').findall

        def item(position: int, row: _Row, text: str) -> tuple[Record | Reject, int]:
            if isinstance(row, list) and len(row) != len(names):
                row = RecordError("bad_row", f"it has {len(row)} cells; expected {len(names)}, as the header has")
            elif isinstance(row, list) and not _is_utf8(text):
                row = RecordError("invalid_unicode", "a cell is not UTF-8")
            if isinstance(row, list) and (size := len("".join(row).encode())) <= max_record_bytes:
                # Which of the empty cells are in quotes, the standard library does not say.
                in_file = find_cells(text) if "" in row and '""' in text else row
                cells = zip(names, row, in_file, strict=False)
                return Record(position, with_labels({name: cell for name, cell, raw in cells if cell or raw})), size
            raw = text.encode(errors="surrogateescape").rstrip(b"\r\n")  # never shorter than its cells
            if isinstance(row, RecordError) and len(raw) <= max_record_bytes:
                return Reject(position, row.reason, row.detail, raw), len(raw)
            return too_long(position, raw, max_record_bytes), len(raw)

        yield from in_chunks((item(position, *row) for position, row in enumerate(rows)), chunk_bytes)


def _names(header: _Row, text: str) -> list[str]:
    if isinstance(header, RecordError) or not _is_utf8(text):
        raise ValueError("its header is not UTF-8, or a quote in it is not closed or not doubled")
    if len(header) > _MOST_COLUMNS:
        raise ValueError(f"the header has more than {_MOST_COLUMNS:,} columns")
    names = [name or f"column_{number}" for number, name in enumerate(header, 1)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"its header has {twice!r} twice")
    return names


def _is_utf8(text: str) -> bool:
    return text.isascii() or not _ESCAPED_BYTE.search(text)


def _rows(file: BinaryIO, delimiter: str) -> Generator[tuple[_Row, str], None, None]:
    """Yield the rows that are not empty, or what is wrong with them, each with its text."""
    # Bytes that are not UTF-8 become surrogates, and these the bytes again.
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    lines: list[str] = []  # of the row

    def read_lines() -> Iterator[str]:
        size = 0
        while line := text.readline(_LONGEST_ROW):
            size = size + len(line) if lines else len(line)
            if size >= _LONGEST_ROW:
                raise ValueError("a row is longer than 32 MiB, or a quote is not closed")
            lines.append(line)
            yield line
        if lines:
            raise RecordError("cut_short", "a quote in it is not closed, so all up to the end of the file is one cell")

    csv.field_size_limit(_LONGEST_ROW)
    reader = csv.reader(read_lines(), delimiter=delimiter, strict=True)
    row: _Row | None
    try:
        while True:
            lines.clear()
            try:
                if (row := next(reader, None)) is None:
                    return
            except csv.Error as error:
                problem = f"it is malformed ({error}); a quote inside of a cell in quotes is doubled"
                row = RecordError("bad_row", problem)
            except RecordError as error:
                row = error
            if row:
                yield row, "".join(lines)
    finally:
        text.detach()  # the version of the file is compared after its last row


FORMAT = delimited(".csv", ",")
