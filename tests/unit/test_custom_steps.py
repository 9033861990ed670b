"""User functions between the steps: what they drop, replace or raise is counted."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from support.chats import assistant, examples_of, user
from transforms import Conversation, Examples, FilterExamples, ParameterError, RecordError, parse
from transforms.steps.custom import _Filter, _Map

BATCH = examples_of([user("a"), assistant("b")], [user("a"), assistant("b"), user("c"), assistant("d")], [user("e")])


def positions(batch: Examples) -> list[int]:
    return [example.position for example in batch.examples]


def test_examples_that_are_not_kept_are_dropped_with_the_reason():
    kept = _Filter(lambda example: len(example.content.messages) > 1, "short")(BATCH)
    assert positions(kept) == [0, 1]
    assert kept.outcomes.dropped == {"short": 1}
    assert not kept.outcomes.rejects


def test_error_in_a_filter_rejects_only_its_record():
    kept = _Filter(lambda example: example.content.messages[2], "short")(BATCH)
    assert positions(kept) == [1]
    assert [(reject.position, reject.reason) for reject in kept.outcomes.rejects] == [(0, "filter"), (2, "filter")]
    assert "IndexError" in kept.outcomes.rejects[0].detail
    assert kept.outcomes.dropped == {}


def test_record_error_of_a_function_keeps_its_reason():
    def refuse(example):
        raise RecordError("too_rude", "it swears")

    for step in (_Filter(refuse, "short"), _Map(refuse)):
        assert {reject.reason for reject in step(BATCH).outcomes.rejects} == {"too_rude"}


def test_mapped_examples_replace_the_originals():
    def shorten(example):
        return msgspec.structs.replace(example, content=Conversation(example.content.messages[:1]))

    mapped = _Map(shorten)(BATCH)
    assert positions(mapped) == [0, 1, 2]
    assert [len(example.content.messages) for example in mapped.examples] == [1, 1, 1]


def test_tools_that_a_function_changes_are_those_of_its_example_only():
    raw = b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f"}]}'
    batch = dataclasses.replace(BATCH, examples=[parse(raw)[0] for number in range(2)])

    def add(example):
        example.content.tools.append("g")
        return example

    f = {"type": "function", "function": {"name": "f"}}
    assert [example.content.tools for example in _Map(add)(batch).examples] == [[f, "g"], [f, "g"]]
    assert [example.content.tools for example in _Filter(add, "none")(batch).examples] == [[f], [f]]
    assert parse(raw)[0].content.tools == [f]


@pytest.mark.parametrize(
    ("function", "detail"),
    [
        (lambda example: 1, "it returned int; expected an Example"),
        (lambda example: [example, None], "it returned NoneType; expected an Example"),
        (lambda example: msgspec.structs.replace(example, position=9), "the position of another record"),
        (lambda example: 1 / 0, "ZeroDivisionError"),
        (lambda example: msgspec.structs.replace(example, content="hello"), "it returned the content str"),
        (lambda example: msgspec.structs.replace(example, columns={"labels": "x"}), "other columns than keep_columns"),
    ],
)
def test_map_that_returns_no_example_of_the_record_rejects_it(function, detail):
    mapped = _Map(function)(BATCH)
    assert mapped.examples == []
    assert all(reject.reason == "map" and detail in reject.detail for reject in mapped.outcomes.rejects)
    assert len(mapped.outcomes.rejects) == 3


@pytest.mark.parametrize("reason", ["Too short", "", None, "9"])
def test_reason_is_a_name_in_snake_case(reason):
    with pytest.raises(ParameterError, match="expected a name in snake_case"):
        FilterExamples(bool, reason=reason)
