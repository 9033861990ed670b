"""User functions between the steps: what they drop, replace or raise is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.chats import assistant, user
from support.datasets import write_jsonl
from support.reading import make_batches
from transforms import Conversation, FilterExamples, MapExamples, ParameterError, ParseConversations, RecordError

CHATS = [[user("a"), assistant("b")], [user("a"), assistant("b"), user("c"), assistant("d")], [user("e")]]


@pytest.fixture
def corpus(tmp_path) -> Path:
    return write_jsonl(tmp_path / "chats.jsonl", [{"messages": chat, "tools": [{"name": "f"}]} for chat in CHATS])


def after(corpus: Path, *steps: Any) -> Any:
    """The examples after some steps, and the outcomes of the records."""
    [batch] = make_batches(str(corpus), ParseConversations(), *steps)
    return batch


def lengths(batch: Any) -> list[int]:
    return [len(example.content.messages) for example in batch.examples]


def dropped(batch: Any) -> list[str]:
    return [drop.reason for drop in batch.outcomes.drops]


def reasons(batch: Any) -> list[str]:
    return [reject.reason for reject in batch.outcomes.rejects]


def test_examples_that_are_not_kept_are_dropped_with_the_reason(corpus):
    kept = after(corpus, FilterExamples(lambda example: len(example.content.messages) > 1, reason="short"))
    assert (lengths(kept), dropped(kept), reasons(kept)) == ([2, 4], ["short"], [])


def test_error_in_a_filter_rejects_only_its_record(corpus):
    kept = after(corpus, FilterExamples(lambda example: example.content.messages[2], reason="short"))
    assert (lengths(kept), dropped(kept), reasons(kept)) == ([4], [], ["filter", "filter"])
    assert "IndexError" in kept.outcomes.rejects[0].detail


def test_record_error_of_a_function_keeps_its_reason(corpus):
    def refuse(example):
        raise RecordError("too_rude", "it swears")

    for step in (FilterExamples(refuse, reason="short"), MapExamples(refuse)):
        assert reasons(after(corpus, step)) == ["too_rude"] * 3


def test_mapped_examples_replace_the_originals(corpus):
    def shorten(example):
        return msgspec.structs.replace(example, content=Conversation(example.content.messages[:1]))

    mapped = after(corpus, MapExamples(shorten))
    assert lengths(mapped) == [1, 1, 1]
    assert len({example.position for example in mapped.examples}) == 3


def test_tools_that_a_function_changes_are_those_of_its_example_only(corpus):
    def add(example):
        example.content.tools.append("g")
        return example

    f = {"type": "function", "function": {"name": "f"}}
    for step, tools in ((MapExamples(add), [f, "g"]), (FilterExamples(add, reason="none"), [f])):
        assert [example.content.tools for example in after(corpus, step).examples] == [tools] * 3


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
def test_map_that_returns_no_example_of_the_record_rejects_it(corpus, function, detail):
    mapped = after(corpus, MapExamples(function))
    assert (mapped.examples, reasons(mapped)) == ([], ["map"] * 3)
    assert all(detail in reject.detail for reject in mapped.outcomes.rejects)


@pytest.mark.parametrize("reason", ["Too short", "", None, "9"])
def test_reason_is_a_name_in_snake_case(reason):
    with pytest.raises(ParameterError, match="expected a name in snake_case"):
        FilterExamples(bool, reason=reason)
