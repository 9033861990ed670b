"""Spans under any template are correct or refused, never wrong.

Templates are generated from parts (how a turn opens and closes, what is stripped, folded or dropped), so their correct
spans are known by construction. They render random conversations. Two methods that other tools use, the prefix
difference and the search for the content, fail the same test.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from support.models import DEEPSEEK, TOKENIZERS
from support.paths import CHATS, TOKENIZER
from support.styles import CONVERSATIONS, STYLES, Message, Style
from support.templates import masked, templates_of_models
from transforms import Conversation, RecordError
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.turn_search import merged
from transforms.chat.spans.turns import TurnFinder
from transforms.inputs.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.inputs.schemas import content_of
from transforms.model.examples import Span
from transforms.tokens.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(TOKENIZER))


def wrong(style: Style, messages: list[Message], text: str, spans: list[Span]) -> str | None:
    """Describe the first character for which the spans are wrong; None if all are correct. White space is ignored."""
    expected_text, expected = style.rendered(messages)
    assert text == expected_text, "the template and the function of the style differ"
    ours, right = ({i for a, b in these for i in range(a, b)} for these in (spans, expected))
    for i in sorted(ours ^ right):
        if not text[i].isspace():
            what = "trained" if i in ours else "not trained"
            return f"{what} at {i}: {text[max(0, i - 20) : i]!r} | {text[i : i + 20]!r}"
    return None


def prefix_difference(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    """Take what each turn adds to the rendering of the messages before it with the generation prompt."""
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    prefixes = [(Conversation(messages[:i]), Conversation(messages[: i + 1])) for i in turns]
    lengths = [(len(template.render(before, True)), len(template.render(after))) for before, after in prefixes]
    return template.render(Conversation(messages)), merged([(start, stop) for start, stop in lengths if start <= stop])


def content_search(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    """Take the next occurrence of each answer in the text, up to the end of its line."""
    text, spans, at = template.render(Conversation(messages)), [], 0
    for message in messages:
        if message["role"] == "assistant" and (found := text.find(message["content"].strip(), at)) >= 0:
            end = text.find("\n", found + len(message["content"].strip()))
            at = len(text) if end < 0 else end + 1
            spans.append((found, at))
    return text, merged(spans)


def ours(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    return masked(template, Conversation(messages))


def check(tokenizer: Any, find: Any, examples: int) -> int:
    """Check a method on generated templates; return how many were refused. Raises AssertionError if a span is wrong."""
    refused = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(style=STYLES, messages=CONVERSATIONS)
    def spans_are_right_or_refused(style: Style, messages: list[Message]) -> None:
        nonlocal refused
        try:
            text, spans = find(ChatTemplate(tokenizer, style.source()), messages)
        except RecordError as error:
            assert error.reason == "spans_not_established", error.detail
            refused += 1
        else:
            assert wrong(style, messages, text, spans) is None, style.source()

    spans_are_right_or_refused()
    return refused


@pytest.mark.slow
def test_spans_under_generated_templates_are_right_and_rarely_refused(tokenizer):
    assert check(tokenizer, ours, 5000) < 250


@pytest.mark.parametrize("find", [prefix_difference, content_search])
def test_methods_of_other_tools_give_wrong_spans(tokenizer, find):
    with pytest.raises(AssertionError, match="trained at"):
        check(tokenizer, find, 500)


# Real templates, from the example tokenizer and those of models.

MARKERS = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")


def test_template_without_its_markers_has_the_same_spans(tokenizer):
    template = tokenizer.chat_template
    without = MARKERS.sub(r"{%\1 set marked = 1 \2%}", template)
    assert without != template
    marked, unmarked = ChatTemplate(tokenizer), ChatTemplate(tokenizer, without)
    turns, unmarked_turns = TurnFinder(marked), TurnFinder(unmarked)
    compared = 0
    for line in (CHATS / "support.jsonl").read_bytes().splitlines():
        try:
            _, conversation = content_of(json.loads(line), "messages", Reading(ReadOptions(ROLE_NAMES)))
            expected = masked(marked, conversation, turns=turns)
        except (ValueError, RecordError):
            continue  # malformed records of the corpus
        assert masked(unmarked, conversation, turns=unmarked_turns) == expected
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
def test_hostile_contents_do_not_move_the_spans_of_real_templates(folder, other):
    template = ChatTemplate(load_tokenizer(str(folder)), other and templates_of_models()[other])
    finder = TurnFinder(template)
    plain = Conversation([user_or_assistant(i, f"turn {i}") for i in range(6)])
    text, spans = masked(template, plain, turns=finder)
    for content in HOSTILE:
        for position in range(6):
            messages = [user_or_assistant(i, content if i == position else f"turn {i}") for i in range(6)]
            found, changed = masked(template, Conversation(messages), turns=finder)
            answers = [found[start:stop] for start, stop in changed]
            expected = [text[start:stop].replace(f"turn {position}", content) for start, stop in spans]
            if other == "llama3":  # it strips contents
                expected = [answer.replace(content, content.strip()) if content else answer for answer in expected]
            assert [answer.strip() for answer in answers] == [answer.strip() for answer in expected]


def user_or_assistant(number: int, content: str) -> Message:
    return {"role": "assistant" if number % 2 else "user", "content": content}
