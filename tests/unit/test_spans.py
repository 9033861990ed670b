"""Masks of templates of models do not move; and what other tools do to find them fails under generated templates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from support.cases import NOW, Case, Marked, printed, template_of, turns_are_known, turns_in
from support.chats import assistant, user
from support.models import DEEPSEEK, TOKENIZERS
from support.paths import CHATS, TOKENIZER
from support.templates import templates_of_models
from support.transformers_text import TransformersText
from transforms import RecordError, render

Trained = set[int]


def prefix_difference(template: TransformersText, one: Marked, text: str) -> Trained:
    """Take what each turn adds to the rendering of the messages before it with the generation prompt."""
    turns = [number for number, message in enumerate(one.messages) if message["role"] == "assistant"]
    before = (template.apply(one.messages[:turn], one.tools, True, **one.kwargs) for turn in turns)
    after = (template.apply(one.messages[: turn + 1], one.tools, **one.kwargs) for turn in turns)
    return {*chain(*(range(len(a or ""), len(b or "")) for a, b in zip(before, after, strict=True)))}


def content_search(template: TransformersText, one: Marked, text: str) -> Trained:
    """Take the next occurrence of each answer in the text, up to the end of its line."""
    found, at = Trained(), 0
    for message in one.messages:
        answer = message["content"].strip() if isinstance(message["content"], str) else ""
        if message["role"] == "assistant" and (start := text.find(answer, at)) >= 0:
            at = text.find("\n", start + len(answer)) + 1 or len(text)
            found |= {*range(start, at)}
    return found


@pytest.mark.parametrize("find", [prefix_difference, content_search])
def test_methods_of_other_tools_train_on_what_the_model_does_not_write(find: Callable[..., Trained]):
    wrong = 0
    for case in map(Case, range(60)):
        if case.features is not None and turns_are_known(case.features):
            plain, shows = (TransformersText(template_of(case.features, one), TOKENIZER, NOW) for one in (False, True))
            for one in map(Marked, case.records):
                text, written = turns_in(printed(shows, one), case.features)
                trained = find(plain, one, text) & {*range(len(text))}
                wrong += bool("".join(text[at] for at in trained - written).strip())
    assert wrong > 20


# Templates of models.

MARKERS = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")


def test_template_without_its_markers_has_the_same_labels():
    template = (TOKENIZER / "chat_template.jinja").read_text()
    without = MARKERS.sub(r"{%\1 set marked = 1 \2%}", template)
    assert without != template
    compared = 0
    for line in (CHATS / "support.jsonl").read_bytes().splitlines():
        try:
            record = json.loads(line)
            given = {"messages": record["messages"], "tools": record.get("tools"), "tokenizer": str(TOKENIZER)}
            expected = render(**given, chat_template=template)
        except (ValueError, KeyError, RecordError):
            continue  # malformed records of the corpus
        made = render(**given, chat_template=without)
        assert (made.text, made.labels) == (expected.text, expected.labels)
        compared += 1
    assert compared > 390


HOSTILE = [
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<|assistant|>",
    "",
    "assistant",
    "x" * 100_000,
    "\U0010f000\U0010f001",
]


@pytest.mark.parametrize(
    ("folder", "other"),
    [*((folder, None) for folder in TOKENIZERS), (DEEPSEEK, "llama3")],
    ids=lambda value: str(value)[-8:],
)
def test_hostile_contents_do_not_move_the_labels_of_templates_of_models(folder: Path, other: str | None):
    template = other and templates_of_models()[other]
    given = {"tokenizer": str(folder), "chat_template": template, "special_tokens_in_content": "allow"}

    def answers(contents: list[str]) -> list[str]:
        """Of each answer the text that is trained on."""
        messages: list[Any] = [(assistant if i % 2 else user)(content) for i, content in enumerate(contents)]
        made = render(messages, **given)
        return [
            "".join(
                made.text[one.start : one.stop] for one in made.segments if one.message == i and one.kind != "header"
            )
            for i in (1, 3, 5)
        ]

    plain = [f"turn {i}" for i in range(6)]
    expected = answers(plain)
    for content in HOSTILE:
        for at in range(6):
            shown = content.strip() if other == "llama3" else content  # it strips contents
            found = answers([content if i == at else own for i, own in enumerate(plain)])
            assert [one.strip() for one in found] == [one.replace(f"turn {at}", shown).strip() for one in expected]
