"""A text planted in any place of a record is printed, or counted by name, or rejects the record: none is silent."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.chats import make_examples, parsed, render_config
from support.drawn import AT_LENGTH
from support.paths import ROOT, TOKENIZER
from support.records import CASES
from support.templates import CHATML, models_and_odd
from transforms import ApplyChatTemplate

MARKER = "zqx marks a text"
CHAT = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
TEMPLATES = {"chatml": CHATML, **models_and_odd()}
IN_THE_SUITE = {"chatml", "qwen3", "gptoss", "llama3_1", "gemma4_v3", "own_keys"}
# What these say is known without the text.
OF_MESSAGES = ("role", "from", "type", "id", "call_id", "tool_call_id", "tool_use_id", "signature", "source", "model")


@functools.cache
def shapes() -> dict[str, dict[str, Any]]:
    """Records of datasets and logs, and those of each form."""
    planted = [json.loads(line) for line in (ROOT / "tests" / "data" / "planted.jsonl").read_text().splitlines()]
    forms = {f"form {number}": case["record"] for number, case in enumerate(CASES["forms"])}
    return {one["name"]: one["record"] for one in planted} | forms


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
    """Whether a name on the way to a text says that it needs not be printed: of a message, not of a column."""
    keys = [key for key in path if isinstance(key, str) and key not in ("parameters", "properties")]
    if "properties" in path or "arguments" in path:  # there are names that somebody gave
        return keys[-1] == "type"
    return any(key in OF_MESSAGES for key in keys[1:])


def examples_of_each(records: list[dict[str, Any]]) -> list[list[Any]]:
    """The examples of each record; none, if it is rejected."""
    found: list[list[Any]] = [[] for _ in records]
    for example in parsed(records).examples:
        found[example.position].append(example)
    return found


@functools.cache
def read() -> tuple[dict[str, list[Any]], list[tuple[str, tuple[Any, ...], list[Any]]]]:
    """The examples of each shape, and those of each shape with a marker that parsing does not reject or count."""
    names = [*shapes()]
    unmarked = dict(zip(names, examples_of_each([*shapes().values()]), strict=True))
    places = [
        (name, path, record) for name in names for path, record in planted(shapes()[name]) if not is_metadata(path)
    ]
    marked = []
    for (name, path, _), found in zip(places, examples_of_each([record for *_, record in places]), strict=True):
        counted = sum(sum(example.unread.values()) for example in unmarked[name])
        if found and sum(sum(example.unread.values()) for example in found) < counted + len(MARKER):
            marked.append((name, path, found))
    return unmarked, marked


def rendered(examples: list[Any], render: Any) -> tuple[bool, int]:
    """Whether examples are rejected, have the marker or something that is known to be omitted; and what is unread."""
    is_known, unread = False, 0
    for example in examples:
        texts = render(dataclasses.replace(make_examples(), examples=[example]))
        has_marker = any(MARKER in text.text for text in texts.texts)
        omissions = {"not_printed", "reasoning_not_printed"} & texts.outcomes.notes.keys()
        is_known |= bool(has_marker or omissions or texts.outcomes.rejects)
        unread += sum(one.characters for one in texts.outcomes.statistics.unread.values())
    return is_known, unread


@pytest.mark.parametrize("unprinted", ["report", "reject"])
@pytest.mark.parametrize("name", TEMPLATES if AT_LENGTH else sorted(TEMPLATES.keys() & IN_THE_SUITE))
def test_a_text_planted_anywhere_is_printed_or_counted_or_rejects_the_record(name: str, unprinted: str):
    config = render_config(
        TEMPLATES[name], TOKENIZER, now="2026-11-20T12:00:00", engine="reference", unprinted=unprinted
    )
    render = ApplyChatTemplate(config).function()
    unmarked, marked = read()
    before = {shape: rendered(examples, render)[1] for shape, examples in unmarked.items()}
    silent = []
    for shape, path, examples in marked:
        is_known, unread = rendered(examples, render)
        if not is_known and unread < before[shape] + len(MARKER):
            silent.append((shape, path))
    assert len(marked) > 100
    assert silent == []
