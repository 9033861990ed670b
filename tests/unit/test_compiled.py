"""Compiled templates give the same text and mask as the reference, or the reason why they cannot."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from support.chats import assistant, user, without_signature
from support.paths import TOKENIZER
from support.templates import (
    CHATML,
    DROPS_REASONING,
    GIVEN,
    MARKED,
    OPENS_REASONING,
    templates_of_models,
    templates_of_trl,
)
from transforms import Conversation
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.traced.compiled import SlowPath
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.trace_cache import TraceCache
from transforms.chat.traced.tracer import NotTraceable, sentinel, traced_text
from transforms.tokens.tokenizer import load_tokenizer


def template_of(source: str, arguments: dict[str, Any] | None = None) -> ChatTemplate:
    return ChatTemplate(load_tokenizer(str(TOKENIZER)), source, arguments, datetime(2024, 7, 26))


def cache_of(template: ChatTemplate) -> TraceCache:
    """Return a cache in a batch that is so large that all signatures are compiled."""
    cache = TraceCache(template)
    cache.begin_batch(1_000_000)
    return cache


def is_compiled(found: Any) -> bool:
    return not isinstance(found, SlowPath)


OPENS_AND_TRIMS = OPENS_REASONING.replace("message.content +", "message.content | trim +")


PLAIN = [
    [user("2+2?"), assistant("4")],
    [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")],
    [{"role": "system", "content": "Be brief."}, user("Grüße"), assistant("水車"), user("x\n\ny"), assistant("{z}")],
]
OWN = {"chatml": CHATML, "marked": MARKED, "drops reasoning": DROPS_REASONING, "opens reasoning": OPENS_REASONING}


@pytest.mark.parametrize("name", [*OWN, *templates_of_models()])
def test_plain_conversations_are_all_rendered_by_compiled_templates(name):
    template = template_of(OWN[name]) if name in OWN else template_of(templates_of_models()[name], GIVEN)
    cache = cache_of(template)
    found = [without_signature(cache.render_with_spans(Conversation(messages), "assistant")) for messages in PLAIN]
    assert all(map(is_compiled, found)), found


@pytest.mark.slow
def test_plain_conversations_under_the_templates_of_trl_are_rendered_by_compiled_templates():
    slow = {}
    for name, source in templates_of_trl().items():
        template = template_of(source, {"bos_token": "<s>", "eos_token": "</s>"})
        found = [
            without_signature(cache_of(template).render_with_spans(Conversation(messages), "assistant"))
            for messages in PLAIN
        ]
        # Some templates refuse a system message.
        slow[name] = [one for one in found if isinstance(one, SlowPath) and one.reason != "trace_failed"]
    assert [name for name, reasons in slow.items() if reasons] == []


@pytest.mark.parametrize("name", sorted({name for name in dir(str) if not name.startswith("__")}))
def test_each_method_of_a_text_is_traced_or_refused(name):
    """It raises NotTraceable, or records a guard under which it gives the same result for any other text."""
    text = traced_text(sentinel(0), Guards())
    arguments = {"replace": ("q", "r"), "maketrans": ({},)}.get(name, ("q",))
    try:
        getattr(text, name)(*arguments)
    except (NotTraceable, TypeError):
        return
    assert text.guards.absent == {"q"} or text.guards.trimmed or name == "lower"  # which is followed when it is read


def test_answer_that_begins_like_the_generation_prompt_is_rendered_by_the_reference():
    template = template_of(OPENS_AND_TRIMS)
    cache = cache_of(template)
    for content, expected in (("plain", True), (" <think>", False), ("<think>", False), ("\n<think>x", False)):
        found = without_signature(
            cache.render_with_spans(Conversation([user("2+2?"), assistant(content)]), "assistant")
        )
        assert is_compiled(found) == expected
        if isinstance(found, SlowPath):
            assert found == SlowPath("guard_failed", "a text begins like '<think>'")
