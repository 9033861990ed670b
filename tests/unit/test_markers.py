"""A text planted in any place of a record is printed, or counted by name, or rejects the record: none is silent."""

from __future__ import annotations

import copy
import functools
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.chats import SPLIT, render_config
from support.paths import TOKENIZER
from support.records import CASES
from support.templates import CHATML, models_and_odd
from transforms import Example, Examples, RecordError
from transforms.inputs.preference import is_pair
from transforms.inputs.unread import kind_of_name
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer

# It has more words than a label.
MARKER = "zqx marks a text"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find a place",
        "parameters": {
            "type": "object",
            "properties": {
                "date": {"type": "string", "description": "When"},
                "unit": {"type": "string", "enum": ["km", "mile"], "default": "km"},
                "at": {"type": "object", "properties": {"city": {"type": "string", "title": "The city"}}},
            },
            "required": ["date"],
        },
        "returns": {"type": "string", "description": "A place"},
    },
}
CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "find", "arguments": {"unit": "km", "at": {"x": ["y"]}}},
}
CALLED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where?", "name": "Alice"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "There", "tool_call_id": "call00001", "name": "find"},
    {"role": "assistant", "content": "It is there.", "reasoning_content": "I asked"},
]
CHAT = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
# Of datasets and logs, besides those in files.
SHAPES: dict[str, dict[str, Any]] = {
    "openai": {"messages": CALLED, "tools": [TOOL]},
    "tools as a string": {"messages": json.dumps(CALLED), "tools": json.dumps([TOOL])},
    "tools as strings": {"messages": CALLED, "tools": [json.dumps(TOOL)]},
    "anthropic": {"messages": CHAT, "tools": [{"name": "f", "input_schema": TOOL["function"]["parameters"]}]},
    "xlam": {
        "messages": CHAT,
        "tools": [{"name": "f", "parameters": {"city": {"type": "str", "description": "A city"}}}],
    },
    "smoltalk2": {
        "messages": CHAT,
        "chat_template_kwargs": {
            "custom_instructions": "Be kind.",
            "enable_thinking": False,
            "python_tools": ["def f(): pass"],
            "xml_tools": [json.dumps(TOOL)],
        },
    },
    "documents": {
        "messages": CHAT,
        "chat_template_kwargs": {
            "documents": [{"title": "A", "text": "B"}],
            "system_prompt": "C",
            "reasoning_effort": "D",
        },
    },
    "dolci": {
        "messages": [
            {"role": "user", "content": "2+2?", "functions": json.dumps([TOOL])},
            {"role": "assistant", "content": "", "function_calls": "add(2, 2)"},
            {"role": "tool", "content": "4"},
            {"role": "assistant", "content": "4"},
        ]
    },
    "tools in a message": {"messages": [{**CHAT[0], "tools": [TOOL]}, CHAT[1]]},
    "calls in a message": {"messages": [CHAT[0], {**CHAT[1], "function_calls": [CALL["function"]]}]},
    "apis": {"messages": [CHAT[0], {**CHAT[1], "apis": [{"request": {"name": "f", "parameters": {"x": "y"}}}]}]},
    "reasoning as an object": {"messages": [CHAT[0], {**CHAT[1], "reasoning": {"steps": [{"text": "a"}]}}]},
    "reasoning details": {"messages": [CHAT[0], {**CHAT[1], "reasoning_details": [{"type": "x", "summary": "a"}]}]},
    "another key": {"messages": [CHAT[0], {**CHAT[1], "content": "", "summary": "4"}]},
    "parts": {"messages": [CHAT[0], {"role": "assistant", "content": [{"type": "text", "text": "4", "caption": "a"}]}]},
    "calls with more": {"messages": [CHAT[0], {**CHAT[1], "tool_calls": [{**CALL, "result": {"text": "4"}}]}]},
    "sharegpt": {"system": "A", "conversations": [{"from": "human", "value": "B"}, {"from": "gpt", "value": "C"}]},
}
TEMPLATES = {"chatml": CHATML, **models_and_odd()}
IN_THE_SUITE = {"chatml", "qwen3", "gptoss", "llama3_1", "gemma4_v3", "own_keys"}
# What these say is known without the text.
OF_MESSAGES = ("role", "from", "type", "tool_call_id")


def shapes() -> dict[str, dict[str, Any]]:
    return SHAPES | {case["name"]: case["record"] for case in CASES["forms"]}


def planted(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Copies of a value, each with the marker in another one of its texts, and the keys that lead to it."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, (dict, list)):
            yield from ((path, json.dumps(changed)) for path, changed in planted(inner))
        else:
            yield (), f"{value} {MARKER}"
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        for path, changed in planted(item):
            outer = copy.copy(value)
            outer[key] = changed
            yield (key, *path), outer


def is_metadata(path: tuple[Any, ...]) -> bool:
    """Whether a name on the way to a text says that it is metadata."""
    keys = [key for key in path if isinstance(key, str) and key not in ("parameters", "properties")]
    if "properties" in path or "arguments" in path:  # there are names that somebody gave
        return keys[-1] == "type"
    return any(key in OF_MESSAGES or kind_of_name(key) == "metadata" for key in keys)


@functools.cache
def parsed() -> tuple[dict[str, list[Example]], list[tuple[str, tuple[Any, ...], list[Example]]]]:
    """The examples of each shape, and those of each shape with a marker that parsing does not reject or count."""
    parser, of_pairs = Parser(), Parser(schema="chosen")

    def examples(record: dict[str, Any]) -> list[Example]:
        try:
            return (of_pairs if is_pair(record) else parser).parse_all(Record(0, json.dumps(record).encode()))
        except RecordError:
            return []

    unmarked = {name: examples(shape) for name, shape in shapes().items()}
    marked = []
    for name, shape in shapes().items():
        counted = sum(sum(example.unread.values()) for example in unmarked[name])
        for path, record in planted(shape):
            found = [] if is_metadata(path) else examples(record)
            if found and sum(sum(example.unread.values()) for example in found) < counted + len(MARKER):
                marked.append((name, path, found))
    return unmarked, marked


def rendered(examples: list[Example], renderer: Renderer) -> tuple[bool, int]:
    """Whether examples are rejected, have the marker or something that is known to be omitted; and what is unread."""
    is_known, unread = False, 0
    for example in examples:
        texts = renderer(Examples(SPLIT, 0, True, Outcomes(read=1), [example]))
        has_marker = any(MARKER in text.text for text in texts.texts)
        omissions = {"not_printed", "reasoning_not_printed"} & texts.outcomes.notes.keys()
        is_known |= bool(has_marker or omissions or texts.outcomes.rejects)
        unread += sum(one.characters for one in texts.outcomes.statistics.unread.values())
    return is_known, unread


@pytest.mark.parametrize("unprinted", ["report", "reject"])
@pytest.mark.parametrize("name", TEMPLATES if "TEST_SLOW" in os.environ else sorted(TEMPLATES.keys() & IN_THE_SUITE))
def test_a_text_planted_anywhere_is_printed_or_counted_or_rejects_the_record(name: str, unprinted: str):
    config = render_config(
        TEMPLATES[name], TOKENIZER, now="2026-11-20T12:00:00", engine="reference", unprinted=unprinted
    )
    renderer = Renderer(config)
    unmarked, marked = parsed()
    before = {shape: rendered(examples, renderer)[1] for shape, examples in unmarked.items()}
    silent = []
    for shape, path, examples in marked:
        is_known, unread = rendered(examples, renderer)
        if not is_known and unread < before[shape] + len(MARKER):
            silent.append((shape, path))
    assert len(marked) > 100
    assert silent == []
