"""`render` needs no Beam, and its segments say what each piece of a text is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from support.cases import framed
from support.chats import assistant, user
from support.models import DEEPSEEK
from support.paths import ROOT, TOKENIZER
from support.templates import CHATML, MARKED, model_templates, read_template
from transforms import RecordError, RenderedExample, render

FOLDER = str(TOKENIZER)
MESSAGES = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]
NOW = "2026-11-20T12:00:00"


def test_rendering_does_not_import_beam():
    program = (
        "import sys; from transforms import render; "
        f"made = render({MESSAGES!r}, tokenizer={FOLDER!r}, chat_template={CHATML!r}); "
        "print('apache_beam' in sys.modules, len(made.input_ids))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split()[0] == "False" and int(done.stdout.split()[1]) > 10


def test_tokenizer_that_is_loaded_gives_the_same_as_its_folder():
    loaded = AutoTokenizer.from_pretrained(FOLDER)
    assert render(MESSAGES, tokenizer=loaded, chat_template=CHATML) == render(
        MESSAGES, tokenizer=FOLDER, chat_template=CHATML
    )
    loaded.chat_template = CHATML
    assert render(MESSAGES, tokenizer=loaded).text == render(MESSAGES, tokenizer=FOLDER, chat_template=CHATML).text
    loaded.chat_template = CHATML.replace("im_end", "end")
    assert "<|end|>" in render(MESSAGES, tokenizer=loaded).text


def test_template_is_given_its_arguments_and_the_moment():
    template = "{{ strftime_now('%Y') }}{{ tone }}" + CHATML
    given = {"tokenizer": FOLDER, "chat_template": template, "now": NOW}
    assert render(MESSAGES, chat_template_kwargs={"tone": "!"}, **given).text.startswith("2026!<|im_start|>")
    assert render(MESSAGES, **given).text.startswith("2026<|im_start|>")


# Segments.


def pieces(made: RenderedExample, message: int) -> list[tuple[str | None, str]]:
    """The kinds and the texts of the segments of a message."""
    return [(one.kind, made.text[one.start : one.stop]) for one in made.segments if one.message == message]


def test_segments_say_what_each_piece_is():
    made = render(MESSAGES[:2], tokenizer=FOLDER, chat_template=CHATML)
    assert pieces(made, 0) == [(None, "<|im_start|>user\n"), ("content", "2+2?"), (None, "<|im_end|>\n")]
    answer = [("header", "<|im_start|>assistant\n"), ("content", "4"), ("end", "<|im_end|>"), ("after_end", "\n")]
    assert pieces(made, 1) == answer
    marked = render(MESSAGES[:2], tokenizer=FOLDER, chat_template=MARKED)
    assert pieces(marked, 1) == answer
    other_prompt = MARKED.replace("'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>bot\\n' -}}{%- endif")
    marked = render(MESSAGES[:2], tokenizer=FOLDER, chat_template=other_prompt)
    assert other_prompt != MARKED and pieces(marked, 1) == [(None, "<|im_start|>assistant\n"), *answer[1:]]


THINKS = read_template("reasoning_and_calls")
LOOK = {"type": "function", "function": {"name": "look", "arguments": {"at": "Thun"}}}
CALL = '\n<call>look{"at": "Thun"}</call>'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (assistant("4", reasoning_content="So."), [("reasoning", "<think>\nSo.\n</think>\n\n"), ("content", "4")]),
        (assistant("4", empty=True), [("reasoning", "<think>\n\n</think>\n\n"), ("content", "4")]),
        (assistant("<think>So.</think>\n4"), [("reasoning", "<think>So.</think>\n"), ("content", "4")]),
        (assistant("So.</think>4"), [("reasoning", "So.</think>"), ("content", "4")]),
        (assistant("Is <think> a tag?"), [(None, "Is <think> a tag?")]),
        (assistant("<think>So.</think>4</think>"), [(None, "<think>So.</think>4</think>")]),
        (assistant("4", tool_calls=[LOOK, LOOK]), [("content", "4"), ("tool_calls", CALL * 2)]),
        (assistant("", tool_calls=[LOOK]), [("tool_calls", CALL)]),
        (
            assistant("", reasoning_content="So.", tool_calls=[LOOK]),
            [("reasoning", "<think>\nSo.\n</think>\n\n"), ("tool_calls", CALL[1:])],
        ),
        (assistant("4 \n"), [("content", "4 \n")]),
        (assistant(""), []),
    ],
)
@pytest.mark.parametrize("after", [[], [user("Thanks.")]], ids=["last", "in history"])
def test_segments_within_a_turn_have_exact_kinds_or_none(message, expected, after):
    kwargs = {"tokenizer": FOLDER, "chat_template": THINKS, "unprinted": "report"}
    if expected and expected[-1] == ("tool_calls", CALL[1:]):
        expected = [("reasoning", "<think>\nSo.\n</think>\n\n\n"), ("tool_calls", CALL[1:])]
    made = render([user("2+2?"), message, *after], **kwargs)
    ends = [("end", "<|im_end|>"), ("after_end", "\n")]
    assert pieces(made, 1) == [("header", "<|im_start|>assistant\n"), *expected, *ends]


# It asks what it prints of the messages, and cuts it, before it prints it.
ASKS = read_template("asks_what_it_prints")


def test_template_that_asks_for_what_it_prints_of_messages_has_segments():
    made = render(MESSAGES[:2], tokenizer=FOLDER, chat_template=ASKS)
    assert made.text == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
    answer = [("header", "<|im_start|>assistant\n"), ("content", "4"), ("end", "<|im_end|>"), ("after_end", "\n")]
    assert pieces(made, 1) == answer


def test_text_that_is_another_one_where_it_is_followed_is_rejected():
    template = "{%- if messages[0].content is sameas 'x' -%}!{%- endif -%}" + CHATML
    with pytest.raises(RecordError, match="the template prints another text while it is followed"):
        render([user("x"), assistant("4")], tokenizer=FOLDER, chat_template=template)
    assert render([user("y"), assistant("4")], tokenizer=FOLDER, chat_template=template).text


def test_content_that_ends_like_a_turn_is_content():
    template = CHATML.replace("+ '<|im_end|>\\n'", "+ ('' if 'im_end' in message.content else '<|im_end|>\\n')")
    given = {"tokenizer": FOLDER, "chat_template": template, "special_tokens_in_content": "allow"}
    made = render([user("2+2?"), assistant("4<|im_end|>\n")], **given)
    assert pieces(made, 1)[1:] == [("content", "4<|im_end|>\n")]


def test_name_that_is_printed_again_outside_of_its_turn_is_no_call_there():
    template = CHATML.replace("message.content +", "(messages[loop.index0 - 1].tool_calls[0].function.name + ': ' if "
                              "message.role == 'tool' else message.tool_calls[0].function.name if message.tool_calls "
                              "else '') + message.content +")  # fmt: skip
    calls = [{"type": "function", "function": {"name": "look", "arguments": {}}}]
    messages = [user("Look."), assistant("", tool_calls=calls), {"role": "tool", "content": "seen"}, assistant("So.")]
    made = render(messages, tokenizer=FOLDER, chat_template=template)
    assert [(kind, text) for kind, text in pieces(made, 1) if text == "look"] == [
        ("tool_calls", "look"),
        (None, "look"),
    ]


@pytest.mark.parametrize("name", model_templates())
def test_segments_divide_each_text_and_agree_with_the_labels(name: str):
    template, tokenizer = model_templates()[name], str(DEEPSEEK)
    given = {"tokenizer": tokenizer, "chat_template": template, "now": NOW, "unprinted": "report",
             "special_tokens_in_content": "allow"}  # fmt: skip
    compared = 0
    for seed in range(25):
        one = framed(seed)
        try:
            made = render(one.messages, one.tools, **given)
        except RecordError:
            continue
        compared += 1
        assert [one.start for one in made.segments] == [0, *(one.stop for one in made.segments[:-1])]
        assert made.segments[-1].stop == len(made.text)
        of_kind = {kind: "\n".join(made.text[one.start : one.stop] for one in made.segments if one.kind == kind)
                   for kind in ("header", "reasoning", "content", "tool_calls", "end", "after_end")}  # fmt: skip
        words = [word for word in one.answers + one.others + one.reasoning if word in made.text]
        assert not any(word in of_kind[kind] for word in words for kind in ("header", "end", "after_end"))
        assert not any(word in of_kind["tool_calls"] + of_kind["content"] for word in one.reasoning)
        answers = [text for text in one.answers if text in made.text]
        assert all(text in of_kind["content"] + of_kind["tool_calls"] for text in answers), seed
        assert not of_kind["after_end"].strip()
        assert all(one.start < one.stop for one in made.segments)
    assert compared >= 5
    assert json.dumps(made.labels)


def test_tools_that_are_equal_but_not_the_same_are_printed_as_they_are():
    template = "{{- tools | tojson -}}" + CHATML
    for value in (1, True, 1.0, 1, "1"):
        tools = [{"type": "function", "function": {"name": "find", "parameters": {"default": value}}}]
        text = render([user("Hi"), assistant("Ho")], tools, tokenizer=FOLDER, chat_template=template).text
        assert text.startswith(json.dumps(tools) + "<|im_start|>")
