"""Each record may have its own `chat_template_kwargs`: if they allow it, what a template does is found once."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from support.chats import assistant, make_examples, render_config, user
from support.templates import CHATML, MARKED
from transforms import ApplyChatTemplate, CheckParity, Conversation, RenderConfig

TURNS = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]
PROMPT = "'<|im_start|>assistant\\n' -}}{%- endif"


def with_prompt(who: str) -> str:
    """A template whose generation prompt names whom an expression gives."""
    return CHATML.replace(PROMPT, f"'<|im_start|>' ~ ({who}) ~ '\\n' -}}}}{{%- endif")


DATE = "{{ 'Today is ' + date + '.\\n' }}"
# Templates that do something with the argument `date`.
TEMPLATES = {
    "not read": CHATML,
    "part of a name": "{%- set dated = 'x' -%}{{ dated }}" + CHATML,
    "printed": DATE + CHATML,
    "printed if given": "{%- if date is defined and date -%}{{ date | trim }}{%- else -%}today{%- endif -%}" + CHATML,
    "set if not given": "{%- if not date is defined -%}{%- set date = 'now' -%}{%- endif -%}{{ date }}" + CHATML,
    "marked": DATE + MARKED,
    "in the prompt": CHATML.replace(PROMPT, "'<|im_start|>assistant\\n' + date + '\\n' -}}{%- endif").replace(
        "'\\n' + message.content", "'\\n' + (date + '\\n' if message.role == 'assistant' else '') + message.content"
    ),
    "at the end of turns": CHATML.replace("'<|im_end|>\\n'", "date + '<|im_end|>\\n'"),
    "closes turns": CHATML.replace("'<|im_end|>\\n' -}}\n{%- endfor", "date -}}\n{%- endfor"),
    "after turns": CHATML.replace("<|im_end|>\\n' -}}\n{%- endfor", "' -}}{{ date }}\n{%- endfor"),
    "before turns": CHATML.replace("'<|im_end|>\\n'", "''").replace(
        "{{- '<|im_start|>' + m", "{{- date + '<|im_start|>' + m"
    ),
    "compared": with_prompt("'A' if date == 'x' else 'assistant'"),
    "searched": with_prompt("'A' if 'x' in date else 'assistant'"),
    "measured": with_prompt("date | length"),
    "upper": with_prompt("'A' if date is upper else 'assistant'"),
    "a switch": with_prompt("'assistant' if date else 'A'"),
    "a trimmed switch": with_prompt("'assistant' if date | trim else 'A'"),
    "kept in a block": "{%- set kept -%}{{ date }}{%- endset -%}" + with_prompt("'A' if kept == 'x' else 'assistant'"),
    "under another name": "{%- set when = date -%}" + with_prompt("'A' if when == 'x' else 'assistant'"),
}
VALUES: list[dict[str, Any]] = [
    *({"date": value} for value in ("x", "y", "X", "a text with x", "", " ", "<|im_end|>", "4")),
    *({"date": value} for value in (False, None, 3, {"x": 1})),
    {},
    {"date": "y", "other": "x"},
    {"dates": "x"},
]


def outcomes(config: RenderConfig, conversations: list[Conversation]) -> tuple[list[Any], Counter[str]]:
    """For each conversation its text and spans, or why it is rejected; and the notes of all."""
    batch = ApplyChatTemplate(config).function()(make_examples(*conversations))
    found: dict[int, Any] = {text.example.position: (text.text, text.spans) for text in batch.texts}
    found |= {reject.position: reject.reason for reject in batch.outcomes.rejects}
    notes = Counter(batch.outcomes.notes)
    return [found[number] for number in range(len(conversations))], notes


@pytest.mark.parametrize("name", TEMPLATES)
def test_arguments_of_a_record_do_what_the_same_arguments_of_the_job_do(name: str):
    assert (TEMPLATES[name] == CHATML) == (name == "not read")
    given: dict[str, Any] = {"special_tokens_in_content": "allow", "unprinted": "report"}
    given |= {"eot_tokens": ("<|im_end|>", "y"), "after_end": "mask"} if "turns" in name else {}
    expected, notes = [], Counter[str]()
    for value in VALUES:
        config = render_config(TEMPLATES[name], engine="reference", chat_template_kwargs=value, **given)
        found, noted = outcomes(config, [Conversation(TURNS)])
        expected += found
        notes += noted
    conversations = [Conversation(TURNS, template_kwargs=value) for value in VALUES]
    for engine in ("auto", "reference"):
        config = render_config(TEMPLATES[name], engine=engine, **given)
        assert outcomes(config, conversations * 2) == (expected * 2, notes + notes)
        assert outcomes(config, conversations[::-1]) == (expected[::-1], notes)


@pytest.mark.parametrize("name", ["not read", "printed", "printed if given", "marked"])
def test_what_a_template_does_is_found_once_for_all_texts_that_it_only_prints(name: str):
    config = render_config(TEMPLATES[name])
    conversations = [Conversation(TURNS, template_kwargs={"date": f"day {number}"}) for number in range(40)]
    renderer, parity = ApplyChatTemplate(config).function(), CheckParity(config).function()
    before = kept()
    texts = parity(renderer(make_examples(*conversations))).texts
    assert len(texts) == 40 and kept() - before <= 4


def kept() -> int:
    """How many facts of templates are kept."""
    gc.collect()
    return sum(type(each).__name__ == "TemplateFacts" for each in gc.get_objects())
