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
from support.records import outcome
from transforms import RecordError, parse

# Any values, most of which are malformed where they stand, in columns and keys that mean something.
TEXTS = st.text(max_size=4) | st.sampled_from(
    ["", " ", "[]", "{}", "[1]", "false", "null", "gpt", "user", "image", "é📦"]
)
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, -3, 2**31, 2**63, -(2**63), 2**70, 0.5, 1e300]) | TEXTS
KEYS = st.sampled_from(
    [
        *("role", "content", "from", "value", "type", "text", "weight", "tool_calls", "name", "arguments", "function"),
        *("reasoning_content", "path", "bytes"),
    ]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)

# What is well-formed, in many forms.
ARGUMENTS = st.sampled_from([{}, {"b": 1, "a": [None]}, "", "{}", '{"a": 1, "a": 2}', None])
FUNCTIONS = st.fixed_dictionaries({"name": st.just("f"), "arguments": ARGUMENTS})
FUNCTIONS |= st.just('{"name": "f", "arguments": {"a": 1}}')
CALLS = FUNCTIONS | st.fixed_dictionaries(
    {"function": FUNCTIONS}, optional={"type": st.sampled_from([None, "function"]), "id": st.just("call_1")}
)
TOOL = st.fixed_dictionaries({"name": st.just("f")}, optional={"parameters": st.sampled_from([{}, "{}"])})
TOOLS = st.lists(TOOL | st.fixed_dictionaries({"function": TOOL}) | st.just({"type": "web_search"}), max_size=2)
NONE, ZERO = st.sampled_from([{}, {}, {}]), st.sampled_from([None, 0, 0.0, False])
FLAGS = st.fixed_dictionaries({}, optional=dict.fromkeys(("train", "loss", "weight", "keep"), ZERO))
FLAGS |= st.sampled_from([{"train": True}, {"masked": True}, {"loss_weight": 1.0}, {"loss_weight": 0.5}, {"loss": "?"}])
PARTS = st.builds(
    dict.__or__,
    st.sampled_from([{"type": "text", "text": "a"}, {"text": "", "type": "text"}, {"type": "text", "value": "b"}]),
    st.sampled_from([{}, {}, {"weight": 0}, {"train": True}, {"image": None}]),
)
CONTENTS = st.sampled_from(["", "text", '<tool_call>{"name": "f", "arguments": {}}</tool_call>']) | TEXTS
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "function", "gpt", "human", "x"])
PLAIN = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "human"]), "content": CONTENTS})
TURNS = (
    PLAIN
    | PLAIN.map(lambda turn: dict(reversed(turn.items())))
    | st.fixed_dictionaries({"role": ROLES, "content": CONTENTS | st.lists(PARTS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXTS, "tool_calls": st.lists(CALLS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none(), "function_call": FUNCTIONS})
    | st.fixed_dictionaries({"from": st.just("function_call"), "value": st.lists(CALLS, min_size=1, max_size=2)})
    | st.fixed_dictionaries({"from": st.sampled_from(["human", "gpt", "system", "observation"]), "value": TEXTS})
)
MALFORMED = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "function_call", "images", "weight", "train"]), VALUES, max_size=1
)
MESSAGES = st.lists(
    TURNS | st.builds(lambda *parts: parts[0] | parts[1] | parts[2], TURNS, NONE | FLAGS, NONE | MALFORMED), max_size=3
)
IDS = st.lists(st.integers(-2, 9), max_size=4)
PAIRS = st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=2)
OF_TEXTS = ("prompt", "completion", "instruction", "input", "output", "text", "question", "answer", "query", "response")
OTHERS = ("context", "history", "system", "system_prompt", "choices", "chosen", "rejected", "label", "kto_tag", "id")
OF_LISTS = ("messages", "conversations", "tools", "functions", "chat_template_kwargs", "image", "images", "audio")
OF_TOKENS = ("input_ids", "labels", "attention_mask", "completion_mask", "loss_weights", "seq_lengths", "position_ids")
COLUMN = st.tuples(
    st.sampled_from([*OF_TEXTS, *OTHERS, *OF_LISTS, *OF_TOKENS]),
    VALUES | VALUES.map(json.dumps) | MESSAGES | IDS | PAIRS | TOOLS,
)
ANY = st.lists(COLUMN, max_size=4)
USUAL = st.sampled_from([("prompt", "completion"), ("instruction", "output"), ("question", "answer"), ("text",)])
USUAL = USUAL.flatmap(lambda names: st.tuples(*(st.tuples(st.just(name), TEXTS) for name in names)).map(list))
USUAL |= st.tuples(st.tuples(st.sampled_from(["messages", "conversations", "prompt"]), MESSAGES)).map(list)
USUAL |= st.lists(st.integers(0, 9), min_size=1, max_size=4).map(lambda ids: [("input_ids", ids), ("labels", ids)])
# The columns of a record: one may be there twice.
RECORDS = ANY | st.builds(lambda usual, more: usual + more, USUAL, st.lists(COLUMN, max_size=2))
RECORDS |= st.builds(lambda messages, tools: [("messages", messages), ("tools", tools)], MESSAGES, TOOLS)
OPTIONS: list[dict[str, Any]] = [
    {"validation_fraction": 0.5},
    {"validation_fraction": 0.5, "keep_columns": ("id", "text", "system", "label")},
    {"as_chat": True, "roles": {"x": "user"}},
    {"schema": "messages", "tool_arguments": "keep", "train_field": "keep"},
    {"roles": {"user": "assistant", "assistant": "user"}, "columns": {"messages": "conversations"}},
    {"columns": {"answer": "output"}, "train_field": "weight"},
    *({"schema": schema} for schema in ("sharegpt", "alpaca", "text", "question_answer", "tokenized", "chosen")),
]


@examples(500)
@given(columns=RECORDS, options=st.sampled_from(OPTIONS), is_ascii=st.booleans(), layout=st.sampled_from([None, 1]))
def test_any_record_becomes_an_example_or_a_reject_the_same_in_all_forms(columns, options, is_ascii, layout):
    values = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=is_ascii, indent=layout)}" for name, value in columns
    ]
    line = f"{{{', '.join(values)}}}".encode()
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
    content: Any = parse(f'{{"input_ids": [{space}{f"{space},{space}".join(map(str, ids))}{space}]}}'.encode())[
        0
    ].content
    assert (content.input_ids.dtype, content.input_ids.tolist()) == (np.int32, ids)
    assert content.trained.dtype == bool and content.trained.all()


@pytest.mark.parametrize(
    "record", [{"text": "a"}, {"prompt": "a", "completion": "b"}, {"messages": [{"role": "user", "content": "a"}]}]
)
def test_a_column_that_is_not_read_must_be_unicode_also_if_its_name_is_known(record):
    line = json.dumps({**record, "id": "x"}).encode()
    assert outcome(line)["becomes"] == outcome(line)["becomes"] == record
    assert outcome(line.replace(b'"x"', b'"\xff"'))["rejected"][0] == "invalid_unicode"


@pytest.mark.parametrize("options", [{}, {"keep_columns": ("deep",)}])
def test_a_record_of_any_depth_is_read_or_rejected(options):
    """How deep it may be depends on the version of Python; a column to keep is encoded, which reaches less deep."""

    def found(depth: int) -> str | None:
        try:
            return parse(b'{"text": "a", "deep": ' + b"[" * depth + b"]" * depth + b"}", **options)[0].columns.get(
                "deep"
            )
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
