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
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO, TypeAlias

from transforms.files.formats import Chunk, InputFormat, in_chunks, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.records.preference import with_labels

_Row: TypeAlias = list[str] | csv.Error

_LONGEST_ROW = 1 << 25  # in characters
_MOST_COLUMNS = 1000


def delimited(suffix: str, delimiter: str) -> InputFormat:
    """Make the format of tables of text whose cells have a delimiter between them."""
    return InputFormat(
        suffixes=(suffix,), read=functools.partial(_read, delimiter), position_unit="row", errors=(OSError, ValueError)
    )


def _read(
    delimiter: str, file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int
) -> Iterator[Chunk]:
    """Yield the rows after the header as records, in chunks. A record's position is the number of its row, from 0.

    Raises:
        ValueError: if the header is malformed, has a name twice or too many columns, or a row is longer than 32 MiB.
    """
    table = _Table(file, delimiter)
    try:
        rows = table.rows()
        names = _names(next(rows, []))
        items = (_item(position, row, names, table, max_record_bytes) for position, row in enumerate(rows))
        yield from in_chunks(items, chunk_bytes)
    finally:
        table.leave_open()


class _Table:
    """The rows of a file, of which the last one is known with its bytes."""

    def __init__(self, file: BinaryIO, delimiter: str):
        csv.field_size_limit(_LONGEST_ROW)
        # Bytes that are not UTF-8 become surrogates, and these the bytes again.
        self._text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self._reader = csv.reader(self._lines(), delimiter=delimiter, strict=True)
        self._cell = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^{delimiter}\r\n]*)(?:{delimiter}|[\r\n]*\Z)')
        self._row: list[str] = []
        self.is_at_end = False

    def rows(self) -> Iterator[_Row]:
        """Yield the rows that are not empty; of a malformed one, what is wrong with it."""
        while not self.is_at_end:
            self._row = []
            try:
                if row := next(self._reader, None):
                    yield row
            except csv.Error as error:
                yield error

    def raw(self) -> bytes:
        """Return the bytes of the last row."""
        return "".join(self._row).encode(errors="surrogateescape").rstrip(b"\r\n")

    def empty_in_quotes(self) -> Collection[int]:
        """Return the numbers of the cells of the last row that are `""`, which the standard library does not tell."""
        text = "".join(self._row)
        cells = self._cell.findall(text) if '""' in text else ()
        return [number for number, cell in enumerate(cells) if cell == '""']

    def leave_open(self) -> None:
        """Part with the file, whose version is compared after its last row."""
        self._text.detach()

    def _lines(self) -> Iterator[str]:
        size = 0
        while line := self._text.readline(_LONGEST_ROW):
            size = size + len(line) if self._row else len(line)
            if size >= _LONGEST_ROW:
                raise ValueError("a row is longer than 32 MiB, or a quote is not closed")
            self._row.append(line)
            yield line
        self.is_at_end = True


def _names(header: _Row) -> list[str]:
    if isinstance(header, csv.Error):
        raise ValueError(f"its header is malformed: {header}")
    if len(header) > _MOST_COLUMNS:
        raise ValueError(f"the header has more than {_MOST_COLUMNS:,} columns")
    if not _is_utf8("".join(header)):
        raise ValueError("its header is not UTF-8")
    names = [name or f"column_{number}" for number, name in enumerate(header, 1)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"its header has {twice!r} twice")
    return names


def _item(
    position: int, row: _Row, names: Sequence[str], table: _Table, max_record_bytes: int
) -> tuple[Record | Reject, int]:
    """Return the record of a row, or why it has none, and its size."""
    if isinstance(row, csv.Error) and table.is_at_end:
        reason = "cut_short"
        detail = "a quote in it is not closed, so all up to the end of the file is one cell"
    elif isinstance(row, csv.Error):
        reason = "bad_row"
        detail = f"it is malformed ({row}); a quote inside of a cell in quotes is doubled"
    elif len(row) != len(names):
        reason = "bad_row"
        detail = f"it has {len(row)} cells; expected {len(names)}, as the header has"
    elif not _is_utf8(text := "".join(row)):
        reason = "invalid_unicode"
        detail = "a cell is not UTF-8"
    elif (size := len(text) if text.isascii() else len(text.encode())) <= max_record_bytes:
        empty = table.empty_in_quotes() if "" in row else ()
        cells = zip(names, row, range(len(row)), strict=True)
        record = {name: cell for name, cell, number in cells if cell or number in empty}
        return Record(position, with_labels(record)), size
    raw = table.raw()  # never shorter than its cells
    if len(raw) > max_record_bytes:
        return too_long(position, raw, max_record_bytes), len(raw)
    return Reject(position, reason, detail, raw), len(raw)


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


FORMAT = delimited(".csv", ",")
