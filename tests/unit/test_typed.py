"""Typed decoders: what they make is what is made without them, and usual records take them."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import Conversation, RecordDropped, RecordError, TokenRow, parse
from transforms.inputs.input_options import ParseOptions
from transforms.inputs.typed import TypedDecoder
from transforms.model.examples import Record
from transforms.steps.parse import Parser

THOROUGHLY = settings(max_examples=400)

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TURNS = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
QUOTED = json.dumps({"type": "text", "text": ""})
IN_PARTS = [
    {"role": "user", "content": [{"type": "text", "text": QUOTED}, {"type": "text", "text": " c"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
]
CALL = {"name": "f", "arguments": '{"a": "1:2"}'}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}

USUAL: dict[str, dict[str, Any]] = {
    "messages": {"id": 1, "messages": MESSAGES},
    "messages with other columns": {"messages": MESSAGES, "prompt": "a", "tools": [], "images": None, "score": [0.5]},
    "messages, other names of roles": {"messages": [{"role": "human", "content": "a"}]},
    "messages, content before role": {"messages": [{"content": "a", "role": "user"}]},
    "messages, turns": {"messages": TURNS},
    "messages with calls and tools": {
        "messages": [
            {"content": "a", "role": "user"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALL}]},
            {"role": "tool", "tool_call_id": "1", "name": "f", "content": "b"},
            {"role": "assistant", "content": [{"type": "text", "text": "c"}], "reasoning_content": "d"},
        ],
        "tools": [TOOL],
    },
    "messages with several calls": {
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "g", "arguments": {}}}, CALL]},
            {"role": "tool", "content": "b"},
            {"role": "tool", "content": "c", "tool_calls": None},
        ],
        "tools": json.dumps([TOOL["function"]]),
    },
    "messages with parameters of the template": {"messages": MESSAGES, "chat_template_kwargs": {"a": [1], "b": None}},
    "messages in parts": {"messages": IN_PARTS, "tools": [TOOL]},
    "messages in parts, in another order": {
        "messages": [{"role": "user", "content": [{"text": "a", "type": "text"}]}, MESSAGES[1]],
        "meta": {"type": "text", "text": "b"},
    },
    "messages with a weight": {"messages": [MESSAGES[0], {**MESSAGES[1], "weight": 0}]},
    "sharegpt": {"id": "x", "conversations": TURNS},
    "sharegpt with a call": {"conversations": [TURNS[0], {"from": "function_call", "value": json.dumps(CALL)}]},
    "sharegpt, value before from": {"conversations": [{"value": "a", "from": "human"}]},
    "sharegpt with a system": {"system": "You help.", "conversations": TURNS, "tools": ""},
    "sharegpt, messages": {"conversations": MESSAGES},
    "prompt and completion": {"prompt": "a", "completion": "b", "meta": {"x": [1, 2**70]}},
    "prompt and completion, messages": {"prompt": MESSAGES[:1], "completion": MESSAGES[1:]},
    "alpaca": {"instruction": "a", "input": "", "output": "b", "text": "Below is"},
    "alpaca with everything": {
        **{"system": "s", "instruction": "a", "input": "i", "output": "b"},
        "history": [["q", "r"], ["s", "t"]],
    },
    "text": {"text": "Ein Text 📦\u2028\0", "meta": {"a": None}},
    "question and answer": {"question": "a", "answer": "b", "context": "c"},
    "token ids": {"input_ids": [1, 2, 3]},
    "token ids and labels": {"input_ids": [5, 151_643, 7], "labels": [-100, 151_643, 7], "attention_mask": [1, 1, 1]},
}


def read(raw: bytes, options: dict[str, Any], typed: bool) -> Any:
    """What a record becomes, with or without typed decoders: an example, or the reason why there is none."""
    parser = Parser(**options)
    if typed:
        parser._typed.learn(names_of(raw))
    else:
        parser._typed = Declines()
    try:
        (example,) = parser.parse_all(Record(7, raw))
    except (RecordError, RecordDropped) as error:
        return type(error).__name__, str(error)
    content: Any = example.content
    if isinstance(content, TokenRow):
        content = (content.input_ids.dtype, content.input_ids.tolist(), content.trained.dtype, content.trained.tolist())
    if isinstance(content, Conversation):
        content = (
            *(content.plain, content.in_parts, content.texts),
            json.dumps(content.messages),  # with the order of their keys
            *(content.plain, content.in_parts, content.texts),
            *(content.tools, content.template_kwargs, content.completion_start),
        )
    found = (example.columns, example.validation, example.notes, example.number, example.schema, dict(example.unread))
    return type(example.content), content, *found


class Declines:
    """Leaves each record to the general way."""

    def decode(self, raw: bytes) -> None:
        return None

    def learn(self, names: Any) -> None:
        pass


def names_of(raw: bytes) -> list[str]:
    with contextlib.suppress(ValueError):
        return [*json.loads(raw)]
    return []


def is_typed(raw: bytes, options: dict[str, Any]) -> bool:
    decoder = TypedDecoder(ParseOptions(**options))
    decoder.learn(names_of(raw))
    return decoder.decode(raw) is not None


def check(raw: bytes, options: dict[str, Any]) -> None:
    if is_typed(raw, options):
        assert read(raw, options, typed=True) == read(raw, options, typed=False)


@pytest.mark.parametrize("keep", [(), ("id", "score", "meta", "nowhere")], ids=["", "kept"])
@pytest.mark.parametrize("as_chat", [False, True], ids=["", "as_chat"])
@pytest.mark.parametrize("kind", USUAL)
def test_usual_records_are_decoded_with_their_types(kind, as_chat, keep):
    options = {"as_chat": as_chat, "keep_columns": keep, "validation_fraction": 0.5}
    for raw in (json.dumps(USUAL[kind]).encode(), json.dumps(USUAL[kind], ensure_ascii=False, indent=1).encode()):
        assert is_typed(raw, options)
        check(raw, options)


@pytest.mark.parametrize(
    ("record", "options"),
    [
        ({"dialog": MESSAGES, "prompt": 3}, {"columns": {"messages": "dialog"}}),
        ({"dialog": [{"content": "a", "role": "user"}]}, {"columns": {"messages": "dialog"}}),
        ({"conversations": TURNS, "messages": 3}, {"columns": {"messages": "conversations"}}),
        ({"q": "a", "a": "b", "text": "c"}, {"columns": {"question": "q", "answer": "a"}, "schema": "question_answer"}),
        ({"ids": [1, 2]}, {"columns": {"input_ids": "ids"}}),
        ({"text": "a", "prompt": 3}, {"schema": "text", "keep_columns": ("text", "prompt")}),
        ({"conversations": [{"from": "bot", "value": "a"}]}, {"roles": {"bot": "assistant"}}),
        ({"messages": [{"role": "user", "content": "a"}]}, {"roles": {"user": "assistant"}}),
        ({"messages": IN_PARTS}, {"roles": {"user": "assistant"}}),
    ],
)
def test_records_with_other_names_are_decoded_with_their_types(record, options):
    raw = json.dumps(record).encode()
    assert is_typed(raw, options)
    check(raw, options)


@pytest.mark.parametrize(
    ("record", "options"),
    [
        ({"messages": MESSAGES}, {"message_fields": {"role": "role"}}),
        ({"messages": MESSAGES}, {"columns": {"tools": "functions"}}),
        ({"messages": MESSAGES}, {"keep_columns": ("messages",)}),
        ({"messages": MESSAGES, "output": ["a", "b"]}, {}),
        ({"question": "a", "answer": "b", "query": "c"}, {}),
        ({"messages": MESSAGES, "label": False}, {}),
        ({"conversations": TURNS, "label": "False"}, {}),
        ({"instruction": "a", "output": "b", "kto_tag": 0}, {}),
        ({"text": "a", "images": [{"path": "a.png"}]}, {}),
        ({"messages": [{**MESSAGES[0], "train": True}]}, {}),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL | {"arguments": '{"a": 1, "a": 2}'}]}]}, {}),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, {}),
        ({"messages": MESSAGES, "tools": '[{"name": "f", "name": "g"}]'}, {}),
        ({"messages": MESSAGES, "chat_template_kwargs": {"tools": []}}, {}),
        ({"input_ids": [1]}, {"keep_columns": ("input_ids",)}),
        ({"input_ids": [1], "labels": [1]}, {"keep_columns": ("labels",)}),
        ({"input_ids": [1.0]}, {}),
        ({"input_ids": [2**63]}, {}),
        ({"input_ids": [[1]]}, {}),
        ({"input_ids": []}, {}),
        ({"input_ids": [1, 2], "attention_mask": [0, 1]}, {}),
    ],
)
def test_what_a_typed_decoder_cannot_do_is_left_to_the_general_way(record, options):
    assert not is_typed(json.dumps(record).encode(), options)


def test_a_number_out_of_range_in_a_column_that_is_not_read_costs_no_record():
    for record in USUAL.values():
        plain = json.dumps(record).encode()
        raw = plain[:-1] + b', "score": 1e999}'
        assert is_typed(raw, {})
        assert read(raw, {}, typed=True) == read(plain, {}, typed=True)  # it reads the messages, too


def test_a_record_with_a_new_column_is_left_to_the_general_way_and_those_after_it_are_decoded_with_their_types():
    raw = b'{"text": "a", "summary": "b", "id": 3}'
    decoder = TypedDecoder(ParseOptions())
    assert decoder.decode(raw) is None
    decoder.learn(["text", "summary", "id"])
    assert decoder.decode(raw)[3] == [("summary", "b")]
    for number in range(400):  # names that are different in each record are not learned without end
        decoder.learn([f"key {number}"])
    assert decoder.decode(b'{"text": "a", "key 3": "b"}') is not None
    assert decoder.decode(b'{"text": "a", "key 399": "b"}') is None


@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_messages_in_parts_are_decoded_when_they_are_needed_if_their_keys_have_the_usual_order(separators):
    def content(messages: list[Any]) -> Any:
        record = {"messages": messages, "meta": {"type": "text", "text": "b"}}
        parser = Parser()
        parser._typed.learn(record)
        return parser.parse(Record(0, json.dumps(record, separators=separators).encode())).content

    usual = content(IN_PARTS)
    assert isinstance(usual.lazy_messages, tuple)
    assert usual.in_parts == (("user", "assistant"), (2, 1), [QUOTED, " c", "b"])
    assert usual.messages == IN_PARTS
    other = content([{"role": "user", "content": [{"text": "a", "type": "text"}]}])
    assert other.in_parts is None  # a template may print its keys


@pytest.mark.parametrize("ids", [b"[01]", b"[1,]", b"[1 2]", b"[-]", b"[1,,2]", b"[--1]", b"[1-2]", b"[,1]", b"[1]]"])
def test_token_ids_that_are_not_valid_json_are_rejected(ids):
    assert read(b'{"input_ids": ' + ids + b"}", {}, typed=True)[0] == "RecordError"


# Any records: the usual ones with some columns replaced, added or written twice.
TEXTS = st.text(max_size=4) | st.sampled_from(["", " ", "[]", "{}", "false", "[1]", "gpt"])
A_PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image"]), "text": TEXTS})
A_PART |= st.fixed_dictionaries({"text": TEXTS, "type": st.just("text")}, optional={"weight": st.just(0)})
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 0.5]) | TEXTS
A_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "gpt", "x"]),
        "content": TEXTS | st.lists(A_PART, max_size=2),
    },
    optional={"weight": st.sampled_from([0, 1, None]), "name": TEXTS, "value": TEXTS},
)
A_TURN = st.fixed_dictionaries(
    {"from": st.sampled_from(["human", "gpt", "system", "user", "function_call", "observation"]), "value": TEXTS},
    optional={"weight": st.sampled_from([0, 1, None]), "content": TEXTS},
)
LISTS = st.lists(A_MESSAGE, max_size=3) | st.lists(A_TURN, max_size=3) | st.lists(st.integers(-2, 9), max_size=4)
PAIRS = st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=2)
VALUES = SCALARS | LISTS | PAIRS | st.dictionaries(st.sampled_from(["a", "path", "bytes"]), SCALARS, max_size=2)
OF_TEXTS = ("prompt", "completion", "instruction", "input", "output", "text", "question", "answer", "query", "response")
MORE = ("context", "history", "system", "system_prompt", "choices", "options", "chosen", "rejected", "label", "kto_tag")
OTHERS = ("messages", "conversations", "tools", "functions", "chat_template_kwargs", "image", "images", "audio", "id")
OF_TOKENS = ("input_ids", "labels", "attention_mask", "completion_mask", "loss_weights", "seq_lengths", "position_ids")
COLUMNS = st.sampled_from([*OF_TEXTS, *MORE, *OTHERS, *OF_TOKENS])
RECORDS = st.tuples(
    st.sampled_from([*USUAL.values()]).map(lambda record: [*record.items()]),
    st.lists(st.tuples(COLUMNS, VALUES), max_size=2),
).map(lambda parts: parts[0] + parts[1])
RECORDS |= st.lists(st.tuples(COLUMNS, VALUES), max_size=4)
RECORDS |= st.tuples(
    st.sampled_from(["messages", "conversations", "prompt", "completion"]),
    st.lists(A_MESSAGE, min_size=1, max_size=3) | st.lists(A_TURN, min_size=1, max_size=3),
).map(lambda column: [column])
OPTIONS = st.fixed_dictionaries(
    {"keep_columns": st.sampled_from([(), ("id",), ("id", "text", "system", "label")])},
    optional={
        "as_chat": st.booleans(),
        "schema": st.sampled_from(["messages", "sharegpt", "alpaca", "text", "question_answer", "tokenized"]),
        "roles": st.sampled_from([{"x": "user"}, {"user": "assistant", "assistant": "user"}]),
        "columns": st.sampled_from([{"messages": "conversations"}, {"text": "prompt"}, {"answer": "output"}]),
        "train_field": st.just("weight"),
        "validation_fraction": st.just(0.5),
    },
)


@THOROUGHLY
@given(record=RECORDS, options=OPTIONS, is_ascii=st.booleans(), separators=st.sampled_from([None, (",", ":")]))
def test_any_record_becomes_the_same_with_and_without_types_or_they_decline(record, options, is_ascii, separators):
    dumps = functools.partial(json.dumps, ensure_ascii=is_ascii, separators=separators)
    values = [f"{json.dumps(name)}: {dumps(value)}" for name, value in record]
    check(f"{{{', '.join(values)}}}".encode(), options)  # a column may be there twice


@given(ids=st.lists(st.integers(0, 2**31 - 1), min_size=1), space=st.sampled_from(["", " ", "\t\r\n"]))
def test_any_token_ids_are_read_exactly(ids, space):
    json_list = f"[{space}{f'{space},{space}'.join(map(str, ids))}{space}]"
    content = parse(f'{{"input_ids": {json_list}}}'.encode())[0].content
    assert content.input_ids.tolist() == ids
    assert content.input_ids.dtype == np.int32
