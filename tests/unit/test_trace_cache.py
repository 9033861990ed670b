"""The trace cache: why a conversation takes the slow path, and that this depends on its batch alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from support.chats import assistant, render_config, user, without_signature
from support.templates import CHATML
from transforms import Conversation
from transforms.chat.rendering.template import load_template
from transforms.chat.traced.compiled import SlowPath
from transforms.chat.traced.trace_cache import TraceCache

PLAIN = [user("2+2?"), assistant("4")]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
LOOKS_FOR_A_WORD = CHATML.replace("message.content +", "('!' if 'ud' in message.content else message.content) +")
REFUSES = "{%- if messages[0].content != 'yes' -%}{{- raise_exception('say yes') -}}{%- endif -%}" + CHATML


def cache_of(template: str = CHATML) -> TraceCache:
    return TraceCache(load_template(render_config(template)))


def conversation_of(length: int, **fields: Any) -> Conversation:
    """Return a conversation of `length` messages. Its signature depends on this number."""
    return Conversation([(assistant if number % 2 else user)("a") for number in range(length)], **fields)


@pytest.mark.parametrize(
    ("conversation", "template", "expected"),
    [
        (Conversation(PLAIN, [TOOL]), CHATML, SlowPath("not_followed")),
        (
            Conversation(PLAIN, template_kwargs={"since": datetime(2026, 11, 22)}),
            CHATML + "{{ since }}",
            SlowPath("not_followed"),
        ),
        (Conversation(PLAIN, [TOOL], {"style": "brief"}), CHATML, SlowPath("not_followed")),
        (
            Conversation([user([{"type": "text", "text": "2+2?", "cache_control": {}}]), assistant("4")]),
            CHATML,
            SlowPath("not_followed"),
        ),
        (Conversation([user("2+2?"), assistant("", tool_calls=[{}])]), CHATML, SlowPath("not_followed")),
        (Conversation([user("2+2?"), assistant("4", scores=[1])]), CHATML, SlowPath("not_followed")),
        (conversation_of(513), CHATML, SlowPath("not_followed")),
        (Conversation([*conversation_of(512).messages, user(" ")]), CHATML, SlowPath("not_followed")),
        (
            Conversation(PLAIN),
            CHATML.replace("message.content", "message.content | upper"),
            SlowPath("template_not_traceable", "the template applies the filter upper to a text"),
        ),
        (
            Conversation(PLAIN),
            CHATML.replace("message.content", "message.content[:9]"),
            SlowPath("template_not_traceable", "the template takes a part of a text"),
        ),
        (Conversation([user("a loud a"), assistant("4")]), LOOKS_FOR_A_WORD, "a text contains 'ud'"),
        (
            Conversation([user("yes"), assistant("4")]),
            REFUSES,
            SlowPath("trace_failed", "template: the chat template refuses it: TemplateError: say yes"),
        ),
    ],
)
def test_slow_path_has_a_reason(conversation, template, expected):
    expected = SlowPath("guard_failed", expected) if isinstance(expected, str) else expected
    cache = cache_of(template)
    for _ in range(2):  # compiled, and found in the cache
        assert without_signature(cache.render_with_spans(conversation, "assistant")) == expected


def test_weights_that_print_differently_are_different_signatures():
    template = CHATML.replace("message.content +", "message.content + message.weight | string +")
    cache = cache_of(template)
    for weight in (1, 1.0, True):
        messages = [user("2+2?") | {"weight": weight}, assistant("4", weight=weight)]
        expected = load_template(render_config(template)).render(Conversation(messages))
        assert without_signature(cache.render_with_spans(Conversation(messages), "all"))[0] == expected


def test_template_arguments_that_print_differently_are_different_signatures():
    template = load_template(render_config(CHATML + "{{- style -}}{{- {'a': 1, 'b': style} | tojson -}}"))
    cache = TraceCache(template)
    cache.begin_batch(1000)
    values = (1, 1.0, True, "1", None, [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0}, "\U00100000", "")
    for style in values:
        conversation = Conversation(PLAIN, template_kwargs={"style": style})
        found = without_signature(cache.render_with_spans(conversation, "assistant"))
        expected = template.render(conversation)
        assert isinstance(found, SlowPath) if style == "\U00100000" else found[0] == expected
