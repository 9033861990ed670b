"""Each record may have its own `chat_template_kwargs`: if they allow it, what a template does is found once."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from support.chats import assistant, make_examples, render_config, user
from support.templates import CHATML, MARKED, WAYS
from transforms import ApplyChatTemplate, CheckParity, Conversation, RenderConfig

TURNS = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]
PROMPT = "'<|im_start|>assistant\\n' -}}{%- endif"
KEPT = "{%- set kept -%}{{ date }}{%- endset -%}"
# Templates that do something with the argument `date`, or do not read it.
TEMPLATES = [CHATML, *(way + source for way in WAYS["arguments"] for source in (CHATML, MARKED))]
TEMPLATES += [
    KEPT + CHATML.replace(PROMPT, f"'<|im_start|>' ~ ({way}) ~ '\\n' -}}}}{{%- endif") for way in WAYS["names"]
]
ENDS = [CHATML.replace("'<|im_end|>\\n'", f"'<|im_end|>' + ({way})") for way in WAYS["ends"]]
TEMPLATES += ENDS
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


@pytest.mark.parametrize("template", TEMPLATES)
def test_arguments_of_a_record_do_what_the_same_arguments_of_the_job_do(template: str):
    given: dict[str, Any] = {"special_tokens_in_content": "allow", "unprinted": "report"}
    given |= {"eot_tokens": ("<|im_end|>", "y"), "after_end": "mask"} if template in ENDS else {}
    expected, notes = [], Counter[str]()
    for value in VALUES:
        config = render_config(template, engine="reference", chat_template_kwargs=value, **given)
        found, noted = outcomes(config, [Conversation(TURNS)])
        expected += found
        notes += noted
    conversations = [Conversation(TURNS, template_kwargs=value) for value in VALUES]
    for engine in ("auto", "reference"):
        config = render_config(template, engine=engine, **given)
        assert outcomes(config, conversations * 2) == (expected * 2, notes + notes)
        assert outcomes(config, conversations[::-1]) == (expected[::-1], notes)


@pytest.mark.parametrize("template", [CHATML, *(way + MARKED for way in WAYS["arguments"][1:3])])
def test_what_a_template_does_is_found_once_for_all_texts_that_it_only_prints(template: str):
    config = render_config(template)
    conversations = [Conversation(TURNS, template_kwargs={"date": f"day {number}"}) for number in range(40)]
    renderer, parity = ApplyChatTemplate(config).function(), CheckParity(config).function()
    before = kept()
    texts = parity(renderer(make_examples(*conversations))).texts
    assert len(texts) == 40 and kept() - before <= 4


def kept() -> int:
    """How many facts of templates are kept."""
    gc.collect()
    return sum(type(each).__name__ == "TemplateFacts" for each in gc.get_objects())
