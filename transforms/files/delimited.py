"""Delimited text (CSV, TSV), read by pyarrow as a stream: each cell is a string, and an empty one is null.

No type is inferred, so that "007", "NA" and "true" stay what they are. A row that has another number of cells than the
header, or is not UTF-8, costs only itself. Since pyarrow refuses all of a file that is not UTF-8, it reads the bytes as
Latin-1, in which each byte is a character.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv

from transforms.files.formats import Chunk, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.records.cells import with_labels

_Row: TypeAlias = Sequence[str | None]

_BLOCK = 1 << 25  # a row is not longer
_HEADER_BYTES = 1 << 16  # more than most headers have
_ROWS_AT_ONCE = 1024
_MOST_COLUMNS = 1000


def read_delimited(file: BinaryIO, chunk_bytes: int, delimiter: str, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the rows after the header as records, in chunks. A record's position is the number of its row, from 0.

    Raises:
        ValueError: if the header is not UTF-8, has a name twice or too many columns, or a row is longer than 32 MiB.
    """
    source = _Source(file)
    source.check_header(delimiter)
    rejected: deque[Reject] = deque()
    rows = _rows(source, delimiter, rejected)
    header = next(rows, None)
    names = [] if header is None else _names(header)
    chunk, size, position = Chunk([], []), 0, 0
    row: _Row = ()
    for row in rows:
        if size >= chunk_bytes:
            yield chunk._replace(bytes=size)
            chunk, size = Chunk([], []), 0
        while rejected and rejected[0].position == position:
            chunk.rejects.append(rejected.popleft())
            position += 1
        row_bytes = sum(len(cell) for cell in row if cell)
        try:
            if row_bytes > max_record_bytes:
                chunk.rejects.append(too_long(position, _line(row, delimiter), max_record_bytes))
            else:
                chunk.records.append(Record(position, _record(names, row)))
        except UnicodeDecodeError as error:
            detail = f"a cell is not UTF-8: {error}"
            chunk.rejects.append(Reject(position, "invalid_unicode", detail, _line(row, delimiter)))
        position += 1
        size += row_bytes
    # The last row, unless it is a reject.
    is_record = bool(chunk.records) and chunk.records[-1].position == position - 1
    if is_record and not rejected and source.ends_inside_quotes(row, delimiter):
        last = chunk.records.pop()
        detail = "the quote before its last cell is not closed: the file is cut short, or all that follows is this cell"
        chunk.rejects.append(Reject(last.position, "cut_short", detail, _line(row, delimiter)))
    chunk.rejects.extend(rejected)
    yield chunk._replace(bytes=size)


class _Source(io.RawIOBase):
    """The bytes of a file after a byte order mark. Its last bytes are kept."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._tail = (b"", b"")
        self._ahead = b""

    def check_header(self, delimiter: str) -> None:
        """Raise ValueError if the header has too many columns, which pyarrow would all make at once."""
        self._ahead = self._file.read(_HEADER_BYTES).removeprefix(BOM_UTF8)
        while not _header_ends(self._ahead, delimiter.encode()) and len(self._ahead) < _BLOCK:
            if not (more := self._file.read(len(self._ahead))):
                break
            self._ahead += more

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:  # type: ignore[override]
        content, self._ahead = self._ahead[:size], self._ahead[size:]
        content += self._file.read(size - len(content))
        if content:
            self._tail = self._tail[1], content
        return content

    def ends_inside_quotes(self, row: _Row, delimiter: str) -> bool:
        """Return whether the last cell of the last row begins with a quote that is not closed."""
        cell = row[-1] or ""
        raw = '"' + cell.replace('"', '""')
        tail = b"".join(self._tail)[-len(raw) - 1 :].decode("latin-1")
        return bool(cell.strip()) and tail[1:] == raw and tail[0] in f"{delimiter}\r\n"


def _header_ends(start: bytes, delimiter: bytes) -> bool:
    """Return whether the first row that is not empty ends in the first bytes of a file.

    Raises:
        ValueError: if it has too many cells.
    """
    end_of_cell = re.compile(rb"[\r\n]|" + delimiter)
    at = len(start) - len(start.lstrip(b"\r\n"))
    for _ in range(_MOST_COLUMNS):
        while start[at : at + 1] == b'"':  # a cell in quotes, and a quote in it that is doubled
            at = start.find(b'"', at + 1) + 1
            if not at:
                return False
        found = end_of_cell.search(start, at)
        if found is None or found[0] != delimiter:
            return found is not None
        at = found.end()
    raise ValueError(f"the header has more than {_MOST_COLUMNS:,} columns")


def _rows(source: _Source, delimiter: str, rejected: deque[Reject]) -> Iterator[_Row]:
    """Yield the rows that have as many cells as the first. The others are added to the rejects before the next row."""

    def reject(row: Any) -> str:
        detail = f"it has {row.actual_columns} cells; expected {row.expected_columns}, as the header has"
        # pyarrow counts the header, from 1.
        rejected.append(Reject(row.number - 2, "bad_row", detail, row.text.encode("latin-1")))
        return "skip"

    try:
        batches = pa_csv.open_csv(
            source,
            pa_csv.ReadOptions(
                use_threads=False, block_size=_BLOCK, autogenerate_column_names=True, encoding="latin-1"
            ),
            pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=reject),
            pa_csv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(_MOST_COLUMNS)},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in batches:
            for start in range(0, len(batch), _ROWS_AT_ONCE):
                columns = batch.slice(start, _ROWS_AT_ONCE).columns
                yield from zip(*(column.to_pylist() for column in columns), strict=True)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return
        if "straddl" in str(error):
            raise ValueError("a row is longer than 32 MiB, or a quote is not closed") from None
        raise


def _names(header: _Row) -> list[str]:
    try:
        names = [_text(name) if name else f"column_{i}" for i, name in enumerate(header, 1)]
    except UnicodeDecodeError as error:
        raise ValueError(f"its header is not UTF-8: {error}") from None
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"its header has {twice!r} twice")
    return names


def _record(names: Sequence[str], row: _Row) -> dict[str, Any]:
    """Make the record of a row. Raises UnicodeDecodeError."""
    return with_labels({name: _text(cell) for name, cell in zip(names, row, strict=True) if cell is not None})


def _text(cell: str) -> str:
    return cell if cell.isascii() else cell.encode("latin-1").decode()


def _line(row: _Row, delimiter: str) -> bytes:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(row)
    return line.getvalue().encode("latin-1")
