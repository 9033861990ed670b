"""Truncation and packing, compared with slow plain Python that does the same with lists and loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.chats import SPLIT
from transforms.model.batches import Labels, Rows, RowSource, RowTable
from transforms.model.outcomes import Outcomes
from transforms.model.statistics import Histogram, Statistics
from transforms.rows import packing
from transforms.rows.packing import PACKINGS, Packed, pack_bfd, pack_ffd, pack_wrapped
from transforms.rows.ragged import slices_of
from transforms.rows.segments import whole
from transforms.rows.truncation import TRUNCATIONS, split
from transforms.steps.pack import Packer

IGNORED = -100
THOROUGHLY, BRIEFLY = settings(max_examples=200), settings(max_examples=40)
CUT = ("bfd_split", "wrapped")  # packings that cut rows that are too long into pieces, and truncate none


@dataclass(frozen=True)
class RowOf:
    """One record's tokens. No id occurs twice in a batch, so that a lost or repeated token is noticed."""

    ids: list[int]
    labels: list[int]
    validation: bool
    position: int


@dataclass(frozen=True)
class Segment:
    ids: tuple[int, ...]
    labels: tuple[int, ...]
    position: int


@st.composite
def records_of(draw: st.DrawFn, most: int = 14, longest: int = 20) -> list[RowOf]:
    records = []
    so_far = 1000
    for row in range(draw(st.integers(0, most))):
        trained_or_not = draw(st.sampled_from([st.booleans(), st.booleans(), st.just(False), st.just(True)]))
        mask = draw(st.lists(trained_or_not, min_size=1, max_size=longest))
        ids = list(range(so_far, so_far + len(mask)))
        so_far += len(mask)
        labels = [token if trained else IGNORED for token, trained in zip(ids, mask, strict=True)]
        records.append(RowOf(ids, labels, draw(st.booleans()), position=10 * row))
    return records


@st.composite
def packers(draw: st.DrawFn, packings: tuple[str, ...] = PACKINGS, shift: bool | None = None) -> Packer:
    packing = draw(st.sampled_from(packings))
    truncation = draw(st.sampled_from(("keep_start", "keep_end", "drop") if packing in CUT else TRUNCATIONS))
    lengths = st.integers(2 if truncation == "windows" else 1, 24)
    max_length = draw(lengths if packing != "none" else st.one_of(st.none(), lengths))
    has_overlap = truncation == "windows" and max_length is not None
    overlaps = st.integers(1, (max_length or 0) - 1)
    return Packer(
        max_length=max_length,
        truncation=truncation,
        window_overlap=draw(st.one_of(st.none(), overlaps)) if has_overlap else None,
        packing=packing,
        shift_labels=draw(st.booleans()) if shift is None else shift,
    )


def batch_of(records: list[RowOf], columns: bool = False) -> Labels:
    lengths = [len(record.ids) for record in records]
    names = pa.table({"id": pa.array([f"record-{record.position}" for record in records], pa.string())})
    return Labels(
        split=SPLIT,
        part=0,
        last=True,
        outcomes=Outcomes(read=len(records)),
        ids=np.array([token for record in records for token in record.ids], np.int32),
        labels=np.array([label for record in records for label in record.labels], np.int32),
        offsets=np.cumsum([0, *lengths]).astype(np.int64),
        source=RowSource(
            positions=np.array([record.position for record in records], np.int64),
            validation=np.array([record.validation for record in records], bool),
            columns=names if columns else None,
        ),
    )


def without_statistics(outcomes: Outcomes) -> Outcomes:
    return msgspec.structs.replace(outcomes, statistics=Statistics())


def sum_of(histograms: Mapping[str, Histogram], name: str) -> int:
    return histograms[name].sum if name in histograms else 0


def rows_of(table: RowTable, source: RowSource) -> list[list[Segment]]:
    """The rows of a table as lists of segments, which must fill their row."""
    rows = []
    for row in range(len(table)):
        at, end = table.offsets[row : row + 2].tolist()
        segments = []
        for number in range(*table.segment_offsets[row : row + 2].tolist()):
            stop = at + int(table.segment_lengths[number])
            segment = Segment(
                tuple(table.ids[at:stop].tolist()),
                tuple(table.labels[at:stop].tolist()),
                int(source.positions[table.sources[number]]),
            )
            segments.append(segment)
            at = stop
        assert at == end
        rows.append(segments)
    assert (table.ids.dtype, table.labels.dtype) == (np.int32, np.int32)
    return rows


def tables_of(rows: Rows) -> tuple[list[list[Segment]], list[list[Segment]]]:
    return rows_of(rows.train, rows.source), rows_of(rows.validation, rows.source)


def is_trained(segments: list[Segment]) -> bool:
    return any(label != IGNORED for segment in segments for label in segment.labels)


def count_trained(rows: list[list[Segment]]) -> int:
    return sum(label != IGNORED for row in rows for segment in row for label in segment.labels)


# The naive reference.


@dataclass
class Expected:
    train: list[list[Segment]]
    validation: list[list[Segment]]
    kept: int = 0
    truncated: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    trained_tokens_lost: int = 0


def naive_pack(packer: Packer, records: list[RowOf]) -> Expected:
    expected = Expected([], [])
    survivors: dict[bool, list[Segment]] = {False: [], True: []}
    lost = Counter[int]()  # by the position of the record
    for record in records:
        whole = Segment(tuple(record.ids), tuple(record.labels), record.position)
        lost[record.position] += count_trained([[predictable(whole, packer.shift_labels)]])
        pieces = naive_pieces(packer, whole)
        if packer.truncation == "drop" and pieces != [whole] and packer.packing not in CUT:
            expected.dropped["too_long"] += 1
        elif not is_trained([predictable(whole, packer.shift_labels)]):
            expected.dropped["no_trained_tokens"] += 1
        elif not any(is_trained([predictable(piece, packer.shift_labels)]) for piece in pieces):
            expected.dropped["no_trained_tokens_left"] += 1
        else:
            if len({token for piece in pieces for token in piece.ids}) < len(record.ids):
                expected.truncated += 1
            else:
                expected.kept += 1
            survivors[record.validation] += pieces
    for name, held_back in (("train", False), ("validation", True)):
        rows = [naive_shift(row) if packer.shift_labels else row for row in naive_rows(packer, survivors[held_back])]
        setattr(expected, name, [row for row in rows if is_trained(row)])
    for segment in chain.from_iterable(expected.train + expected.validation):
        lost[segment.position] -= count_trained([[segment]])
    expected.notes["records_that_lost_trained_tokens"] = sum(tokens > 0 for tokens in lost.values())
    expected.trained_tokens_lost = lost.total()
    if packer.truncation == "windows":
        windows = [*chain.from_iterable(expected.train + expected.validation)]
        expected.notes["window_rows_added"] = len(windows) - expected.kept - expected.truncated
    return expected


def predictable(segment: Segment, shift: bool) -> Segment:
    """The segment without its first label, which nothing predicts if labels are shifted."""
    labels = (IGNORED, *segment.labels[1:]) if shift else segment.labels
    return Segment(segment.ids, labels, segment.position)


def naive_pieces(packer: Packer, whole: Segment) -> list[Segment]:
    """The parts of a record that are kept: all of it, one end of it, or (bfd_split) its pieces."""
    length, most = len(whole.ids), packer.max_length
    if most is None or length <= most or packer.packing == "wrapped":
        return [whole]
    if packer.packing == "bfd_split":
        return [naive_slice(whole, start, start + most) for start in range(0, length, most)]
    if packer.truncation in ("turns", "windows"):
        turns = naive_turns(predictable(whole, packer.shift_labels))
        if packer.truncation == "windows":
            return [*naive_windows(whole, turns, most, packer.window_overlap or max(most // 4, 1))]
        return [naive_slice(whole, 0, max([stop for _, stop in turns if stop <= most], default=0))]
    return [
        naive_slice(whole, length - most, length) if packer.truncation == "keep_end" else naive_slice(whole, 0, most)
    ]


def naive_turns(segment: Segment) -> list[tuple[int, int]]:
    """Where each run of trained tokens begins and ends."""
    turns: list[list[int]] = []
    for number, label in enumerate(segment.labels):
        if label != IGNORED:
            if turns and turns[-1][1] == number:
                turns[-1][1] += 1
            else:
                turns.append([number, number + 1])
    return [(start, stop) for start, stop in turns]


def naive_windows(whole: Segment, turns: list[tuple[int, int]], most: int, overlap: int) -> Iterator[Segment]:
    """Try every place where a window may begin, the first one that leaves the space for the next turn is taken."""
    done, length = 0, len(whole.ids)
    while left := [(start, stop) for start, stop in turns if stop > done]:
        start, stop = left[0]
        places = [place for place in (0, *(stop for _, stop in turns)) if done - overlap <= place <= done]
        places += range(done + 1, start)  # what a user writes may be cut
        begin = next((place for place in places if stop - place <= most), max(start - overlap, 0))
        if start < done:
            begin = done - overlap
        fit = [stop for _, stop in left if stop - begin <= most]
        end = (length if fit[-1] == turns[-1][1] and length - begin <= most else fit[-1]) if fit else begin + most
        ids, labels = whole.ids[begin:end], whole.labels[begin:end]
        context = max(done - begin, 0)
        yield Segment(ids, (IGNORED,) * context + labels[context:], whole.position)
        done = end


def naive_slice(segment: Segment, start: int, stop: int) -> Segment:
    return Segment(segment.ids[start:stop], segment.labels[start:stop], segment.position)


def naive_rows(packer: Packer, segments: list[Segment]) -> list[list[Segment]]:
    if packer.packing == "none":
        return [[segment] for segment in segments]
    capacity = packer.max_length or 0
    if packer.packing == "wrapped":
        return naive_wrap(segments, capacity)
    pack = naive_ffd if packer.packing == "ffd" else naive_bfd
    return [[segments[i] for i in row] for row in pack([len(segment.ids) for segment in segments], capacity)]


def naive_wrap(segments: list[Segment], capacity: int) -> list[list[Segment]]:
    """Process each token; a segment ends with its record or with its row."""
    stream = [
        (token, label, number)
        for number, segment in enumerate(segments)
        for token, label in zip(segment.ids, segment.labels, strict=True)
    ]
    rows = []
    for start in range(0, len(stream), capacity):
        row: dict[int, tuple[list[int], list[int]]] = {}
        for token, label, number in stream[start : start + capacity]:
            ids, labels = row.setdefault(number, ([], []))
            ids.append(token)
            labels.append(label)
        rows.append(
            [Segment(tuple(ids), tuple(labels), segments[number].position) for number, (ids, labels) in row.items()]
        )
    return rows


def naive_bfd(lengths: list[int], capacity: int) -> list[list[int]]:
    """Longest first, into the row with the least sufficient space; among equals, the row that has had it longest."""
    rows: list[list[int]] = []
    space: list[int] = []
    since: list[int] = []
    for time, segment in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        enough = [row for row in range(len(rows)) if space[row] >= lengths[segment]]
        if enough:
            row = min(enough, key=lambda row: (space[row], since[row]))
        else:
            row = len(rows)
            rows.append([])
            space.append(capacity)
            since.append(time)
        rows[row].append(segment)
        space[row] -= lengths[segment]
        since[row] = time
    return rows


def naive_ffd(lengths: list[int], capacity: int) -> list[list[int]]:
    """Longest first, each into the first row that has the space."""
    rows: list[list[int]] = []
    for segment in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for row in rows:
            if sum(lengths[i] for i in row) + lengths[segment] <= capacity:
                row.append(segment)
                break
        else:
            rows.append([segment])
    return rows


def naive_shift(row: list[Segment]) -> list[Segment]:
    """input_ids[:-1] and labels[1:] of the row, in the same segments; no label is predicted from another segment."""
    ids = [token for segment in row for token in segment.ids][:-1]
    labels = [label for segment in row for label in predictable(segment, shift=True).labels][1:]
    shifted = []
    for segment in row:
        length = min(len(segment.ids), len(ids))
        if length:
            shifted.append(Segment(tuple(ids[:length]), tuple(labels[:length]), segment.position))
        ids, labels = ids[length:], labels[length:]
    return shifted


def check_laws(made: Expected, packer: Packer, records: list[RowOf]) -> None:
    """Hold the naive packer to what must hold of any packing."""
    rows = made.train + made.validation
    longest = max((sum(len(segment.ids) for segment in row) for row in rows), default=0)
    assert packer.max_length is None or longest <= packer.max_length - packer.shift_labels
    assert all(map(is_trained, rows))
    assert made.kept + made.truncated + made.dropped.total() == len(records)
    before = count_trained(
        [[predictable(Segment(tuple(record.ids), tuple(record.labels), 0), packer.shift_labels)] for record in records]
    )
    assert before == count_trained(rows) + made.trained_tokens_lost
    record_of = {token: record for record in records for token in record.ids}
    for side, is_validation in ((made.train, False), (made.validation, True)):
        for segment in chain.from_iterable(side):
            of = {(record_of[token].position, record_of[token].validation) for token in segment.ids}
            assert of == {(segment.position, is_validation)}


# Properties of all packings.


@THOROUGHLY
@given(packers(), records_of())
@example(
    Packer(max_length=4, packing="wrapped", shift_labels=True), [RowOf([1, 2, 3, 4, 5], [-100] * 4 + [5], False, 0)]
)
@example(
    Packer(max_length=4, packing="bfd_split", shift_labels=True), [RowOf([1, 2, 3, 4, 5], [-100] * 4 + [5], False, 0)]
)
@example(Packer(max_length=1, packing="bfd", shift_labels=True), [RowOf([1, 2], [1, 2], True, 0)])
@example(Packer(max_length=2, truncation="drop"), [RowOf([1, 2, 3], [-100] * 3, False, 0)])
def test_rows_and_outcomes_equal_the_naive_packer(packer: Packer, records: list[RowOf]):
    expected = naive_pack(packer, records)
    check_laws(expected, packer, records)

    rows = packer(batch_of(records))

    assert tables_of(rows) == (expected.train, expected.validation)
    assert rows.outcomes.dropped == expected.dropped
    assert ("records_that_lost_trained_tokens" in rows.outcomes.first_examples) == (
        expected.notes["records_that_lost_trained_tokens"] > 0
    )
    assert msgspec.structs.replace(without_statistics(rows.outcomes), drops=(), first_examples={}) == Outcomes(
        read=len(records),
        kept=expected.kept,
        truncated=expected.truncated,
        notes={name: count for name, count in expected.notes.items() if count},
        trained_tokens_lost=expected.trained_tokens_lost,
    )
    assert rows.packing == packer.packing
    histograms = rows.outcomes.statistics.histograms
    tables = [rows.train, rows.validation]
    lost = expected.trained_tokens_lost
    assert sum_of(histograms, "row_tokens") == sum(len(table.ids) for table in tables)
    assert sum_of(histograms, "examples_per_row") == sum(len(table.sources) for table in tables)
    assert sum_of(histograms, "example_tokens") == sum(len(record.ids) for record in records)
    trained = sum(int(table.trained_tokens.sum()) for table in tables)
    assert sum_of(histograms, "example_trained_tokens") == trained + lost


@THOROUGHLY
@given(records_of(longest=60), st.integers(2, 24), st.sampled_from(["none", "bfd", "ffd"]), st.data())
def test_each_trained_token_is_trained_on_in_one_window_after_what_precedes_it(records, most, packing, data):
    overlap = data.draw(st.integers(1, most - 1))
    packer = Packer(max_length=most, truncation="windows", window_overlap=overlap, packing=packing)
    rows = packer(batch_of(records))
    assert rows.outcomes.trained_tokens_lost == 0 and not rows.outcomes.dropped.get("no_trained_tokens_left")
    trained = Counter(token for record in records for token in record.labels if token != IGNORED)
    windows = [segment for table in tables_of(rows) for row in table for segment in row]
    assert Counter(label for window in windows for label in window.labels if label != IGNORED) == trained
    whole = {record.position: record for record in records}
    for window in windows:
        record = whole[window.position]
        first = record.ids.index(window.ids[0])
        last = first + len(window.ids)
        assert window.ids == tuple(record.ids[first:last])
        # A model is not trained to write a token that begins a window, unless a record begins with it.
        assert window.labels[0] == IGNORED or first == 0
        # It ends after a turn, unless the turn is longer than a window.
        is_within = last < len(record.ids) and record.labels[last] != IGNORED and window.labels[-1] != IGNORED
        assert not is_within or len(window.ids) == most


def test_windows_begin_with_turns_of_the_window_before():
    labels = [*[IGNORED] * 3, 103, 104, IGNORED, 106, 107, IGNORED, IGNORED, 110, 111]
    record = RowOf([*range(100, 112)], labels, False, 0)
    packer = Packer(max_length=8, truncation="windows", window_overlap=4)
    (first,), (second,) = tables_of(packer(batch_of([record])))[0]
    assert first.ids == (*range(100, 108),) and first.labels == (*labels[:8],)
    # Of the 4 tokens before, those from the end of a turn on: the turn 106 107, with the text that it answers.
    assert second.ids == (*range(105, 112),)
    assert second.labels == (IGNORED, IGNORED, IGNORED, IGNORED, IGNORED, 110, 111)


def test_no_half_turn_is_trained_on_with_truncation_turns():
    labels = [IGNORED, 101, 102, IGNORED, 104, 105, 106]
    rows = Packer(max_length=6, truncation="turns")(batch_of([RowOf([*range(100, 107)], labels, False, 0)]))
    ((segment,),), _ = tables_of(rows)
    assert segment.ids == (100, 101, 102)
    assert (rows.outcomes.truncated, rows.outcomes.trained_tokens_lost) == (1, 3)
    rows = Packer(max_length=3, truncation="turns")(batch_of([RowOf([*range(100, 107)], labels, False, 0)]))
    ((segment,),), _ = tables_of(rows)
    assert segment.ids == (100, 101, 102)  # the turn that just fits
    rows = Packer(max_length=2, truncation="turns")(batch_of([RowOf([*range(100, 107)], labels, False, 0)]))
    assert rows.outcomes.dropped == {"no_trained_tokens_left": 1}


def test_packed_row_is_shifted_as_one_row_and_predicts_nothing_from_another_segment():
    records = [RowOf([1, 2, 3], [1, 2, 3], False, 7), RowOf([4, 5], [4, 5], False, 8)]

    rows = Packer(max_length=5, packing="bfd", shift_labels=True)(batch_of(records))

    assert rows_of(rows.train, rows.source) == [[Segment((1, 2, 3), (2, 3, -100), 7), Segment((4,), (5,), 8)]]
    assert without_statistics(rows.outcomes) == Outcomes(read=2, kept=2)


def test_segment_of_one_token_at_the_end_of_a_row_disappears_if_labels_are_shifted():
    records = [
        RowOf([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9], False, 7),
        RowOf([10, 11], [10, 11], False, 8),
    ]

    rows = Packer(max_length=4, packing="bfd_split", shift_labels=True)(batch_of(records))

    assert rows_of(rows.train, rows.source) == [
        [Segment((1, 2, 3), (2, 3, 4), 7)],
        [Segment((5, 6, 7), (6, 7, 8), 7)],
        [Segment((10, 11), (11, -100), 8)],
    ]
    assert without_statistics(rows.outcomes) == Outcomes(
        read=2,
        kept=2,
        notes={"records_that_lost_trained_tokens": 1},
        first_examples={"records_that_lost_trained_tokens": (7, "2 of its 8 tokens to train on are in no row")},
        trained_tokens_lost=2,  # 5 and 9, with which pieces begin
    )


def test_each_packing_fills_rows_in_its_own_way():
    lengths = [7, 5, 4, 1]
    starts = np.cumsum([0, *lengths]).tolist()
    tokens = [list(range(start + 1, start + 1 + length)) for start, length in zip(starts, lengths, strict=False)]
    records = [RowOf(ids, ids, False, position) for position, ids in enumerate(tokens)]

    def records_of_rows(packing: str) -> list[list[int]]:
        rows = Packer(max_length=10, packing=packing)(batch_of(records))
        return [[segment.position for segment in row] for row in rows_of(rows.train, rows.source)]

    assert records_of_rows("none") == [[0], [1], [2], [3]]
    assert records_of_rows("bfd") == records_of_rows("bfd_split") == [[0], [1, 2, 3]]
    assert records_of_rows("ffd") == [[0, 3], [1, 2]]
    assert records_of_rows("wrapped") == [[0, 1], [1, 2, 3]]


def test_a_packing_is_one_function(monkeypatch):
    monkeypatch.setattr(packing, "_PACKINGS", dict(packing._PACKINGS))

    @packing.packing("twos", longer="split")
    def pack_twos(lengths: np.ndarray, capacity: int) -> Packed:
        return Packed(whole(lengths), np.append(np.arange(0, len(lengths), 2), len(lengths)))

    tokens = list(range(1, 8))
    packer = Packer(max_length=3)
    object.__setattr__(packer, "packing", "twos")  # which the options take that are declared after it
    rows = packer(batch_of([RowOf(tokens, tokens, False, 0)]))
    assert [[segment.ids for segment in row] for row in rows_of(rows.train, rows.source)] == [
        [(1, 2, 3), (4, 5, 6)],
        [(7,)],
    ]


def test_rows_taken_from_a_table_keep_their_segments():
    table = RowTable(
        ids=np.arange(1, 8, dtype=np.int32),
        labels=np.array([1, -100, 3, 4, -100, 6, 7], np.int32),
        offsets=np.array([0, 3, 4, 7]),
        segment_lengths=np.array([1, 2, 1, 3]),
        segment_offsets=np.array([0, 2, 3, 4]),
        sources=np.arange(4),
        parts=np.arange(1, 8, dtype=np.int32),
    )
    taken = table.take(np.array([2, 0]))
    assert rows_of(taken, RowSource(np.array([10, 20, 30, 40]), np.zeros(4, bool), None)) == [
        [Segment((5, 6, 7), (-100, 6, 7), 40)],
        [Segment((1,), (1,), 10), Segment((2, 3), (-100, 3), 20)],
    ]
    assert taken.parts.tolist() == [5, 6, 7, 1, 2, 3]


@pytest.mark.parametrize("packing", [packing for packing in PACKINGS if packing != "none"])
def test_packing_without_a_max_length_is_refused(packing: str):
    with pytest.raises(ValueError, match=f"packing='{packing}': it needs a max_length"):
        Packer(packing=packing)


@pytest.mark.parametrize("packing", PACKINGS)
def test_batch_without_rows_makes_tables_without_rows(packing: str):
    rows = Packer(max_length=8, packing=packing, shift_labels=True)(batch_of([]))
    assert (len(rows.train), len(rows.validation)) == (0, 0)
    assert rows.outcomes == Outcomes()


# The packings themselves.


@st.composite
def lengths_and_capacity(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(st.sampled_from([1, 2, 7, 63, 64, 65, 128, 4095, 4096, 4097, 300_000]))
    few = draw(st.lists(st.integers(1, capacity), min_size=1, max_size=5))
    short, long = st.integers(1, min(capacity, 300)), st.integers(max(1, capacity - 300), capacity)
    length = st.one_of(
        st.sampled_from(few), st.integers(1, capacity), short, long
    )  # so that free spaces are close to each other
    return draw(st.lists(length, max_size=40)), capacity


def rows_of_segments(packed: Packed, lengths: np.ndarray) -> list[list[int]]:
    """The numbers of the segments in each packed row, all of which must be whole."""
    assert not packed.segments.start.any()
    assert np.array_equal(packed.segments.length, lengths[packed.segments.source])
    return [packed.segments.source[a:b].tolist() for a, b in pairwise(packed.offsets)]


@THOROUGHLY
@given(lengths_and_capacity())
@example(([3, 3, 2, 2], 5))
@example(([60, 60, 5, 4, 4], 64))
@example(([3896, 3895, 200, 10], 4096))  # one of two free spaces is used up
def test_best_fit_decreasing_gives_the_rows_of_the_quadratic_search(case: tuple[list[int], int]):
    lengths, capacity = case
    array = np.array(lengths, np.int64)
    assert rows_of_segments(pack_bfd(array, capacity), array) == naive_bfd(lengths, capacity)


@THOROUGHLY
@given(lengths_and_capacity())
def test_first_fit_decreasing_gives_the_rows_of_the_quadratic_search(case: tuple[list[int], int]):
    lengths, capacity = case
    array = np.array(lengths, np.int64)
    assert rows_of_segments(pack_ffd(array, capacity), array) == naive_ffd(lengths, capacity)


def test_row_that_has_had_the_same_space_longest_is_filled_first():
    # Rows 0 and 1 are left with a space of 4 each, in this order, and then with one of 1.
    lengths = np.array([6, 6, 5, 1, 1, 3, 3], np.int64)
    assert rows_of_segments(pack_bfd(lengths, 10), lengths) == [[0, 5, 3], [1, 6, 4], [2]]
    # Row 1 is left with a space of 1 by the 4, and row 0 after it by the 2.
    lengths = np.array([7, 5, 4, 2, 1], np.int64)
    assert rows_of_segments(pack_bfd(lengths, 10), lengths) == [[0, 3], [1, 2, 4]]


def test_best_fit_takes_the_fullest_row_and_first_fit_the_first():
    lengths = np.array([7, 5, 4, 1], np.int64)
    assert rows_of_segments(pack_bfd(lengths, 10), lengths) == [[0], [1, 2, 3]]
    assert rows_of_segments(pack_ffd(lengths, 10), lengths) == [[0, 3], [1, 2]]


@pytest.mark.parametrize("pack", [pack_bfd, pack_ffd])
@pytest.mark.parametrize("lengths", [[3, 0], [9], [-1]])
def test_length_out_of_range_is_refused(pack, lengths: list[int]):
    with pytest.raises(ValueError, match="expected 1 to the capacity of 8"):
        pack(np.array(lengths, np.int64), 8)


@pytest.mark.parametrize("pack", [pack_bfd, pack_ffd])
@pytest.mark.parametrize("capacity", [4096, 131_072])
def test_hundred_thousand_segments_are_packed(pack, capacity: int):
    """A search over all rows for each segment would take minutes."""
    lengths = np.random.default_rng(0).lognormal(6.5, 1.0, 100_000).astype(np.int64).clip(1, capacity)
    rows = rows_of_segments(pack(lengths, capacity), lengths)
    assert sorted(segment for row in rows for segment in row) == list(range(100_000))
    filled = [int(lengths[row].sum()) for row in rows]
    assert max(filled) <= capacity
    assert len(rows) < 1.01 * lengths.sum() / capacity + 1


@THOROUGHLY
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=8), st.sampled_from(["i4", "f4", "?"]))
@example([(3, 4), (7, 0), (7, 90)], "i4")  # one after the other
@example([(0, 200), (0, 200)], "f4")  # long ones
@example([(9, 1), (2, 2)], "?")  # short ones
def test_slices_are_those_of_the_array_one_after_the_other(bounds: list[tuple[int, int]], dtype: str):
    flat = np.random.default_rng(0).integers(0, 2, 400).astype(dtype)
    starts, lengths = np.array([*bounds, (0, 0)], np.int64)[:-1].T
    sliced = slices_of(flat, starts, lengths)
    expected = [flat[start : start + length] for start, length in bounds]
    assert sliced.dtype == flat.dtype
    assert sliced.tolist() == np.concatenate([flat[:0], *expected]).tolist()


@BRIEFLY
@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 20))
def test_pieces_are_the_slices_of_each_record(lengths: list[int], capacity: int):
    expected = [
        (record, start, min(capacity, length - start))
        for record, length in enumerate(lengths)
        for start in range(0, length, capacity)
    ]
    pieces = split(np.array(lengths, np.int64), capacity)
    assert list(zip(pieces.source.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)) == expected


@BRIEFLY
@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 20))
def test_stream_is_cut_at_each_record_and_at_each_row(lengths: list[int], capacity: int):
    stream = [(record, token) for record, length in enumerate(lengths) for token in range(length)]
    expected = [
        [(record, tokens[0][1], len(tokens)) for record, tokens in grouped_by_record(stream[start : start + capacity])]
        for start in range(0, len(stream), capacity)
    ]

    pieces, offsets = pack_wrapped(np.array(lengths, np.int64), capacity)

    found = list(zip(pieces.source.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True))
    assert [found[a:b] for a, b in pairwise(offsets)] == expected


def grouped_by_record(tokens: list[tuple[int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
    return [(record, list(group)) for record, group in groupby(tokens, key=lambda token: token[0])]
