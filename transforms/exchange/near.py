"""Near duplicates: of records that say nearly the same, the first one of the input stays.

Judges, each of a range of hashes of bands, propose pairs of records that have a band in common. Each split then reads
the shingles of its proposed pairs, and keeps the pairs that are similar. One place goes through all of these in the
order of the input: a record is dropped if it is similar to an earlier one that is kept. So each record that is dropped
was compared with the one that stays in its place: at the ends of a chain of similar records are often others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np

from transforms.exchange.duplicates import Judged, Origins, decode_verdict, ranges_by_split, write_verdicts
from transforms.exchange.gather import KEY, SentBy
from transforms.exchange.judges import Splits, judges_of, read_entries
from transforms.exchange.near_index import NEAR_ENTRY, path_beside, read_sets
from transforms.exchange.ranges import Range, read_ranges
from transforms.model.receipts import work_of
from transforms.rows.ragged import joined, offsets_of
from transforms.similarity.jaccard import similarities
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join
from transforms.storage.writing import write_atomically

# A judge holds so many entries at most, in 1 GB, unless there are more than 64 times as many.
_ENTRIES_OF_JUDGE = 8 << 20
# With how many other sets each set is compared at most because of one band; and, if there are more, with how many of
# the earliest as well: of a large cluster, these are kept.
_MOST_PAIRS_OF_BAND, _EARLIEST = 16, 4
# Shingles of so many other records are held at once, in 400 MB.
_SHINGLES_AT_ONCE = 16 << 20
# A pair of records, of the split of the later one: where that is, and how many shingles it has; the split of the other
# one, and the same of it.
_PAIR = np.dtype([("at", "<u4"), ("size", "<u4"), ("split", "<u4"), ("of_at", "<u4"), ("of_size", "<u4")])
# Two records that are similar, of the split of the later one.
_EDGE = np.dtype(
    [("position", "<i8"), ("trained", "<i8"), ("of_split", "<i8"), ("of_position", "<i8"), ("similarity", "<f8")]
)


class JudgeNearDuplicates(beam.PTransform):
    """Find the near duplicates among all records that were sent, besides those with the same tokens.

    (PCollection[tuple[int, list[SentBy]]] of Gather, PCollection[Judged] of JudgeDuplicates) -> PCollection[Judged].

    Args:
        output: the folder of the dataset.
        increment: the id of the increment that is built.
        plan: the url of its plan.
        split_bytes: of its splits.
        similarity: of near duplicates, at least.
    """

    def __init__(self, output: str, increment: str, plan: str, split_bytes: int, similarity: float):
        super().__init__()
        folder = join(work_of("", increment), "near")
        self._propose = _Propose(output, folder, similarity)
        self._verify = _Verify(output, folder, similarity)
        self._decide = _Decide(output, join(work_of("", increment), "judged", "near"), plan, split_bytes)

    def expand(self, found: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        gathered, judged = found
        tasks = gathered | "judges" >> beam.FlatMap(_judges) | "spread judges" >> beam.Reshuffle()
        proposed = tasks | "propose" >> beam.ParDo(self._propose) | "of judges" >> beam.WithKeys(KEY)
        to_verify = {"sent": gathered, "proposed": proposed} | "pairs" >> beam.CoGroupByKey()
        tasks = to_verify | "splits" >> beam.FlatMap(_splits) | "spread splits" >> beam.Reshuffle()
        verified = tasks | "verify" >> beam.ParDo(self._verify) | "of splits" >> beam.WithKeys(KEY)
        exact = judged | "of exact judges" >> beam.WithKeys(KEY)
        to_decide = {"verified": verified, "exact": exact} | "similar" >> beam.CoGroupByKey()
        return to_decide | "decide" >> beam.ParDo(self._decide).with_output_types(Judged)


def _judges(gathered: tuple[int, Sequence[SentBy]]) -> Iterator[tuple[int, Splits]]:
    splits = [(each.split, each.sent.path, each.sent.near) for each in gathered[1] if each.sent]
    return judges_of(splits, _ENTRIES_OF_JUDGE * NEAR_ENTRY.itemsize)


class _Proposed(NamedTuple):
    """A file of pairs: its path, and by the number of the split of the later records, bytes of it."""

    path: str
    pairs: Mapping[int, tuple[int, int]]


class _Propose(beam.DoFn):
    def __init__(self, output: str, folder: str, similarity: float):
        self._output, self._folder, self._similarity = output, folder, similarity
        self._failures = FailureWriter()

    def process(self, task: tuple[int, Splits]) -> Iterator[_Proposed]:
        with self._failures:
            proposed = self._proposed(*task)
        yield proposed

    def _proposed(self, judge: int, splits: Splits) -> _Proposed:
        entries, numbers = read_entries(self._output, splits, NEAR_ENTRY)
        numbers, pairs = pairs_of(entries, numbers, self._similarity)
        path = join(self._folder, f"pairs-{judge:02d}")
        write_atomically(join(self._output, path), pairs.tobytes())
        bounds = np.append(np.flatnonzero(np.diff(numbers, prepend=-1)), len(numbers))
        bytes_of = (bounds * _PAIR.itemsize).tolist()
        of_splits = zip(numbers[bounds[:-1]].tolist(), bytes_of, bytes_of[1:], strict=False)
        return _Proposed(path, {number: (start, stop) for number, start, stop in of_splits})


def pairs_of(entries: np.ndarray, numbers: np.ndarray, similarity: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of records that may be similar since they have a band in common.

    Of records with the same set, each is compared with the first of them alone; and each set with 16 others because of
    one band, and with the 4 earliest: so a template that all records share, or a record that is copied often, does not
    cost all pairs.

    Args:
        entries: NEAR_ENTRY, shape (entries,).
        numbers: int64, shape (entries,): the number of the split of each.
        similarity: of near duplicates, at least.

    Returns:
        int64, shape (pairs,): the number of the split of the later record, ascending; _PAIR, shape (pairs,).
    """
    if not len(entries):
        return numbers, np.zeros(0, _PAIR)
    order = np.argsort(entries["hash"], kind="stable")
    is_same = np.diff(entries["hash"][order]) == 0
    some = order[np.append(is_same, False) | np.append(False, is_same)]
    some = some[np.lexsort([entries["at"][some], numbers[some], entries["set"][some], entries["hash"][some]])]
    entries, numbers = entries[some], numbers[some]
    is_new_band = np.append(True, np.diff(entries["hash"]) != 0)[: len(entries)]
    is_new_set = is_new_band | np.append(True, np.diff(entries["set"]) != 0)[: len(entries)]
    firsts = np.flatnonzero(is_new_set)
    copies = np.flatnonzero(~is_new_set)
    ones, others = [copies], [firsts[np.cumsum(is_new_set)[copies] - 1]]
    bands = np.cumsum(is_new_band)[firsts]
    for step in range(1, _MOST_PAIRS_OF_BAND + 1):
        in_band = np.flatnonzero(bands[step:] == bands[:-step])
        if not len(in_band):
            break
        ones.append(firsts[in_band])
        others.append(firsts[in_band + step])
    in_order = firsts[np.lexsort([entries["at"][firsts], numbers[firsts], bands])]
    begins = np.flatnonzero(np.diff(bands, prepend=0))
    counts = np.diff(np.append(begins, len(bands)))
    begin, count = np.repeat(begins, counts), np.repeat(counts, counts)
    for number in range(_EARLIEST):
        after = np.flatnonzero((np.arange(len(bands)) - begin > number) & (count > _MOST_PAIRS_OF_BAND + 1))
        ones.append(in_order[after])
        others.append(in_order[begin[after] + number])
    one, other = np.concatenate(ones), np.concatenate(others)
    small, large = np.sort([entries["size"][one], entries["size"][other]], axis=0)
    is_possible = small >= similarity * large
    one, other = one[is_possible], other[is_possible]
    is_later = (numbers[one] > numbers[other]) | (
        (numbers[one] == numbers[other]) & (entries["at"][one] > entries["at"][other])
    )
    later, earlier = np.where(is_later, one, other), np.where(is_later, other, one)
    pairs = np.zeros(len(later), _PAIR)
    pairs["at"], pairs["size"] = entries["at"][later], entries["size"][later]
    pairs["split"], pairs["of_at"], pairs["of_size"] = (
        numbers[earlier],
        entries["at"][earlier],
        entries["size"][earlier],
    )
    numbers = numbers[later]
    order = np.argsort(numbers, kind="stable")
    return numbers[order], pairs[order]


# Of a split whose records are the later ones of pairs: its number, the path of its file, and where the pairs are.
_OfSplit = tuple[int, str, list[Range]]


def _splits(group: tuple[int, Mapping[str, Iterable[Any]]]) -> Iterator[_OfSplit]:
    [gathered] = group[1]["sent"]
    ranges: defaultdict[int, list[Range]] = defaultdict(list)
    for path, pairs in sorted(group[1]["proposed"]):
        for number, (start, stop) in pairs.items():
            ranges[number].append((path, start, stop))
    yield from ((each.split, each.sent.path, ranges[each.split]) for each in gathered if each.split in ranges)


class _Verified(NamedTuple):
    """A file of edges: the number of the split of the later records, and its path and bytes."""

    split: int
    edges: Range


class _Verify(beam.DoFn):
    def __init__(self, output: str, folder: str, similarity: float):
        self._output, self._folder, self._similarity = output, folder, similarity
        self._failures = FailureWriter()

    def process(self, task: _OfSplit) -> Iterator[_Verified]:
        with self._failures:
            verified = self._verified(*task)
        if verified:
            yield verified

    def _verified(self, split: int, path: str, ranges: Sequence[Range]) -> _Verified | None:
        pairs = _unique(np.frombuffer(b"".join(read_ranges(self._output, ranges)), _PAIR))
        edges = joined([self._edges(path, each) for each in _at_once(pairs)], _EDGE)
        if not len(edges):
            return None
        edges_path = join(self._folder, f"edges-{split:07d}")
        write_atomically(join(self._output, edges_path), edges.tobytes())
        return _Verified(split, (edges_path, 0, edges.nbytes))

    def _edges(self, path: str, pairs: np.ndarray) -> np.ndarray:
        """The pairs that are similar, of some that are in the order of the earlier records."""
        own, one = np.unique(pairs["at"], return_index=True)
        wanted = [(path, own, pairs["size"][one])]
        number = np.searchsorted(own, pairs["at"])
        is_new = np.append(True, (np.diff(pairs["split"]) != 0) | (np.diff(pairs["of_at"]) != 0))
        others = pairs[is_new]
        of_number = len(own) + np.cumsum(is_new) - 1
        for of_split in np.split(others, np.flatnonzero(np.diff(others["split"])) + 1):
            beside = path_beside(path, int(of_split["split"][0]))
            wanted.append((beside, of_split["of_at"], of_split["of_size"]))
        sets = read_sets(self._output, wanted)
        found = similarities(sets.values, sets.offsets, number, of_number)
        similar = np.flatnonzero(found >= self._similarity)
        edges = np.zeros(len(similar), _EDGE)
        edges["position"], edges["trained"] = sets.positions[number[similar]], sets.trained[number[similar]]
        edges["of_split"], edges["of_position"] = pairs["split"][similar], sets.positions[of_number[similar]]
        edges["similarity"] = found[similar]
        return edges


def _unique(pairs: np.ndarray) -> np.ndarray:
    """Pairs without those that several judges proposed, in the order of the earlier records."""
    pairs = pairs[np.lexsort((pairs["at"], pairs["of_at"], pairs["split"]))]
    is_new = np.append(True, np.any([np.diff(pairs[name]) != 0 for name in ("split", "of_at", "at")], axis=0))
    return pairs[is_new[: len(pairs)]]


def _at_once(pairs: np.ndarray) -> Iterator[np.ndarray]:
    """Cut pairs where the shingles of their earlier records are too many."""
    shingles = offsets_of(pairs["of_size"].astype(np.int64))[:-1] // _SHINGLES_AT_ONCE
    yield from (each for each in np.split(pairs, np.flatnonzero(np.diff(shingles)) + 1) if len(each))


class _Decide(beam.DoFn):
    def __init__(self, output: str, path: str, plan: str, split_bytes: int):
        self._output, self._path = output, path
        self._origins = Origins(plan, split_bytes)
        self._failures = FailureWriter()

    def process(self, group: tuple[int, Mapping[str, Iterable[Any]]]) -> Iterator[Judged]:
        with self._failures:
            judged = self._judged(sorted(group[1]["verified"]), group[1]["exact"])
        yield judged

    def _judged(self, verified: Sequence[_Verified], exact: Iterable[Judged]) -> Judged:
        contents = read_ranges(self._output, [each.edges for each in verified])
        found = [np.frombuffer(content, _EDGE) for content in contents]
        edges = joined(list(found), _EDGE)
        numbers = np.repeat(np.array([each.split for each in verified], np.int64), [len(each) for each in found])
        # The records in the order of the input: first the later ones of the edges, then the earlier ones.
        splits = np.concatenate([numbers, edges["of_split"]])
        positions = np.concatenate([edges["position"], edges["of_position"]])
        order = np.lexsort((positions, splits))
        is_new = np.append(True, (np.diff(splits[order]) != 0) | (np.diff(positions[order]) != 0))[: len(order)]
        records = np.empty(len(order), np.int64)
        records[order] = np.cumsum(is_new) - 1
        splits, positions = splits[order][is_new], positions[order][is_new]
        later, earlier = np.split(records, 2)
        trained = np.zeros(len(splits), np.int64)
        trained[later] = edges["trained"]
        kept, similar = decided(later, earlier, edges["similarity"], self._are_dropped(splits, positions, exact))
        dropped = np.flatnonzero((kept >= 0) & (kept != np.arange(len(kept))))
        of = kept[dropped]
        own = splits[dropped], positions[dropped], trained[dropped]
        its_kept = splits[of], positions[of], similar[dropped]
        return write_verdicts(self._output, self._path, self._origins, *own, *its_kept)

    def _are_dropped(self, splits: np.ndarray, positions: np.ndarray, exact: Iterable[Judged]) -> np.ndarray:
        """Whether each record has the same tokens as an earlier one."""
        numbers = set(splits.tolist())
        ranges = ranges_by_split(exact).items()
        of_splits = [(number, place) for number, places in ranges if number in numbers for place, _ in places]
        found = np.zeros(len(splits), bool)
        contents = read_ranges(self._output, [each for _, each in of_splits])
        for (number, _), content in zip(of_splits, contents, strict=True):
            first, stop = np.searchsorted(splits, [number, number + 1])
            found[first:stop] |= np.isin(positions[first:stop], np.frombuffer(decode_verdict(content).positions, "<i8"))
        return found


def decided(
    later: np.ndarray, earlier: np.ndarray, similar: np.ndarray, is_dropped: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Decide which records are kept: those that are not similar to an earlier record that is kept.

    Args:
        later, earlier: int64, shape (edges,): two similar records, by their numbers in the order of the input.
        similar: float64, shape (edges,): how similar they are.
        is_dropped: bool, shape (records,): whether a record is dropped already.

    Returns:
        int64, shape (records,): the number of the kept record that each is most similar to, the first of several; its
        own if it is kept, and -1 if it was dropped already. float64, shape (records,): how similar it is to that one.
    """
    kept = np.where(is_dropped, -1, np.arange(len(is_dropped))).tolist()
    found = [1.0] * len(kept)
    order = np.lexsort((earlier, later))
    for record, other, similarity in zip(*(each[order].tolist() for each in (later, earlier, similar)), strict=True):
        if similarity == 1 and kept[other] >= 0:
            # The same set, so it is as similar to what the other one is dropped for.
            other, similarity = kept[other], found[other]
        if kept[record] < 0 or kept[other] != other:
            continue
        if kept[record] == record or similarity > found[record]:
            kept[record], found[record] = other, similarity
    return np.array(kept, np.int64), np.array(found)
