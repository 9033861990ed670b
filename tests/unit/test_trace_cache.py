"""The trace cache: why a conversation takes the slow path, and that this depends on its batch alone."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.chats import assistant, render_config, user, without_signature
from support.templates import CHATML
from transforms import Conversation
from transforms.chat.rendering.omissions import omissions_of
from transforms.chat.rendering.template import load_template
from transforms.chat.traced import trace_cache
from transforms.chat.traced.compiled import SlowPath, TemplateCompiler
from transforms.chat.traced.signatures import Signature, signature_of
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


def paths(cache: TraceCache, lengths: list[int]) -> list[str]:
    """Return for each conversation of a batch why it takes the slow path, or that it takes the fast path."""
    cache.begin_batch(len(lengths))
    found = [without_signature(cache.render_with_spans(conversation_of(length), "assistant")) for length in lengths]
    return [one.reason if isinstance(one, SlowPath) else "fast" for one in found]


def test_fast_path_does_not_depend_on_earlier_batches(monkeypatch):
    """Which batches a worker has seen differs from run to run, and the counts of reasons must not."""
    monkeypatch.setattr(trace_cache, "_FEW_SIGNATURES", 3)
    monkeypatch.setattr(trace_cache, "_KEPT", 3)
    batches = [[1, 2, 1], [4, 3, 2, 1, 4, 1], [5, 6], [1, 2, 3, 4, 5, 3], []]
    expected = [paths(cache_of(), lengths) for lengths in batches]
    slow = "not_followed"
    assert expected[1] == ["fast", "fast", "fast", slow, "fast", slow]
    assert expected[3] == ["fast", "fast", "fast", slow, slow, "fast"]
    for order in itertools.permutations(range(len(batches))):
        cache = cache_of()
        assert [paths(cache, batches[number]) for number in order] == [expected[number] for number in order]


def test_signatures_are_compiled_once_until_the_cache_is_large(monkeypatch):
    monkeypatch.setattr(trace_cache, "_FEW_SIGNATURES", 3)
    monkeypatch.setattr(trace_cache, "_KEPT", 3)
    compiled = []
    compile_one = TemplateCompiler.compile

    def compile_and_record(self: TemplateCompiler, conversation: Conversation, target: Any, cut: Any) -> Any:
        compiled.append(len(conversation.messages))
        return compile_one(self, conversation, target, cut)

    monkeypatch.setattr(TemplateCompiler, "compile", compile_and_record)
    cache = cache_of()
    for lengths, expected in (
        ([1, 2, 1], [1, 2]),
        ([2, 1, 3], [3]),
        ([4, 3], [4]),  # the cache holds four signatures, of which the next batch keeps the two of this one
        ([1, 3, 4], [1]),
    ):
        compiled.clear()
        paths(cache, lengths)
        assert compiled == expected


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


def test_text_that_the_first_signature_does_not_allow_is_cut_at_the_markers_of_the_template():
    drops = CHATML.replace("message.content +", "message.content.split('</think>')[-1].lstrip('\\n') +")
    template = load_template(render_config(drops))
    cache = TraceCache(template)
    for text in ("4", "<think>2+2</think>4", "<think>\nSo.\n</think>\n\n4", "</think></think>", "a</think>b</think>c "):
        conversation = Conversation([user("2+2?"), assistant(text)])
        found = without_signature(cache.render_with_spans(conversation, "assistant"))
        assert not isinstance(found, SlowPath)
        assert found[0] == template.render(conversation)
        assert found[2] == omissions_of(template.rendering(conversation))


TEXTS = st.sampled_from(["a", "b c ", " ", ""])
PARTS = st.builds(
    lambda text, is_reversed: dict([("type", "text"), ("text", text)][:: -1 if is_reversed else 1]),
    TEXTS,
    st.booleans(),
)
CONTENTS = st.one_of(TEXTS, st.lists(PARTS, max_size=2))
MESSAGES = st.builds(
    lambda role, content, others: {"role": role, "content": content, **others},
    st.sampled_from(["user", "assistant"]),
    CONTENTS,
    st.sampled_from([{}, {}, {"name": "a"}, {"name": "b"}]),
)
ARGUMENTS = st.sampled_from([{}, {"x": 1}, {"x": True}, {"x": 1.0}, {"x": 1, "y": "a"}, {"y": "a", "x": 1}])
CONVERSATIONS = st.builds(
    lambda messages, arguments: Conversation(messages, template_kwargs=arguments),
    st.lists(MESSAGES, min_size=1, max_size=2),
    ARGUMENTS,
)


def without_texts(value: Any) -> Any:
    """What a template may distinguish of messages: all but the texts, and of these whether they are blank."""
    if isinstance(value, list):
        return [without_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("role", "type") else without_texts(item) for key, item in value.items()}
    return "text" if value.strip() else value


PART = {"type": "text", "text": "a"}


@example([Conversation([user([PART, PART]), assistant([])]), Conversation([user([PART]), assistant([PART])])])
@given(st.lists(CONVERSATIONS, min_size=8, max_size=16))
def test_conversations_have_the_same_signature_if_they_differ_in_their_texts_alone(conversations):
    for one, other in itertools.combinations(conversations, 2):
        signatures = [signature_of(conversation) for conversation in (one, other)]
        assert all(isinstance(signature, Signature) for signature in signatures)
        alike = [
            repr((without_texts(conversation.messages), conversation.template_kwargs)) for conversation in (one, other)
        ]
        assert (signatures[0].key == signatures[1].key) == (alike[0] == alike[1])
