"""Shapes of records and forms of turns: each sample is read as by hand; what is not certain is rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.chats import assistant, system, user
from transforms import Conversation, RecordError, TokenRow
from transforms.inputs.shapes import shapes
from transforms.inputs.turns import turn_forms
from transforms.model.examples import Record
from transforms.steps.parse import Parser

WEATHER = {"name": "get_weather", "arguments": {"city": "Paris"}}
CHAT = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]


def calling(content: str = "", call: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return assistant(content, **keys, tool_calls=[{**(call or {}), "type": "function", "function": WEATHER}])


def read(record: Any, **options: Any) -> tuple[str, Any]:
    """What a record is read as, and its content; the same from JSON, and from a table if it is an object."""
    parser = Parser(**options)
    example = parser.parse(Record(0, json.dumps(record).encode()))
    if isinstance(record, dict):
        row = parser.parse(Record(0, record))
        assert (row.schema, row.unread) == (example.schema, example.unread)
        assert isinstance(row.content, TokenRow) or row.content == example.content
    return example.schema, example.content


def rejected(record: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(RecordError) as raised:
        read(record, **options)
    return raised.value.reason, raised.value.detail


# Of the sample of each shape and form, what it is read as, its messages, converted by hand, and what the prompt is.
SAMPLES: dict[str, tuple[str, list[dict[str, Any]], int | None]] = {
    "dialog": (
        "dialog",
        [{**message, "redacted": False, "toxic": False, "language": "English"} for message in CHAT],
        None,
    ),
    "dialog and answer": (
        "dialog and answer",
        [system("detailed thinking on"), user("2+2?"), assistant("<think>\nA sum.\n</think>\n\n4")],
        2,
    ),
    "rollout of messages": ("rollout of messages", CHAT, 1),
    "question and answer": (
        "question and answer",
        [user("What is 6*7?"), assistant("6*7 = 42, so \\boxed{42}.")],
        None,
    ),
    "question, reasoning and answer": (
        "question, reasoning and answer",
        [user("What is 6*7?"), assistant("It is 42.", reasoning_content="6 times 7 is 42.")],
        None,
    ),
    "question and calls": ("question and calls", [user("Weather in Paris?"), calling()], None),
    "answers of a pair": ("answers of a pair", [user("Hi"), assistant("Hello")], 1),
    "dialog and rejected answer": ("dialog and rejected answer", [user("Hi"), assistant("Hello")], 1),
    "marked pair": ("marked pair", [user("Hi"), assistant("Hello")], 1),
    "text of ### Human": ("text of ### Human", CHAT, None),
    "text of Human": ("text of Human", CHAT, None),
    "text of ChatML": ("text of ChatML", CHAT, None),
    "request of Anthropic": ("request of Anthropic", [system("Be brief."), user("Hi"), assistant("Hello.")], None),
    "request of Gemini": (
        "request of Gemini",
        [
            system("Be brief."),
            user("Weather in Paris?"),
            calling(),
            {"role": "tool", "content": '{"t": 15}', "name": "get_weather"},
            assistant("15 C"),
        ],
        None,
    ),
    "anthropic": (
        "messages (anthropic)",
        [
            system("Be brief."),
            user("Weather in Paris?"),
            calling("Let me look.", {"id": "toolu_1"}, reasoning_content="I look it up."),
            {"role": "tool", "content": "15 C", "tool_call_id": "toolu_1"},
            assistant([{"type": "text", "text": "It is 15 C."}]),
        ],
        None,
    ),
    "gemini": (
        "request of Gemini",
        [
            system("Be brief."),
            user("Weather in Paris?"),
            calling(),
            {"role": "tool", "content": '{"t": 15}', "name": "get_weather"},
            assistant("15 C"),
        ],
        None,
    ),
    "responses": (
        "dialog and answer (responses)",
        [
            user("Weather in Paris?"),
            calling(call={"id": "c1"}),
            {"role": "tool", "content": "15 C", "tool_call_id": "c1"},
            assistant("15 C."),
        ],
        3,
    ),
    "olmo": (
        "messages (olmo)",
        [
            system("You are a helpful function-calling AI assistant."),
            user("Weather in Paris?"),
            {**calling(), "content": None},
            {"role": "tool", "content": "15 C"},
            assistant("15 C."),
        ],
        None,
    ),
    "texts in turn": ("texts in turn", [user("What is 2+2?"), assistant("4")], None),
    "speakers as columns": (
        "speakers as columns",
        [system("Be brief."), user("What is 6*7?"), assistant("42")],
        None,
    ),
    "pairs of texts": ("pairs of texts", [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")], None),
    "exchanges": ("dialog (exchanges)", [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")], None),
    "fields": (
        "dialog (fields)",
        [
            {**system("SETTING: you fix bugs."), "mask": False},
            {**user("Fix it."), "mask": False},
            {**assistant("I look at the file."), "mask": False},
        ],
        None,
    ),
}
ENTRIES = [*shapes(), *turn_forms()]


@pytest.mark.parametrize(
    "entry", [one for one in ENTRIES if one.name != "rollout of token ids"], ids=lambda one: one.name
)
def test_the_sample_of_each_shape_and_form_is_read_as_it_was_converted_by_hand(entry):
    name, messages, completion_start = SAMPLES[entry.name]
    schema = getattr(entry, "schema", "messages")
    found, content = read(entry.sample.record, schema=schema if schema == "chosen" else "auto")
    assert (found, content.messages, content.completion_start) == (name, messages, completion_start)
    if schema == "chosen":
        assert rejected(entry.sample.record)[0] == "preference_data"


def test_the_ids_of_a_rollout_are_kept_and_its_mask_says_what_is_trained_on():
    ids = {"prompt_token_ids": [1, 2], "completion_token_ids": [3, 4, 5]}
    for mask, trained in (
        ({}, [0, 0, 1, 1, 1]),
        ({"completion_mask": [1, 0, 1]}, [0, 0, 1, 0, 1]),
        ({"response_mask": [0, 0, 1, 1, 0]}, [0, 0, 1, 1, 0]),
        ({"completion_logprobs": [-1.0, -2.0, -3.0], "prompt": "a", "completion": "b"}, [0, 0, 1, 1, 1]),
    ):
        name, content = read({**ids, **mask})
        assert name == "rollout of token ids"
        assert (content.input_ids.tolist(), content.trained.tolist()) == ([1, 2, 3, 4, 5], [bool(t) for t in trained])
    assert rejected({**ids, "completion_mask": [1]})[0] == "bad_tokens"
    assert read({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]})[1].trained.tolist() == [False, True, True]


def test_a_list_of_messages_is_one_record():
    assert read(CHAT) == ("messages", Conversation(CHAT))
    assert rejected([{"text": "a"}])[0] == "not_an_object"


@pytest.mark.parametrize("tools", [
    [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
    [{"type": "custom", "name": "f", "description": "d", "input_schema": {"type": "object"}}],
    [{"name": "f", "description": "d", "inputSchema": {"type": "object"}}],
    [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "object"}}]}],
])  # fmt: skip
def test_tools_of_other_apis_have_parameters_as_on_a_server(tools):
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert read({"messages": CHAT, "tools": tools})[1].tools == [{"type": "function", "function": function}]


@pytest.mark.parametrize("name", ["available_tools", "tool_defs", "availableTools", "function_definitions"])
def test_tools_are_read_under_other_names(name):
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for tools in ([tool], json.dumps([tool])):
        assert read({"messages": CHAT, name: tools})[1].tools == [tool]


@pytest.mark.parametrize("name", ["dialog", "Dialogue", "trajectory", "conversation", "turns"])
@pytest.mark.parametrize("turns", [
    CHAT,
    [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}],
    [{"speaker": "Human", "utterance": "2+2?"}, {"speaker": "Bot", "utterance": "4"}],
    [{"author": "user", "message": "2+2?"}, {"author": "ai", "message": "4"}],
    [{"instruction": "2+2?", "response": "4"}],
    [{"question": "2+2?", "answer": "4"}],
])  # fmt: skip
def test_a_dialog_of_any_form_is_read_under_any_of_its_names(name, turns):
    for value in (turns, json.dumps(turns)):
        assert read({"id": 1, name: value})[1] == Conversation(CHAT)


@pytest.mark.parametrize("turns", [["2+2?", "4"], [["2+2?", "4"]], [["user", "2+2?"], ["assistant", "4"]]])
def test_texts_are_a_dialog_only_under_names_that_say_so(turns):
    assert read({"dialogue": turns})[1].messages == CHAT
    assert read({"conversations": turns})[1].messages == CHAT
    for name in ("turns", "messages", "contents", "sentences"):  # `turns` of MT-Bench are two questions
        assert rejected({name: turns, "id": 1})[0] in ("unknown_schema", "bad_message")
    assert rejected({"prompt": turns, "completion": turns})[0] == "bad_message"


@pytest.mark.parametrize(("question", "answer"), [
    ("problem", "generated_solution"), ("inputs", "targets"), ("input", "output"), ("prompt", "response"),
    ("Question", "Response"), ("human", "assistant"), ("query", "answer"), ("instruction", "solution"),
])  # fmt: skip
def test_a_question_and_its_answer_are_read_under_any_of_their_names(question, answer):
    assert read({question: "2+2?", answer: "4", "source": "web"})[1].messages == CHAT


@pytest.mark.parametrize(("switch", "given", "expected"), [
    ("on", {}, {"enable_thinking": True}),
    ("off", {}, {"enable_thinking": False}),
    ("off", {"enable_thinking": True}, {"enable_thinking": True}),
])  # fmt: skip
def test_whether_to_reason_is_an_argument_of_the_template(switch, given, expected):
    record = {"messages": CHAT, "reasoning": switch, "chat_template_kwargs": given}
    assert read(record)[1].template_kwargs == expected
    assert read({"input": CHAT[:1], "output": "4", "reasoning": switch})[1].template_kwargs["enable_thinking"] == (
        switch == "on"
    )


@pytest.mark.parametrize(("record", "reason", "fragment"), [
    ({"problem": "2+2?", "solution": "It is four", "answer": "4"}, "ambiguous",
     "answer and solution may each be the answer"),
    ({"prompt": "Sum", "question": "2+2?", "solution": "4"}, "ambiguous", "may each be the question"),
    ({"dialog": CHAT, "conversation": CHAT[:1]}, "ambiguous", "may each be the messages"),
    ({"messages": CHAT, "dialog": [user("3+3?")]}, "not_read", "dialog has other messages"),
    ({"dialog": CHAT, "chosen": "5"}, "not_read", "chosen has another answer, which the shape dialog does not read"),
    ({"question": "2+2?", "response": "4", "choices": ["3", "4"]}, "bad_question_answer", "choices"),
    ({"query": "2+2?", "targets": "4", "options": ["3", "4"]}, "unknown_schema", ""),
    ({"talk": CHAT}, "unknown_schema", "talk looks like messages; if it has them, add columns messages=talk"),
    ({"my_question": "2+2?", "our_answer": "4"}, "unknown_schema",
     "add columns question=my_question,answer=our_answer"),
    ({"dialog": [{"speaker": "USER", "text": "a"}, {"speaker": "SYSTEM", "text": "b"}]}, "unknown_role", "SYSTEM"),
    ({"dialog": ["Human: a", "Assistant: b"]}, "bad_message", "the name of a speaker"),
    ({"dialog": ['{"role": "user"}', "b"]}, "bad_message", "looks like JSON"),
    ({"messages": "[{'role': 'user', 'content': 'a'}]"}, "bad_message", "Python's repr"),
    ({"messages": [user("a"), assistant("b")], "tools": "[{'name': 'f'}]"}, "bad_tools", "Python's repr"),
    ({"text": "Human: a\n\nHuman: b\n\nAssistant: c"}, "bad_message", "two turns of the user in a row"),
    ({"messages": [CHAT[0], {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]},
     "bad_content", "redacted_thinking"),
    ({"messages": [CHAT[0], assistant([{"type": "tool_use", "id": "1", "name": "f", "input": {}},
                                       {"type": "text", "text": "a"}])]}, "bad_content", "text after calls"),
    ({"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "x"}}]}]}, "image", ""),
    ({"messages": [user("a"), assistant("", function_calls="f(1)")]}, "bad_tool_calls", "Python's notation"),
    ({"messages": [user("a"), assistant("", function_calls="f(x=open('a'))")]}, "bad_tool_calls", "Python's notation"),
])  # fmt: skip
def test_what_is_not_certain_is_rejected_with_words(record, reason, fragment):
    found, detail = rejected(record)
    assert (found, fragment in detail) == (reason, True), detail


def test_a_text_with_marks_is_a_document_if_the_schema_says_so_or_nobody_answers():
    text = "### Human: 2+2?### Assistant: 4"
    assert read({"text": text}, schema="text")[0] == "text"
    assert read({"text": "Human: all too human"})[0] == "text"


def test_the_more_specific_shape_wins():
    record = {"question": "2+2?", "thinking": "A sum.", "answer": "4"}
    assert read(record)[0] == "question, reasoning and answer"
    assert read({"question": "2+2?", "answer": "4"})[0] == "question_answer"


def test_media_labels_and_weights_hold_for_shapes_too():
    assert rejected({"dialog": CHAT, "images": ["a.png"]})[0] == "image"
    turns = [{"input": "2+2?", "output": "4", "output_with_loss": False}]
    assert read({"conversation": turns})[1].messages == [CHAT[0], {**CHAT[1], "weight": 0}]
    parser = Parser()
    record = json.dumps({"dialog": CHAT, "label": False}).encode()
    with pytest.raises(Exception, match="undesirable"):
        parser.parse(Record(0, record))


def test_tools_that_the_system_message_has_in_its_text_are_not_printed_twice():
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    for text in (f"<tools>{json.dumps(tool)}</tools>", [{"type": "text", "text": "<tools>"}]):
        messages = [{"role": "system", "content": text}, *CHAT]
        reason, detail = rejected({"messages": messages, "tools": [tool]})
        assert (reason, "--formatter examples/formatters.py:hermes" in detail) == ("bad_tools", True)
        assert read({"messages": messages, "tools": []})[1].messages == messages
    assert read({"messages": [system("Use tools."), *CHAT], "tools": [tool]})[1].tools == [tool]
