"""What a template does not print is named, under real templates and generated conversations, and nothing else is."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from support.cases import REASONING, Marked, framed, words_in
from support.chats import make_examples, render_config
from support.templates import PRINTS, model_templates, odd_templates
from transforms import ApplyChatTemplate, Conversation

REMEMBERS = {name: source for name, source in odd_templates().items() if name.startswith("own_remember")}
TEMPLATES = {**model_templates(), **PRINTS, **REMEMBERS}
NAMED = 3  # that many are named, and the others are counted

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


def absent(made: Marked, text: str) -> dict[str, str]:
    """What is said of what is not in a text, found by a search for the words, by the names of the counts."""
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
    of_last = [name for name in reasoning if name.endswith(f"[{answers[-1]}]")]
    found = {"not_printed": missing, "reasoning_not_printed": reasoning}
    found["last_reasoning_not_printed"] = reasoning if of_last else []
    return {count: sentence(names) for count, names in found.items() if names}


def sentence(names: list[str]) -> str:
    shown = [*names[:NAMED], f"{len(names) - NAMED} more"] if len(names) > NAMED else names
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
    return f"the chat template does not print {listed}"


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_named_is_what_a_search_for_unique_words_finds(name: str):
    reference, auto = (renderer(name, engine) for engine in ("reference", "auto"))
    compared = 0
    for seed in range(60):
        made = framed(seed)
        if name == "looks_for_it" and any(isinstance(message["content"], list) for message in made.messages):
            continue  # it reads strings only, so that parts are one content
        given = make_examples(Conversation(made.messages, made.tools))
        texts = reference(given)
        for text in texts.texts:  # others have roles that the template refuses
            expected = absent(made, text.text)
            for outcomes in (texts.outcomes, auto(given).outcomes):
                found = {count: said for count, (_, said) in outcomes.first_examples.items() if "_printed" in count}
                assert found == expected, (seed, text.text)
            compared += 1
    assert compared >= 4


@functools.cache
def renderer(name: str, engine: str) -> Any:
    given = {"loss_on": "all", "unprinted": "report", "special_tokens_in_content": "allow"}
    given["chat_template_kwargs"] = {"bos_token": "<s>", "eos_token": "</s>"}
    config = render_config(TEMPLATES[name], engine=engine, now="2024-07-26", **given)
    return ApplyChatTemplate(config).function()
