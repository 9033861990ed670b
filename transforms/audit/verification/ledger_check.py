"""Check a ledger: against the manifest, and against the rows that its lines name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.audit.verification.row_check import Fault
from transforms.base.errors import InputError
from transforms.reading.reader import Dataset, reading
from transforms.storage.files import join, open_file, sha256_of

_OF_RECORDS = ("source", "position", "outcome", "reason")
_PLACES = ("row", "segment", "tokens", "trained_tokens")


@dataclass(frozen=True)
class LedgerLines:
    """The lines of a ledger that name segments of one shard.

    Attributes:
        path: of the file of the ledger.
        places: int64, shape (lines, 4): the row, the segment in it, and its tokens and trained tokens.
        has_all: whether each segment of the shard has a line.
    """

    path: str
    places: np.ndarray
    has_all: bool

    @classmethod
    def read(cls, url: str, path: str, split: str, has_all: bool) -> LedgerLines:
        """Read the lines about a shard.

        Args:
            url: of the dataset's folder.
            path: of the file of the ledger.
            split: of the shard.
            has_all: as above.

        Raises:
            InputError: if the file is missing or damaged.
        """
        with reading(join(url, path)), open_file(join(url, path)) as file:
            try:
                lines = pq.ParquetFile(file, read_dictionary=["split"]).read(["split", *_PLACES], use_threads=False)
                lines = lines.filter(pc.equal(lines["split"].cast(pa.string()), split))
                columns = [lines[name].to_numpy().astype(np.int64) for name in _PLACES]
            except KeyError as error:
                raise ValueError(f"it has no column {error}, so it is not a file of a ledger") from None
        return cls(path, np.stack(columns, axis=1), has_all)

    def check(self, segments: np.ndarray, path: str, first: int, stop: int) -> Iterator[Fault]:
        """Yield where the lines about some rows do not say what these are.

        Args:
            segments: of the rows, as in Checked.
            path: of the shard.
            first, stop: the numbers in the shard of the first row, and of the one after the last.
        """
        rows = self.places[:, 0]
        lines = self.places[(rows >= first) & (rows < stop)]
        keys, of_lines = (places[:, 0] << 32 | places[:, 1] for places in (segments, lines))
        at = np.searchsorted(keys, of_lines)
        exists = np.append(keys, -1)[at] == of_lines
        if not exists.all():
            problem = f"{self.path} names a segment that it does not have"
            yield Fault.of_rows(path, problem, np.unique(lines[~exists, 0]))
        lines, at = lines[exists], at[exists]
        wrong = np.flatnonzero((lines[:, 2:] != segments[at, 2:]).any(axis=1))
        if len(wrong):
            _, segment, *counts = lines[wrong[0]].tolist()
            tokens, trained = segments[at[wrong[0]], 2:].tolist()
            problem = f"segment {segment} has {tokens:,} tokens, {trained:,} of them trained; "
            problem += f"{self.path} has {counts[0]:,} and {counts[1]:,}"
            yield Fault.of_rows(path, problem, np.unique(lines[wrong, 0]))
        times = np.bincount(at, minlength=len(segments))
        if len(bad := np.flatnonzero(times != 1 if self.has_all else times > 1)):
            problem = f"{self.path} has {times[bad[0]]} lines for a segment; expected 1"
            yield Fault.of_rows(path, problem, np.unique(segments[bad, 0]))

    def check_end(self, path: str, rows: int) -> Iterator[Fault]:
        """Yield a fault if a line names a row after the last one. rows: of the shard."""
        beyond = self.places[self.places[:, 0] >= rows, 0]
        if len(beyond):
            yield Fault.of_rows(path, f"{self.path} names it, and there are {rows:,} rows", np.unique(beyond))


def ledger_of_shards(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the file of the ledger that has the lines about each shard, by the path of the shard."""
    return {path: file["path"] for file in manifest.get("ledger", ()) for path in file["shards"].values()}


def ledger_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield what is wrong with a ledger: its files, and its outcomes and reasons against the manifest."""
    records: Counter[tuple[str, str | None]] = Counter()
    is_complete = True
    for file in dataset.manifest.get("ledger", ()):
        path, url = file["path"], join(dataset.url, file["path"])
        try:
            with reading(url):
                if (sha256 := sha256_of(url)) != file["sha256"]:
                    problem = f"it was changed or damaged: its sha256 is {sha256}; the manifest has {file['sha256']}"
                    yield Fault(path, problem)
                    is_complete = False
                    continue
                with open_file(url) as opened:
                    table = pq.read_table(opened, columns=list(_OF_RECORDS), use_threads=False)
        except InputError as error:
            is_complete = False
            yield Fault(path, str(error).removeprefix(f"{url}: "))
            continue
        if len(table) != file["entries"]:
            yield Fault(path, f"it has {len(table):,} lines; the manifest has {file['entries']:,}")
        firsts = table.filter(pa.array(first_lines(table, "source", "position")))
        records.update(_outcomes(firsts))
        yield from _repeated(firsts, path)
    kind = dataset.options.get("ledger", "none")
    if is_complete and kind != "none":
        yield from _compare_outcomes(records, dataset.manifest, kind == "all")


def first_lines(lines: pa.Table, *columns: str) -> np.ndarray:
    """Return which lines differ in a column from the line before: bool, shape (lines,)."""
    is_first = np.arange(len(lines)) == 0
    for name in columns:
        is_first[1:] |= pc.not_equal(lines[name][1:], lines[name][:-1]).to_numpy()
    return is_first


def _outcomes(firsts: pa.Table) -> Counter[tuple[str, str | None]]:
    """How many records have each outcome and reason. firsts: the first line of each."""
    counts = firsts.group_by(["outcome", "reason"]).aggregate([([], "count_all")])
    return Counter({(row["outcome"], row["reason"]): row["count_all"] for row in counts.to_pylist()})


def _repeated(firsts: pa.Table, path: str) -> Iterator[Fault]:
    """Yield a fault if the lines of a record are in two places. firsts: the first line of each."""
    counts = firsts.group_by(["source", "position"]).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if len(twice):
        record = twice.slice(0, 1).to_pylist()[0]
        yield Fault(path, f"{len(twice):,} records are in it twice, such as {record['source']}:{record['position']}")


def _compare_outcomes(
    found: Counter[tuple[str, str | None]], manifest: Mapping[str, Any], has_all: bool
) -> Iterator[Fault]:
    records = manifest["records"]
    expected: Counter[tuple[str, str | None]] = Counter({("truncated", None): records["truncated"]})
    for outcome in ("dropped", "rejected"):
        expected.update({(outcome, reason): count for reason, count in records[outcome].items()})
    if has_all:
        expected["kept", None] = records["kept"]
        expected["repeated", None] = manifest["notes"].get("copies_added", 0)
    for outcome, reason in sorted(found.keys() | expected.keys(), key=str):
        if outcome in ("kept", "repeated") and not has_all:
            continue
        if (lines := found[outcome, reason]) != (count := expected[outcome, reason]):
            name = " ".join(filter(None, (outcome, reason)))
            yield Fault("ledger", f"it has {lines:,} records that are {name}; the manifest has {count:,}")
