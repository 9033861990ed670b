"""Truncation and packing, compared with slow plain Python that does the same with lists and loops.

Here a token is a number: its id, negative if it is not trained on. No id occurs twice, so that a lost or repeated token
is noticed. A record and a segment are lists of tokens, a row is a list of segments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.datasets import assert_statistics_add_up, read_manifest, read_rows, write_jsonl
from support.drawn import examples
from support.paths import TOKENIZER
from transforms import ParameterError, pack

PACKINGS = ("none", "bfd_split", "bfd", "ffd", "wrapped")
TRUNCATIONS = ("keep_start", "keep_end", "turns", "windows", "drop")
CUT = ("bfd_split", "wrapped")  # packings that cut records that are too long into pieces, and truncate none
THOROUGHLY = examples(300)

Tokens = list[int]
Row = list[Tokens]


@dataclass(frozen=True)
class Options:
    max_length: int | None
    packing: str = "none"
    truncation: str = "keep_start"
    window_overlap: int | None = None
    shift_labels: bool = False


def packed(records: list[Tokens], options: Options) -> list[dict[str, Any]]:
    return pack([{name: as_row([record], False)[name] for name in ("input_ids", "labels")} for record in records],
                **asdict(options))  # fmt: skip


def as_row(segments: Row, shift: bool) -> dict[str, Any]:
    """What is written of a row. If labels are shifted, a token has the label of the next one."""
    tokens = [*chain.from_iterable(segments)]
    ids, labels = [abs(token) for token in tokens], [token if token > 0 else -100 for token in tokens]
    lengths = [len(segment) for segment in segments]
    if shift:
        ids, labels = ids[:-1], labels[1:]
        lengths[-1] -= 1
    return {"input_ids": ids, "labels": labels, "seq_lengths": [length for length in lengths if length]}


# The naive packer.


def naive_pack(records: list[Tokens], options: Options) -> list[Row]:
    rows = naive_rows([*chain.from_iterable(naive_pieces_left(record, options) for record in records)], options)
    rows = [[predictable(segment, options) for segment in row] for row in rows]
    return [row for row in rows if is_trained(row)]


def is_trained(segments: Row) -> bool:
    return any(token > 0 for segment in segments for token in segment)


def untrained(tokens: Tokens) -> Tokens:
    return [-abs(token) for token in tokens]


def predictable(segment: Tokens, options: Options) -> Tokens:
    """If labels are shifted, nothing predicts the first token of a segment."""
    return untrained(segment[:1]) + segment[1:] if options.shift_labels else segment


def naive_pieces_left(record: Tokens, options: Options) -> list[Tokens]:
    """The pieces that go into rows: none if no label is left."""
    pieces = naive_pieces(record, options)
    return pieces if is_trained([predictable(piece, options) for piece in pieces]) else []


def naive_pieces(record: Tokens, options: Options) -> list[Tokens]:
    """What is kept of a record: all of it, one end of it, windows or pieces."""
    most = options.max_length
    if most is None or len(record) <= most or options.packing == "wrapped":
        return [record]
    if options.packing == "bfd_split":
        return [record[start : start + most] for start in range(0, len(record), most)]
    turns = naive_turns(predictable(record, options))
    match options.truncation:
        case "drop":
            return []
        case "windows":
            return [*naive_windows(record, turns, most, options.window_overlap or max(most // 4, 1))]
        case "turns":
            return [record[: max([stop for _, stop in turns if stop <= most], default=0)]]
        case "keep_end":
            return [record[-most:]]
        case _:
            return [record[:most]]


def naive_turns(record: Tokens) -> list[tuple[int, int]]:
    """Where each run of trained tokens begins and ends."""
    runs = [[*run] for _, run in groupby(range(len(record)), key=lambda number: record[number] > 0)]
    return [(run[0], run[-1] + 1) for run in runs if record[run[0]] > 0]


def naive_windows(record: Tokens, turns: list[tuple[int, int]], most: int, overlap: int) -> Iterator[Tokens]:
    """Try every place where a window may begin, the first one that leaves the space for the next turn is taken."""
    done, length = 0, len(record)
    while left := [(start, stop) for start, stop in turns if stop > done]:
        start, stop = left[0]
        places = [place for place in (0, *(stop for _, stop in turns)) if done - overlap <= place <= done]
        places += range(done + 1, start)  # what a user writes may be cut
        begin = next((place for place in places if stop - place <= most), max(start - overlap, 0))
        if start < done:
            begin = done - overlap
        fit = [stop for _, stop in left if stop - begin <= most]
        end = (length if fit[-1] == turns[-1][1] and length - begin <= most else fit[-1]) if fit else begin + most
        yield untrained(record[begin:done]) + record[max(begin, done) : end]
        done = end


def naive_rows(segments: list[Tokens], options: Options) -> list[Row]:
    capacity = options.max_length or 0
    match options.packing:
        case "none":
            return [[segment] for segment in segments]
        case "wrapped":
            stream = [(number, token) for number, segment in enumerate(segments) for token in segment]
            rows = [stream[start : start + capacity] for start in range(0, len(stream), capacity)]
            return [[[token for _, token in own] for _, own in groupby(row, key=lambda each: each[0])] for row in rows]
        case "ffd":
            return naive_fit(segments, capacity, lambda row, space, since: row)
        case _:
            return naive_fit(segments, capacity, lambda row, space, since: (space, since))


def naive_fit(segments: list[Tokens], capacity: int, order: Any) -> list[Row]:
    """Longest first, each into the row that has the space and is the first in an order.

    The order is of the number of the row (first fit), or of the space and how long the row has had it (best fit).
    """
    rows: list[Row] = []
    space: list[int] = []
    since: list[int] = []
    for time, segment in enumerate(sorted(segments, key=len, reverse=True)):
        enough = [row for row in range(len(rows)) if space[row] >= len(segment)]
        if not enough:
            enough = [len(rows)]
            rows.append([])
            space.append(capacity)
            since.append(time)
        row = min(enough, key=lambda row: order(row, space[row], since[row]))
        rows[row].append(segment)
        space[row] -= len(segment)
        since[row] = time
    return rows


def check_laws(rows: list[Row], records: list[Tokens], options: Options) -> None:
    """Hold the naive packer to what must hold of any packing."""
    assert all(is_trained(row) for row in rows)
    assert options.max_length is None or all(sum(map(len, row)) <= options.max_length for row in rows)
    make_record = {abs(token): record for record in records for token in record}
    trained = sorted(token for record in records for token in predictable(record, options) if token > 0)
    placed = sorted(token for row in rows for segment in row for token in segment if token > 0)
    assert {*placed} <= {*trained} and len({*placed}) == len(placed)
    for segment in chain.from_iterable(rows):
        record = untrained(make_record[abs(segment[0])])
        first = record.index(-abs(segment[0]))
        assert untrained(segment) == record[first : first + len(segment)]
        # A model is not trained to write a token that begins a window, unless a record begins with it.
        assert options.truncation != "windows" or options.packing in CUT or segment[0] < 0 or first == 0
    if options.truncation == "windows" and options.packing not in CUT:
        assert placed == trained


# What is compared.


def numbered(masks: list[list[bool]]) -> list[Tokens]:
    numbers = iter(range(1, 1 + sum(map(len, masks))))
    return [[next(numbers) * (1 if is_trained else -1) for is_trained in mask] for mask in masks]


kinds = st.sampled_from([st.booleans(), st.booleans(), st.just(False), st.just(True)])
read_records = st.lists(kinds.flatmap(lambda kind: st.lists(kind, min_size=1, max_size=40)), max_size=14).map(numbered)


@st.composite
def make_options(draw: st.DrawFn) -> Options:
    packing = draw(st.sampled_from(PACKINGS))
    truncation = draw(st.sampled_from(("keep_start", "keep_end", "drop") if packing in CUT else TRUNCATIONS))
    lengths = st.integers(2 if truncation == "windows" else 1, 24)
    most = draw(lengths if packing != "none" else st.one_of(st.none(), lengths))
    has_overlap = truncation == "windows" and most is not None
    overlap = draw(st.one_of(st.none(), st.integers(1, (most or 0) - 1))) if has_overlap else None
    return Options(most, packing, truncation, overlap, draw(st.booleans()))


@THOROUGHLY
@given(make_options(), read_records)
@example(Options(4, "wrapped", shift_labels=True), [[-1, -2, -3, -4, 5]])
@example(Options(4, "bfd_split", shift_labels=True), [[-1, -2, -3, -4, 5]])
@example(Options(1, "bfd", shift_labels=True), [[1, 2]])
@example(Options(2, truncation="drop"), [[-1, -2, -3]])
@example(Options(8, "none", "windows", 4), [[-1, -2, -3, 4, 5, -6, 7, 8, -9, -10, 11, 12]])  # the second one is full
def test_rows_equal_those_of_the_naive_packer(options: Options, records: list[Tokens]):
    expected = naive_pack(records, options)
    check_laws(expected, records, options)
    assert packed(records, options) == [as_row(row, options.shift_labels) for row in expected]


@pytest.mark.parametrize("packing", PACKINGS)
def test_packing_needs_a_max_length_and_nothing_makes_no_rows(packing: str):
    assert packed([], Options(8, packing, shift_labels=True)) == []
    if packing != "none":
        with pytest.raises(ParameterError, match=f"packing='{packing}': it needs a max_length"):
            packed([], Options(None, packing))
    with pytest.raises(ParameterError, match="examples=1: 1 labels of 2 input_ids"):
        pack([{"input_ids": [1], "labels": [1]}, {"input_ids": [1, 2], "labels": [1]}], None)


def lengths_and_capacity(capacity: int) -> Any:
    edges = st.integers(1, min(capacity, 300)), st.integers(max(1, capacity - 300), capacity)
    return st.tuples(st.lists(st.one_of(st.integers(1, capacity), *edges), max_size=40), st.just(capacity))


@examples(100)
@given(
    st.sampled_from([1, 2, 7, 63, 64, 65, 128, 4095, 4096, 4097]).flatmap(lengths_and_capacity),
    st.sampled_from(["bfd", "ffd", "none"]),
)
@example(([3896, 3895, 200, 10], 4096), "bfd")  # one of two free spaces is used up
def test_long_segments_are_in_the_rows_of_the_quadratic_search(case: tuple[list[int], int], packing: str):
    lengths, capacity = case
    records = [[number + 1] * length for number, length in enumerate(lengths)]
    options = Options(capacity, packing)
    assert packed(records, options) == [as_row(row, False) for row in naive_rows(records, options)]


@pytest.mark.parametrize("packing", ["bfd", "ffd"])
def test_hundred_thousand_segments_are_packed(packing: str):
    """A search over all rows for each segment would take minutes."""
    lengths = np.random.default_rng(0).lognormal(1.5, 1.0, 100_000).astype(np.int64).clip(1, 64)
    records = [np.full(length, number) for number, length in enumerate(lengths.tolist())]
    rows = pack([{"input_ids": record, "labels": record} for record in records], 64, packing=packing)
    assert sorted(row["input_ids"][sum(row["seq_lengths"][:n])] for row in rows for n in range(len(row["seq_lengths"]))
                  ) == [*range(100_000)]  # fmt: skip
    assert max(len(row["input_ids"]) for row in rows) <= 64 and len(rows) < 1.01 * lengths.sum() / 64 + 1


# The same in a build, and what becomes of each record.


def naive_outcome(record: Tokens, options: Options) -> str:
    if not is_trained([record]):
        return "no_trained_tokens"
    pieces = naive_pieces(record, options)
    if not pieces and options.truncation == "drop":
        return "too_long"
    if not is_trained([predictable(record, options)]):
        return "no_trained_tokens"
    if not naive_pieces_left(record, options):
        return "no_trained_tokens_left"
    return "kept" if {abs(token) for piece in pieces for token in piece} == {*map(abs, record)} else "truncated"


def trained_tokens(segments: Row) -> set[int]:
    return {token for segment in segments for token in segment if token > 0}


@pytest.mark.parametrize(
    "options",
    [
        Options(None),
        Options(18, "none", "drop", shift_labels=True),
        Options(12, "bfd", "keep_end"),
        Options(12, "ffd", "turns", shift_labels=True),
        Options(9, "bfd", "windows", 3, shift_labels=True),
        Options(12, "bfd_split", "drop", shift_labels=True),
        Options(12, "wrapped"),
    ],
    ids=lambda options: f"{options.packing}-{options.truncation}",
)
def test_build_has_the_rows_and_outcomes_of_the_naive_packer(build, tmp_path, options: Options):
    draw = random.Random(7)
    share = [draw.choice((0, 0.3, 0.6, 1)) for _ in range(140)]
    records = numbered([[draw.random() < part for _ in range(draw.randrange(1, 24))] for part in share])
    records += [[3001], [3002, -3003], [-3004, 3005]]  # nothing predicts the first token
    records += [[*range(-3100, -3112, -1), 3112, *range(-3113, -3120, -1)]]  # nor that of a second piece of 12
    lines = [{name: as_row([record], False)[name] for name in ("input_ids", "labels")} for record in records]
    given = {f"--{name}={value}".lower() for name, value in asdict(options).items() if value is not None}
    output = tmp_path / "out"
    corpus = f"--input={write_jsonl(tmp_path / 'rows.jsonl', lines)}"
    more = ["--write_columns=input_ids,labels,seq_lengths", "--validation_fraction=0.3"]
    ended = build(corpus, f"--tokenizer={TOKENIZER}", f"--output={output}", *given, *more)
    assert ended.code == 0, ended.err

    rows = {split: read_rows(output, split) for split in ("train", "validation")}
    held_back = {token for row in rows["validation"] for token in row["input_ids"]}
    sides = {"train": [], "validation": []}
    for record in records:
        sides["validation" if held_back & {*map(abs, record)} else "train"].append(record)
    assert 0 < sum(map(len, sides["validation"])) < 0.5 * sum(map(len, records))
    expected = {split: naive_pack(own, options) for split, own in sides.items()}
    assert rows == {split: [as_row(row, options.shift_labels) for row in own] for split, own in expected.items()}

    manifest = read_manifest(output)
    outcomes = [naive_outcome(record, options) for record in records]
    counted = {"kept": manifest["records"]["kept"], "truncated": manifest["records"]["truncated"]}
    assert counted | manifest["records"]["dropped"] == {"kept": 0, "truncated": 0} | {
        outcome: outcomes.count(outcome) for outcome in outcomes
    }
    placed = trained_tokens([segment for own in expected.values() for row in own for segment in row])
    lost = [trained_tokens([predictable(record, options)]) - placed for record in records]
    assert manifest["trained_tokens_lost"] == sum(map(len, lost))
    assert manifest["notes"].get("records_that_lost_trained_tokens", 0) == sum(map(bool, lost))
    windows = sum(len(row) for own in expected.values() for row in own)
    added = windows - outcomes.count("kept") - outcomes.count("truncated") if options.truncation == "windows" else 0
    assert manifest["notes"].get("window_rows_added", 0) == added
    assert_statistics_add_up(manifest)
