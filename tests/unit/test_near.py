"""Near duplicates: which pairs are proposed, how similar they are, and which records stay."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.exchange import near_index
from transforms.exchange.near import decided, pairs_of
from transforms.exchange.near_index import NEAR_ENTRY, NearIndex, path_beside, read_sets
from transforms.model.batches import Examples, RowSource, Split
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, TokenRow
from transforms.model.outcomes import Outcomes
from transforms.rows.ragged import offsets_of
from transforms.similarity.jaccard import similarities
from transforms.similarity.minhash import band_hashes, bands_for
from transforms.similarity.shingles import ANSWERED, shingles_of
from transforms.steps.shingle import Shingler

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def runs(words: list[str]) -> set[tuple[str, ...]]:
    """The runs of five words; all of them, if there are fewer."""
    return {tuple(words[at : at + 5]) for at in range(max(len(words) - 4, 1))} if words else set()


def jaccard(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> float:
    return len(one & other) / len(one | other) if one | other else 1.0


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
def test_similarity_is_the_lower_one_of_what_was_asked_and_what_was_answered(records):
    values, offsets = shingles_of([(" ".join(a).encode(), b" ".join(map(str.encode, b))) for a, b in records])
    expected = [(runs(asked), runs(answered)) for asked, answered in records]
    assert np.diff(offsets).tolist() == [len(asked) + len(answered) for asked, answered in expected]
    for number, (_, answered) in enumerate(expected):
        own = values[offsets[number] : offsets[number + 1]]
        assert own.tolist() == sorted(set(own.tolist())) and (own >= ANSWERED).sum() == len(answered)
    first, second = (each.ravel() for each in np.indices((len(records), len(records))))
    assert similarities(values, offsets, first, second).tolist() == [
        min(map(jaccard, expected[one], expected[other])) for one, other in zip(first, second, strict=True)
    ]


@pytest.mark.parametrize(
    ("similarity", "expected"), [(0.5, (35, 3)), (0.7, (17, 4)), (0.8, (16, 6)), (0.9, (11, 10)), (1.0, (1, 128))]
)
def test_bands_find_nearly_all_pairs_of_a_similarity(similarity, expected):
    bands = bands_for(similarity)
    assert bands == expected and bands.recall(similarity) >= 0.99 and bands.bands * bands.rows <= 128


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9])
def test_sets_have_a_band_in_common_as_often_as_computed(similarity):
    generator, bands = np.random.default_rng(0), bands_for(0.8)
    shared, own = round(200 * similarity), round(100 * (1 - similarity))  # of 200 in one set or the other
    sets = []
    for _ in range(2000):
        values = generator.integers(0, 1 << 32, shared + 2 * own, dtype=np.uint64).astype(np.uint32)
        sets += [values[: shared + own], np.delete(values, np.s_[shared : shared + own])]
    offsets = offsets_of(np.full(len(sets), shared + own))
    hashes = band_hashes(np.concatenate(sets), offsets, bands)
    found = (hashes[::2] == hashes[1::2]).any(axis=1).mean()
    assert abs(found - bands.recall(similarity)) < 0.03
    # A set has the same bands wherever it is.
    assert np.array_equal(band_hashes(sets[7], np.array([0, len(sets[7])]), bands)[0], hashes[7])


def entries_of(sets: list[int], sizes: list[int] | None = None) -> np.ndarray:
    """An entry of the same band for each record, in the order of the input."""
    entries = np.zeros(len(sets), NEAR_ENTRY)
    entries["hash"], entries["set"], entries["at"] = 7, sets, np.arange(len(sets)) * 10
    entries["size"] = sizes or 10
    return entries


def proposed(entries: np.ndarray, numbers: list[int] | None = None) -> set[tuple[int, int]]:
    """The pairs, by the numbers of the entries: the later one and the earlier one."""
    of = np.array(numbers or [0] * len(entries), np.int64)
    splits, pairs = pairs_of(entries, of, 0.8)
    assert splits.tolist() == sorted(splits.tolist())
    place = {(int(split), int(at)): number for number, (split, at) in enumerate(zip(of, entries["at"], strict=True))}
    later = zip(splits.tolist(), pairs["at"].tolist(), strict=True)
    earlier = zip(pairs["split"].tolist(), pairs["of_at"].tolist(), strict=True)
    return {(place[one], place[other]) for one, other in zip(later, earlier, strict=True)}


def test_records_of_one_band_are_compared_in_pairs_of_which_the_later_one_comes_first():
    entries = entries_of([5, 3, 9, 3])
    assert proposed(entries) == {(1, 0), (2, 0), (2, 1), (3, 1)}
    assert proposed(entries[:3], [2, 1, 0]) == {(0, 1), (0, 2), (1, 2)}
    assert proposed(entries[:1]) == proposed(entries[:0]) == set()
    assert proposed(entries_of([5, 3, 9], [100, 80, 79])) == {(1, 0), (2, 1)}  # 79 of 100 cannot be similar


def test_a_band_that_all_records_have_costs_no_more_than_so_many_pairs_of_each():
    copies = proposed(entries_of([4] * 1000))
    assert copies == {(later, 0) for later in range(1, 1000)}
    sets = random.Random(0).sample(range(1 << 20), 1000)
    found = proposed(entries_of(sets))
    assert found >= {(later, earlier) for later in range(1000) for earlier in range(min(later, 4))}
    assert 20 * 1000 > len(found) > 19.5 * 1000
    assert len(proposed(entries_of(sets[:17]))) == 17 * 16 // 2  # all of them


def naive(later: list[int], earlier: list[int], similar: list[float], dropped: list[bool]) -> list[int]:
    kept: list[int] = []
    for record in range(len(dropped)):
        edges = [(s, -e) for r, e, s in zip(later, earlier, similar, strict=True) if r == record and kept[e] == e]
        kept.append(-1 if dropped[record] else -max(edges)[1] if edges else record)
    return kept


@given(st.data())
def test_record_is_dropped_if_it_is_similar_to_an_earlier_one_that_is_kept(data):
    count = data.draw(st.integers(1, 8))
    pairs = [(one, other) for one in range(count) for other in range(one)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    later, earlier = [one for one, _ in edges], [other for _, other in edges]
    similar = data.draw(st.lists(st.sampled_from([0.8, 0.9]), min_size=len(edges), max_size=len(edges)))
    dropped = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kept, found = (
        decided(*map(np.array, (later, earlier)), np.array(similar, float), np.array(dropped))
        if edges
        else (
            np.where(dropped, -1, np.arange(count)),
            np.ones(count),
        )
    )
    assert kept.tolist() == naive(later, earlier, similar, dropped)
    of = {(one, other): similarity for one, other, similarity in zip(later, earlier, similar, strict=True)}
    for record, other in enumerate(kept.tolist()):
        if 0 <= other != record:
            assert kept[other] == other and found[record] == of[record, other]


def test_a_chain_of_similar_records_does_not_end_in_one_that_is_not():
    kept, _ = decided(np.array([1, 2]), np.array([0, 1]), np.array([0.9, 0.9]), np.zeros(3, bool))
    assert kept.tolist() == [0, 0, 2]
    # The copies of a set are compared with the first of them alone, and are as similar to others as that one.
    kept, found = decided(np.array([1, 2]), np.array([0, 1]), np.array([0.9, 1.0]), np.zeros(3, bool))
    assert (kept.tolist(), found.tolist()) == ([0, 0, 0], [1.0, 0.9, 0.9])


def source_of(positions: list[int], sets: list[list[int]]) -> RowSource:
    shingles = [np.array(each, "<u4").tobytes() for each in sets]
    return RowSource(np.array(positions), np.zeros(len(positions), bool), None, shingles=shingles)


def test_sets_are_read_as_they_were_written(tmp_path, monkeypatch):
    wanted, every = [], []
    for split in range(2):
        index = NearIndex(0.8)
        # Two rows of a record have its shingles both; the second record has none.
        index.add(source_of([10, 10, 20, 30], [[1, 2], [1, 2], [], [3 + split]]), np.array([5, 6, 7]))
        index.add(source_of([], []), np.zeros(0, np.int64))
        index.add(source_of([40, 50], [[4, 5, 6], [2**32 - 1]]), np.array([8, 9]))
        sets, content, starts = index.content()
        path = f"sent/{split:07d}r"
        (tmp_path / "sent").mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(sets + b"blocks")
        entries = np.frombuffer(content, NEAR_ENTRY)
        assert starts[-1] == len(content) and len(entries) == 4 * 16 and len(starts) == 65
        assert (np.diff(entries["hash"] >> np.uint64(58)).astype(np.int64) >= 0).all()
        at, numbers = np.unique(entries["at"], return_index=True)
        wanted.append((path_beside("sent/0000017r", split), at, entries["size"][numbers]))
        every += [(10, 5, [1, 2]), (30, 7, [3 + split]), (40, 8, [4, 5, 6]), (50, 9, [2**32 - 1])]

    def read(some: list[tuple[str, np.ndarray, np.ndarray]]) -> list[tuple[int, int, list[int]]]:
        found = read_sets(str(tmp_path), some)
        values = np.split(found.values, found.offsets[1:-1])
        return list(
            zip(found.positions.tolist(), found.trained.tolist(), [each.tolist() for each in values], strict=True)
        )

    requests = list[int]()
    read_ranges = near_index.read_ranges
    monkeypatch.setattr(
        near_index, "read_ranges", lambda output, ranges: (requests.append(len(ranges)), read_ranges(output, ranges))[1]
    )
    assert read(wanted) == every
    monkeypatch.setattr(near_index, "_GAP_UNITS", 0)
    assert read([(path, at[::2], sizes[::2]) for path, at, sizes in wanted]) == every[::2]
    assert requests == [2, 4]  # one for each file, as all is close together; one for each record


def test_record_has_the_shingles_of_all_its_examples_and_is_counted_if_it_has_no_words():
    def example(position: int, content: object, number: int = 0) -> Example:
        return Example(position, content, {}, False, b"", number=number)  # type: ignore[arg-type]

    def message(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    asked, answered = message("user", "How are you?"), message("assistant", "FINE, thanks!")
    examples = [
        example(0, Conversation([message("system", "You are kind."), asked, answered])),
        example(9, PromptCompletion("how are you", "fine thanks")),
        example(20, PlainText("fine thanks")),
        example(31, TokenRow(np.zeros(2, np.int32), np.ones(2, bool))),
        example(44, Conversation([asked, answered])),
        example(44, Conversation([asked, message("assistant", "Bad.")]), 1),
    ]
    batch = Shingler()(Examples(Split(0, ()), 0, True, Outcomes(read=5), examples))
    found = [np.frombuffer(each.shingles or b"", "<u4").tolist() for each in batch.examples]
    assert found[0] == found[1] and found[2] == found[0][1:] and found[3] == []
    assert found[4] == found[5] and len(found[4]) == 3 and not {*found[4]} & {*found[0]}
    assert batch.outcomes.notes == {"not_compared_with_others": 1}
