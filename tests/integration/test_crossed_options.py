"""Options crossed: whatever a corpus has and whichever options are given together, the same laws hold of the dataset.

The records of the corpus are known token by token (support/crossed.py). Of the dataset its files are read, with pyarrow
and json; the fixture `build` holds it against the laws of rows, too. TEST_SLOW=1 draws several hundred cases.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given

from support.command_line import chatmill
from support.crossed import IGNORED, Case, Record, cases
from support.datasets import assert_statistics_add_up, digests, read_manifest
from support.drawn import examples

# Why a record that is in the mix has no row.
_NO_ROWS = {"too_long", "no_trained_tokens_left"}


@pytest.mark.slow
@examples(8, at_length=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_laws_hold_whichever_options_are_crossed(build, tmp_path_factory, case):
    folder = tmp_path_factory.mktemp("crossed")
    read = Counter[int]()
    before: dict[str, Any] = {"shards": [], "exceptions": []}
    for increment in range(case.increments):
        records = case.write(folder, increment)
        ended = build(*case.command(folder, "out", "--direct_num_workers=1"))
        made = Increment(case, folder, records)
        if ended.code == 1:
            assert made.may_fail(ended.err), ended.err
            break
        assert ended.code == 0, ended.err
        manifest = read_manifest(folder / "out")
        for kind, earlier in before.items():
            assert manifest[kind][: len(earlier)] == earlier  # with their sha256, which the fixture has compared
        added = {kind: manifest[kind][len(earlier) :] for kind, earlier in before.items()}
        made.read(folder / "out", added)
        made.check()
        before = {kind: manifest[kind] for kind in before}
        read += Counter(record.source for record in records)
        assert_statistics_add_up(manifest)
        assert [of["records"]["read"] for of in manifest["sources"]] == [read[at] for at, _ in enumerate(case.sources)]
        assert chatmill("verify", folder / "out") == 0
        if case.again and increment == 0:
            assert build(*case.command(folder, "again", *case.again)).code == 0
            assert digests(folder / "again") == digests(folder / "out")
    shutil.rmtree(folder)


@dataclass(frozen=True)
class Segment:
    """An example in a row. is_last: in its row."""

    shard: str
    split: str
    ids: tuple[int, ...]
    labels: tuple[int, ...]
    is_last: bool
    place: tuple[str, int] | None
    id: Any

    @property
    def trained(self) -> int:
        return sum(label != IGNORED for label in self.labels)


class Increment:
    """What a build or an append makes of its records, as its files say."""

    def __init__(self, case: Case, folder: Path, records: Sequence[Record]):
        self.case, self.folder, self.records = case, folder, records
        self.shifted = bool(case.value("shift_labels"))
        self.segments: list[Segment] = []
        self.lines: list[dict[str, Any]] = []
        self.first_of = dict[tuple[int, ...], Record]()
        for record in records:
            if record.trained():
                self.first_of.setdefault(record.ids, record)
        self.duplicates = set[Record]()
        if case.value("dedup"):
            self.duplicates = {one for one in records if one.trained() and one is not self.first_of[one.ids]}
        # Records of which the mix and what follows is.
        self.read_once = [record for record in records if record.trained() and record not in self.duplicates]

    # What is known before.

    def pieces(self, record: Record) -> list[tuple[int, int]] | None:
        """Which of its tokens are in the dataset; None if several segments share them out."""
        value, size = self.case.value, len(record.ids)
        longest, packing = value("max_length"), value("packing")
        if packing == "wrapped":
            return None
        found = [(0, size)]
        if longest is not None and size > longest:
            if packing == "bfd_split" or value("truncation") == "windows":
                return None
            turns = _turns_of(record.labels[:1] * 0 + self.labels(record))
            found = {
                "keep_end": [(size - longest, size)],
                "drop": [],
                "turns": [(0, stop) for _, stop in turns if stop <= longest][-1:],
            }.get(value("truncation"), [(0, longest)])
        return [piece for piece in found if any(one != IGNORED for one in self.labels(record, *piece))]

    def labels(self, record: Record, start: int = 0, stop: int | None = None) -> tuple[int, ...]:
        """The labels of a piece of a record, the first of which is left out if labels are shifted."""
        labels = record.labels[start:stop]
        return (IGNORED, *labels[1:]) if self.shifted else labels

    def may_fail(self, error: str) -> bool:
        """Whether a build may end with an error that only the records show: no row is left, or no mix."""
        if "dropped or rejected" in error:
            return self.case.mixes or all(self.pieces(record) in (None, []) for record in self.read_once)
        for number, options in enumerate(self.case.sources):
            trained = [record for record in self.read_once if record.source == number and record.trained()]
            if f"the source s{number} has no record that is trained on" in error:
                return "weight" in options and (not trained or "validation_fraction" in self.case.options)
            if f"the source s{number} is to have" in error:
                return "max_tokens" in options
        return "copies of some records" in error and "mix_tokens" in self.case.options

    # What is read.

    def read(self, output: Path, added: dict[str, list[Any]]) -> None:
        for shard in added["shards"]:
            rows = pq.read_table(output / shard["path"]).to_pylist() if shard["format"] == "parquet" else []
            for row in rows:
                self.segments += self._segments(shard, row)
        for file in added["exceptions"]:
            self.lines += pq.read_table(output / file["path"]).to_pylist()

    def _segments(self, shard: dict[str, Any], row: dict[str, Any]) -> Iterator[Segment]:
        is_packed = bool(self.case.value("packing"))
        lengths = row["seq_lengths"] if is_packed else [len(row["input_ids"])]
        columns = {name: row.get(name) if is_packed else [row.get(name)] for name in ("origin_file", "origin_position")}
        kept = self.case.value("keep_columns")
        values = [None] * len(lengths) if kept is None else row[kept] if is_packed else [row[kept]]
        for number, (start, stop) in enumerate(pairwise(accumulate(lengths, initial=0))):
            place = None
            if self.case.value("provenance"):
                place = columns["origin_file"][number], columns["origin_position"][number]
            yield Segment(
                *(shard["path"], shard["split"], tuple(row["input_ids"][start:stop]), tuple(row["labels"][start:stop])),
                *(number + 1 == len(lengths), place, values[number]),
            )

    # What must hold.

    def check(self) -> None:
        self._check_segments(self._check_lines())

    def _check_lines(self) -> dict[Record, str]:
        """Each record that is rejected or dropped has one line, with the reason. Return those that are dropped."""
        of_place = {record.place: record for record in self.records}
        lines = [line for line in self.lines if line["outcome"] in ("dropped", "rejected")]
        found = {of_place[line["origin_file"], line["origin_position"]]: line for line in lines}
        assert len(found) == len(lines)
        rejected = {record: record.rejected for record in self.records if record.rejected}
        assert {r: line["reason"] for r, line in found.items() if line["outcome"] == "rejected"} == rejected
        assert all((line["record"] is not None) == (line["outcome"] == "rejected") for line in self.lines)
        dropped = {r: line["reason"] for r, line in found.items() if line["outcome"] == "dropped"}
        assert {record for record, reason in dropped.items() if reason == "duplicate"} == self.duplicates
        silent = {record for record in self.records if record.ids and not record.trained()}
        assert {record for record, reason in dropped.items() if reason == "no_trained_tokens"} == silent
        for record in self.duplicates:
            url, position = self.first_of[record.ids].place
            assert found[record]["detail"] == f"of {url}:{position}"
        for record in self.read_once:
            reason, pieces, longest = dropped.get(record), self.pieces(record), self.case.value("max_length")
            if reason == "not_in_mix":
                assert self.case.mixes, record
            elif longest is not None and len(record.ids) > longest and self._drops_longer:
                assert reason == "too_long", (record, reason)
            elif pieces is None and self.shifted:
                assert reason in (None, "no_trained_tokens_left"), (record, reason)
            else:
                assert reason == ("no_trained_tokens_left" if pieces == [] else None), (record, reason)
        is_cut = {
            record
            for record in self.read_once
            if (pieces := self.pieces(record)) and record not in dropped and pieces != [(0, len(record.ids))]
        }
        cut = [line for line in self.lines if line["outcome"] == "truncated"]
        truncated = {of_place[line["origin_file"], line["origin_position"]] for line in cut}
        assert is_cut <= truncated
        assert all(self.pieces(record) is None for record in truncated - is_cut)
        return dropped

    @property
    def _drops_longer(self) -> bool:
        value = self.case.value
        return value("truncation") == "drop" and value("packing") not in ("bfd_split", "wrapped")

    def _check_segments(self, dropped: dict[Record, str]) -> None:
        """Each segment is a piece of its record, and each record has as many copies as the mix asks for."""
        in_rows = [record for record in self.read_once if record not in dropped]
        groups = defaultdict[Any, list[Record]](list)
        for record in in_rows:
            groups[self._seen(record)].append(record)
        of_groups, is_clear = defaultdict[Any, list[Segment]](list), True
        for segment in self.segments:
            fitting = [
                seen
                for seen, records in groups.items()
                if seen[1:] == (segment.place, segment.id) and self._fits(segment, records[0])
            ]
            assert fitting, (segment, groups)
            of_groups[fitting[0]].append(segment)
            is_clear &= len(fitting) == 1
        lost = Counter[tuple[str, int]]()
        for line in self.lines:
            if line["outcome"] in ("kept", "truncated", "repeated"):
                lost[line["origin_file"], line["origin_position"]] += line["trained_tokens_lost"] or 0
        if not self.case.mixes:
            trained = sum(record.trained(self.shifted) for record in in_rows)
            assert sum(segment.trained for segment in self.segments) + lost.total() == trained
        if not self.case.value("validation_fraction"):
            assert {segment.split for segment in self.segments} <= {"train"}
        if not is_clear:  # a piece of a record may be one of another that begins alike
            assert not self.case.value("provenance")
            return
        copies = dict[Record, int]()
        splits = defaultdict[tuple[int, ...], set[str]](set)
        for seen, records in groups.items():
            segments, trained = of_groups[seen], records[0].trained(self.shifted)
            tokens = sum(segment.trained for segment in segments) + sum(lost[record.place] for record in records)
            count, rest = divmod(tokens, trained)
            assert rest == 0 and count >= len(records), (records, segments, lost)
            splits[records[0].ids] |= {segment.split for segment in segments}
            if not self.case.mixes or {segment.split for segment in segments} == {"validation"}:
                assert count == len(records), (records, segments)
            if len(records) == 1:
                copies[records[0]] = count
                pieces, shards = self.pieces(records[0]), Counter(segment.shard for segment in segments)
                assert pieces is None or {*shards.values()} == {1}, (records, segments)
        assert all(len(of_one) <= 1 for of_one in splits.values()), splits
        if self.case.mixes and len(copies) == len(in_rows):
            validation = {record for record in in_rows if "validation" in splits[record.ids]}
            self._check_mix({record: count for record, count in copies.items() if record not in validation}, dropped)

    def _seen(self, record: Record) -> Any:
        """What rows show of a record."""
        kept = self.case.value("keep_columns")
        is_text = record.id is None or isinstance(record.id, str)
        text = record.id if is_text else json.dumps(record.id, ensure_ascii=False)
        place = record.place if self.case.value("provenance") else None
        return record.ids, place, text if kept == "id" else None

    def _fits(self, segment: Segment, record: Record) -> bool:
        """Whether a segment is a piece of a record, with its labels."""
        return any(self._is_piece(segment, record, *place) for place in self._places(segment, record))

    def _places(self, segment: Segment, record: Record) -> Iterator[tuple[int, int]]:
        """Where in a record a segment may be, with the token that shifting removed from the end of a row."""
        size = len(segment.ids)
        pieces = self.pieces(record)
        starts = range(len(record.ids)) if pieces is None else [start for start, _ in pieces]
        for start in starts:
            if record.ids[start : start + size] == segment.ids:
                stops = {start + size, start + size + (self.shifted and segment.is_last)}
                if pieces is None or pieces[0][1] in stops:
                    yield from ((start, stop) for stop in stops if stop <= len(record.ids))

    def _is_piece(self, segment: Segment, record: Record, start: int, stop: int) -> bool:
        expected = self.labels(record, start, stop)
        if self.shifted:
            is_cut = stop - start > len(segment.ids)
            expected = expected[1:] if is_cut else (*expected[1:], IGNORED)
        if segment.labels == expected:
            return True
        repeated = next((at for at, label in enumerate(segment.labels) if label != IGNORED), 0)
        is_window = self.case.value("truncation") == "windows" and segment.labels[repeated:] == expected[repeated:]
        return is_window and len(record.ids) > (self.case.value("max_length") or 0)

    def _check_mix(self, copies: dict[Record, int], dropped: dict[Record, str]) -> None:
        """Each source has as much in training as the mix asks for.

        Args:
            copies: of each record that is in training.
            dropped: of others that are not, why.
        """
        of_sources = [
            _OfSource(
                options,
                {record: count for record, count in copies.items() if record.source == number},
                [one for one, reason in dropped.items() if one.source == number and reason == "not_in_mix"],
                sum(reason in _NO_ROWS for one, reason in dropped.items() if one.source == number),
            )
            for number, options in enumerate(self.case.sources)
        ]
        by_examples, total = self.case.value("mix_by") == "examples", self.case.value("mix_tokens")
        has_shares = total is not None or any("weight" in source for source in self.case.sources)
        for source in of_sources:
            assert len(source.copies) <= source.most_records, source
            assert source.trained <= source.options.get("max_tokens", math.inf), source
            if not has_shares and "max_tokens" not in source.options:
                assert source.fewest_examples <= source.examples <= source.most_examples, source
        if not has_shares or any(source.hidden for source in of_sources):
            return
        most = [source.usable(by_examples) * source.epochs for source in of_sources]
        if not by_examples:
            limits = [source.options.get("max_tokens") for source in of_sources]
            most = [
                min(size, Fraction(size if limit is None else limit)) for size, limit in zip(most, limits, strict=True)
            ]
        weights = [Fraction(source.options.get("weight", size)) for source, size in zip(of_sources, most, strict=True)]
        shares = [weight / sum(weights) for weight in weights]
        if total is None:
            total = min(size / share for size, share in zip(most, shares, strict=True) if share)
        for number, (source, share) in enumerate(zip(of_sources, shares, strict=True)):
            if by_examples:
                assert source.examples == math.floor(total * share + Fraction(1, 2)), (source, total, share)
            else:  # half an example for each task, or with a limit that may not be exceeded a whole one
                slack = Fraction(source.longest, 2) * self.case.tasks(self.folder, number)
                slack *= 2 if "max_tokens" in source.options else 1
                assert source.trained - total * share <= slack, (source, float(total), float(share))
                assert total * share - source.trained <= slack or "max_examples" in source.options, (source, total)


@dataclass
class _OfSource:
    """What a source has in training. copies: of its records. unused: records of which the mix has none. hidden: how
    many have no row for another reason, so that the number of their copies is unknown.
    """

    options: dict[str, Any]
    copies: dict[Record, int]
    unused: list[Record]
    hidden: int

    def __post_init__(self) -> None:
        self.epochs = Fraction(self.options.get("epochs", 1))
        self.most_records = self.options.get("max_examples", math.inf)
        self.examples = sum(self.copies.values())
        self.trained = sum(record.trained() * count for record, count in self.copies.items())
        self.longest = max((record.trained() for record in (*self.copies, *self.unused)), default=0)
        self.fewest_examples = self._asked(0) - self.hidden * math.ceil(self.epochs)
        self.most_examples = self._asked(self.hidden)

    def _asked(self, hidden: int) -> int:
        records = min(len(self.copies) + len(self.unused) + hidden, self.most_records)
        return math.floor(records * self.epochs + Fraction(1, 2))

    def usable(self, by_examples: bool) -> Fraction:
        """How much of it is used once: of records, or of trained tokens."""
        every = [*self.copies, *self.unused]
        records = Fraction(min(len(every), self.most_records))
        if by_examples or not every:
            return records
        return records * sum(record.trained() for record in every) / len(every)


def _turns_of(labels: Sequence[int]) -> list[tuple[int, int]]:
    """Where the runs of trained tokens begin and end."""
    is_trained = [False, *(label != IGNORED for label in labels), False]
    edges = [at for at, (one, other) in enumerate(pairwise(is_trained)) if one != other]
    return list(zip(edges[::2], edges[1::2], strict=True))
