"""Duplicate keys of records are noted; padding of tokenized rows is removed."""

from __future__ import annotations

import json

import pytest

from transforms import Examples, RecordError, Slice, Split, TokenRow
from transforms import parse as read_record
from transforms.inputs.json_text import decode_json
from transforms.inputs.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser

PLAIN = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
TWICE = {
    "content": PLAIN.replace(b'"content": "a"', b'"content": "x", "content": "a"'),
    "role": PLAIN.replace(b'"role": "user"', b'"role": "system", "role": "user"'),
    "messages": PLAIN.replace(b'{"messages"', b'{"messages": [], "messages"'),
}


def parse(*raw: bytes) -> Examples:
    records = [Record(10 * number, one) for number, one in enumerate(raw)]
    split = Split(0, (Slice("made.jsonl", "jsonl", None, 0, 1),))
    return Parser()(Records(split=split, part=0, last=True, outcomes=Outcomes(read=len(raw)), records=records))


@pytest.mark.parametrize("key", TWICE)
@pytest.mark.parametrize("more", [b"", b', "tools": []'], ids=["plain", "other"])
def test_a_duplicate_key_is_noted_and_the_last_one_counts(key, more):
    found, expected = parse(PLAIN, TWICE[key][:-1] + more + b"}", PLAIN), parse(PLAIN)
    assert found.outcomes.notes == {"duplicate_json_keys": 1}
    assert found.outcomes.first_examples == {
        "duplicate_json_keys": (10, f"the record has '{key}' twice in an object; the last one counts")
    }
    assert found.examples[1].content == expected.examples[0].content


def test_all_plain_records_of_a_batch_are_searched_if_one_of_the_sample_has_a_duplicate_key():
    later = [PLAIN] * 100 + [TWICE["role"]]
    assert parse(*later).outcomes.notes == {}
    assert parse(TWICE["content"], *later).outcomes.notes == {"duplicate_json_keys": 2}


def test_the_same_key_in_different_objects_is_no_duplicate():
    assert (
        parse(b'{"messages": [{"role": "user", "content": "\\"role\\": \\"role\\":"}], "id": {"id": 1}}').outcomes.notes
        == {}
    )


@pytest.mark.parametrize("mask", [[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
def test_padding_is_removed_from_both_ends(mask):
    ids = [7 if kept else 0 for kept in mask]
    labels = [-100, *[token if kept else -100 for token, kept in zip(ids, mask, strict=True)][1:]]
    batch = parse(json.dumps({"input_ids": ids, "labels": labels, "attention_mask": mask}).encode())
    content = batch.examples[0].content
    assert isinstance(content, TokenRow)
    assert content.input_ids.tolist() == [7, 7]
    assert content.trained.tolist() == [label != -100 for label, kept in zip(labels, mask, strict=True) if kept]
    assert batch.outcomes.notes == {"padding_removed": 1}


@pytest.mark.parametrize(
    ("mask", "reason"),
    [([1, 0, 1], "bad_tokens"), ([0, 0, 0], "empty"), ([2, 1, 1], "bad_tokens"), ([1], "bad_tokens")],
)
def test_a_row_whose_padding_is_not_at_its_ends_is_rejected(mask, reason):
    with pytest.raises(RecordError) as raised:
        read_record({"input_ids": [1, 2, 3], "attention_mask": mask})[0]
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ('{"a": 1, "b": {"a": [{"a": "11:30"}]}}', 0),
        ('{"a": 1, "a": 1}', 1),
        ('{"a": ":", "a": 1}', 1),
        ('{"a": 1, "a": "\\u003a"}', 1),
        ('{"a": 1, "\\u0061": 2}', 1),
        ('[{"x": {"a:b": 1, "a:b": 2}}]', 1),
    ],
)
def test_duplicate_keys_in_the_json_of_a_string_are_noted(text, noted):
    reading = Reading(ReadOptions(ROLE_NAMES))
    assert decode_json(text, "bad", "it", reading) == json.loads(text)
    assert len(reading.notes) == noted
