"""Records of which a reader could lose a column or a field: it is read, noted, or the record is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from support.records import example_of, messages_of, notes_of, reject_of
from transforms import Conversation, PromptCompletion, TokenRow, parse

USER = {"role": "user", "content": "Is tea hot?"}
GOOD = {"role": "assistant", "content": "Mostly, yes."}
BAD = {"role": "assistant", "content": "No."}
SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "f"}}
STRINGS = {"schema": "prompt_completion"}
CHOSEN: dict[str, Any] = {"schema": "chosen"}


def tokens_of(record: dict[str, Any]) -> TokenRow:
    content = parse(record)[0].content
    assert isinstance(content, TokenRow)
    return content


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER, GOOD]},
        {"conversations": [USER, GOOD]},
        {"prompt": [USER], "completion": [GOOD]},
        {"messages": [SYSTEM, USER, GOOD]},
        {"prompt": [SYSTEM, USER], "completion": [GOOD]},
    ],
)
def test_the_column_system_is_the_first_message(record):
    content = example_of({"system": "Be brief.", **record}).content
    assert isinstance(content, Conversation)
    assert content.messages == [SYSTEM, USER, GOOD]
    assert content.completion_start in (None, 2)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_a_system_message_that_differs_from_the_column_system_rejects_the_record(column, role):
    record = {"system": "Be brief.", column: [{"role": role, "content": "Be long."}, USER, GOOD]}
    assert reject_of(record)[0] == "bad_message"


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}])
def test_messages_with_a_pair_of_outputs_are_a_pair_with_other_columns_and_without(more):
    record = {"messages": [USER], "output": ["a", "b"], **more}
    assert reject_of(record)[0] == "preference_data"
    answered = example_of({**record, "output": "a"}).content  # the messages end without an answer
    assert answered.messages == [USER, {"role": "assistant", "content": "a"}]  # type: ignore[union-attr]
    content = example_of({**record, "output": "a"}, schema="messages").content
    assert content.messages == [USER]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "value", "options"),
    [
        ("system", "Be brief.", STRINGS),
        ("tools", [TOOL], STRINGS),
        ("functions", [TOOL["function"]], STRINGS),
        ("chat_template_kwargs", {"a": 1}, STRINGS),
        ("tools", [TOOL], CHOSEN),
    ],
)
def test_strings_with_a_column_of_conversations_are_rejected_as_plain_text_and_read_as_chat(column, value, options):
    record = {"prompt": "p", "completion": "c", "chosen": "c", "rejected": "r"}
    assert reject_of({**record, column: value}, **options)[0] == "bad_prompt_completion"
    assert isinstance(example_of({**record, column: value}, as_chat=True, **options).content, Conversation)
    assert example_of({**record, column: None}, **options).content == PromptCompletion("p", "c")


@pytest.mark.parametrize("other", ["question", "instruction", "input"])
def test_a_pair_with_two_prompts_is_rejected_unless_they_are_the_same(other):
    record = {"prompt": "p", "chosen": "c", "rejected": "r"}
    assert reject_of({**record, other: "q"}, **CHOSEN)[0] == "bad_preference"
    assert example_of({**record, other: "p"}, **CHOSEN).content == PromptCompletion("p", "c")


@pytest.mark.parametrize("rejected", [[BAD], "No."])
def test_the_prompt_of_a_pair_is_known_from_its_column_if_only_chosen_begins_with_it(rejected):
    record = {"prompt": "Is tea hot?", "chosen": [USER, GOOD], "rejected": rejected}
    for system in ({}, {"system": "Be brief."}):
        content = example_of({**record, **system}, **CHOSEN).content
        assert isinstance(content, Conversation) and content.completion_start == len(content.messages) - 1
    del record["prompt"]
    assert reject_of(record, **CHOSEN)[0] == "bad_preference"


@pytest.mark.parametrize(
    "record",
    [
        {"instruction": "i", "response": "r", "question": "q"},
        {"question": "q", "answer": "a", "response": "r"},
        {"question": "q", "answer": "a", "query": "other"},
        {"question": "", "answer": "", "instruction": "i", "response": "r"},
    ],
)
def test_several_questions_or_answers_of_a_record_reject_it(record):
    assert reject_of(record)[0] == "bad_question_answer"


def test_one_of_several_questions_and_answers_can_be_chosen():
    record = {"question": "q", "answer": "a", "response": "r"}
    assert example_of(record, schema="question_answer").content.messages[1]["content"] == "a"  # type: ignore[union-attr]
    assert example_of(record, columns={"answer": "response"}).content.messages[1]["content"] == "r"  # type: ignore[union-attr]
    assert example_of({**record, "response": "a"}).content.messages[1]["content"] == "a"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "user", "content": "A", "value": "B"},
        {"from": "human", "role": "assistant", "content": "B", "value": "B"},
        {"from": "human", "role": "assistant", "content": "", "value": "B"},
    ],
)
def test_a_turn_with_two_roles_or_two_texts_rejects_the_record(turn):
    assert reject_of({"messages": [turn]})[0] == "bad_message"


@pytest.mark.parametrize(
    "turn",
    [
        {"from": "human", "value": "A", "role": None, "content": None},
        {"from": None, "value": None, "role": "user", "content": "A"},
        {"from": "human", "role": "user", "content": "A", "value": "A"},
    ],
)
def test_fields_of_a_turn_that_are_null_or_say_the_same_count_once(turn):
    assert messages_of(turn) == [{"role": "user", "content": "A"}]


def test_a_field_that_message_fields_replaces_is_noted_and_null_replaces_nothing():
    fields = {"content": "text"}
    turn = {**USER, "text": "Is it?"}
    assert messages_of(turn, message_fields=fields) == [{"role": "user", "content": "Is it?"}]
    assert notes_of(turn, message_fields=fields) == {
        "message_fields_replaced": "messages[0] has content and text; the latter is read"
    }
    assert messages_of({**USER, "text": None}, message_fields=fields) == [USER]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_an_answer_may_have_reasoning_alone_under_each_of_its_names(key):
    message = {"role": "assistant", "content": None, key: "Hm"}
    assert messages_of(USER, message)[1][key] == "Hm"


@pytest.mark.parametrize(
    "packed",
    [
        *({"seq_lengths": [2, 1]}, {"position_ids": [0, 1, 0]}, {"seq_lengths": "[2, 1]"}, {"seq_lengths": 3}),
        *({"seq_lens": [2, 1]}, {"cu_seqlens": [0, 2, 3]}, {"segment_ids": [1, 1, 2]}, {"document_ids": [0, 0, 1]}),
        *({"seq_start_id": [0, 2], "loss_mask": [1, 0, 1]}, {"seq_start_id": [0], "loss_mask": [1, 1, 0]}),
    ],
)
def test_a_row_of_several_examples_is_rejected(packed):
    assert reject_of({"input_ids": [5, 6, 7], **packed})[0] == "bad_tokens"


def test_a_row_of_one_example_is_read():
    row = {"input_ids": [5, 6, 7], "seq_lengths": [3], "position_ids": [0, 1, 2]}
    padded = {"input_ids": [5, 6, 7, 0, 0], "position_ids": [0, 1, 2, 0, 0], "attention_mask": [1, 1, 1, 0, 0]}
    of_trainers = {"input_ids": [5, 6, 7], "seq_lens": [3], "cu_seqlens": [0, 3], "segment_ids": [1, 1, 1]}
    of_text = {"input_ids": [5, 6, 7], "document_ids": ["a", "b"]}
    for record in (row, padded, of_trainers, of_text):
        assert tokens_of(record).input_ids.tolist() == [5, 6, 7]


def test_loss_weights_may_be_the_json_of_a_list():
    content = tokens_of({"input_ids": "[5, 6]", "loss_weights": "[0, 1]"})
    assert content.trained.tolist() == [False, True]
