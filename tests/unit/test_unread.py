"""Text that is not read is counted by the name of its column or key, or rejects the record.

tests/data/records/unread.jsonl has more columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.datasets import write_jsonl
from support.paths import TOKENIZER
from support.reading import make_batches
from support.templates import CHATML
from transforms import ApplyChatTemplate, ParseConversations, RenderConfig, parse


def user(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **keys}


def assistant(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


CHAT = [user("What is 6*7?"), assistant("It is 42.")]
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
NAMES = st.text("abcdefghijklmnopqrstuvwxyzäß_ ", min_size=1, max_size=12).map(lambda name: f"zq{name}x")
TEXTS = st.text("abcdefgh XYZ7é漢\n", min_size=1, max_size=30).map(lambda text: f"planted {text} planted")


@given(schema=st.sampled_from([*ONE_OF_EACH]), name=NAMES, text=TEXTS, is_nested=st.booleans())
def test_a_planted_column_of_any_name_is_counted(schema, name, text, is_nested):
    record = {**ONE_OF_EACH[schema], name: [{"inner": text}] if is_nested else text}
    assert [parse(form)[0].unread for form in (json.dumps(record).encode(), record)] == [{name: len(text)}] * 2


# Of messages, what the template prints decides.


class Rendered:
    """What became of the records of a case: the characters that are not read, by name; the rejects; and the notes."""

    def __init__(self, batch: Any):
        outcomes = batch.outcomes
        self.unread = {name: one.characters for name, one in outcomes.statistics.unread.items()}
        self.records = {name: one.records for name, one in outcomes.statistics.unread.items()}
        self.schemas, self.notes = outcomes.statistics.schemas, outcomes.notes
        self.rejects = [(reject.reason, reject.detail) for reject in outcomes.rejects]


def rendered(folder: Path, cases: Mapping[str, Any], template: str = CHATML, **options: Any) -> dict[str, Rendered]:
    """Render the records of some cases, each by itself. A case is records; a list of messages is one, too."""
    sources = {}
    for number, (name, records) in enumerate(cases.items()):
        lines = [record if isinstance(record, dict) else {"messages": record} for record in records]
        sources[name] = str(write_jsonl(folder / f"{number}.jsonl", lines))
    config = RenderConfig(tokenizer=str(TOKENIZER), chat_template=template, **options)
    batches = make_batches(sources, ParseConversations(), ApplyChatTemplate(config), input_format="jsonl")
    return {name: Rendered(batch) for name, batch in zip(sources, batches, strict=True)}


each_engine = pytest.mark.parametrize("engine", ["auto", "reference"])
CALL = {"type": "function", "function": {"name": "find", "arguments": {}}}
# Each with the name under which its text is counted, and whether it rejects the record unless unprinted is report. A
# string in a message that says nothing else may be its id.
NOT_PRINTED: dict[str, tuple[dict[str, Any], str, bool]] = {
    "thought": (assistant("Yes.", thought="the cat"), "messages[].thought", False),
    "id": (assistant("Yes.", id="the cat", timestamp=7), "messages[].id", False),
    "parts": (assistant("", parts=[{"text": "the cat"}]), "messages[].parts", True),
    "parts beside a content": (assistant("Yes.", parts=[{"text": "the cat"}]), "messages[].parts", False),
    "extra": (assistant([{"type": "text", "text": ""}], extra="the cat"), "messages[].extra", False),
    "call": (assistant("Yes.", tool_calls=[{**CALL, "mood": "the cat"}]), "messages[].tool_calls[].mood", True),
    "tool": ({"role": "tool", "content": "3", "name": "the cat"}, "messages[].name", False),
    "names": ({"role": "tool", "content": "3", "name": ["the cat"]}, "messages[].name", False),
    "result": ({"role": "tool", "content": "", "id": "the cat"}, "messages[].id", False),
    "part": (assistant([{"type": "text", "text": "Yes.", "mood": "the cat"}]), "messages[].content[].mood", False),
    "name": (user("Is it?", name="the cat"), "messages[].name", False),
    "nested": (assistant("Yes.", zqx=[{"inner": "the cat"}]), "messages[].zqx", False),
}


@each_engine
@pytest.mark.parametrize("first", ["Is it black?", "Is the cat black? the cat"])  # another message says the same
def test_a_key_that_is_not_printed_is_counted_or_rejects_the_record(tmp_path, engine, first):
    cases = {name: [[user(first), message, assistant("It is.")]] for name, (message, _, _) in NOT_PRINTED.items()}
    for name, found in rendered(tmp_path, cases, engine=engine, unprinted="report").items():
        assert (found.unread, found.rejects) == ({NOT_PRINTED[name][1]: len("the cat")}, []), name
    for name, found in rendered(tmp_path, cases, engine=engine).items():
        assert [reason for reason, _ in found.rejects] == ["not_printed"] * NOT_PRINTED[name][2], name
        assert all("messages[1]" in detail for _, detail in found.rejects)


@each_engine
def test_a_key_is_printed_in_any_form_whoever_says_the_same(tmp_path, engine):
    chat = [user("the cat"), assistant("Yes.", rationale="the cat"), user("the dog"), assistant("No.", rationale="a")]
    first = "(message.rationale if message.rationale and loop.index0 == 1 else '')"
    for form, unread in {
        "'<' ~ message.rationale ~ '>'": {},
        "message.rationale | tojson": {},
        "message | tojson": {},
        first: {"messages[].rationale": 1},
    }.items():
        template = CHATML.replace("message.content", f"message.content ~ ({form} if message.rationale else '')")
        found = rendered(tmp_path, {"chat": [chat]}, template, engine=engine, unprinted="report")
        assert found["chat"].unread == unread


@each_engine
def test_the_characters_of_a_key_are_those_of_each_record(tmp_path, engine):
    chats = [[user("Hi"), assistant("Hello", mood="c" * length)] for length in (1, 5, 9)]
    found = rendered(tmp_path, {"chats": chats}, engine=engine)["chats"]
    assert (found.unread, found.records) == ({"messages[].mood": 15}, {"messages[].mood": 3})


KIND = {"type": "string", "description": "Say a kind of place", "enum": ["north", "south"]}
SCHEMA = {"type": "object", "properties": {"type": KIND, "km": {"type": "number"}}, "required": ["km"]}
FIND = {"name": "find", "description": "Finds what you ask for", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FIND}
DESCRIPTION, PARAMETERS = "tools[].function.description", "tools[].function.parameters"
# What templates print of the tools, and how many characters of them they do not.
PRINTED = {
    "{%- for tool in tools or [] -%}{{- tool.function.name + '\\n' -}}{%- endfor -%}": {
        DESCRIPTION: len("Finds what you ask for"),
        PARAMETERS: len("type" + "Say a kind of place" + "north" + "south" + "km" + "km"),
    },
    "{%- for name, kind in tools[0].function.parameters.properties.items() -%}"
    "{{- name + (kind.enum or []) | join(', ') -}}{%- endfor -%}{{- tools[0].function.name -}}": {
        DESCRIPTION: len("Finds what you ask for"),
        PARAMETERS: len("Say a kind of place" + "km"),
    },
    "{{- tools | tojson -}}": {},
}


@each_engine
def test_texts_of_tools_that_are_not_printed_are_counted(tmp_path, engine):
    cases = {"tools": [{"messages": [user("Hi"), assistant("Hello")], "tools": [TOOL]}] * 2}
    for template, unread in PRINTED.items():
        found = rendered(tmp_path, cases, template + CHATML, engine=engine)["tools"].unread
        assert found == {name: 2 * characters for name, characters in unread.items()}


@each_engine
def test_what_is_printed_of_the_same_tools_is_found_for_each_record_whatever_its_messages_say(tmp_path, engine):
    name = "{%- else -%}{{- tools[0].function.name -}}{%- endif -%}"
    template = "{%- if messages[0].content == 'all' -%}{{- tools | tojson -}}" + name + CHATML
    texts = ("all", "names", "Finds what you ask for", "all")
    chats = [{"messages": [user(text), assistant("Hello")], "tools": [TOOL]} for text in texts]
    for found in rendered(tmp_path, {"in order": chats, "reversed": chats[::-1]}, template, engine=engine).values():
        assert found.records == {DESCRIPTION: 2, PARAMETERS: 2}


@each_engine
def test_arguments_that_the_template_does_not_name_are_counted(tmp_path, engine):
    documents = [{"title": "Bridges", "text": "They are long.", "pages": 3}]
    given = {"documents": documents, "custom_instructions": "Be kind.", "enable_thinking": True}
    chats = [[user("Hi"), assistant("Hello")], [user("Bridges"), assistant("Be kind.")]]
    own = [{"messages": chat, "chat_template_kwargs": given} for chat in chats]
    expected = {
        "chat_template_kwargs.custom_instructions": 2 * len("Be kind."),  # a message says it, too
        "chat_template_kwargs.documents": 2 * len("Bridges" + "They are long."),
    }
    assert rendered(tmp_path, {"own": own}, engine=engine)["own"].unread == expected
    of_job = rendered(tmp_path, {"plain": chats}, engine=engine, chat_template_kwargs=given)
    assert of_job["plain"].unread == expected
    empty = {"messages": chats[0], "chat_template_kwargs": {"custom_instructions": ""}}
    kind = {"custom_instructions": "Be kind."}
    assert rendered(tmp_path, {"empty": [empty]}, engine=engine, chat_template_kwargs=kind)["empty"].unread == {}
    template = CHATML + "{{- custom_instructions + documents | tojson -}}"
    assert rendered(tmp_path, {"own": own}, template, engine=engine)["own"].unread == {}


@each_engine
def test_records_with_an_empty_turn_that_is_trained_on_are_counted(tmp_path, engine):
    calls = "message.content + (message.tool_calls | tojson if message.tool_calls else '')"
    records = [
        [user("Hi"), assistant("")],
        [user("Hi"), assistant("\n"), user("Hi"), assistant("")],
        [user("Hi"), assistant("", name="a")],
        [user(""), assistant("Hello")],
        [user("Hi"), assistant("", weight=0), user("Hi"), assistant("Hello")],
        [user("Hi"), assistant("", tool_calls=[CALL])],
        {"prompt": [user("Hi")], "completion": [assistant(" ")]},
        {"prompt": "Hi", "completion": ""},
        {"prompt": "", "completion": "Hi"},
    ]
    found = rendered(tmp_path, {"all": records}, CHATML.replace("message.content", calls), engine=engine)["all"]
    assert found.notes["empty_answers"] == 5, found.rejects


def test_each_part_counts_schemas_and_names_that_are_others_in_each_record_together(tmp_path):
    records = [{"text": "a", "summary": "four"}, {"text": "b", "summary": "sixsix"}, *[CHAT] * 2]
    many = [{"text": "a", f"key {number}": "b!"} for number in range(120)] + [{"text": "a", "often": "c"}] * 2
    found = rendered(tmp_path, {"few": records, "many": many})
    assert (found["few"].schemas, found["few"].unread) == ({"messages": 2, "text": 2}, {"summary": 10})
    assert found["few"].records == {"summary": 2}
    assert len(found["many"].unread) == 101 and found["many"].records["often"] == 2
    assert sum(found["many"].unread.values()) == 242
