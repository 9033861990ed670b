"""Text that is not read is counted by the name of its column or key, or rejects the record."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, examples_of, render_config, user
from support.corpora import CORPORA, line_of
from support.paths import TOKENIZER
from support.templates import CHATML
from transforms import Conversation, PromptCompletion, RecordError
from transforms.chat.config import ENGINES
from transforms.inputs.unread import kind_of_name
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.model.statistics import Statistics, Unread, sum_of_unread
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer

CHAT = [user("What is 6*7?"), assistant("It is 42.")]
OPEN = [*CHAT, user("And 2+2?")]
LIMO = {"question": "What is 6*7?", "solution": "6 times 7 is 42, so \\boxed{42}.", "answer": "42"}
ONE_OF_EACH: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
    "prompt_completion": {"prompt": "One plus one", "completion": " is two"},
    "prompt_completion of messages": {"prompt": CHAT[:1], "completion": CHAT[1:]},
    "alpaca": {"instruction": "Sing.", "input": "Loudly", "output": "La la"},
    "text": {"text": "Once upon a time"},
    "question_answer": {"question": "Is tea hot?", "answer": "Mostly."},
    "tokenized": {"input_ids": [5, 6, 7]},
}
TOOLS = [{"name": "find", "description": "Find a place", "parameters": {"type": "object", "properties": {}}}]


def read(record: dict[str, Any] | bytes, **options: Any) -> dict[str, int]:
    """What is not read of a record: the same for the first record of a file and those after it, and in each format."""
    parser = Parser(**options)
    raw = record if isinstance(record, bytes) else json.dumps(record).encode()
    found = [outcome(parser, raw) for _ in range(2)]
    if isinstance(record, dict):
        found.append(outcome(Parser(**options), record))
    assert all(one == found[0] for one in found)
    if isinstance(found[0], str):
        raise RecordError(*found[0].split(": ", 1))
    return found[0]


def outcome(parser: Parser, raw: Any) -> dict[str, int] | str:
    try:
        [example] = parser.parse_all(Record(0, raw))
    except RecordError as error:
        return f"{error.reason}: {error.detail}"
    return dict(example.unread)


def reason(record: dict[str, Any] | bytes, **options: Any) -> str:
    with pytest.raises(RecordError) as raised:
        read(record, **options)
    return raised.value.reason


@pytest.mark.parametrize(
    "record",
    [
        {**LIMO, "answer": "43"},
        {"question": "What is 6*7?", "explanation": "6 times 7", "answer": "42"},
        {"question": "What is 6*7?", "answer": "42", "generations": ["<think>6 times 7</think>42"]},
        {"prompt": "Be brief", "context": "Sums", "question": "What is 6*7?", "answer": "42"},
        {"messages": OPEN, "replies": [{"text": "4"}]},
        {"messages": OPEN, "answer": "4", "response": "Four"},
        {"messages": CHAT, "documents": [{"title": "a", "text": "Some document"}]},
        {"messages": CHAT, "context": "Some context"},
        {"messages": CHAT, "chosen_messages": [user("What is 6*7?"), assistant("It is forty-two.")]},
        {"text": "A document", "question": "What is it?"},
    ],
)
def test_content_under_a_name_that_the_schema_does_not_read_rejects_the_record_unless_the_schema_is_chosen(record):
    assert reason(record) == "not_read"
    with pytest.raises(RecordError) as raised:
        read(record)
    name, schema = re.fullmatch(r"(\w+) has .* schema (\w+) leaves it out", raised.value.detail).groups()  # type: ignore[union-attr]
    assert read(record, schema=schema)[name]


def test_the_option_columns_decides_which_answer_is_read():
    assert read(LIMO, columns={"answer": "solution"}) == {}  # 42 is in the solution
    assert read({**LIMO, "answer": "43"}, columns={"answer": "solution"}) == {"answer": 2}
    assert read(LIMO, columns={"question": "question", "answer": "answer"}) == {"solution": len(LIMO["solution"])}
    assert read({"messages": CHAT, "available_tools": TOOLS}, columns={"tools": "available_tools"}) == {}
    assert read({"messages": CHAT, "system_prompt": "Be brief."}, columns={"system": "system_prompt"}) == {}


@pytest.mark.parametrize(
    ("more", "unread"),
    [
        ({"prompt": "What is 6*7?"}, {}),
        ({"answer": "42"}, {}),
        ({"solution": "6 times 7 is 42."}, {"solution": 16}),  # of a conversation that has an answer
        ({"messages_copy": CHAT}, {}),
        ({"summary": "A sum", "notes": ["a b", {"more": "c d"}]}, {"summary": 5, "notes": 6}),
        ({"id": "x", "source": "web", "prompt_id": "p", "meta": {"a": "b"}, "created_at": "now", "n": 3}, {}),
        ({"reasoning": "off"}, {}),
        ({"thinking": "off"}, {"thinking": 3}),
        ({"empty": "", "blank": " \n", "nothing": None, "list": [], "numbers": [1, 2.5, True]}, {}),
        ({"tokens of text": "a"}, {"tokens of text": 1}),
        ({"task": "summarise", "label": "very good", "user": "U1", "info": {"row": "x"}}, {}),
        ({"task": "Summarise what the user says here."}, {"task": 34}),
        ({"file": "x" * 41, "meta": {"file": "x" * 41}}, {"file": 41}),
    ],
)
def test_further_columns_are_counted_if_they_have_text_that_is_not_in_the_messages_and_are_not_metadata(more, unread):
    assert read({"messages": CHAT, **more}) == unread


def test_a_short_answer_is_not_taken_for_read_because_its_characters_are_somewhere_in_the_messages():
    assert reason({"messages": OPEN, "reply_text": "2", "reply": "3"}) == "not_read"  # 2 is of 2+2
    assert reason({"messages": OPEN, "generation": "It is 42."}) == "not_read"  # an earlier answer is no answer to this
    assert read({"text": "The cat sat.", "subtitle": "at"}) == {"subtitle": 2}


def test_columns_to_keep_are_not_unread():
    assert read({"messages": CHAT, "summary": "A sum"}, keep_columns=("summary",)) == {}
    assert read(LIMO, keep_columns=("solution",)) == {}


def test_a_record_without_the_renamed_column_is_read_by_the_name_in_the_schema():
    call = {"type": "function", "function": {"name": "find", "arguments": '{"a":  1}'}}
    chat = [*CHAT[:1], assistant("", tool_calls=[call]), {"role": "tool", "content": "1"}, CHAT[1]]
    assert read({"messages": chat}, columns={"messages": "dialog"}) == {}


def test_a_pair_is_read_as_its_schema_says():
    pair = {"prompt": "What is 6*7?", "chosen": "42", "rejected": "41"}
    assert read(pair, schema="chosen") == {}
    chosen = {**pair, "chosen": CHAT, "rejected": [CHAT[0], assistant("41")], "messages": CHAT, "score_chosen": 3}
    assert read(chosen, schema="chosen") == {}
    assert read({**chosen, "critique": "Good"}, schema="chosen") == {"critique": 4}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "metadata") for name in ("id", "prompt_id", "num_tokens", "is_correct", "finish_reason", "createdAt")),
        *(
            (name, "metadata")
            for name in ("Model", "answer_type", "question_source", "sha256", "model_a", "languages", "metadata")
        ),
        *(
            (name, "answer")
            for name in ("Response", "final_answer", "rejected_response", "generated_solution", "answers")
        ),
        *(
            (name, "reasoning")
            for name in ("Complex_CoT", "chain_of_thought", "thoughts", "deepseek_thinking_trajectory")
        ),
        *((name, "prompt") for name in ("systemInstruction", "system_prompt", "documents", "chat_history", "inputs")),
        *((name, "tools") for name in ("available_tools", "tool_defs", "function_calls")),
        *((name, "conversation") for name in ("conversation_a", "rejected_messages", "dialogue")),
        *((name, None) for name in ("summary", "foo", "", "7", "标题", "apis", "reasoning_details", "task", "user")),
    ],
)
def test_the_last_word_of_a_name_says_what_it_names(name, kind):
    assert kind_of_name(name) == kind


@pytest.mark.parametrize("raw", [b'{"text": "a", "score": NaN}', b'{"score": -Infinity, "text": "a"}'])
def test_numbers_that_json_does_not_have_are_accepted_where_they_are_not_read(raw):
    assert read(raw) == {}


def test_nan_where_it_is_read_is_named():
    with pytest.raises(RecordError, match="tools has NaN"):
        read(b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", "parameters": {"a": NaN}}]}')
    assert reason(b'{"messages": [{"role": "user", "content": NaN}]}') == "invalid_json"


@pytest.mark.parametrize(
    "record",
    [
        {"message_id": "a", "parent_id": None, "text": "Can you?", "role": "prompter"},
        {"text": "Sure", "parent_id": "a"},
        {"text": "Can you?", "replies": [{"text": "Sure"}]},
        {"type": "message", "user": "U1", "text": "did it deploy?", "ts": "1.0"},
        {"role": "user", "content": "Hi"},
        {"from": "human", "value": "Hi"},
    ],
)
def test_one_message_is_not_a_document(record):
    assert reason(record) == "one_message"
    if "text" in record:
        read(record, schema="text")


def test_a_document_may_have_a_type_and_an_author():
    assert read({"text": "A", "type": "essay", "author": "B", "user": "C", "parent": None}) == {}


NAMES = st.text("abcdefghijklmnopqrstuvwxyzäß_ ", min_size=1, max_size=12).map(lambda name: f"zq{name}x")
TEXTS = st.text("abcdefgh XYZ7é漢\n", min_size=1, max_size=30).map(lambda text: f"planted {text} planted")


@given(schema=st.sampled_from([*ONE_OF_EACH]), name=NAMES, text=TEXTS, is_nested=st.booleans())
def test_a_planted_column_of_any_name_is_counted(schema, name, text, is_nested):
    assume(kind_of_name(name) != "metadata")
    record = {**ONE_OF_EACH[schema], name: [{"inner": text}] if is_nested else text}
    try:
        assert read(record) == {name: len(text)}
    except RecordError as error:
        assert error.reason == "not_read" and error.detail.startswith(f"{name} has ")


def test_each_part_counts_schemas_and_what_is_unread():
    rows: list[dict[str, Any]] = [
        {"text": "a", "summary": "four"},
        {"text": "b", "summary": "sixsix"},
        {"messages": CHAT},
        {"messages": OPEN, "generation": "c"},
    ]
    records = [Record(number, json.dumps(row).encode()) for number, row in enumerate(rows)]
    batch = Parser()(Records(SPLIT, 0, True, Outcomes(read=4), records))
    statistics = batch.outcomes.statistics
    assert (statistics.schemas, len(batch.outcomes.rejects)) == ({"messages": 1, "text": 2}, 1)
    assert {name: (one.records, one.characters) for name, one in statistics.unread.items()} == {"summary": (2, 10)}
    assert Statistics.total([statistics, statistics]).unread["summary"].characters == 20


def test_names_that_are_others_in_each_record_are_counted_together():
    unread = sum_of_unread([{f"key {number}": 2} for number in range(300)] + [{"often": 1}] * 2)
    assert len(unread) == 101 and unread["often"].records == 2
    assert sum(one.characters for one in unread.values()) == 602
    assert Statistics(unread=unread) == Statistics.total([Statistics(unread=unread)])


# Of messages, what the template prints decides.


def rendered(*contents: Any, template: str = CHATML, engine: str = "auto", **options: Any) -> Outcomes:
    config = render_config(template, TOKENIZER, engine=engine, **options)
    return Renderer(config)(examples_of(*contents)).outcomes


def unread_of(outcomes: Outcomes) -> dict[str, int]:
    return {name: one.characters for name, one in outcomes.statistics.unread.items()}


@pytest.mark.parametrize("engine", ENGINES)
@given(key=NAMES, text=TEXTS, where=st.sampled_from(["message", "part", "call"]))
def test_a_planted_key_of_a_message_a_part_or_a_call_is_counted(engine, key, text, where):
    assume(kind_of_name(key) != "metadata")
    answer: dict[str, Any] = assistant("Yes.")
    name = f"messages[].{key}"
    if where == "message":
        answer[key] = [{"inner": text}]
    elif where == "part":
        answer["content"], name = [{"type": "text", "text": "Yes.", key: text}], f"messages[].content[].{key}"
    else:
        call = {"type": "function", "function": {"name": "find", "arguments": {}}, key: text}
        answer["tool_calls"], name = [call], f"messages[].tool_calls[].{key}"
    outcomes = rendered([user("Hi"), answer], engine=engine, unprinted="report")
    assert unread_of(outcomes) == {name: len(text)}
    rejecting = rendered([user("Hi"), answer], engine=engine)
    assert rejecting.rejects or unread_of(rejecting) == {name: len(text)}


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_that_the_template_prints_are_read(engine):
    template = CHATML.replace("message.content", "message.mood + ' ' + message.content")
    chat = [{**user("Hi"), "mood": "calm"}, {**assistant("Hello"), "mood": "glad", "id": "x1"}]
    assert unread_of(rendered(chat, template=template, engine=engine)) == {}
    assert unread_of(rendered(chat, engine=engine)) == {"messages[].mood": 8}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "answer",
    [
        assistant("Listing.", thought="I should list"),
        assistant("Listing.", function_calls="ls()"),
        assistant("Listing.", refusal="I cannot"),
        assistant("", parts=[{"type": "text", "text": "Hello!"}]),
        assistant([{"type": "text", "text": ""}], extra="Hello!"),
    ],
)
def test_a_key_with_content_that_is_not_printed_rejects_the_record(engine, answer):
    [reject] = rendered([user("Hi"), answer], engine=engine).rejects
    assert reject.reason == "not_printed" and "messages[1]" in reject.detail
    assert not rendered([user("Hi"), answer], engine=engine, unprinted="report").rejects


CALL = {"type": "function", "function": {"name": "find", "arguments": {}}, "mood": "the cat"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("message", "name"),
    [
        (assistant("Yes.", rationale="the cat"), "messages[].rationale"),
        (assistant("", parts=[{"text": "the cat"}]), "messages[].parts"),
        (assistant("Yes.", reasoning={"steps": ["the cat"]}), "messages[].reasoning"),
        (assistant([{"type": "text", "text": "Yes.", "mood": "the cat"}]), "messages[].content[].mood"),
        (assistant("Yes.", tool_calls=[CALL]), "messages[].tool_calls[].mood"),
        ({**user("Is it?"), "name": "the cat"}, "messages[].name"),
    ],
)
def test_a_key_is_not_printed_because_another_message_says_the_same(engine, message, name):
    chat = [user("Is the cat black? the cat"), message, assistant("It is.")]
    assert unread_of(rendered(chat, engine=engine, unprinted="report")) == {name: len("the cat")}
    rejects = [reject.reason for reject in rendered(chat, engine=engine).rejects]
    is_rejected = name in ("messages[].rationale", "messages[].parts") or "tool_calls" in message
    assert rejects == ["not_printed"] * is_rejected


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_is_printed_in_any_form_whoever_says_the_same(engine):
    chat = [user("the cat"), assistant("Yes.", rationale="the cat"), user("the dog"), assistant("No.", rationale="a")]
    for form in ("'<' ~ message.rationale ~ '>'", "message.rationale | tojson", "message | tojson"):
        template = CHATML.replace("message.content", f"message.content ~ ({form} if message.rationale else '')")
        assert unread_of(rendered(chat, template=template, engine=engine)) == {}
    first = "(message.rationale if message.rationale and loop.index0 == 1 else '')"
    template = CHATML.replace("message.content", f"message.content ~ {first}")
    assert unread_of(rendered(chat, template=template, engine=engine, unprinted="report")) == {
        "messages[].rationale": 1
    }


TOOL = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds what you ask for",
        "parameters": {
            "type": "object",
            "properties": {"type": {"type": "string", "description": "Say a kind of place"}, "km": {"type": "number"}},
            "required": ["km"],
        },
    },
}
NAMES_OF_TOOLS = "{%- for tool in tools or [] -%}{{- tool.function.name + '\\n' -}}{%- endfor -%}"


@pytest.mark.parametrize("engine", ENGINES)
def test_texts_of_tools_that_are_not_printed_are_counted(engine):
    chats = [Conversation([user("Hi"), assistant("Hello")], tools=[TOOL]) for _ in range(2)]
    found = rendered(*chats, template=NAMES_OF_TOOLS + CHATML, engine=engine)
    in_parameters = len("type" + "Say a kind of place" + "km" + "km") - len("km")  # km is one text
    assert unread_of(found) == {
        "tools[].function.description": 2 * len("Finds what you ask for"),
        "tools[].function.parameters": 2 * in_parameters,
    }
    printed = "{{- tools | tojson -}}" + CHATML
    assert unread_of(rendered(*chats, template=printed, engine=engine)) == {}


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_printed_of_the_same_tools_is_found_for_each_record(order):
    name = "{%- else -%}{{- tools[0].function.name -}}{%- endif -%}"
    template = "{%- if messages[0].content == 'all' -%}{{- tools | tojson -}}" + name + CHATML
    tools = [TOOL]
    chats = [
        Conversation([user(text), assistant("Hello")], tools=tools)
        for text in ("all", "names", "Finds what you ask for", "all")[::order]
    ]
    for contents in (chats, *([chat] for chat in chats)):
        lost = sum(one.messages[0]["content"] == "names" for one in contents)
        said = sum(one.messages[0]["content"].startswith("Finds") for one in contents)
        unread = rendered(*contents, template=template).statistics.unread
        assert unread.get("tools[].function.description", Unread()).records == lost
        assert unread.get("tools[].function.parameters", Unread()).records == lost + said


@pytest.mark.parametrize("engine", ENGINES)
def test_arguments_of_the_template_that_it_does_not_print_are_counted(engine):
    given = {
        "documents": [{"title": "Bridges", "text": "They are long.", "id": "d1"}],
        "custom_instructions": "Be kind.",
        "reasoning_effort": "high",
        "enable_thinking": True,
        "date_string": "1 May",
    }
    chats = [
        Conversation([user("Hi"), assistant("Hello")], template_kwargs=given),
        Conversation([user("Bridges"), assistant("Be kind.")], template_kwargs=given),
    ]
    expected = {
        "chat_template_kwargs.custom_instructions": 2 * len("Be kind."),  # a message says it, too
        "chat_template_kwargs.documents": 2 * len("Bridges" + "They are long."),
    }
    assert unread_of(rendered(*chats, engine=engine)) == expected
    plain = [chat.messages for chat in chats]
    assert unread_of(rendered(*plain, engine=engine, chat_template_kwargs=given)) == expected
    own = Conversation([user("Hi"), assistant("Hello")], template_kwargs={"custom_instructions": ""})
    of_job = {"custom_instructions": "Be kind."}
    assert unread_of(rendered(own, engine=engine, chat_template_kwargs=of_job)) == {}
    template = CHATML + "{{- custom_instructions + documents | tojson -}}"
    assert unread_of(rendered(*chats, template=template, engine=engine)) == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_reasoning_that_is_not_a_string_and_names_of_speakers_are_counted(engine):
    chat = [{**user("Hi"), "name": "Alice"}, assistant("Hello", reasoning={"steps": ["I greet"]})]
    outcomes = rendered(chat, engine=engine)
    assert unread_of(outcomes) == {"messages[].name": 5, "messages[].reasoning": 7}
    assert not outcomes.rejects


@pytest.mark.parametrize("engine", ENGINES)
def test_records_with_an_empty_turn_that_is_trained_on_are_counted(engine):
    call = {"type": "function", "function": {"name": "find", "arguments": {}}}
    calling = CHATML.replace(
        "message.content", "message.content + (message.tool_calls | tojson if message.tool_calls else '')"
    )
    contents = [
        [user("Hi"), assistant("")],
        [user("Hi"), assistant("\n"), user("Hi"), assistant("")],
        [user("Hi"), {**assistant(""), "name": "a"}],
        [user(""), assistant("Hello")],
        [user("Hi"), assistant("", weight=0), user("Hi"), assistant("Hello")],
        [user("Hi"), assistant("", tool_calls=[call])],
        Conversation([user("Hi"), assistant(" ")], completion_start=1),
        PromptCompletion("Hi", ""),
        PromptCompletion("", "Hi"),
    ]
    outcomes = rendered(*contents, template=calling, engine=engine)
    assert outcomes.notes["empty_answers"] == 5
    assert outcomes.first_examples["empty_answers"][0] == 0


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_columns_of_corpora_raise_no_false_alarm(corpus):
    parser = Parser()
    for number in range(100):
        assert not parser.parse_all(Record(0, line_of(corpus, number).encode()))[0].unread
