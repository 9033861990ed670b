"""Questions and answers under their various names, and prompts and completions of strings, as conversations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.cli.options import parse_options
from pipeline.cli.sources import read_sources
from pipeline.job.prepare import prepare
from support.paths import TOKENIZER
from support.templates import CHATML
from transforms import (
    Conversation,
    PlainText,
    PromptCompletion,
    RecordError,
    RenderConfig,
    Slice,
    Split,
)
from transforms import parse as read_record
from transforms.catalog.layout import Folder
from transforms.chat.config import ENGINES
from transforms.inputs.names import ANSWERS, QUESTIONS
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer

ASKED = {"role": "user", "content": "Is tea hot?"}
ANSWERED = {"role": "assistant", "content": "Mostly, yes."}
SYSTEM = {"role": "system", "content": "Be brief."}


def parse(record: dict[str, Any], **options: Any) -> Any:
    return read_record(json.dumps(record).encode(), **options)[0].content


def reject_of(record: dict[str, Any], **options: Any) -> str:
    with pytest.raises(RecordError) as raised:
        parse(record, **options)
    return raised.value.reason


PAIRS = [("question", "answer"), ("query", "response"), ("instruction", "response"), ("question", "response")]


@pytest.mark.parametrize("schema", ["auto", "question_answer"])
@pytest.mark.parametrize(("question", "answer"), PAIRS)
def test_a_question_and_its_answer_are_a_conversation_under_each_of_their_names(question, answer, schema):
    record = {question: "Is tea hot?", answer: "Mostly, yes.", "id": 3, "context": None}
    assert parse(record, schema=schema) == Conversation([ASKED, ANSWERED])


@pytest.mark.parametrize("written", [str, str.title], ids=["small", "title"])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_context_and_history_are_read_under_all_names_of_a_question_and_its_answer(question, answer, written):
    record = {
        **{written(question): "Is it hot?", written(answer): "Yes."},
        **{written("context"): "tea", written("history"): [["Hi", "Ho"]]},
    }
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "Is it hot?\ntea"},
        {"role": "assistant", "content": "Yes."},
    ]
    assert parse(record).messages == messages
    cells = record | {written("history"): json.dumps([["Hi", "Ho"]])}
    assert parse(cells).messages == messages
    assert reject_of(record | {written("history"): "Hi"}) in ("not_read", "bad_alpaca", "bad_question_answer")
    with_reasoning = parse(record | {"cot": "Tea is."}).messages
    assert with_reasoning == [*messages[:3], messages[3] | {"reasoning_content": "Tea is."}]


def test_context_and_history_of_a_question_that_is_answered_with_calls_are_read():
    record = {"query": "Is it hot?", "context": "tea", "history": [["Hi", "Ho"]], "tools": [{"name": "f"}]}
    record["answers"] = [{"name": "f", "arguments": {}}]
    calls = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    assert parse(record).messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "Is it hot?\ntea"},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]


@pytest.mark.parametrize("context", ["input", "context"])
@pytest.mark.parametrize("system", ["system", "system_prompt"])
def test_context_history_and_system_message_of_a_question_are_read(context, system):
    record = {"query": "Is it hot?", "response": "Yes.", context: "tea", system: "Be brief.", "history": [["Hi", "Ho"]]}
    assert parse(record).messages == [
        SYSTEM,
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "Is it hot?\ntea"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_columns_name_the_question_and_the_answer():
    columns = {"question": "problem", "answer": "solution"}
    assert parse({"problem": "Is tea hot?", "solution": "Mostly, yes."}, columns=columns).messages == [ASKED, ANSWERED]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"text": "Tea is hot."}, PlainText("Tea is hot.")),
        ({"prompt": "Tea is", "completion": " hot."}, PromptCompletion("Tea is", " hot.")),
        ({"messages": [ASKED, ANSWERED]}, Conversation([ASKED, ANSWERED])),
        ({"conversations": [ASKED, ANSWERED]}, Conversation([ASKED, ANSWERED])),
    ],
)
def test_a_question_beside_the_columns_of_other_schemas_is_rejected_unless_it_is_in_them_or_the_schema_is_chosen(
    other, expected
):
    schema = {"text": "text", "prompt": "prompt_completion", "messages": "messages", "conversations": "sharegpt"}
    assert reject_of({"question": "Why?", "answer": "!", **other}) == "not_read"
    assert parse({"question": "Why?", "answer": "!", **other}, schema=schema[next(iter(other))]) == expected
    assert parse({"question": "Tea is", "answer": " hot.", "text": "Tea is hot."}) == PlainText("Tea is hot.")


def test_alpaca_comes_before_instruction_and_response():
    record = {"instruction": "a", "output": "b", "response": "c"}
    assert reject_of(record) == "not_read"
    assert parse(record, schema="alpaca").messages[1]["content"] == "b"
    assert parse({**record, "response": "b"}).messages[1]["content"] == "b"


@pytest.mark.parametrize(
    "record",
    [
        {"question": "Is tea hot?", "answer": ["yes"]},
        {"question": "Is tea hot?", "answer": 1},
        {"question": 1, "answer": "yes"},
        {"question": "Is tea", "answer": "A", "choices": ["hot", "cold"]},
        {"question": "Is tea", "answer": "A", "options": {"A": "hot", "B": "cold"}},
        {"question": "Is tea hot?", "answer": "yes", "context": ["tea"]},
    ],
)
def test_a_question_of_which_something_would_be_lost_is_rejected(record):
    assert reject_of(record) == "bad_question_answer"


def test_a_question_without_an_answer_is_rejected():
    assert reject_of({"question": "Is tea hot?"}) == "unknown_schema"
    assert reject_of({"question": "Is tea hot?"}, schema="question_answer") == "missing_column"


def test_strings_are_messages_as_chat():
    record = {"prompt": "Is tea hot?", "completion": "Mostly, yes."}
    assert parse(record, as_chat=True) == Conversation([ASKED, ANSWERED], completion_start=1)
    assert parse(record) == PromptCompletion("Is tea hot?", "Mostly, yes.")


def test_a_system_message_tools_and_template_arguments_are_read_as_chat():
    tools = [{"type": "function", "function": {"name": "f"}}]
    record = {"prompt": "Is tea hot?", "completion": "Mostly, yes.", "system": "Be brief.", "tools": tools}
    record["chat_template_kwargs"] = {"a": 1}
    expected = Conversation([SYSTEM, ASKED, ANSWERED], tools, {"a": 1}, completion_start=2)
    assert parse(record, as_chat=True) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_what_follows_the_prompt_with_its_generation_prompt_is_trained_on_as_chat(engine):
    record = Record(0, json.dumps({"prompt": "Is tea hot?", "completion": "Mostly, yes."}).encode())
    split = Split(0, (Slice("a.jsonl", "jsonl", None, 0, 1),))
    batch = Records(split=split, part=0, last=True, outcomes=Outcomes(read=1), records=[record])
    config = RenderConfig(tokenizer=str(TOKENIZER), chat_template=CHATML, engine=engine)
    [text] = Renderer(config)(Parser(as_chat=True)(batch)).texts
    prompt = "<|im_start|>user\nIs tea hot?<|im_end|>\n<|im_start|>assistant\n"
    assert text.text == f"{prompt}Mostly, yes.<|im_end|>\n"
    assert text.prompt == prompt
    assert text.spans == [(len(prompt), len(text.text))]


@pytest.mark.parametrize(
    ("options", "is_noted"),
    [((), True), (("--as_chat=true",), False), (("--schema=text", "--columns=text=prompt"), False)],
)
def test_a_build_of_strings_says_that_they_can_be_rendered_as_chat(options, is_noted, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"prompt": "Is tea hot?", "completion": "Mostly, yes."}\n')
    required = f"--input={tmp_path}/in.jsonl", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"
    build = parse_options([*required, *options])[0]
    prepare(build, Folder(build.output), read_sources(build))
    assert capsys.readouterr().err.count("chatmill: note: prompt and completion are strings") == is_noted


def test_arguments_that_are_nested_too_deeply_do_not_end_the_launch(tmp_path):
    arguments: dict[str, Any] = {}
    for _ in range(500):
        arguments = {"a": arguments}
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    answer = {"role": "assistant", "content": "Yes.", "tool_calls": calls}
    (tmp_path / "in.jsonl").write_text(json.dumps({"messages": [ASKED, answer]}))
    required = f"--input={tmp_path}/in.jsonl", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"
    options = parse_options([*required, f"--chat_template={CHATML}"])[0]
    prepared = prepare(options, Folder(f"{tmp_path}/out"), read_sources(options))
    assert prepared and prepared.job.splits == 1


def test_pairs_of_strings_are_messages_as_chat():
    record = {"prompt": "Is tea hot?", "chosen": "Mostly, yes.", "rejected": "No."}
    options: dict[str, Any] = {"schema": "chosen", "as_chat": True}
    assert parse(record, **options) == Conversation([ASKED, ANSWERED], completion_start=1)
