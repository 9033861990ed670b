"""Examples that are kept are read again as they were."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from transforms.base.errors import InputError
from transforms.model.batches import Labels, RowSource, Slice, Split, Tokens
from transforms.model.examples import PlainText, content_digest
from transforms.model.kept_examples import decode_examples, encode_examples
from transforms.model.outcomes import Drop, Known, Outcomes, Reject
from transforms.model.statistics import Statistics
from transforms.rows import IGNORED

SPLIT = Split(7, (Slice("a.jsonl", "jsonl", None, 0, 9),), increment="0123456789abcdef")
OUTCOMES = Outcomes(
    read=4,
    drops=(Drop(3, "filtered", Known({"id": "x"}, b"digest", 5, 2)),),
    rejects=(Reject(9, "empty", "text is »empty«", b"\xff{}"),),
    notes={"n": 2},
    first_examples={"n": (3, "found")},
    statistics=Statistics(roles={"user": 3}),
)


def tokens_of(**fields: object) -> Tokens:
    ids, trained = np.array([5, 6, 7, 8, 0], np.int32), np.array([False, True, True, False, True])
    source = RowSource(np.array([10, 20]), np.array([True, False]), None)
    batch = Tokens(SPLIT, 2, False, OUTCOMES, ids, np.array([0, 3, 5]), trained, source)
    return dataclasses.replace(batch, **fields)


FULL = tokens_of(
    last=True,
    parts=np.array([[0, 0], [1, 0], [1, 9], [0, 0], [9, 0]], np.int32),
    source=RowSource(
        np.array([10, 10]),
        np.array([True, True]),
        pa.table({"id": pa.array(["ä", None], pa.string())}),
        np.array([0, 1]),
        [PlainText("a"), PlainText("b")],
        np.array([True, False]),
        np.array([0, 2**64 - 1], np.uint64),
        ["found", None],
    ),
)
EMPTY = tokens_of(
    ids=np.zeros(0, np.int32),
    trained=np.zeros(0, bool),
    offsets=np.zeros(1, np.int64),
    source=RowSource(np.zeros(0, np.int64), np.zeros(0, bool), None),
)


def fields_of(batch: Tokens) -> dict[str, object]:
    """The fields as lists, which can be compared, with their types, but for the choice of parts, which is not kept."""
    names = [field.name for field in dataclasses.fields(batch) if field.name != "trained_parts"]
    found = {name: getattr(batch, name) for name in names}
    found |= {f"source.{field.name}": getattr(batch.source, field.name) for field in dataclasses.fields(RowSource)}
    del found["source"]
    return {
        name: (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value for name, value in found.items()
    }


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.0, [False] * 3), (2**-64, [True, False, False]), (0.5, [True, False, False]), (1.0, [True] * 3)],
)
def test_another_fraction_is_for_validation(fraction, expected):
    hashes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    source = RowSource(np.array([1, 2, 3]), np.ones(3, bool), None, validation_hashes=hashes)
    assert source.with_validation(fraction).validation.tolist() == expected
    assert EMPTY.source.with_validation(fraction).validation.tolist() == []


@pytest.mark.parametrize("batch", [tokens_of(), FULL, EMPTY], ids=["plain", "all fields", "no rows"])
def test_examples_are_read_as_they_were_written(batch):
    assert None not in fields_of(FULL).values()  # a new field has to be kept, too
    content = encode_examples(batch)
    assert encode_examples(batch) == content
    expected = fields_of(batch)
    if batch.source.contents is not None:
        expected["source.contents"] = [*map(content_digest, batch.source.contents)]
    read = decode_examples(content, SPLIT, "url")
    assert fields_of(read) == expected
    assert encode_examples(read) == content


def test_labelled_examples_are_tokens_of_one_span_each():
    tokens = tokens_of(parts=np.array([[0], [1], [1], [0], [9]]))
    labels = np.where(tokens.trained, tokens.ids, np.int32(IGNORED))
    parts = tokens.parts[:, 0]
    batch = Labels(SPLIT, 2, False, OUTCOMES, tokens.ids, labels, tokens.offsets, tokens.source, parts)
    assert encode_examples(batch) == encode_examples(tokens)


def test_any_changed_byte_is_found():
    content = encode_examples(FULL)
    for place in range(0, len(content), 7):
        changed = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        with pytest.raises(InputError, match="url: the kept examples are damaged"):
            decode_examples(changed, SPLIT, "url")
    with pytest.raises(InputError, match="damaged"):
        decode_examples(b"", SPLIT, "url")
