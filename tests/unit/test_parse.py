"""Parsing: each schema is read; a record that cannot be read is rejected with its reason, and nothing else is lost."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transforms import (
    Conversation,
    Example,
    Examples,
    PlainText,
    PromptCompletion,
    RecordError,
    Slice,
    Split,
    TokenRow,
)
from transforms import parse as read_record
from transforms.inputs import schemas
from transforms.inputs.formatter import load_formatter
from transforms.inputs.names import COMPLETION_IDS
from transforms.inputs.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes, Reject
from transforms.steps.parse import Parser
from transforms.steps.read import read_split

THOROUGHLY = settings(max_examples=300)

USER = {"role": "user", "content": "Where is order K-7? 😀"}
ASSISTANT = {"role": "assistant", "content": "On its way."}
CHAT = [USER, ASSISTANT]
TOOLS = [{"type": "function", "function": {"name": "track", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"name": "track", "arguments": {"order": "K-7", "n": [1, 2.5, None]}}
CALLS = [{"type": "function", "function": CALL}]


def parse(record: dict[str, Any] | bytes, **arguments: Any) -> Example:
    """Return the example of a record, given as JSON. Raises RecordError."""
    raw = record if isinstance(record, bytes) else json.dumps(record).encode()
    return read_record(raw, **arguments)[0]


def content_of(record: dict[str, Any], **arguments: Any) -> Any:
    """Return the content of a record, which must be the same from a line of JSON and from a row of a table."""
    of_json = parse(record, **arguments).content
    assert read_record(record, **arguments)[0].content == of_json
    return of_json


def reject_of(record: dict[str, Any] | bytes, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(RecordError) as raised:
        parse(record, **arguments)
    return raised.value.reason, raised.value.detail


def records_of(rows: list[dict[str, Any]], rejects: tuple[Reject, ...] = ()) -> Records:
    return Records(
        split=Split(3, (Slice("chats.arrow", "arrow", None, 0, 1),)),
        part=2,
        last=False,
        outcomes=Outcomes(read=len(rows) + len(rejects), rejects=rejects),
        records=[Record(10 + number, row) for number, row in enumerate(rows)],
    )


# Schemas


def test_messages_are_not_changed():
    messages = [
        {"role": "system", "content": ""},
        {"role": "developer", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "content": "{}", "tool_call_id": "call_1", "name": "track"},
        {"role": "assistant", "reasoning_content": "It is in Quarrybridge."},
        {**ASSISTANT, "weight": 0, "unheard_of": [1]},
    ]
    assert content_of({"messages": messages, "id": 3}) == Conversation(messages)


def test_text_parts_are_not_changed():
    parts = [{"type": "text", "text": "Where is it? "}, {"text": "Here?", "type": "text", "cache_control": {}}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": []}]
    assert content_of({"messages": chat}) == Conversation(chat)


@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)])
@pytest.mark.parametrize("arguments", [{"enable_thinking": False}, '{"enable_thinking": false}'])
def test_tools_and_template_arguments_are_objects_or_their_json(tools, arguments):
    record = {"messages": CHAT, "tools": tools, "chat_template_kwargs": arguments}
    assert content_of(record) == Conversation(CHAT, TOOLS, {"enable_thinking": False})


@pytest.mark.parametrize("nothing", [None, [], "", " ", "null", "[]"])
def test_no_tools_are_none(nothing):
    assert content_of({"messages": CHAT, "tools": nothing}) == Conversation(CHAT)


@pytest.mark.parametrize("nothing", [None, {}, "", "null", "{}"])
def test_no_template_arguments_are_none(nothing):
    assert content_of({"messages": CHAT, "chat_template_kwargs": nothing}) == Conversation(CHAT)


def test_template_arguments_that_are_null_are_absent_as_those_of_a_table():
    arguments = {"enable_thinking": None, "documents": [None], "effort": "low"}
    expected = Conversation(CHAT, template_kwargs={"documents": [None], "effort": "low"})
    assert content_of({"messages": CHAT, "chat_template_kwargs": arguments}) == expected


def test_prompt_and_completion_of_strings_are_kept_apart():
    assert content_of({"prompt": "2 + 2 =", "completion": " 4"}) == PromptCompletion("2 + 2 =", " 4")
    assert content_of({"prompt": "", "completion": "4"}) == PromptCompletion("", "4")


def test_prompt_and_completion_of_messages_are_one_conversation_with_the_start_of_the_completion():
    prompt = [{"role": "system", "content": "Be brief."}, USER]
    record = {"prompt": prompt, "completion": [ASSISTANT], "tools": TOOLS}
    assert content_of(record) == Conversation([*prompt, ASSISTANT], TOOLS, completion_start=2)


def test_sharegpt_turns_become_messages():
    record = {
        "conversations": [
            {"from": "human", "value": "Where is K-7?"},
            {"from": "function_call", "value": json.dumps(CALL)},
            {"from": "observation", "value": '{"place": "Quarrybridge"}'},
            {"from": "gpt", "value": "In Quarrybridge.", "weight": 1},
        ],
        "system": "Be brief.",
        "tools": json.dumps(TOOLS),
    }
    assert content_of(record) == Conversation(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is K-7?"},
            {"role": "assistant", "content": "", "tool_calls": CALLS},
            {"role": "tool", "content": '{"place": "Quarrybridge"}'},
            {"role": "assistant", "content": "In Quarrybridge."},
        ],
        TOOLS,
    )


@pytest.mark.parametrize("value", [json.dumps([CALL, CALL]), [CALL, CALL]], ids=["json", "list"])
def test_a_sharegpt_function_call_may_be_several(value):
    conversation = content_of({"conversations": [{"from": "function_call", "value": value}]})
    assert conversation.messages == [{"role": "assistant", "content": "", "tool_calls": CALLS * 2}]


def test_a_sharegpt_function_call_of_weight_0_keeps_it():
    # Otherwise it would be trained on, although the record says that it is not.
    turn = {"from": "function_call", "value": json.dumps(CALL), "weight": 0}
    assert content_of({"conversations": [turn]}).messages[0]["weight"] == 0


def test_a_sharegpt_function_call_without_a_call_is_rejected():
    assert reject_of({"conversations": [{"from": "function_call", "value": "[]"}]})[0] == "bad_tool_calls"


def test_conversations_may_have_role_and_content():
    assert content_of({"conversations": CHAT}) == Conversation(CHAT)
    both = [("from", "gpt"), ("role", "assistant"), ("value", "This."), ("content", "This.")]
    for turn in (dict(both), dict(reversed(both))):
        assert content_of({"conversations": [turn]}).messages == [{"role": "assistant", "content": "This."}]


def test_alpaca_history_comes_first_and_input_goes_below_the_instruction():
    record = {
        "instruction": "Add.",
        "input": "2 + 2",
        "output": "4",
        "system": "Be brief.",
        "history": [["Add.\n1 + 1", "2"], ["And again?", "2"]],
    }
    contents = ["Be brief.", "Add.\n1 + 1", "2", "And again?", "2", "Add.\n2 + 2", "4"]
    roles = ["system"] + ["user", "assistant"] * 3
    assert content_of(record) == Conversation(
        [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    )


@pytest.mark.parametrize("more", [{}, {"input": ""}, {"input": "", "history": [], "system": ""}])
def test_alpaca_without_input_is_the_instruction_alone(more):
    assert content_of({"instruction": "Sing.", "output": "La", **more}) == Conversation(
        [{"role": "user", "content": "Sing."}, {"role": "assistant", "content": "La"}]
    )


def test_a_text_is_not_changed():
    assert content_of({"text": " a\r\n\u2028\x00😀 "}) == PlainText(" a\r\n\u2028\x00😀 ")


@pytest.mark.parametrize(
    ("masks", "trained"),
    [
        ({}, [True, True, True, True]),
        ({"labels": [-100, 11, -100, 13]}, [False, True, False, True]),
        ({"labels": [-100] * 4}, [False] * 4),
        ({"completion_mask": [0, 0, 1, 1]}, [False, False, True, True]),
        ({"assistant_masks": [True, False, True, True]}, [True, False, True, True]),
        ({"attention_mask": [1, 1, 1, 1]}, [True, True, True, True]),
        ({"labels": [-100, 11, 12, 13], "completion_mask": [1, 1, 0, 1], "assistant_masks": [1, 1, 1, 0]},
         [False, True, False, False]),
    ],
)  # fmt: skip
def test_tokens_are_trained_on_if_labels_and_all_masks_agree(masks, trained):
    record = {"input_ids": [0, 11, 12, 13], **masks}
    for raw in (record, json.dumps(record).encode()):
        content = read_record(raw)[0].content
        assert isinstance(content, TokenRow)
        assert (content.input_ids.dtype, content.input_ids.tolist()) == (np.int32, [0, 11, 12, 13])
        assert (content.trained.dtype, content.trained.tolist()) == (bool, trained)


ONE_OF_EACH: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "prompt_completion": {"prompt": "a", "completion": "b"},
    "sharegpt": {"conversations": [{"from": "human", "value": "a"}]},
    "alpaca": {"instruction": "a", "output": "b"},
    "text": {"text": "a"},
    "tokenized": {"input_ids": [1]},
}


def test_auto_finds_the_schema_of_each_record_of_a_mixed_file():
    kinds = [type(parse(record).content) for record in ONE_OF_EACH.values()]
    assert kinds == [Conversation, PromptCompletion, Conversation, Conversation, PlainText, TokenRow]


def test_auto_takes_tokens_before_messages_and_messages_before_text():
    everything = {name: value for record in reversed(ONE_OF_EACH.values()) for name, value in record.items()}
    for schema, kind in [("tokenized", TokenRow), ("messages", Conversation), ("prompt_completion", PromptCompletion)]:
        assert isinstance(parse(everything, schema=schema).content, kind)
        try:
            assert isinstance(parse(everything).content, kind)
        except RecordError as error:
            assert error.reason == "not_read" and f"which schema {schema} does not read" in error.detail
        for column in ONE_OF_EACH[schema]:
            del everything[column]
    assert content_of(everything, schema="sharegpt").messages == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize("schema", ONE_OF_EACH)
def test_a_record_without_the_columns_of_the_chosen_schema_is_rejected(schema):
    assert parse(ONE_OF_EACH[schema], schema=schema).content is not None
    for other in ONE_OF_EACH.keys() - {schema}:
        reason, detail = reject_of(ONE_OF_EACH[other], schema=schema)
        assert reason == "missing_column"
        assert schema in detail


@pytest.mark.parametrize("record", [
    {"messages": None, "text": "a"},
    {"instruction": "Sing.", "input": None, "output": "La", "history": None},
    {"messages": [{"role": "user", "content": "a", "tool_calls": None, "weight": None}], "tools": None},
])  # fmt: skip
def test_a_column_that_is_null_counts_as_absent(record):
    # datasets and pandas write null if a record lacks a column; the rows of a Parquet file then come without it.
    present = {name: value for name, value in record.items() if value is not None}
    assert parse(record).content == parse(present).content


def test_labels_and_masks_that_are_null_count_as_absent():
    record = {"input_ids": [1, 2], "labels": None, "completion_mask": None, "attention_mask": None}
    assert parse(record).content.trained.tolist() == [True, True]


@pytest.fixture
def no_schemas() -> Iterator[dict[str, schemas.Columns]]:
    """Inside, no schema is known. The schemas are restored afterwards."""
    known, readers = dict(schemas.SCHEMA_COLUMNS), dict(schemas._READERS)
    schemas.SCHEMA_COLUMNS.clear()
    yield known
    for registered, before in ((schemas.SCHEMA_COLUMNS, known), (schemas._READERS, readers)):
        registered.clear()
        registered.update(before)


def test_a_schema_is_one_function_and_auto_finds_it_before_later_ones(no_schemas):
    @schemas.schema("rated", ["messages", "rating"])
    def rated(record, reading):
        return PlainText(f"rated {record['rating']}")

    schemas.SCHEMA_COLUMNS.update(no_schemas)
    assert content_of({"messages": CHAT, "rating": 5}) == PlainText("rated 5")
    assert content_of({"messages": CHAT}) == Conversation(CHAT)


# Other names of columns and roles


def test_columns_and_roles_may_have_other_names():
    record = {
        "dialog": [{"role": "customer", "content": "Hi"}, {"role": "agent", "content": "Hello"}],
        "functions": TOOLS,
    }
    mapped = content_of(
        record,
        columns={"messages": "dialog", "tools": "functions"},
        roles={"customer": "user", "agent": "assistant", "bystander": "system"},
    )
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert mapped == Conversation(messages, TOOLS)


def test_a_role_that_is_mapped_overrides_the_known_name():
    turns = [{"from": "human", "value": "a"}, {"from": "observation", "value": "b"}]
    roles = {"human": "system", "observation": "user"}
    assert [m["role"] for m in content_of({"conversations": turns}, roles=roles).messages] == ["system", "user"]


def test_columns_may_be_swapped():
    record = {"prompt": "the answer", "completion": "the question"}
    swapped = {"prompt": "completion", "completion": "prompt"}
    assert content_of(record, columns=swapped) == PromptCompletion("the question", "the answer")


def test_a_column_that_is_renamed_does_not_count_under_its_own_name():
    assert content_of({"messages": "Once upon a time"}, columns={"text": "messages"}) == PlainText("Once upon a time")
    pair = {"prompt": "Once", "completion": "upon a time"}
    assert content_of(pair, columns={"text": "prompt"}) == PlainText("Once")


def test_a_record_without_the_renamed_column_is_read_by_the_name_in_the_schema():
    # In a corpus, some files may have one name, and some the other.
    assert content_of({"messages": CHAT}, columns={"messages": "dialog"}) == Conversation(CHAT)


def test_one_column_may_be_used_for_several():
    record = {"question": "Sing.", "output": "La"}
    assert content_of(record, columns={"instruction": "question", "system": "question"}).messages == [
        {"role": "system", "content": "Sing."},
        {"role": "user", "content": "Sing."},
        {"role": "assistant", "content": "La"},
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_a_renamed_column_takes_precedence_over_one_with_the_name_in_the_schema(order):
    record = {"dialog": CHAT, "messages": [{"role": "user", "content": "not this"}]}
    record = dict(list(record.items())[::order])
    assert content_of(record, columns={"messages": "dialog"}) == Conversation(CHAT)


def test_kept_columns_are_unchanged_strings_or_json():
    kept = {
        **{"id": "a-1", "n": 7, "score": 0.5, "flag": True, "none": None, "tags": ["é", {"a": None}]},
        **{"text": "a", "empty": ""},
    }
    names = (*kept, "missing")
    assert parse(kept, keep_columns=names).columns == {
        **{"id": "a-1", "n": "7", "score": "0.5", "flag": "true", "none": None, "tags": '["é", {"a": null}]'},
        **{"text": "a", "empty": "", "missing": None},
    }
    assert list(parse(kept, keep_columns=names).columns) == list(names)


def test_kept_columns_have_the_records_own_names():
    example = parse({"body": "a", "text": "b"}, columns={"text": "body"}, keep_columns=("body",))
    assert example.columns == {"body": "a"}


def test_columns_that_records_lack_are_counted_by_name():
    rows = [{"text": "a", "id": 1}, {"text": "b", "id": None}, {"text": "c"}, {"body": "d"}, {"id": 2}]
    examples = Parser(columns={"text": "body", "tools": "functions"}, keep_columns=("id", "body"))(records_of(rows))
    assert examples.outcomes.notes == {
        "records_without_id": 3,
        "records_without_body": 3,
        "records_without_functions": 4,
    }


def test_exactly_the_columns_that_are_read_can_be_renamed():
    class Lookups(dict):
        def get(self, key, default=None):
            read.add(key)
            return super().get(key, default)

        def __getitem__(self, key):
            read.add(key)
            return super().__getitem__(key)

        def __contains__(self, key):
            read.add(key)
            return super().__contains__(key)

    read: set[str] = set()
    text = {"text": "a", "instruction": "a", "output": "b", "prompt": "a", "completion": "b", "messages": CHAT}
    record = Lookups(text, conversations=CHAT, input_ids=[1], chosen="a", rejected="b", question="a", answer="b")
    reading = Reading(ReadOptions(ROLE_NAMES, as_chat=True))
    for schema in schemas.SCHEMA_COLUMNS:
        schemas.content_of(record, schema, reading)
    schemas.content_of(Lookups(messages=CHAT), "auto", reading)
    schemas.content_of(Lookups(question="a", chosen="b", rejected="c"), "chosen", reading)
    schemas.content_of(Lookups(question="a", answer="b"), "question_answer", reading)
    # The ids of an answer are looked for, so that a rollout is not read as ids alone.
    assert read - {*COMPLETION_IDS} == set(schemas.INPUT_COLUMNS)


def test_a_kept_column_of_any_depth_is_kept_or_rejected():
    def nested(depth: int) -> bytes:
        return b'{"text": "a", "deep": ' + b"[" * depth + b"]" * depth + b"}"

    def is_read(depth: int) -> bool:
        try:
            return bool(parse(nested(depth)))
        except RecordError:
            return False

    gc.disable()  # as while a part is processed; at this depth, the finalizers of other tests' garbage would fail
    try:
        # How deep a record may be depends on the version of Python; encoding reaches a little less deep than decoding.
        deepest, too_deep = 1, 200_000
        while too_deep - deepest > 1:
            middle = (deepest + too_deep) // 2
            deepest, too_deep = (middle, too_deep) if is_read(middle) else (deepest, middle)
        for depth in range(deepest - 12, deepest + 1):
            try:
                assert parse(nested(depth), keep_columns=("deep",)).columns == {"deep": "[" * depth + "]" * depth}
            except RecordError as error:
                assert error.reason  # rejected, as any record that cannot be read
    finally:
        gc.enable()


# Formatters

FORMATTERS = """
from dataclasses import dataclass

calls = 0

def to_messages(record):
    return {"messages": [{"role": "user", "content": record["q"]}, {"role": "assistant", "content": record["a"]}]}

def to_text(record):
    return record["q"] + record["a"]

def strict(record):
    return record["unheard of"]

def leaves(record):
    raise SystemExit(0)

def quotes(record):
    raise ValueError("no " + chr(0xD83D) + "\\nline")

def number(record):
    return 1

def nothing(record):
    return None

def wrong_schema(record):
    return {"speech": 1}

def empty(record):
    return ""

def eats(record):
    while record["log"]:
        record["log"].pop()
    record.clear()
    return record

def tools_of_half_a_character(record):
    return {"messages": [{"role": "user", "content": "a"}], "tools": "\\ud83d"}

def call_of_half_a_character(record):
    return {"conversations": [{"from": "function_call", "value": "\\ud83d"}]}

def not_json(record):
    return {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"arguments": object()}]}]}

@dataclass
class Pair:
    question: str

def to_text_by_class(record):
    return Pair(record["q"]).question

not_a_function = 3
"""


@pytest.fixture(scope="module")
def formatters(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("formatters") / "chat_formatters.py"
    path.write_text(FORMATTERS)
    return path


@pytest.fixture
def plain_formatters(tmp_path, formatters) -> Path:
    """Write the same file without the class, which has its own test."""
    path = tmp_path / "plain_formatters.py"
    path.write_text(FORMATTERS.partition("@dataclass")[0])
    return path


QUESTION = {"q": "Where? ", "a": "Here.", "log": [1, 2]}


def test_a_formatter_in_a_file_returns_a_record_or_a_text(plain_formatters):
    assert content_of(QUESTION, formatter=f"{plain_formatters}:to_text") == PlainText("Where? Here.")
    assert content_of(QUESTION, formatter=f"{plain_formatters}:to_messages") == Conversation(
        [{"role": "user", "content": "Where? "}, {"role": "assistant", "content": "Here."}]
    )


def test_a_formatter_in_a_module_returns_a_record_or_a_text(plain_formatters, monkeypatch):
    monkeypatch.syspath_prepend(plain_formatters.parent)
    assert content_of(QUESTION, formatter="plain_formatters:to_text") == PlainText("Where? Here.")


def test_columns_are_kept_from_the_record_and_renamed_in_what_the_formatter_returns(plain_formatters):
    plain_formatters.write_text("def rename(record):\n    return {'body': record['q'], 'q': 'not this'}\n")
    example = parse(QUESTION, formatter=f"{plain_formatters}:rename", columns={"text": "body"}, keep_columns=("q",))
    assert (example.content, example.columns) == (PlainText("Where? "), {"q": "Where? "})


@pytest.mark.parametrize(
    ("function", "reason", "fragment"),
    [
        ("strict", "formatter", "KeyError: 'unheard of'"),
        ("leaves", "formatter", "SystemExit: 0"),
        ("quotes", "formatter", r"ValueError: no \ud83d line"),
        ("number", "formatter", "it returned int; expected a dict, a string"),
        ("wrong_schema", "unknown_schema", "speech"),
        ("empty", "empty", "text"),
    ],
)
def test_a_formatter_that_fails_costs_its_record(plain_formatters, function, reason, fragment):
    found, detail = reject_of(QUESTION, formatter=f"{plain_formatters}:{function}")
    assert (found, fragment in detail) == (reason, True), detail


@pytest.mark.parametrize("function", ["tools_of_half_a_character", "call_of_half_a_character", "not_json"])
def test_a_formatter_that_returns_what_is_not_json_costs_at_most_its_record(plain_formatters, function):
    parser = Parser(formatter=f"{plain_formatters}:{function}", validation_fraction=0.5)
    found = parser(records_of([QUESTION, QUESTION]))
    assert len(found.examples) + len(found.outcomes.rejects) == 2


def test_a_record_that_a_formatter_changed_is_rejected_as_it_was_read(plain_formatters):
    row = {"q": "Where? ", "log": [1, [2]]}
    found = Parser(formatter=f"{plain_formatters}:eats")(records_of([row]))
    assert [json.loads(reject.record) for reject in found.outcomes.rejects] == [{"q": "Where? ", "log": [1, [2]]}]


@pytest.mark.parametrize("depth", [300, 600])
def test_a_formatter_gets_records_of_any_depth_that_can_be_read(plain_formatters, depth):
    record = b'{"q": "Where? ", "a": "Here.", "deep": ' + b"[" * depth + b"]" * depth + b"}"
    assert parse(record, formatter=f"{plain_formatters}:to_text").content == PlainText("Where? Here.")


def test_a_formatter_file_knows_its_path(tmp_path):
    (tmp_path / "here.py").write_text("def here(record):\n    return __file__\n")
    assert content_of(QUESTION, formatter=f"{tmp_path}/here.py:here") == PlainText(f"{tmp_path}/here.py")


def test_a_formatter_file_may_have_dataclasses_and_annotations_of_the_future(formatters):
    assert content_of(QUESTION, formatter=f"{formatters}:to_text_by_class") == PlainText("Where? ")


def test_a_formatter_file_that_has_changed_is_loaded_again(tmp_path):
    file = tmp_path / "formatter.py"
    file.write_text("def f(record): return 'one'")
    first = load_formatter(f"{file}:f")
    assert load_formatter(f"{file}:f") is first
    file.write_text("def f(record): return 'two'")
    assert (first({}), load_formatter(f"{file}:f")({})) == ("one", "two")


# Validation


def held_back(record: dict[str, Any], fraction: float = 0.5, seed: int = 0) -> bool:
    return parse(record, validation_fraction=fraction, seed=seed).validation


def test_which_records_are_for_validation_never_changes():
    # BLAKE2b of 8 bytes, keyed with the seed, of the content as compact JSON; computed without the code.
    # v: for validation with the seed of that number, 0 to 15.
    call = {"id": "call_1", "function": {"name": "track", "arguments": {"order": "é", "n": [1, 2.5, None]}}}
    called = [{"role": "user", "content": "Where is K-7?"}, {"role": "assistant", "tool_calls": [call]}]
    hello = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how can I help?"}]
    nihao = [{"role": "user", "content": "你好！😀"}, {"role": "assistant", "content": "您好"}]
    conversation = [{"from": "human", "value": "Where is it?"}, {"from": "gpt", "value": "Over there."}]
    known: dict[str, dict[str, Any]] = {
        "vvvvtttvtvvvtvtt": {"messages": hello},
        "vtvvtvtvttvttttv": {"messages": nihao},
        "tvvvvttttvttvttt": {"messages": called},
        "ttvvvtvvvtvtvtvv": {"instruction": "Add.", "input": "1 + 1", "output": "2"},
        "ttvttttvtvttttvv": {"conversations": conversation},
        "tvtvtttvvtvtttvt": {"prompt": "Q: 2 + 2?\nA:", "completion": " 4"},
        "ttttvvtvvtvvtttt": {"text": "Once upon a time, in a valley far away"},
        "vvttvtvtvtvtvvvt": {"text": '\u2028 "quoted" \\ \0 \x7f'},
        "vvvvvvtttvvvtttv": {"input_ids": [1, 15043, 2], "labels": [-100, 15043, 2]},
    }
    for sides, record in known.items():
        assert "".join("v" if held_back(record, seed=seed) else "t" for seed in range(16)) == sides, record


def same_conversations(number: int) -> list[dict[str, Any]]:
    """Records with the same content under other schemas and names."""
    question, answer = f"Question {number}", f"Answer {number}"
    user, assistant = {"role": "user", "content": question}, {"role": "assistant", "content": answer}
    parts = [{"type": "text", "text": text} for text in ("Question", f" {number}")]
    return [
        {"messages": [{"role": "user", "content": parts}, assistant]},
        {"messages": [user, assistant | {"content": [{"type": "text", "text": answer}]}]},
        {"messages": [user, assistant]},
        {"id": number, "messages": [user, assistant], "tools": TOOLS, "source": "a"},
        {"messages": [{"content": question, "role": "user"}, assistant | {"weight": 1}], "id": f"copy-{number}"},
        {"messages": [user, assistant], "chat_template_kwargs": {"enable_thinking": False}},
        {"conversations": [{"from": "human", "value": question}, {"value": answer, "from": "gpt"}]},
        {"prompt": [user], "completion": [assistant]},
        {"instruction": question, "output": answer},
        {"instruction": question, "input": "", "output": answer, "history": []},
    ]


def same_calls(number: int) -> list[dict[str, Any]]:
    """Records with the same call, with other orders of keys, ids of calls and schemas."""
    user = {"role": "user", "content": f"Question {number}"}
    turns = [
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        for function in (
            {"name": "track", "arguments": {"order": number, "nested": {"a": 1, "b": 2}}},
            {"arguments": {"nested": {"b": 2, "a": 1}, "order": number}, "name": "track"},
        )
    ]
    value = json.dumps({"arguments": {"nested": {"b": 2, "a": 1}, "order": number}, "name": "track"})
    return [
        *({"messages": [user, turn]} for turn in turns),
        *({"messages": [user, turns[0] | {"content": content}]} for content in (None, [])),
        {
            "conversations": [
                {"from": "human", "value": f"Question {number}"},
                {"from": "function_call", "value": value},
            ]
        },
    ]


def same_calls_with_other_ids(number: int) -> list[dict[str, Any]]:
    """Servers give random ids to calls."""
    return [
        {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": f"f{number}"}}]}]}
        for id in ("call_3fa9", "call_71c0")
    ]


def same_text(number: int) -> list[dict[str, Any]]:
    return [
        {"text": f"Question {number} Answer"},
        {"prompt": f"Question {number}", "completion": " Answer"},
        {"prompt": "", "completion": f"Question {number} Answer", "id": 3},
    ]


def same_tokens(number: int) -> list[dict[str, Any]]:
    return [{"input_ids": [1, number]}, {"input_ids": [1, number], "labels": [-100, number], "id": "copy"}]


@pytest.mark.parametrize(
    "duplicates", [same_conversations, same_calls, same_calls_with_other_ids, same_text, same_tokens]
)
def test_duplicates_are_in_the_same_split(duplicates):
    sides = [{held_back(record) for record in duplicates(number)} for number in range(40)]
    assert all(len(side) == 1 for side in sides)
    assert {True, False} == set.union(*sides)


def test_another_role_answer_or_call_is_not_a_duplicate():
    chat, swapped = {"messages": CHAT}, {"messages": [USER | {"role": "tool"}, ASSISTANT]}
    other_answer, other_call = [
        {"messages": [USER, {"role": "assistant", "content": "On its way!", "tool_calls": calls}]}
        for calls in (None, CALLS)
    ]
    sides = {tuple(held_back(r, seed=n) for n in range(64)) for r in (chat, swapped, other_answer, other_call)}
    assert len(sides) == 4


def test_about_the_given_fraction_is_for_validation_and_another_seed_chooses_other_records():
    examples = [{"text": f"Record {i}"} for i in range(2000)]
    first, second = ({i for i, r in enumerate(examples) if held_back(r, 0.1, seed)} for seed in (0, 1))
    for chosen in (first, second):
        assert abs(len(chosen) - 200) < 4 * (2000 * 0.1 * 0.9) ** 0.5
    assert abs(len(first & second) - 20) < 4 * 20**0.5
    assert not any(held_back(record, 0.0) for record in examples[:100])
    assert all(held_back(record, 1.0) for record in examples[:100])


# Malformed records

DEEP = 100_000  # beyond what any version of Python reads: 3.11 stops at 1,000, 3.13 at 10,000


def message(**fields: Any) -> bytes:
    return json.dumps({"messages": [USER, fields]}).encode()


def with_part(part: Any) -> bytes:
    return message(role="user", content=[{"type": "text", "text": "Look:"}, part])


def chat_with(**columns: Any) -> bytes:
    return json.dumps({"messages": CHAT, **columns}).encode()


def as_json(**columns: Any) -> bytes:
    return json.dumps(columns).encode()


MALFORMED: dict[str, tuple[bytes, str, str]] = {
    "broken JSON": (b'{"text": tru}', "invalid_json", "byte 13"),
    "cut-off JSON": (b'{"messages": [{"role": "user", "content": "Hel', "invalid_json", "truncated"),
    "trailing garbage": (b'{"text": "a"} {"text": "b"}', "invalid_json", "trailing"),
    "single quotes": (b"{'text': 'a'}", "invalid_json", "byte 1"),
    "control character in a string": (b'{"text": "a\tb"}', "invalid_json", "byte 11"),
    "lone surrogate": (b'{"text": "a \\ud83d b"}', "invalid_json", "not JSON"),
    "NaN where it is read": (b'{"text": "a", "images": [NaN]}', "invalid_json", "images has NaN"),
    "number out of range": (b'{"text": "a", "messages": [{"score": 1e999}]}', "invalid_json", "out of range"),
    "nested too deep": (b'{"text": "a", "x": ' + b"[" * DEEP + b"]" * DEEP + b"}", "invalid_json", "recursion"),
    "invalid UTF-8": (b'{"text": "caf\xe9"}', "invalid_unicode", "not UTF-8"),
    "invalid UTF-8 in a key": (b'{"text": "a", "caf\xe9": 1}', "invalid_unicode", "not UTF-8"),
    "surrogate in UTF-8": (b'{"text": "\xed\xa0\xbd"}', "invalid_unicode", "not UTF-8"),
    "array": (b'[{"text": "a"}]', "not_an_object", "expected a JSON object"),
    "number": (b"17", "not_an_object", "expected a JSON object"),
    "string": (b'"text"', "not_an_object", "expected a JSON object"),
    "null": (b"null", "not_an_object", "expected a JSON object"),
    "empty object": (b"{}", "unknown_schema", "messages"),
    "unknown columns": (b'{"speech": "a", "n": 1}', "unknown_schema", "speech, n"),
    "prompt without completion": (b'{"prompt": "a"}', "unknown_schema", "prompt"),
    "messages a string": (as_json(messages="Hello"), "bad_message", "messages is a string"),
    "messages an object": (as_json(messages=USER), "bad_message", "messages is an object"),
    "messages empty": (as_json(messages=[]), "empty", "no messages"),
    "message not an object": (as_json(messages=[USER, "Hello"]), "bad_message", "messages[1] is a string"),
    "no role": (message(content="Hello"), "bad_message", "messages[1] has no role"),
    "role a number": (message(role=1, content="Hello"), "bad_message", "messages[1] has the role 1"),
    "role null": (message(role=None, content="Hello"), "bad_message", "messages[1]"),
    "unknown role": (message(role="narrator", content="Hello"), "unknown_role", 'messages[1] has role "narrator"'),
    "content a number": (message(role="user", content=7), "bad_content", "messages[1] is a number"),
    "content an object": (message(role="user", content={"text": "a"}), "bad_content", "messages[1] is an object"),
    "content missing": (message(role="assistant"), "bad_content", "messages[1] has no content"),
    "content missing next to a call": (message(role="user", tool_calls=CALLS), "bad_content", "messages[1]"),
    "part a string": (with_part("Hello"), "bad_content", "messages[1]"),
    "part of an unknown type": (with_part({"type": "refusal", "text": "a"}), "bad_content", "messages[1]"),
    "part without text": (with_part({"type": "text"}), "bad_content", "messages[1]"),
    "text of a part a number": (with_part({"type": "text", "text": 1}), "bad_content", "messages[1]"),
    "image": (with_part({"type": "image_url", "image_url": {"url": "a"}}), "image", "(type image_url)"),
    "audio": (with_part({"type": "input_audio", "input_audio": {}}), "audio", "(type input_audio)"),
    "video": (with_part({"type": "video", "video": "a"}), "video", "(type video)"),
    "tool_calls an object": (message(role="assistant", tool_calls={"a": 1}), "bad_tool_calls", "messages[1]"),
    "tool_calls of strings": (message(role="assistant", tool_calls=["a"]), "bad_tool_calls", "messages[1]"),
    "weight 2": (message(**ASSISTANT, weight=2), "bad_weight", "messages[1] has the weight 2"),
    "weight of a call": (
        json.dumps({"conversations": [{"from": "function_call", "value": json.dumps(CALL), "weight": "0"}]}).encode(),
        "bad_weight",
        'conversations[0] has "weight": "0"; expected a number',
    ),
    "weight a half": (message(**ASSISTANT, weight=0.5), "bad_weight", "0.5"),
    "tools broken JSON": (chat_with(tools='[{"name": '), "bad_tools", "tools is a string that is not valid JSON"),
    "tools of strings": (chat_with(tools=["track"]), "bad_tools", "tools[0] is a string that is not valid JSON"),
    "tools the JSON of an object": (chat_with(tools='{"name": "track"}'), "bad_tools", "list of objects"),
    "template arguments a list": (chat_with(chat_template_kwargs=[1]), "bad_template_kwargs", "a list"),
    "template arguments broken": (chat_with(chat_template_kwargs="{a"), "bad_template_kwargs", "not valid JSON"),
    "template arguments reserved": (
        chat_with(chat_template_kwargs={"add_generation_prompt": True}),
        "bad_template_kwargs",
        "add_generation_prompt",
    ),
    "prompt a string, completion a list": (
        as_json(prompt="a", completion=[ASSISTANT]),
        "bad_prompt_completion",
        "prompt is a string, completion is a list",
    ),
    "completion a number": (as_json(prompt="a", completion=1), "bad_prompt_completion", "completion is a number"),
    "prompt and completion empty": (as_json(prompt="", completion=""), "empty", "both empty"),
    "completion no messages": (as_json(prompt=CHAT[:1], completion=[]), "empty", "completion has no messages"),
    "prompt and completion no messages": (as_json(prompt=[], completion=[]), "empty", "no messages"),
    "completion of an unknown role": (
        as_json(prompt=[USER], completion=[{"role": "narrator", "content": "a"}]),
        "unknown_role",
        "completion[0]",
    ),
    "turn without value": (as_json(conversations=[{"from": "human"}]), "bad_content", "conversations[0]"),
    "turn without from": (as_json(conversations=[{"value": "a"}]), "bad_message", "conversations[0] has no role"),
    "unknown from": (as_json(conversations=[{"from": "bing", "value": "a"}]), "unknown_role", "bing"),
    "system a number": (as_json(conversations=CHAT, system=1), "bad_message", "system is a number"),
    "function_call not valid JSON": (
        as_json(conversations=[{"from": "function_call", "value": "track(7)"}]),
        "bad_tool_calls",
        "conversations[0] is a string that is not valid JSON",
    ),
    "function_call without arguments": (
        as_json(conversations=[{"from": "function_call", "value": '{"name": "track"}'}]),
        "bad_tool_calls",
        "conversations[0] has no arguments",
    ),
    "alpaca output a number": (as_json(instruction="a", output=1), "bad_alpaca", "output is a number"),
    "alpaca input a list": (as_json(instruction="a", input=[], output="b"), "bad_alpaca", "input is a list"),
    "alpaca history a string": (as_json(instruction="a", output="b", history="c"), "bad_alpaca", "history"),
    "alpaca history a number": (as_json(instruction="a", output="b", history=7), "bad_alpaca", "history"),
    "alpaca history of one": (as_json(instruction="a", output="b", history=[["c"]]), "bad_alpaca", "history"),
    "text a number": (as_json(text=1), "bad_text", "text is a number"),
    "text empty": (as_json(text=""), "empty", "text is empty"),
    "input_ids a string": (as_json(input_ids="1 2"), "bad_tokens", "input_ids"),
    "input_ids with a float": (as_json(input_ids=[1, 2.0]), "bad_tokens", "input_ids is not a list of integers"),
    "input_ids negative": (as_json(input_ids=[1, -2]), "bad_tokens", "-2"),
    "input_ids beyond 32 bits": (as_json(input_ids=[1, 2**31]), "bad_tokens", "2147483648"),
    "input_ids beyond 64 bits": (as_json(input_ids=[1, 2**70]), "bad_tokens", "64 bits"),
    "input_ids empty": (as_json(input_ids=[]), "empty", "input_ids"),
    "labels of another length": (as_json(input_ids=[1, 2], labels=[1]), "bad_tokens", "1 values for 2 tokens"),
    "labels with another id": (as_json(input_ids=[1, 2], labels=[-100, 3]), "bad_tokens", "label 1 is 3"),
    "labels with -1": (as_json(input_ids=[1, 2], labels=[-1, 2]), "bad_tokens", "label 0 is -1"),
    "mask of 2": (as_json(input_ids=[1, 2], completion_mask=[0, 2]), "bad_tokens", "completion_mask"),
    "mask of another length": (as_json(input_ids=[1], assistant_masks=[1, 1]), "bad_tokens", "assistant_masks"),
    "padding": (as_json(input_ids=[1, 2, 3], attention_mask=[1, 0, 1]), "bad_tokens", "at the ends alone"),
}  # fmt: skip


def good(number: int) -> bytes:
    return json.dumps({"text": f"Good record {number}"}).encode()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> tuple[list[tuple[int, bytes]], Examples]:
    """A file of all malformed records, each between two good ones: its lines with their positions, and the examples."""
    lines, position = [], 0
    for number, (malformed, _, _) in enumerate(MALFORMED.values()):
        for line in (good(number), malformed):
            lines.append((position, line))
            position += len(line) + 2
    lines.append((position, good(len(MALFORMED))))
    path = tmp_path_factory.mktemp("parse") / "mixed.jsonl"
    path.write_bytes(b"\r\n".join(line for _, line in lines))
    [records] = read_split(Split(0, (Slice(str(path), "jsonl", None, 0, path.stat().st_size),)), 1 << 20)
    return lines, Parser(validation_fraction=0.5)(records)


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_record_is_rejected_with_its_reason_its_position_and_its_bytes(mixed, kind):
    lines, examples = mixed
    record, reason, fragment = MALFORMED[kind]
    position, line = lines[2 * list(MALFORMED).index(kind) + 1]
    assert line == record
    [reject] = [reject for reject in examples.outcomes.rejects if reject.position == position]
    assert reject == Reject(position, reason, reject.detail, record)
    assert fragment in reject.detail
    assert "\n" not in reject.detail and len(reject.detail) < 500


def test_good_records_among_malformed_ones_are_untouched_and_in_order(mixed):
    lines, examples = mixed
    found = [(example.position, example.raw, example.content) for example in examples.examples]
    assert found == [(*line, PlainText(f"Good record {number}")) for number, line in enumerate(lines[::2])]


def test_each_record_has_one_outcome(mixed):
    lines, examples = mixed
    outcomes = examples.outcomes
    assert (outcomes.read, len(outcomes.rejects), outcomes.unaccounted()) == (
        len(lines),
        len(MALFORMED),
        len(examples.examples),
    )
    assert (outcomes.kept, outcomes.truncated, outcomes.dropped) == (0, 0, {})
    assert [reject.position for reject in outcomes.rejects] == [position for position, _ in lines[1::2]]


def test_rejects_of_a_table_are_the_json_of_their_rows_and_follow_those_of_reading():
    unread = Reject(9, "invalid_unicode", "…", b"\xff")
    examples = Parser()(records_of([{"text": "a"}, {"text": "", "id": "é"}], (unread,)))
    assert (examples.split.number, examples.part, examples.last) == (3, 2, False)
    assert examples.outcomes.rejects[0] == unread
    assert [(r.position, r.reason, json.loads(r.record)) for r in examples.outcomes.rejects[1:]] == [
        (11, "empty", {"text": "", "id": "é"})
    ]
    assert examples.outcomes.unaccounted() == len(examples.examples) == 1


# Any values in any columns, as in crawled data. Known names are frequent.
names = st.sampled_from(
    [
        *("role", "content", "from", "value", "type", "text", "weight", "tool_calls", "name", "arguments"),
        *("user", "assistant", "function_call", "human", "gpt", "image", "reasoning_content"),
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | names | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
columns = st.sampled_from(
    [
        *("messages", "prompt", "completion", "conversations", "system", "instruction", "input", "output", "history"),
        *("text", "input_ids", "labels", "completion_mask", "attention_mask", "tools", "chat_template_kwargs"),
    ]
)


@THOROUGHLY
@given(st.dictionaries(columns, anything | anything.map(json.dumps), min_size=1, max_size=5))
def test_whatever_a_record_holds_it_becomes_an_example_or_a_reject(row):
    examples = Parser(keep_columns=("text", "tools"), validation_fraction=0.5)(records_of([row]))
    assert examples.outcomes.unaccounted() == len(examples.examples)


# Mostly plain messages, with columns that may change what the record is.
turns = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "human", "bot"]), "content": st.text(max_size=3) | anything},
    optional={"weight": st.sampled_from([None, 0, 1, 2]), "tool_calls": anything},
)
plain_turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "human"]), "content": st.text()})
plain_turns |= plain_turns.map(lambda turn: dict(reversed(turn.items())))
roles = st.dictionaries(st.sampled_from(["user", "human", "bot"]), st.sampled_from(["user", "assistant"]))


@THOROUGHLY
@given(
    st.lists(plain_turns, max_size=3) | st.lists(turns, max_size=3),
    st.dictionaries(columns | names, anything, max_size=3),
    st.sampled_from(["auto", "messages"]),
    roles,
)
def test_a_line_of_plain_messages_and_a_row_with_the_same_values_are_the_same(messages, others, schema, roles):
    record = {**others, "messages": messages}
    parser = Parser(schema=schema, roles=roles, validation_fraction=0.5)

    def outcome(raw: Any) -> Any:
        batch = parser(dataclasses.replace(records_of([]), records=[Record(10, raw)]))
        found = [(e.content if isinstance(e.content, Conversation) else repr(e.content)) for e in batch.examples]
        orders = [[*map(list, e.content.messages)] for e in batch.examples if isinstance(e.content, Conversation)]
        return (
            found,
            orders,
            [e.validation for e in batch.examples],
            [(r.reason, r.detail) for r in batch.outcomes.rejects],
        )

    assume(b"Infinity" not in as_line(record))  # this is not JSON
    assert outcome(as_line(record)) == outcome(record)


def as_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def test_a_column_that_is_not_read_must_be_unicode_too():
    line = as_line({"messages": CHAT, "id": "?"})
    assert parse(line).content == Conversation(CHAT)
    assert reject_of(line.replace(b"?", b"\xff"))[0] == "invalid_unicode"
