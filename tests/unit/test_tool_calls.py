"""Tools and tool calls: whatever form a corpus has them in, a template gets them as from a server."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from support.paths import TOKENIZER
from support.records import example_of, messages_of, notes_of, reject_of
from transforms import Conversation, ParameterError, ParseConversations, render

USER = {"role": "user", "content": "Where is K-7?"}
CALL = {"name": "track", "arguments": {"order": "K-7", "n": [1, 2.5, None]}}
FUNCTION = {"type": "function", "function": CALL}
BARE = {"name": "track", "description": "Finds <an order>", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": BARE}


def calls(value: Any, **options: Any) -> Any:
    """The tool calls of an assistant's message that has these in the record."""
    return messages_of(USER, {"role": "assistant", "content": "", "tool_calls": value}, **options)[1]["tool_calls"]


def arguments(value: Any, **options: Any) -> Any:
    return calls([{"type": "function", "function": {"name": "f", "arguments": value}}], **options)[0]["function"][
        "arguments"
    ]


def bad_calls(value: Any) -> str:
    record = {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": value}]}
    reason, detail = reject_of(record)
    assert reason == "bad_tool_calls" and "messages[1]" in detail
    return detail


# Arguments


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"b": 1, "a": 2},
        {"big": 2**64 + 1, "negative": -(2**70), "one": 1.0, "small": 1e-7, "zero": -0.0},
        {"text": 'Zürich-你 <L> & "neu"\n', "nested": {"deep": [None, True, {}]}},
    ],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_arguments_that_are_strings_are_parsed_with_numbers_and_order_unchanged(value, ascii):
    parsed = arguments(json.dumps(value, ensure_ascii=ascii))
    assert repr(parsed) == repr(value)
    assert repr(arguments(value)) == repr(value)


@pytest.mark.parametrize("nothing", ["", " ", None])
def test_no_arguments_are_an_empty_object_as_in_vllm(nothing):
    assert arguments(nothing) == {}
    assert calls([{"type": "function", "function": {"name": "f"}}])[0]["function"] == {"name": "f", "arguments": {}}


@pytest.mark.parametrize("text", ["{", "[1]", '"{}"', "7", "null", '{"a": NaN}', '{"a": 1e999}', "{'a': 1}"])
def test_arguments_that_are_not_the_json_of_an_object_reject_the_record(text):
    assert "the arguments of call 0 of the tool_calls" in bad_calls([{"function": {"name": "f", "arguments": text}}])


def test_arguments_may_be_kept_as_strings():
    assert arguments('{"a":1}', tool_arguments="keep") == '{"a":1}'
    assert arguments({"a": 1}, tool_arguments="keep") == {"a": 1}
    with pytest.raises(ParameterError, match="parse, keep"):
        ParseConversations(tool_arguments="leave")


def test_a_key_that_arguments_have_twice_is_noted():
    call = {"name": "f", "arguments": '{"a": 1, "b": {"c": 2, "c": 3}}'}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    [(name, found)] = notes_of(USER, message).items()
    assert name == "duplicate_json_keys" and "'c' twice" in found and "messages[1]" in found


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "f", "parameters": {"a": 1}}},
        {"function": {"name": "f"}, "parameters": {"a": 1}},
        {"name": "f", "arguments": {}, "parameters": {"a": 1}},
        {"function": {"name": "f"}, "arguments": '{"a": 1}'},
        {"name": "g", "arguments": {"a": 1}, "function": {"name": "f", "arguments": {}}},
        {"name": "g", "function": {"name": "f", "arguments": {}}},
    ],
)
def test_a_call_with_arguments_in_an_unusual_place_is_rejected_since_they_would_be_lost(call):
    assert "call 0" in bad_calls([call])


def test_a_call_of_a_table_may_have_null_for_fields_of_other_forms():
    call = {"name": None, "arguments": None, "parameters": None, "type": "function", "function": {**CALL}}
    assert calls([call])[0]["function"] == CALL


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PRINTS_CALLS = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content -}}
    {%- for call in message.tool_calls or [] -%}
        {{- call.function.name + call.function.arguments | tojson + call.function.arguments | string -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
REFERENCE = AutoTokenizer.from_pretrained(TOKENIZER)


@settings(max_examples=100)
@given(value=st.dictionaries(TEXTS, JSON, max_size=4), ascii=st.booleans(), indent=st.sampled_from([None, 2]))
def test_any_arguments_in_a_string_are_printed_as_transformers_prints_the_object(value, ascii, indent):
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    chat = [USER, {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": text}]}]
    parsed = example_of({"messages": chat}).content
    assert isinstance(parsed, Conversation)
    function = parsed.messages[1]["tool_calls"][0]["function"]
    assert repr(function["arguments"]) == repr(value) and math.isfinite(len(repr(value)))
    normal = [USER, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}]
    expected = REFERENCE.apply_chat_template(normal, chat_template=PRINTS_CALLS, tokenize=False)
    assert render(chat, tokenizer=str(TOKENIZER), chat_template=PRINTS_CALLS).text == expected


# Calls


@pytest.mark.parametrize(
    "value",
    [
        [FUNCTION],
        [CALL],
        [{"type": "function", **CALL}],
        [{"function": CALL}],
        [{"type": None, "function": CALL}],
        [{"function": None, **CALL}],
        json.dumps([FUNCTION]),
        json.dumps([CALL]),
        [json.dumps(CALL)],
        [{"type": "function", "function": json.dumps(CALL)}],
        [{"type": "function", "function": {**CALL, "arguments": json.dumps(CALL["arguments"])}}],
    ],
)
def test_calls_of_any_form_get_the_openai_form(value):
    assert calls(value) == [FUNCTION]


def test_other_keys_of_calls_stay():
    assert calls([{"id": "call_1", "type": "function", "function": {**CALL, "strict": True}}, {"id": "2", **CALL}]) == [
        {"id": "call_1", "type": "function", "function": {**CALL, "strict": True}},
        {"id": "2", **FUNCTION},
    ]


@pytest.mark.parametrize("nothing", [[], "", "[]", "null"])
def test_an_empty_list_of_calls_is_removed_as_in_vllm(nothing):
    message = {"role": "assistant", "content": "Hi", "tool_calls": nothing}
    assert messages_of(USER, message) == [USER, {"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "f", "arguments": {}},
        [7],
        "[",
        [{"arguments": {}}],
        [{"name": "f"}],
        [{"name": "f", "parameters": {}}],
        [{"type": "custom", "custom": {"name": "f", "input": "a"}}],
        [{"type": "function", "function": "f"}],
    ],
)
def test_malformed_calls_reject_the_record(value):
    bad_calls(value)


def test_openais_older_function_call_and_its_answer_become_a_call_and_a_tools_answer():
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    answer = {"role": "function", "name": "f", "content": "7"}
    tool_calls = [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
    assert messages_of(USER, call, answer)[1:] == [
        {"role": "assistant", "content": None, "tool_calls": tool_calls},
        {"role": "tool", "name": "f", "content": "7"},
    ]
    both = {"role": "assistant", "content": "", "tool_calls": [CALL], "function_call": CALL}
    assert reject_of({"messages": [both]})[0] == "bad_tool_calls"


# ShareGPT


@pytest.mark.parametrize("role", ["function_call", "tool_call"])
@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (json.dumps(CALL), "", 1),
        (json.dumps([CALL, CALL]), "", 2),
        ([CALL, CALL], "", 2),
        (f"{json.dumps(CALL)}\n{json.dumps(CALL)}", "", 2),
        (f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "", 1),
        (f"<tool_call>{json.dumps(CALL)}</tool_call>\n<tool_call>{json.dumps(CALL)}</tool_call>", "", 2),
        (f"I look.\n<tool_call>{json.dumps(CALL)}</tool_call>", "I look.", 1),
        (f"<think>\nHm {{}}\n</think>\n\n{json.dumps(CALL)}", "<think>\nHm {}\n</think>", 1),
        (json.dumps({**CALL, "arguments": json.dumps(CALL["arguments"])}), "", 1),
    ],
)
def test_a_function_call_turn_has_one_call_or_several(role, value, text, number):
    conversation = example_of({"conversations": [{"from": role, "value": value}], "tools": [BARE]}).content
    call = {"role": "assistant", "content": text, "tool_calls": [FUNCTION] * number}
    assert conversation == Conversation([call], [TOOL])


@pytest.mark.parametrize("value", ["[]", "", "track(7)", f"<tool_call>{json.dumps(CALL)}</tool_call> Done.", 7])
def test_a_function_call_turn_without_calls_or_with_text_after_them_rejects_the_record(value):
    assert reject_of({"conversations": [{"from": "function_call", "value": value}]})[0] == "bad_tool_calls"


def test_a_function_call_turn_with_calls_in_a_field_as_well_rejects_the_record():
    turn = {"from": "function_call", "value": json.dumps(CALL)}
    assert reject_of({"conversations": [{**turn, "tool_calls": [CALL]}]})[0] == "bad_tool_calls"
    assert reject_of({"conversations": [{**turn, "function_call": CALL}]})[0] == "bad_tool_calls"


def test_call_turns_in_a_row_are_one_message():
    call, answer = {"role": "tool_call", "content": json.dumps(CALL)}, {"role": "tool_response", "content": "7"}
    assert messages_of(USER, call, call, answer, call)[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [FUNCTION, FUNCTION]},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "", "tool_calls": [FUNCTION]},
    ]


def paired(turns: list[dict[str, Any]]) -> list[Any]:
    """The ids of the calls of each message, and of the call that it answers."""
    messages = messages_of(*turns)
    return [
        [call.get("id") for call in message["tool_calls"]] if "tool_calls" in message else message.get("tool_call_id")
        for message in messages
    ]


def called(*names: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": name, "arguments": {}}} for name in names],
    }


def answer(text: str, **keys: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, **keys}


def test_several_calls_of_a_turn_and_their_answers_get_the_same_ids_if_none_has_one():
    turns = [
        {"from": "human", "value": "Add, then subtract."},
        {"from": "function_call", "value": [{"name": "add", "arguments": {}}, {"name": "sub", "arguments": {}}]},
        {"from": "observation", "value": "3"},
        {"from": "observation", "value": "-1"},
    ]
    ids = ["call00000", "call00001"]
    assert paired(turns) == [None, ids, *ids]
    again = [*turns, called("add", "sub"), answer("4", name="add"), answer("5")]
    assert paired(again) == [None, ids, *ids, ["call00002", "call00003"], "call00002", "call00003"]


@pytest.mark.parametrize(
    "turns",
    [
        [USER, called("add"), answer("3")],
        [USER, called("add", "sub"), answer("3")],
        [USER, called("add"), answer("3"), answer("4")],
        [USER, called("add", "sub"), answer("3"), USER, answer("4")],
        [USER, called("add", "sub"), answer("-1", name="sub"), answer("3", name="add")],
    ],
)
def test_calls_whose_answers_are_not_certain_or_that_have_one_answer_get_no_ids(turns):
    assert all(ids is None or set(ids) == {None} for ids in paired(turns))


def test_ids_that_a_conversation_has_stay_alone():
    turns = [USER, called("add", "sub"), answer("3", tool_call_id="b"), answer("4", tool_call_id="a")]
    assert paired(turns) == [None, [None, None], "b", "a"]


def test_call_turns_are_one_answer_with_the_text_before_them_whatever_other_keys_they_have():
    call = {"role": "tool_call", "content": json.dumps(CALL)}
    text = {"role": "assistant", "content": "I look.", "time": 1}
    (message,) = messages_of(text, {**call, "time": 2}, {**call, "name": "x"})
    assert message["content"] == "I look." and len(message["tool_calls"]) == 2 and message["time"] == 1
    parts = {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}
    (message,) = messages_of(parts, call)
    assert message["content"] == parts["content"] and len(message["tool_calls"]) == 1


def test_call_turns_of_another_weight_or_reasoning_than_their_answer_are_rejected():
    call = {"role": "tool_call", "content": json.dumps(CALL)}
    reason, detail = reject_of({"messages": [USER, call, {**call, "loss": False}]})
    assert (reason, detail) == (
        "bad_weight",
        "messages[2] is a call of the answer before it, and has another weight than that",
    )
    thoughts = [{**call, "reasoning_content": thought} for thought in ("a", "b")]
    assert reject_of({"messages": [USER, *thoughts]})[0] == "bad_message"
    (_, message) = messages_of(USER, thoughts[0], call)
    assert message["reasoning_content"] == "a" and len(message["tool_calls"]) == 2


def test_ids_of_call_turns_and_of_answers_are_those_of_the_calls():
    call = {"role": "tool_call", "content": json.dumps(CALL)}
    turns = [USER, {**call, "id": "x"}, {**call, "id": "y"}, {**answer("3"), "id": "x"}, {**answer("4"), "id": "y"}]
    assert paired(turns) == [None, ["x", "y"], "x", "y"]
    # An id of each message is not that of a call.
    assert paired([{**turn, "id": str(i)} for i, turn in enumerate([USER, call, answer("3")])]) == [None, [None], None]


def test_a_call_turn_with_text_of_its_own_is_a_message_of_its_own():
    call = {"role": "tool_call", "content": json.dumps(CALL)}
    thought = {"role": "tool_call", "content": f"And then.<tool_call>{json.dumps(CALL)}</tool_call>"}
    assert [message["content"] for message in messages_of(call, thought)] == ["", "And then."]


def test_tool_call_text_in_an_ordinary_turn_is_text():
    text = f"<tool_call>{json.dumps(CALL)}</tool_call>"
    assert messages_of({"from": "gpt", "value": text}, column="conversations") == [
        {"role": "assistant", "content": text}
    ]


# Tools


@pytest.mark.parametrize(
    "tools",
    [
        [TOOL],
        [BARE],
        json.dumps([BARE]),
        json.dumps([TOOL]),
        [json.dumps(BARE)],
        [json.dumps(TOOL)],
        [{"function": BARE}],
        [{"type": "function", **BARE}],
        [{"type": None, "function": None, **BARE}],
        [{"type": "function", "function": {**BARE, "parameters": json.dumps(BARE["parameters"])}}],
    ],
)
def test_tools_of_any_form_get_the_openai_form(tools):
    [tool] = example_of({"messages": [USER], "tools": tools}).content.tools  # type: ignore[union-attr]
    assert json.dumps(tool) == json.dumps(TOOL)  # with the same order of keys


def test_functions_of_openais_older_api_are_tools():
    assert example_of({"messages": [USER], "functions": [BARE]}).content == Conversation([USER], [TOOL])
    assert example_of({"messages": [USER], "functions": [BARE], "tools": []}).content == Conversation([USER], [TOOL])
    assert reject_of({"messages": [USER], "functions": [BARE], "tools": [BARE]})[0] == "bad_tools"


def test_a_tool_of_another_type_stays():
    tools = [{"type": "web_search", "max_uses": 3}, TOOL]
    assert example_of({"messages": [USER], "tools": tools}).content.tools == tools  # type: ignore[union-attr]


@pytest.mark.parametrize("tools", ["{", '{"a": 1}', [7], ["f"], [{"description": "x"}], [{"function": {}}], 7])
def test_malformed_tools_reject_the_record(tools):
    assert reject_of({"messages": [USER], "tools": tools})[0] == "bad_tools"
