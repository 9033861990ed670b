"""Examples that are sent are received as they were."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from transforms import InputError, Slice, Split
from transforms.model.batches import Labels, RowSource
from transforms.model.outcomes import Drop, Known, Outcomes, Reject
from transforms.model.sent_examples import decode_examples, encode_examples
from transforms.model.statistics import Statistics
from transforms.steps.label import build_labels

SPLIT = Split(7, (Slice("a.jsonl", "jsonl", None, 0, 9),), increment="0123456789abcdef")
OUTCOMES = Outcomes(
    read=4,
    drops=(Drop(3, "filtered", Known(5, 2)),),
    rejects=(Reject(9, "empty", "text is »empty«", b"\xff{}"),),
    notes={"n": 2},
    first_examples={"n": (3, "found")},
    statistics=Statistics(roles={"user": 3}),
)


def labels_of(**fields: object) -> Labels:
    ids, trained = np.array([5, 6, 7, 8, 0], np.int32), np.array([False, True, True, False, True])
    source = RowSource(np.array([10, 20]), np.array([True, False]), None)
    labels = np.where(trained, ids, np.int32(-100))
    return dataclasses.replace(Labels(SPLIT, 2, False, OUTCOMES, ids, labels, np.array([0, 3, 5]), source), **fields)


FULL = labels_of(
    last=True,
    parts=np.array([0, 1, 1, 0, 9], np.int32),
    source=RowSource(
        np.array([10, 10]),
        np.array([True, True]),
        pa.table({"id": pa.array(["ä", None], pa.string())}),
        np.array([0, 1]),
        ["found", None],
    ),
)
EMPTY = labels_of(
    ids=np.zeros(0, np.int32),
    labels=np.zeros(0, np.int32),
    offsets=np.zeros(1, np.int64),
    source=RowSource(np.zeros(0, np.int64), np.zeros(0, bool), None),
)


def fields_of(batch: Labels) -> dict[str, object]:
    """The fields as lists, which can be compared, with their types."""
    found = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    found |= {f"source.{field.name}": getattr(batch.source, field.name) for field in dataclasses.fields(RowSource)}
    del found["source"]
    return {
        name: (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value for name, value in found.items()
    }


@pytest.mark.parametrize("batch", [labels_of(), FULL, EMPTY], ids=["plain", "all fields", "no rows"])
def test_examples_are_received_as_they_were_sent(batch):
    assert None not in fields_of(FULL).values()  # a new field has to be sent, too
    content = encode_examples(batch)
    expected = fields_of(batch)
    received = build_labels(decode_examples(content, SPLIT, "url"))
    assert fields_of(received) == expected
    assert encode_examples(received) == content


def test_any_changed_byte_is_found():
    content = encode_examples(FULL)
    for place in range(0, len(content), 7):
        changed = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        with pytest.raises(InputError, match="url: the examples are damaged"):
            decode_examples(changed, SPLIT, "url")
    with pytest.raises(InputError, match="damaged"):
        decode_examples(b"", SPLIT, "url")
