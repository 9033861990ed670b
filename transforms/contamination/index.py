"""An index of the runs of words of evaluation sets, in which the texts of conversations are looked up.

A run is as many words as n-grams have, as in GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C). A text of an
evaluation record that is shorter is one run, if it has at least SHORTEST words. A hash only proposes a match, and the
words decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from transforms.contamination.texts import Evaluation
from transforms.contamination.words import Words, find_words
from transforms.rows.ragged import joined, lengths_to_offsets, slice_indices

# The words of the shortest text that is looked for, as in GPT-3.
SHORTEST = 8
# A run of words in more evaluation records than this is taken for their template, and not looked for.
MOST_RECORDS = 10
# How many entries the table of first hashes has for each run: the more, the fewer runs are looked up in vain.
_ENTRIES = 16
_EIGHTH = np.uint64(3)


class Match(NamedTuple):
    """What a text has in common with evaluation records.

    Attributes:
        text: the number of the text.
        word: the number of the word with which the first run begins, in that text.
        words: of the first run, normalized.
        place: of the first evaluation record that has this run.
        runs: how many words of the text begin a run of an evaluation record, by their hashes.
    """

    text: int
    word: int
    words: str
    place: str
    runs: int


class _Runs(NamedTuple):
    """The runs of one length, in the order of their hashes: uint64, shape (runs,); int64, their first words."""

    hashes: np.ndarray
    words: np.ndarray


class EvaluationIndex:
    """The runs of words of evaluation records.

    Args:
        evaluations: the records.
        length: the number of words of a run.

    Attributes:
        runs: how many different ones are looked for.
        too_short: of how many records all texts have too few words.
        in_templates: how many different runs are in so many records that they are not looked for.
    """

    def __init__(self, evaluations: Sequence[Evaluation], length: int):
        self._places = [evaluation.place for evaluation in evaluations]
        shortest = min(length, SHORTEST)
        texts = [text.encode() for evaluation in evaluations for text in evaluation.texts]
        self._content = b" ".join(texts)
        self._words = words = find_words(self._content)
        text_records = np.repeat(np.arange(len(evaluations)), [len(each.texts) for each in evaluations])
        sizes = np.array([text.count(b" ") + 1 for text in texts], np.int64)
        firsts = lengths_to_offsets(sizes)[:-1]  # the first word of each text
        self._records = np.repeat(text_records, sizes)  # of each word
        self._by_length: dict[int, _Runs] = {}
        self.in_templates = 0
        for size in range(shortest, length + 1):
            is_size = sizes >= size if size == length else sizes == size
            begins = slice_indices(firsts[is_size], sizes[is_size] - size + 1)
            if len(begins) and len((runs := self._runs(begins, words.hashes(size, begins))).words):
                self._by_length[size] = runs
        self.runs = sum(len(runs.words) for runs in self._by_length.values())
        is_new_record = np.diff(text_records[sizes >= shortest], prepend=-1)
        self.too_short = len(evaluations) - int(np.count_nonzero(is_new_record))
        self._shortest = shortest
        # By the first bits of the hash of its first words, a bit that says whether there is such a run.
        bits = (_ENTRIES * (self.runs + 1)).bit_length()
        self._shift, is_there = np.uint64(64 - bits), np.zeros(1 << bits, bool)
        first_words = [words.hashes(shortest, runs.words) for runs in self._by_length.values()]
        self._first_words = np.sort(joined(first_words, np.uint64))
        is_there[self._first_words >> self._shift] = True
        self._table = np.packbits(is_there, bitorder="little")

    def _runs(self, begins: np.ndarray, hashes: np.ndarray) -> _Runs:
        """The runs that begin with some words: of those with the same hash the first one, and none of templates."""
        order = np.lexsort((begins, hashes))
        begins, hashes = begins[order], hashes[order]
        is_new = np.diff(hashes, prepend=~hashes[:1]) != 0
        is_new_record = is_new | (np.diff(self._records[begins], prepend=-1) != 0)
        records = np.add.reduceat(is_new_record.astype(np.int64), np.flatnonzero(is_new))
        stays = np.flatnonzero(is_new)[records <= MOST_RECORDS]
        self.in_templates += len(records) - len(stays)
        return _Runs(hashes[stays], begins[stays])

    def find(self, texts: Sequence[bytes]) -> list[Match]:
        """Look up texts.

        Args:
            texts: of `normalized`.

        Returns:
            The texts that have something in common with evaluation records, in their order.
        """
        content = b" ".join(texts)
        text_words = find_words(content)
        hashes = text_words.hashes(self._shortest)
        entries = hashes >> self._shift
        begins = np.flatnonzero(self._table[entries >> _EIGHTH] >> (entries.astype(np.uint8) & 7) & 1)
        begins = begins[_places_in(self._first_words, hashes[begins]) >= 0]
        if not len(begins):
            return []
        words, sizes, own = self._candidates(text_words, begins)
        offsets = lengths_to_offsets(np.array([len(text) + 1 for text in texts]))
        numbers = np.searchsorted(offsets, text_words.starts[words], "right") - 1
        is_inside = text_words.stops[words + sizes - 1] < offsets[numbers + 1]
        counts = np.bincount(numbers[is_inside][np.diff(words[is_inside], prepend=-1) != 0], minlength=len(texts))
        before = np.searchsorted(text_words.starts, offsets)
        candidates = zip(*(each[is_inside].tolist() for each in (numbers, words, sizes, own)), strict=True)
        matches = list[Match]()
        for number, matching in groupby(candidates, key=itemgetter(0)):
            for _, word, size, own_word in matching:
                run = _text(self._content, self._words, own_word, size)
                if _text(content, text_words, word, size) == run:
                    place = self._places[self._records[own_word]]
                    matches.append(Match(number, word - int(before[number]), run.decode(), place, int(counts[number])))
                    break
        return matches

    def _candidates(self, text_words: Words, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The runs of texts that have the hash of one of evaluation records: the words with which they begin, in order,
        their lengths, the longest first, and the words with which those of evaluation records begin.
        """
        matching = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for size, runs in self._by_length.items():
            enough = begins[begins + size <= len(text_words.starts)]
            at = _places_in(runs.hashes, text_words.hashes(size, enough))
            at, is_run = at[at >= 0], at >= 0
            matching.append((enough[is_run], np.full(len(at), size), runs.words[at]))
        words, sizes, own = map(np.concatenate, zip(*matching, strict=True))
        order = np.lexsort((-sizes, words))
        return words[order], sizes[order], own[order]


def _places_in(ordered: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Where hashes are among ordered ones: int64, shape (hashes,); -1 for those that are not."""
    if not len(ordered):
        return np.full(len(hashes), -1)
    places = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    return np.where(ordered[places] == hashes, places, -1)


def _text(content: bytes, words: Words, word: int, size: int) -> bytes:
    """A run of words, with one space between two."""
    return b" ".join(content[words.starts[word] : words.stops[word + size - 1]].split())
