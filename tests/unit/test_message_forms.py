"""Messages as corpora have them: names of fields and roles, and content in parts."""

from __future__ import annotations

import json

import pytest

from support.records import example_of, messages_of, notes_of, reject_of

USER = {"role": "user", "content": "Where is K-7?"}
ANSWER = {"role": "assistant", "content": "On its way."}


def test_fields_of_messages_may_have_other_names():
    fields = {"role": "speaker", "content": "utterance", "reasoning_content": "thought"}
    turns = (
        {"speaker": "user", "utterance": "Hi"},
        {"speaker": "assistant", "utterance": "Ho", "thought": "Hm", "n": 1},
    )
    assert messages_of(*turns, message_fields=fields) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho", "reasoning_content": "Hm", "n": 1},
    ]
    assert messages_of(USER, ANSWER, message_fields=fields) == [USER, ANSWER]


def test_a_renamed_field_takes_precedence_and_fields_may_be_swapped():
    turn = {"role": "user", "content": "raw", "clean": "Hi"}
    assert messages_of(turn, message_fields={"content": "clean"}) == [{"role": "user", "content": "Hi"}]
    swapped = {"role": "Hi", "content": "user"}
    assert messages_of(swapped, message_fields={"role": "content", "content": "role"}) == [
        {"role": "user", "content": "Hi"}
    ]


def test_fields_that_no_message_of_a_record_has_are_noted():
    assert notes_of(USER, ANSWER, message_fields={"content": "txet"}) == {"records_without_txet": None}
    assert not notes_of({"role": "user", "text": "a"}, ANSWER, message_fields={"content": "text"})


def test_from_and_value_are_known_in_any_column():
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    expected = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert messages_of(*turns) == messages_of(*turns, column="conversations") == expected
    assert example_of({"prompt": turns[:1], "completion": turns[1:]}).content.messages == expected  # type: ignore[union-attr]


@pytest.mark.parametrize("channel", ["analysis", "commentary"])
@pytest.mark.parametrize("content", ["Hm", [{"type": "text", "text": "Hm"}]])
def test_a_turn_on_a_channel_of_harmony_that_is_no_answer_rejects_the_record(channel, content):
    turn = {"role": "assistant", "channel": channel, "content": content}
    assert reject_of({"messages": [USER, turn, {**ANSWER, "channel": "final"}]}) == (
        "bad_message",
        f"messages[1] is on Harmony's channel {channel}, and would be trained on as an answer; "
        "expected reasoning as thinking, and calls as tool_calls, of the answer",
    )
    others = {**USER, "channel": channel}, {**ANSWER, "channel": "final"}
    assert messages_of(*others) == [*others]


@pytest.mark.parametrize("role", ["tool", "observation", "function", "function_response", "tool_response"])
def test_roles_of_answers_of_tools(role):
    assert messages_of({"role": role, "content": "7"}) == [{"role": "tool", "content": "7"}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "Hi"},
        {"text": "Hi"},
        {"type": "text", "value": "Hi"},
        {"type": "text", "content": "Hi"},
        {"type": "input_text", "text": "Hi"},
        {"type": "output_text", "text": "Hi"},
        {"type": "text", "text": "Hi", "value": None},
        {"type": "text", "text": "Hi", "content": "Hi"},
    ],
)
def test_text_parts_of_any_form_become_text(part):
    [message] = messages_of({"role": "user", "content": [part]})
    assert message["content"][0]["type"] == "text" and message["content"][0]["text"] == "Hi"


def test_parts_of_reasoning_and_calls_become_fields_as_in_llama_factory():
    call = {"name": "f", "arguments": {"a": 1}}
    parts = [{"type": "reasoning", "value": "Hm"}, {"type": "tool_call", "value": json.dumps(call)}]
    expected = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm",
        "tool_calls": [{"type": "function", "function": call}],
    }
    assert messages_of({"role": "assistant", "content": parts}) == [expected]
    with_text = [parts[0], {"type": "text", "value": "I look."}, parts[1], parts[1]]
    assert messages_of({"role": "assistant", "content": with_text}) == [
        expected | {"content": [{"type": "text", "text": "I look."}], "tool_calls": expected["tool_calls"] * 2}
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "value": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": 7}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "a"}}]},
        {"role": "user", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": ["Hi"]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "reasoning", "value": "b"}]},
        {"role": "assistant", "content": [{"type": "reasoning", "value": "a"}], "reasoning_content": "b"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_call", "value": '{"name": "f", "arguments": {}}'},
                {"type": "text", "text": "a"},
            ],
        },
    ],
)
def test_content_that_has_no_place_in_a_text_rejects_the_record(message):
    assert reject_of({"messages": [USER, message]})[0] == "bad_content"


@pytest.mark.parametrize(
    ("part", "medium"),
    [
        ({"type": "image_url", "image_url": {"url": "a"}}, "image"),
        ({"type": "image", "image": "a"}, "image"),
        ({"type": "input_image", "image_url": "a"}, "image"),
        ({"type": "image_url", "value": "a.jpg"}, "image"),
        ({"image": "a.jpg"}, "image"),
        ({"type": "text", "text": "a", "image": "a.jpg"}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "a"}}, "audio"),
        ({"type": "audio_url", "audio_url": {"url": "a"}}, "audio"),
        ({"type": "video_url", "video_url": {"url": "a"}}, "video"),
        ({"video": "a.mp4"}, "video"),
    ],
)
def test_a_part_with_an_image_audio_or_video_rejects_the_record(part, medium):
    assert reject_of({"messages": [{"role": "user", "content": [part]}]})[0] == medium


@pytest.mark.parametrize(("field", "medium"), [("images", "image"), ("image", "image"), ("audio", "audio")])
def test_a_message_with_media_next_to_its_content_rejects_the_record(field, medium):
    assert reject_of({"messages": [{**USER, field: ["a.jpg"]}]})[0] == medium
    assert not notes_of({**USER, field: []}, {**ANSWER, field: None})


def test_parts_of_a_table_have_null_for_the_fields_of_others():
    part = {"type": "text", "text": "Hi", "image_url": None, "input_audio": None}
    assert messages_of({"role": "user", "content": [part]})[0]["content"] == [part]


@pytest.mark.parametrize("value", [7, True, ["I greet."], [{"type": "text", "text": "I greet."}], {"a": "I greet."}])
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_that_is_not_a_string_rejects_the_record(key, value):
    """A template would print it in Python's notation, and the model would be trained on that."""
    kinds = {int: "a number", bool: "a boolean", list: "a list", dict: "an object"}
    for turn in (ANSWER, {"role": "tool_call", "content": '{"name": "find", "arguments": {}}'}):
        detail = f"the {key} of messages[1] is {kinds[type(value)]}; expected a string"
        assert reject_of({"messages": [USER, {**turn, key: value}]}) == ("bad_content", detail)
    assert messages_of(USER, {**ANSWER, key: ""}) == [USER, {**ANSWER, key: ""}]


def test_last_exchange_whose_answer_is_not_a_string_rejects_the_record():
    turns = [{"human": "2+2?", "assistant": "4"}, {"human": "3+3?", "assistant": 6}]
    detail = "the assistant of messages[1] is a number, not a string"
    assert reject_of({"conversation": turns}) == ("bad_content", detail)
    last = {"human": "3+3?", "assistant": None}
    assert example_of({"conversation": [turns[0], last]}).content.messages == [  # type: ignore[union-attr]
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "3+3?"},
    ]


@pytest.mark.parametrize("kind", [["text"], {"a": 1}, 7, None])
def test_block_whose_type_is_not_a_string_is_named(kind):
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": kind, "text": "On its way."}]
    reason, detail = reject_of({"messages": [USER, {"role": "assistant", "content": blocks}]})
    assert reason == "bad_content" and detail.startswith("messages[1] has a block of ")
