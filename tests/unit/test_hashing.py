"""Hashes of examples: the same in any row, joined from segments, and matched as often as they are there."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.paths import TOKENIZER
from transforms.dataset.comparison import matching
from transforms.dataset.comparison.hashing import ENTRY, ExampleHasher
from transforms.dataset.comparison.matching import EntryFile, match
from transforms.tokens.decoding import TokenDecoder

DECODER = TokenDecoder.load(str(TOKENIZER))
HASHES = ["ids", "labels", "text", "trained_text", "tokens", "bytes"]

tokens = st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=12)


def entries_of(rows: list[list[list[tuple[int, bool]]]], cut: tuple[int, bool] | None = None) -> np.ndarray:
    """The entries of rows of examples of (id, trained)."""
    flat = [[token for example in row for token in example] for row in rows]
    columns = {
        "input_ids": [[id for id, _ in row] for row in flat],
        "labels": [[id if trained else -100 for id, trained in row] for row in flat],
        "seq_lengths": [[len(example) for example in row] for row in rows],
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(lists, pa.list_(pa.int32())) for name, lists in columns.items()})
    return ExampleHasher(DECODER, packed=True, shift_labels=False, cut=cut).entries(batch)


@given(st.lists(tokens, min_size=1, max_size=8), st.integers(1, 4))
def test_example_has_the_same_hashes_in_any_row(examples, per_row):
    packed = entries_of([examples[i : i + per_row] for i in range(0, len(examples), per_row)])
    alone = entries_of([[example] for example in examples])
    for name in HASHES:
        assert np.array_equal(packed[name], alone[name])
    distinct = {(*entry["ids"].tolist(), int(entry["labels"])) for entry in alone}
    assert len(distinct) == len({tuple(example) for example in examples})


@given(st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=4))
def test_segments_are_joined_to_the_example(examples):
    segments = entries_of([[segment] for segments in examples for segment in segments])
    starts = np.cumsum([0, *(len(segments) for segments in examples[:-1])])
    joined = ExampleHasher(DECODER, True, False, None).joined(segments, starts)
    whole = entries_of([[[token for segment in segments for token in segment]] for segments in examples])
    for name in HASHES:
        assert np.array_equal(joined[name], whole[name])


@pytest.mark.parametrize("keeps_end", [False, True])
@given(example=tokens, limit=st.integers(1, 12))
def test_cut_is_the_hash_of_what_would_be_left(keeps_end, example, limit):
    left = example[-limit:] if keeps_end else example[:limit]
    assert np.array_equal(entries_of([[example]], (limit, keeps_end))["cut"], entries_of([[left]])["ids"])


def test_texts_are_equal_whatever_the_tokens_are():
    by_text = {bytes(DECODER.bytes_of(np.array([id]))[0]): id for id in range(len(DECODER.added) - 1)}
    whole = next(text for text in by_text if len(text) == 2 and all(bytes([byte]) in by_text for byte in text))
    parts = [(by_text[bytes([byte])], True) for byte in whole]
    one, two = entries_of([[[(by_text[whole], True)]], [parts]])
    assert one["text"].tolist() == two["text"].tolist() and one["ids"].tolist() != two["ids"].tolist()
    assert one["trained_text"] == two["trained_text"]


@pytest.mark.parametrize("at_once", [1 << 20, 4])
@given(a=st.lists(st.integers(0, 6), max_size=30), b=st.lists(st.integers(0, 6), max_size=30))
def test_entries_are_matched_as_often_as_both_have_them(at_once, a, b):
    files = []
    for keys in (a, b):
        entries = np.zeros(len(keys), ENTRY)
        entries["ids"][:, 0] = keys
        entries["row"] = np.arange(len(keys))
        files.append(EntryFile())
        files[-1].add(entries)
    usual, matching._AT_ONCE = matching._AT_ONCE, at_once
    try:
        found = list(match(*files, ["ids"]))
    finally:
        matching._AT_ONCE = usual
    pairs = [pair for part in found for pair in zip(part.a, part.b, strict=True)]
    assert all(of_a["ids"].tolist() == of_b["ids"].tolist() for of_a, of_b in pairs)
    # A key of 0 is none.
    in_both = Counter(key for key in a if key) & Counter(key for key in b if key)
    assert Counter(int(of_a["ids"][0]) for of_a, _ in pairs) == in_both
    rest_a = Counter(int(entry["ids"][0]) for part in found for entry in part.rest_a)
    rest_b = Counter(int(entry["ids"][0]) for part in found for entry in part.rest_b)
    assert rest_a == Counter(a) - in_both and rest_b == Counter(b) - in_both
    assert len({int(of_a["row"]) for of_a, _ in pairs}) == len(pairs)
