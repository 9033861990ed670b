"""What a template does not print is found, under real templates and generated conversations, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.cases import REASONING, Marked, framed, words_in
from support.chats import assistant, examples_of, render_config, user, without_signature
from support.engines import of_any_engine
from support.paths import TOKENIZER
from support.templates import CHATML, MARKED, PRINTS, odd_templates, templates_of_models
from transforms import Conversation, RecordError
from transforms.chat.rendering.omissions import NO_OMISSIONS, Omissions, omissions_of
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.traced.compiled import SlowPath
from transforms.chat.traced.trace_cache import TraceCache
from transforms.model.batches import Texts
from transforms.steps.render import Renderer
from transforms.tokens.tokenizer import load_tokenizer

LOSSES = ("assistant", "last_assistant", "all")


REMEMBERS = {name: source for name, source in odd_templates().items() if name.startswith("own_remember")}
REAL = {**templates_of_models(), **REMEMBERS}


def template_of(source: str) -> ChatTemplate:
    arguments = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(load_tokenizer(str(TOKENIZER)), source, arguments, datetime(2024, 7, 26))


ORDINALS = ("first", "second")


def pieces(made: Marked, shown: set[str]) -> Iterator[tuple[str, set[str]]]:
    """The name of each content, call, argument and tool in their order, with its words; of parts, if one is shown."""
    for number, message in enumerate(made.messages):
        content, of = message["content"], f"messages[{number}]"
        if isinstance(content, list) and len(content) > 1 and words_in(content) & shown:
            for ordinal, part in zip(ORDINALS, content, strict=True):
                if words_in(part):
                    yield f"the {ordinal} part of {of} ({message['role']})", words_in(part)
        elif words_in(content):
            yield f"the content of {of} ({message['role']})", words_in(content)
        calls = message.get("tool_calls", ())
        for ordinal, call in zip(ORDINALS, calls, strict=False):
            name, function = f"the {f'{ordinal} ' * (len(calls) > 1)}tool call of {of}", call["function"]
            yield name, words_in(function["name"])
            for key, value in function["arguments"].items():
                yield f"the argument {key} of {name}", words_in(key) | words_in(value)
    for ordinal, tool in zip(ORDINALS, made.tools or (), strict=False):
        yield f"the {ordinal} tool", words_in(tool["function"]["name"])


def absent(made: Marked, text: str) -> Omissions:
    """Return what is not in a text, found by a search for the words."""
    shown = words_in(text)
    missing = [name for name, words in pieces(made, shown) if not words & shown]
    tools = [name for name in missing if name.endswith(" tool")]
    if tools and len(tools) == len(made.tools or ()):
        missing[-len(tools) :] = ["the tools"]
    for call in [name for name in missing if "tool call" in name and not name.startswith("the argument")]:
        missing = [name for name in missing if not name.endswith(f"of {call}")]
    reasoning = [
        f"the {key} of messages[{number}]"
        for number, message in enumerate(made.messages)
        for key in message.keys() & {*REASONING}
        if not words_in(message[key]) & shown
    ]
    answers = [number for number, message in enumerate(made.messages) if message["role"] != "tool"]
    of_last = any(name.endswith(f"[{answers[-1]}]") for name in reasoning)
    return Omissions(tuple(missing), tuple(reasoning), of_last)


@pytest.mark.parametrize("name", [*PRINTS, *REAL])
def test_what_is_found_is_what_a_search_for_unique_words_finds(name):
    template = template_of(PRINTS.get(name) or REAL[name])
    cache, compared, traced = TraceCache(template), 0, 0
    for seed in range(60):
        made = framed(seed)
        conversation = Conversation(made.messages, made.tools)
        if name == "looks_for_it" and any(isinstance(message["content"], list) for message in made.messages):
            continue  # it reads strings only, so that parts are one content
        try:
            text = template.render(conversation)
        except RecordError:  # roles that the template refuses
            continue
        expected = absent(made, text)
        assert omissions_of(template.rendering(conversation)) == expected, (seed, text)
        cache.begin_batch(1)
        found = without_signature(cache.render_with_spans(conversation, "all"))
        if not isinstance(found, SlowPath):
            assert found[2] == expected, (seed, text)
            traced += 1
        compared += 1
    assert compared >= 4
    assert traced or name not in ("chatml", "marked", "drops_reasoning", "llama3")


def rendered(messages: list[dict[str, Any]], template: str, **options: Any) -> Texts:
    """Render messages with both engines, which must agree."""
    configs = [render_config(template, engine=engine, **options) for engine in ("auto", "reference")]
    auto, reference = (Renderer(config)(examples_of(messages)) for config in configs)
    assert of_any_engine(auto) == of_any_engine(reference)
    return auto


@pytest.mark.parametrize("loss_on", LOSSES)
@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["without_markers", "with_markers"])
def test_record_of_which_a_content_is_not_printed_is_rejected_or_counted(loss_on: str, template: str):
    hides_tools = template.replace(
        "for message in messages -%}", "for message in messages if message.role != 'tool' -%}"
    )
    messages = [user("Hi"), assistant("One moment."), {"role": "tool", "content": "seen"}, assistant("Done.")]
    reported = rendered(messages, hides_tools, unprinted="report", loss_on=loss_on)
    found = "the chat template does not print the content of messages[2] (tool)"
    assert (reported.outcomes.notes, reported.outcomes.first_examples["not_printed"]) == (
        {"not_printed": 1},
        (0, found),
    )
    rejected = rendered(messages, hides_tools, loss_on=loss_on)
    assert [(reject.reason, reject.detail.startswith(found)) for reject in rejected.outcomes.rejects] == [
        ("not_printed", True)
    ]
    assert not rejected.texts
    assert not rejected.outcomes.notes


def test_reasoning_that_is_not_printed_is_counted_and_never_rejects():
    messages = [user("1?"), assistant("1", reasoning_content="I count."), user("2?"), assistant("2", thinking="On.")]
    outcomes = rendered(messages, CHATML).outcomes
    assert outcomes.notes == {"reasoning_not_printed": 1, "last_reasoning_not_printed": 1}
    found = "the chat template does not print the reasoning_content of messages[1] and the thinking of messages[3]"
    assert outcomes.first_examples["reasoning_not_printed"] == (0, found)


def test_reasoning_that_is_printed_from_another_key_of_its_message_is_printed():
    template = CHATML.replace("message.content +", "(message.reasoning_content or '') + message.content +")
    same = [user("1?"), assistant("1", reasoning_content="I count.", reasoning="I count.")]
    assert not rendered(same, template).outcomes.notes
    other = [user("1?"), assistant("1", reasoning_content="I count.", reasoning="I guess.")]
    assert rendered(other, template).outcomes.notes["reasoning_not_printed"] == 1


UNREAD = [user("2+2?"), assistant("4", reasoning_content="A sum.")]
LATER = [user("And 3+3?"), assistant("6")]
CALL = assistant("", tool_calls=[{"type": "function", "function": {"name": "add", "arguments": {}}}], thinking="A sum.")


@pytest.mark.parametrize(
    ("name", "messages", "lost", "of_last"),
    [
        ("gptoss", UNREAD, 0, 0),  # it reads `thinking`, where transformers copies it
        ("gptoss", [*UNREAD, *LATER], 1, 0),
        ("gptoss", [user("2+2?"), assistant("4", thinking="A sum.")], 0, 0),
        ("gptoss", [user("2+2?"), CALL, {"role": "tool", "content": "4"}], 0, 0),
        ("gptoss", [user("2+2?"), CALL, {"role": "tool", "content": "4"}, assistant("4")], 1, 0),
        ("qwen3", UNREAD, 0, 0),
        ("qwen3", [*UNREAD, *LATER], 1, 0),
        ("deepseek_r1_distill", [user("2+2?"), assistant("<think>A sum.</think>4")], 1, 1),
    ],
)
def test_reasoning_of_the_last_answer_is_told_apart_from_that_of_earlier_turns(name, messages, lost, of_last):
    notes = rendered(messages, REAL[name], now="2026-11-20T12:00:00").outcomes.notes
    assert notes.get("reasoning_not_printed", 0) == lost
    assert notes.get("last_reasoning_not_printed", 0) == of_last


CUTS = CHATML.replace("message.content", "message.content.split('</think>')[-1].split('|')[0].replace('<b>', '')")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hello", NO_OMISSIONS),
        ("  Hello\n", NO_OMISSIONS),
        ("a <b> c", Omissions(("a part of the content of messages[0] (assistant)",))),
        ("|", Omissions(("the content of messages[0] (assistant)",))),
        (" \n", NO_OMISSIONS),
        ("<think>So.</think>Hello", Omissions((), ("the reasoning in the content of messages[0] (assistant)",), True)),
        ("<think>So.</think>\n", Omissions((), ("the reasoning in the content of messages[0] (assistant)",), True)),
        ("Hello | there", Omissions(("a part of the content of messages[0] (assistant)",))),
        ("<think>So.</think>Hello | there", Omissions(("a part of the content of messages[0] (assistant)",))),
    ],
)
def test_content_of_which_only_a_part_is_printed(content: str, expected: Omissions):
    template, conversation = template_of(CUTS), Conversation([assistant(content)])
    assert omissions_of(template.rendering(conversation)) == expected


PRINTS_ONE = CHATML.replace("message.content", "message.content.replace(gone, '')")
THOUGHTS = [
    "<think>So.</think>",
    "So.</think>",
    "<think>So.</think>\n<think>And so.</think> ",
    "<think>It says </think> and goes on.</think>",
    "<think>It says <think> and goes on.</think>",
    "[THINK]So.[/THINK]",
    "<seed:think>So.</seed:think>",
    "<|channel>thought\nSo.<channel|>",
    "<think>So.</think><answer>",
]
TEXT = [
    "<p>the river</p>",
    "<p>",
    "So.</p>",
    "<think>",
    "<think>So.</think>And: ",
    "So.<think>And so.</think>",
    "[INST]So.[/INST]",
]


@pytest.mark.parametrize(
    ("role", "content", "gone", "expected"),
    [("assistant", f"{gone}Hello", gone, "reasoning_not_printed") for gone in THOUGHTS]
    + [("assistant", f"Hello{gone}", gone, "reasoning_not_printed") for gone in ("<think>So.", THOUGHTS[0])]
    + [("assistant", "<think>So.</think>Hello", tag, None) for tag in ("<think>", "</think>")]
    + [("assistant", f"{gone}Hello", gone, "not_printed") for gone in TEXT if gone != "<think>"]
    + [("assistant", f"Hello{gone}", gone, "not_printed") for gone in TEXT if gone != "<think>"]
    + [("assistant", "Hello So.</think>", "So.</think>", "not_printed")]
    + [("assistant", "<think>So it is.</think>Hello", "<think>So", "not_printed")]
    + [("user", f"{gone}Hello", gone, "not_printed") for gone in (*THOUGHTS, *TEXT)],
)
def test_only_reasoning_of_the_assistant_may_be_left_out(role, content, gone, expected):
    messages = [user("Hi"), assistant("Hello")]
    messages[role == "assistant"]["content"] = content
    kwargs = {"chat_template_kwargs": {"gone": gone}, "unprinted": "report", "special_tokens_in_content": "allow"}
    notes = rendered(messages, PRINTS_ONE, **kwargs).outcomes.notes
    assert {name for name in notes if name.endswith("_printed")} - {"last_reasoning_not_printed"} == {expected} - {None}


@pytest.mark.parametrize("cut", ["message.content[:20]", "message.content.split('<p>')[0]"])
def test_content_that_is_cut_before_a_tag_is_not_reasoning(cut: str):
    page = "Summarise this page: <p>the river rises in June</p>"
    for messages in ([user(page), assistant("It rises.")], [user("Which?"), assistant(page)]):
        rejects = rendered(messages, CHATML.replace("message.content", cut)).outcomes.rejects
        assert [reject.reason for reject in rejects] == ["not_printed"]


ONLY_PARTS = CHATML.replace(
    "message.content", "(message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join)"
)
REFUSES_STRINGS = CHATML.replace("message.content", "message.content[0].text")
BOTH = CHATML.replace(
    "message.content",
    "(message.content if message.content is string else message.content | map(attribute='text') | join)",
)
SYSTEM_STRINGS = CHATML.replace(
    "message.content", "(message.content if message.role == 'system' else message.content[0].text)"
)
PRINTS_LISTS = CHATML.replace("message.content", "message.content | string")


def as_parts(message: dict[str, Any], *texts: str) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": text} for text in texts or (message["content"],)]}


@pytest.mark.parametrize("template", [ONLY_PARTS, REFUSES_STRINGS, BOTH, SYSTEM_STRINGS, PRINTS_LISTS, CHATML])
def test_strings_and_parts_print_the_same_whichever_of_them_the_template_reads(template: str):
    messages = [{"role": "system", "content": "Be kind."}, user("Hi"), assistant("Hello")]
    expected = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    for given in (messages, [*map(as_parts, messages)], [messages[0], as_parts(messages[1]), messages[2]]):
        texts = rendered(given, template)
        assert [(text.text, text.spans) for text in texts.texts] == [(expected, [(len(expected) - 16, len(expected))])]


@pytest.mark.parametrize(
    ("template", "joined"), [(ONLY_PARTS, "ab"), (BOTH, "ab"), (CHATML, "a\nb"), (PRINTS_LISTS, "a\nb")]
)
def test_several_parts_are_joined_as_the_template_prints_them_or_with_line_breaks(template: str, joined: str):
    texts = rendered([as_parts(user(""), "a", "b"), assistant("Hello")], template)
    assert texts.texts[0].text.startswith(f"<|im_start|>user\n{joined}<|im_end|>")


def test_template_that_reads_the_first_part_only_does_not_print_the_others():
    texts = rendered([as_parts(user(""), "a", "b"), assistant("Hello")], REFUSES_STRINGS)
    assert [reject.detail.partition(";")[0] for reject in texts.outcomes.rejects] == [
        "the chat template does not print the second part of messages[0] (user)"
    ]


def test_strings_under_a_template_that_reads_parts_only_are_rendered_by_a_compiled_template():
    found = without_signature(
        TraceCache(template_of(REFUSES_STRINGS)).render_with_spans(
            Conversation([user("Hi"), assistant("Hello")]), "all"
        )
    )
    assert not isinstance(found, SlowPath)


# Strings of tools as JSON, and parts of them as they are.
TOOLS_AS_JSON = """
{%- for m in messages -%}
    {{- '<' + m.role + '>' -}}
    {%- if m.content is not string -%}{%- for part in m.content -%}{{- part.text -}}{%- endfor -%}
    {%- elif m.role == 'tool' -%}{{- m.content | tojson -}}
    {%- else -%}{{- m.content -}}{%- endif -%}
{%- endfor -%}
"""


def test_a_string_that_is_printed_in_another_form_is_given_as_a_string():
    messages = [user("2+2?"), CALL, {"role": "tool", "content": "4\n"}, assistant("4")]
    texts = rendered(messages, TOOLS_AS_JSON, unprinted="report")
    assert [text.text for text in texts.texts] == ['<user>2+2?<assistant><tool>"4\\n"<assistant>4']


JOINS_AND_WRITES_JSON = CHATML.replace(
    "message.content",
    "((message.content if message.content is string else message.content | map(attribute='text') | join) | tojson)",
)


def test_parts_that_are_printed_as_strings_are_in_another_form_are_given_as_parts():
    texts = rendered([as_parts(user(""), "a", "b"), assistant("4")], JOINS_AND_WRITES_JSON)
    assert [text.text.count('"ab"') for text in texts.texts] == [1]


def test_parts_are_one_string_if_the_template_prints_a_list_as_such():
    writes_json = CHATML.replace("message.content", "(message.content | tojson)")
    texts = rendered([as_parts(user(""), "a", "b"), assistant("4")], writes_json)
    assert [text.text.count('"a\\nb"') for text in texts.texts] == [1]


def test_parts_are_given_as_parts_if_their_text_alone_is_printed_in_whatever_form():
    writes_json_of_json = JOINS_AND_WRITES_JSON.replace("message.content if", "message.content | tojson if")
    texts = rendered([as_parts(user(""), "a", "b"), assistant("4")], writes_json_of_json)
    assert [text.text.count('"ab"') for text in texts.texts] == [1]


def test_a_text_that_is_cut_after_it_was_made_of_a_content_is_a_part_of_that():
    cuts_json = CHATML.replace("message.content", "(message.content | tojson).split('</think>')[-1]")
    kept, cut = ([user(content), assistant("4")] for content in ("What is 2+2?", "What </think> is 2+2?"))
    assert len(rendered(kept, cuts_json).texts) == 1
    rejects = rendered(cut, cuts_json).outcomes.rejects
    assert [reject.reason for reject in rejects] == ["not_printed"]
