"""Compiled templates give the same text and mask as the reference, or the reason why they cannot."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import assistant, user, without_signature
from support.paths import CHATS, TOKENIZER
from support.templates import (
    CHATML,
    DROPS_REASONING,
    GIVEN,
    MARKED,
    OPENS_REASONING,
    cases_of,
    masked,
    templates_of_models,
    templates_of_trl,
)
from transforms import Conversation, RecordError
from transforms.chat.rendering.omissions import omissions_of
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import SlowPath
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.trace_cache import TraceCache
from transforms.chat.traced.tracer import NotTraceable, sentinel, traced_text
from transforms.inputs.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.inputs.schemas import content_of
from transforms.tokens.tokenizer import load_tokenizer

GENERATION_PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"


def template_of(source: str, arguments: dict[str, Any] | None = None) -> ChatTemplate:
    return ChatTemplate(load_tokenizer(str(TOKENIZER)), source, arguments, datetime(2024, 7, 26))


def looping(body: str) -> str:
    """Return a template that prints this for each message."""
    return "{%- for message in messages -%}" + body + "{%- endfor -%}" + GENERATION_PROMPT


def cache_of(template: ChatTemplate) -> TraceCache:
    """Return a cache in a batch that is so large that all signatures are compiled."""
    cache = TraceCache(template)
    cache.begin_batch(1_000_000)
    return cache


def is_compiled(found: Any) -> bool:
    return not isinstance(found, SlowPath)


OPENS_AND_TRIMS = OPENS_REASONING.replace("message.content +", "message.content | trim +")

# What a template does to a text: whether the tracer follows it or not.
TRACEABLE = [
    "{{- message.role + ': ' + message.content -}}",
    "{{- message['role'] ~ ': ' ~ message['content'] | trim ~ '\\n' -}}",
    "{%- set text = message.role + ': ' + message.content + '\\n' -%}{{- text -}}",
    "{%- set text -%}{{- message.content | trim -}}{%- endset -%}{{- message.role -}}: {{ text }}\n",
    "{%- macro said(m) -%}{{- m.content -}}{%- endmacro -%}{{- message.role + ': ' + said(message) | trim + '\\n' -}}",
    "{%- if message.content -%}{{- message.role + ': ' + message.content.strip() -}}{%- endif -%}\n",
    "{%- if '</think>' in message.content -%}{{- message.role + ': ' + message.content.split('</think>')[-1] -}}"
    "{%- else -%}{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content is string -%}{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content is iterable and message.content is not mapping -%}"
    "{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content == 'x' -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content.startswith('<tool') -%}!{%- endif -%}{{- message.role + message.content.lstrip() -}}",
    "{{- message.role + ': ' + message.content.replace('<', '(') -}}",
    "{{- message.role + ': ' + message.content | replace('<', '(') -}}",
    "{%- if message.role in ['user', 'x'] and message.content not in ['x', 'y'] -%}!{%- endif -%}"
    "{{- message.content -}}",
    "{%- set text = message.role + message.content -%}{%- if 'ra' in text -%}!{%- endif -%}{{- text -}}",
    "{%- set text -%}{{- message.content -}}!{%- endset -%}{%- if 'a!' in text -%}?{%- endif -%}{{- text -}}",
    "{%- macro said(m) -%}{{- m.content -}}!{%- endmacro -%}"
    "{%- if said(message) == 'a!' -%}?{%- endif -%}{{- said(message) -}}",
    "{%- if (message.content ~ '!') == 'a!' -%}?{%- endif -%}{{- message.content -}}",
    "{%- if message.content == '' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content | trim | length > 0 -%}{{- message.content -}}{%- endif -%}.",
    "{%- if message.content | length == 0 or not message.content | length >= 1 -%}!{%- endif -%}"
    "{{- message.content -}}",
    "{%- if 'ra' not in message.content | lower and message.role | lower == 'user' -%}!{%- endif -%}"
    "{{- message.content -}}",
    "{%- if message.content | lower == 'a<b>' -%}!{%- endif -%}{{- message.content -}}",
    "{%- set text = '<think></think>' ~ message.content -%}{{- text.split('</think>')[-1] -}}"
    "{%- if '<think>' in text and '</think>' in text -%}!{%- endif -%}",
    "{%- set text = message.content -%}{%- if '</think>' in text -%}"
    "{{- text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') + '|' -}}"
    "{%- set text = text.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}{{- text.lstrip('\n') -}}",
    "{%- set before, tag, text = message.content.rpartition('</think>') -%}"
    "{{- before.removeprefix('<think>').strip() -}}|{{- tag -}}|{{- text.strip() -}}",
    "{{- message.content.partition('<think>') | first -}}|"
    "{{- (message.content + '<think>').partition('<think>')[2] -}}",
    "{{- message.content.rsplit('</think>', 1) | last -}}",
    "{%- set text = 'ab' ~ message.content -%}{{- text[1:] -}}{{- text[0] -}}{{- (message.content ~ 'xyz')[:-2] -}}",
    "{%- if ('<' + message.content).startswith('<think>') -%}!{%- endif -%}{{- message.content -}}",
    "{%- if (message.content + 'k>').endswith('</think>') -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'x/x' in message.content + '/' + message.content -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'xx' in message.content ~ message.content -%}!{%- endif -%}{{- message.content -}}",
    "{{- (message.content + '<tool>').replace('<tool', '[').removesuffix('[>') -}}",
    "{%- if message.content is string and message.content.startswith(('<think>', 'x')) -%}!{%- endif -%}"
    "{{- message.content -}}",
    "{%- if message.content == messages[loop.index0].content -%}{{- message.content -}}{%- endif -%}",
]
NOT_TRACEABLE = [
    "{{- message.role + ': ' + message.content | upper -}}",
    "{{- message.role + ': ' + message.content | tojson -}}",
    "{{- message | tojson -}}",
    "{{- message.role + ': ' + message.content[:3] -}}",
    "{%- if message.content | length > 3 -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content == messages[0].content -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content < 'n' -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{{- '%s: %s' % (message.role, message.content) -}}",
    "{{- '%s: %s' | format(message.role, message.content) -}}",
    "{{- [message.role, message.content] | join(': ') -}}",
    "{{- [message.content] -}}",
    "{%- for character in message.content -%}{{- character -}}.{%- endfor -%}",
    "{{- {'a': '!'}.get(message.content, '?') + message.content -}}",
    "{{- message.content.find('a') -}}{{- message.content -}}",
    "{{- message.content.strip('ab') -}}",
    "{{- 'abc'.replace('b', message.content) -}}",
    "{%- if message.content in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content not in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content is in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'ra,' in ','.join([message.content, 'x']) -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'xyz'.startswith(message.content) -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'abc' | replace(message.content, '') == 'bc' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if messages | selectattr('content', 'in', 'a x ra') | list -%}!{%- endif -%}{{- message.content -}}",
    "{{- message.content | lower -}}",
    "{{- message.content | length -}}{{- message.content -}}",
    "{%- if message.content | length is odd -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content | length is number -%}!{%- endif -%}{{- message.content -}}",
    "{%- set n = {(message.content | length): 'x'} -%}{{- message.content -}}",
    "{{- message.content[0] -}}{{- message.content -}}",
    "{{- ('x' + message.content)[2:] -}}",
    "{{- message.content.split() | first -}}",
    "{{- message.content.split('<think>' ~ message.content) | first -}}",
    "{%- for key in message -%}{{- key + ': ' + message[key] + '\\n' -}}{%- endfor -%}",
    "{%- if message | first == 'role' -%}!{%- endif -%}{{- message.content -}}",
]
TEXTS = [
    " <think>",
    "<think>\n",
    "a",
    "x",
    "ra",
    " a ",
    "\ta\n",
    "",
    " \n",
    "</think>b",
    "a</think>b",
    "<tool",
    "A<b>",
    "<think>\nS\n</think>\n\nx",
    "<think> S \n</think> ",
    "<think></think>\n",
    "<think>a</think>b<think>x</think>c",
    "think>a</thin",
    "</thin",
    "k></think>",
    "<",
    "/",
    "x/",
    "\u00a0a\u2003",
    "\x1c<think>\x85b</think>",
    "İra",
    "é🇨🇭",
    "\U00100000",
]


def dialogues() -> st.SearchStrategy[Conversation]:
    def made(texts: list[str], order: int) -> Conversation:
        messages = [(assistant if number % 2 else user)(text) for number, text in enumerate(texts)]
        return Conversation([dict([*message.items()][::order]) for message in messages])

    return st.builds(made, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.sampled_from([1, -1]))


@pytest.mark.parametrize("body", TRACEABLE + NOT_TRACEABLE)
def test_trace_cache_renders_the_same_text_as_the_reference(body):
    template = template_of(looping(body))
    cache = cache_of(template)

    @settings(max_examples=60)
    @given(dialogues())
    def law(conversation: Conversation) -> None:
        try:
            expected = template.render(conversation)
        except RecordError:
            return
        found = without_signature(cache.render_with_spans(conversation, "all"))
        assert isinstance(found, SlowPath) or found[0] == expected

    law()


READS_PARTS = (
    "{%- for part in message.content -%}{%- if part.type == 'text' -%}"
    "{{- part.text.split('</think>')[-1] -}}{%- endif -%}{%- endfor -%}"
)
READS_STRINGS = "{{- message.content.split('</think>')[-1] -}}"
READS_BOTH = (
    "{%- if message.content is string -%}" + READS_STRINGS + "{%- else -%}" + READS_PARTS + "{%- endif -%}{{- '.' -}}"
)


@pytest.mark.parametrize("body", [READS_PARTS, READS_STRINGS, READS_BOTH])
def test_contents_in_parts_are_rendered_as_by_the_reference(body):
    template = template_of(looping(body))
    cache = cache_of(template)
    parts = st.lists(st.sampled_from(TEXTS).map(lambda text: {"type": "text", "text": text}), max_size=3)

    @settings(max_examples=80)
    @given(st.lists(st.one_of(parts, st.sampled_from(TEXTS)), min_size=1, max_size=4))
    def law(contents: list[Any]) -> None:
        messages = [(assistant if number % 2 else user)(content) for number, content in enumerate(contents)]
        found = without_signature(cache.render_with_spans(Conversation(messages), "all"))
        assert isinstance(found, SlowPath) or found[0] == template.render(Conversation(messages))

    law()
    plain = Conversation([user([{"type": "text", "text": "a"}, {"text": "b", "type": "text"}]), assistant("c")])
    assert is_compiled(without_signature(cache.render_with_spans(plain, "all")))


@pytest.mark.parametrize(("body", "is_traceable"), [(b, True) for b in TRACEABLE] + [(b, False) for b in NOT_TRACEABLE])
def test_template_is_compiled_if_it_can_be_traced(body, is_traceable):
    conversation = Conversation([user("plain"), assistant("also")])
    found = without_signature(TraceCache(template_of(looping(body))).render_with_spans(conversation, "all"))
    assert is_compiled(found) == is_traceable
    if isinstance(found, SlowPath):
        assert found.reason == "template_not_traceable"
        assert found.detail.startswith("the template ")


@pytest.mark.parametrize("template", [CHATML, MARKED, DROPS_REASONING, OPENS_REASONING, OPENS_AND_TRIMS])
@pytest.mark.parametrize("loss_on", ["assistant", "last_assistant"])
def test_masks_equal_the_reference(template, loss_on):
    known = template_of(template)
    cache, turns = cache_of(known), TurnFinder(known)

    @settings(max_examples=80)
    @given(dialogues(), st.data())
    def law(conversation: Conversation, data) -> None:
        for message in conversation.messages:
            if message["role"] == "assistant":
                message |= data.draw(st.sampled_from([{}, {"weight": 0}, {"reasoning_content": "So."}, {"weight": 1}]))
        found = without_signature(cache.render_with_spans(conversation, loss_on))
        if is_compiled(found):
            rendering = known.rendering(conversation)
            assert found[:2] == (rendering.text, turns.trained_spans(rendering, loss_on))
            assert found[2] == omissions_of(rendering)

    law()


def test_completion_begins_at_the_same_position_as_in_the_reference():
    template = template_of(CHATML)
    conversation = Conversation([user("2+2?"), assistant("4"), user("3+3?"), assistant("6")], completion_start=3)
    text, spans = masked(template, conversation, "completion")
    assert without_signature(cache_of(template).render_with_spans(conversation, "completion"))[:2] == (text, spans)
    assert text[: spans[0][0]] == template.render(conversation.with_messages(conversation.messages[:3]), True)


@pytest.mark.parametrize("text", ["r", "r  ", " r", "\nr\n"])
@pytest.mark.parametrize("loss_on", ["completion", "assistant"])
def test_text_that_is_stripped_in_the_prompt_alone_is_not_taken_for_the_same(text, loss_on):
    """The last message is stripped, so that the prompt of an answer is no prefix of its text."""
    template = template_of(
        "{%- for m in messages -%}{{- '<' + m.role + '>' + (m.content | trim if loop.last else m.content) -}}"
        "{%- endfor -%}"
    )
    conversation = Conversation([user(text), assistant("a b")], completion_start=1)
    found = without_signature(cache_of(template).render_with_spans(conversation, loss_on))
    try:
        expected = masked(template, conversation, loss_on)
    except RecordError:
        assert isinstance(found, SlowPath)
    else:
        assert isinstance(found, SlowPath) or found[:2] == expected


def test_masks_of_the_example_corpus_equal_the_reference():
    template = template_of((TOKENIZER / "chat_template.jinja").read_text())
    cache, turns = cache_of(template), TurnFinder(template)
    known = 0
    for line in (CHATS / "support.jsonl").read_bytes().splitlines()[:50]:
        _, content = content_of(json.loads(line), "messages", Reading(ReadOptions(ROLE_NAMES)))
        assert isinstance(content, Conversation)
        found = without_signature(cache.render_with_spans(content, "assistant"))
        known += is_compiled(found)
        assert not is_compiled(found) or found[:2] == masked(template, content, turns=turns)
    assert known > 10


def test_masks_under_real_templates_equal_the_reference():
    known = 0
    for case in cases_of("masks"):
        template = template_of(templates_of_models()[case["template"]], GIVEN)
        conversation = Conversation(case["record"]["messages"], case["record"].get("tools"))
        found = without_signature(cache_of(template).render_with_spans(conversation, "assistant"))
        if is_compiled(found):
            assert found[:2] == masked(template, conversation)
            known += 1
    assert known > 70


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
