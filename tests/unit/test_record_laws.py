"""Laws of records: any values become an example or a reject, the same in all forms, and messages in one form."""

from __future__ import annotations

import gc
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.drawn import examples
from support.records import CASES, SAMPLES, changed, list_paths, outcome, plain_records
from transforms import RecordError, parse

# Any values, most of which are malformed where they stand, in columns and keys that mean something.
WORDS = ["", " ", "x", "[]", "{}", "[1]", "false", "null", "gpt", "user", "image", "é📦"]
TEXTS = st.text(max_size=4) | st.sampled_from(WORDS)
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, -3, 2**31, 2**63, -(2**63), 2**70, 0.5, 1e300]) | TEXTS
KEYS = st.sampled_from(
    ["role", "content", "from", "value", "type", "text", "weight", "tool_calls", "name", "arguments"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)

OPTIONS: list[dict[str, Any]] = [
    {"validation_fraction": 0.5},
    {"validation_fraction": 0.5, "keep_columns": ("id", "text", "system", "label")},
    {"as_chat": True, "roles": {"x": "user"}},
    {"schema": "messages", "tool_arguments": "keep", "train_field": "keep"},
    {"roles": {"user": "assistant", "assistant": "user"}, "columns": {"messages": "conversations"}},
    {"columns": {"answer": "output"}, "train_field": "weight"},
    *({"schema": schema} for schema in ("sharegpt", "alpaca", "text", "question_answer", "tokenized", "chosen")),
]
# Records of all layouts and forms with the options that read them; and their columns.
KNOWN = [
    (record, case.get("options", {})) for cases in CASES.values() for case in cases for record in plain_records(case)
]
KNOWN = [({}, {}), *(one for one in KNOWN if isinstance(one[0], dict)), *((each["record"], {}) for each in SAMPLES)]
COLUMNS = [column for record, _ in KNOWN for column in record.items()]


@st.composite
def records_and_options(draw: st.DrawFn) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """The columns of a record, some of others, and malformed values in any of them. One column may be there twice."""
    record, options = draw(st.sampled_from(KNOWN))
    others = st.sampled_from(COLUMNS)
    more = st.lists(others | others.flatmap(lambda column: st.tuples(st.just(column[0]), VALUES)), max_size=2)
    columns = [*record.items(), *draw(more)]
    for at, (name, value) in enumerate(columns):
        if (paths := [*list_paths(value)]) and draw(st.integers(0, 3)) == 0:
            columns[at] = (name, changed(value, draw(st.sampled_from(paths)), draw(VALUES)))
    return columns, draw(st.sampled_from([options, *OPTIONS]))


@examples(300)
@given(drawn=records_and_options(), is_ascii=st.booleans(), layout=st.sampled_from([None, 1]))
def test_any_record_becomes_an_example_or_a_reject_the_same_in_all_forms(drawn, is_ascii, layout):
    columns, options = drawn
    how: dict[str, Any] = {"ensure_ascii": is_ascii, "indent": layout}
    line = f"{{{', '.join(f'{json.dumps(name)}: {json.dumps(value, **how)}' for name, value in columns)}}}".encode()
    found = outcome(line, **options)  # any other exception fails
    if len(dict(columns)) == len(columns):
        row = json.loads(line)
        assert as_json(outcome(row, **options)) == as_json(found)
        assert as_json(row) == as_json(json.loads(line)), "the record was changed"
    if "messages" in found.get("becomes", {}):
        check_messages(found["becomes"], options)


def as_json(value: Any) -> str:
    return json.dumps(value)


def check_messages(made: dict[str, Any], options: dict[str, Any]) -> None:
    """Messages and tools are in one form, and are not changed again."""
    for tool in made.get("tools", []):
        assert tool["type"] != "function" or isinstance(tool["function"]["name"], str)
    for message in made["messages"]:
        assert message["role"] in ("user", "assistant", "system", "tool", "developer")
        assert message.get("weight") in (None, 0)
        assert message["role"] == "assistant" or "weight" not in message
        for call in message.get("tool_calls") or []:
            assert call["type"] == "function" and isinstance(call["function"]["name"], str)
            kinds = (dict, str) if options.get("tool_arguments") == "keep" else dict
            assert isinstance(call["function"]["arguments"], kinds)
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            assert part["type"] == "text" and isinstance(part["text"], str)
    given = {"messages": made["messages"], "tools": made.get("tools")}
    plain = {name: value for name, value in options.items() if name in ("tool_arguments", "train_field")}
    again = outcome(given, **plain, schema="messages")["becomes"]
    assert {"messages": again["messages"], "tools": again.get("tools")} == given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(TEXTS, JSON, max_size=4), ascii=st.booleans(), indent=st.sampled_from([None, 2]))
def test_any_arguments_in_a_string_are_those_of_an_object_with_the_same_numbers_and_order(value, ascii, indent):
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    turn = {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": text}]}
    [message] = outcome({"messages": [turn]})["becomes"]["messages"]
    assert repr(message["tool_calls"][0]["function"]["arguments"]) == repr(value)


@given(ids=st.lists(st.integers(0, 2**31 - 1), min_size=1), space=st.sampled_from(["", " ", "\t\r\n"]))
def test_any_token_ids_are_read_exactly(ids, space):
    line = f'{{"input_ids": [{space}{f"{space},{space}".join(map(str, ids))}{space}]}}'
    content: Any = parse(line.encode())[0].content
    assert (content.input_ids.dtype, content.input_ids.tolist()) == (np.int32, ids)
    assert content.trained.dtype == bool and content.trained.all()


@pytest.mark.parametrize("options", [{}, {"keep_columns": ("deep",)}])
def test_a_record_of_any_depth_is_read_or_rejected(options):
    """How deep it may be depends on the version of Python; a column to keep is encoded, which reaches less deep."""

    def found(depth: int) -> str | None:
        line = b'{"text": "a", "deep": ' + b"[" * depth + b"]" * depth + b"}"
        try:
            return parse(line, **options)[0].columns.get("deep")
        except RecordError as error:
            return error.reason

    gc.disable()  # as while a chunk is processed; at this depth, the finalizers of other tests' garbage would fail
    try:
        deepest, too_deep = 1, 200_000
        while too_deep - deepest > 1:
            middle = (deepest + too_deep) // 2
            read = found(middle) in (None, "[" * middle + "]" * middle)
            deepest, too_deep = (middle, too_deep) if read else (deepest, middle)
        for depth in range(deepest - 12, deepest + 4):
            kept = "[" * depth + "]" * depth if options else None
            assert found(depth) in (kept, "bad_column", "invalid_json", "nested_too_deeply")
        assert found(200_000) == "invalid_json"
    finally:
        gc.enable()
