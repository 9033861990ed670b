"""Any template with any conversations: the right text, masks and tokens, by both engines, alone and in any order."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count

import pytest

from support.cases import Case, turns_are_known
from support.drawn import AT_LENGTH, IS_FAST
from support.engines import shown_failure
from support.templates import (
    CHATML,
    DROPS_REASONING,
    MARKED,
    OPENS_REASONING,
    PRINTS,
    WAYS,
    models_and_odd,
    read_template,
    trl_templates,
)
from support.tokenizers import LARGE

# The fast lane has one of each kind.
IN_FAST = models_and_odd()
TEMPLATES = {**trl_templates(), **IN_FAST}
# They print no turn where the mask could be established.
REFUSED = ("own_remember", "own_remember_sections", "repeats_question")
NAMES = [pytest.param(name, marks=() if name in IN_FAST else pytest.mark.slow) for name in TEMPLATES]


@pytest.mark.parametrize("part", range(40 if AT_LENGTH else 1 if IS_FAST else 4))
def test_generated_templates(part: int):
    counts = Counter[str]()
    for seed in range(15 * part, 15 * part + 15):
        case = Case(seed)
        of_known = counts if turns_are_known(case.features or {}) else None
        assert shown_failure(case, each_alone=seed % 4 == 0, counts=of_known) is None, seed
    assert counts["spans_not_established"] < counts["kept"] / 3, counts  # in the mean a tenth


@pytest.mark.nightly
def test_generated_templates_at_length():
    end = time.monotonic() + 30 * 60
    for seed in count(1000):
        if time.monotonic() > end:
            break
        assert shown_failure(Case(seed), each_alone=seed % 4 == 0) is None, seed


@pytest.mark.parametrize("name", NAMES)
def test_templates_of_models_and_odd_ones(name: str):
    counts = Counter[str]()
    for seed in range(30 if AT_LENGTH else 3):
        assert shown_failure(Case(seed, TEMPLATES[name]), folder=LARGE[seed % len(LARGE)], counts=counts) is None, seed
    assert (counts["kept"] == 0) == (name in REFUSED), counts


VALUES = {"name": "é<\u2028", "items": {"x": 1}, "n": 2**70, "f": [1e22, None, True], "deep": {"a": {"b": [{"c": 1}]}}}

PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
TOOLS = read_template("tools_and_calls")
READS_PARTS = (
    "{%- for part in message.content -%}{%- if part.type == 'text' -%}{{- part.text.split('</think>')[-1] -}}"
    "{%- endif -%}{%- endfor -%}"
)
OWN = {"chatml": CHATML, "marked": MARKED, "drops_reasoning": DROPS_REASONING, "opens_reasoning": OPENS_REASONING}
OWN |= {
    "opens_and_trims": OPENS_REASONING.replace("message.content +", "message.content | trim +"),
    "collects": read_template("collects_systems"),  # the system message is printed outside of the loop
}
OWN |= {"weights": CHATML.replace("message.content +", "message.content + message.weight | string +"), **PRINTS}
OWN |= {
    body: "{%- for message in messages -%}" + body + "{%- endfor -%}" + PROMPT
    for body in (*WAYS["bodies"], READS_PARTS)
}
OWN |= {printed: TOOLS.replace("CONTENT", printed) for printed in WAYS["contents"]}


@pytest.mark.parametrize("name", OWN)
def test_what_templates_do_to_texts(name: str):
    for seed in range(20 if AT_LENGTH else 2):
        case = Case(seed, OWN[name])
        if seed % 2:  # the mask of all is known, whether turns have headers or not
            case.options |= {"loss_on": "all", "unprinted": "report", "part_columns": False}
        assert shown_failure(case) is None, seed


@pytest.mark.parametrize("source", WAYS["tools"])
def test_what_templates_print_of_tools_that_many_records_have(source: str):
    case = Case(3, source + CHATML)
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("find", "look_up")]
    given = [
        {"tools": tools, "chat_template_kwargs": {"style": f"{number % 3}"}} for number in range(len(case.records))
    ]
    case.records = [record | more for record, more in zip(case.records, given, strict=True)]
    assert shown_failure(case) is None


@pytest.mark.parametrize("source", WAYS["values"])
def test_what_templates_do_to_values(source: str):
    case = Case(3, source + CHATML)
    case.records = [record | {"chat_template_kwargs": {"extra": VALUES}} for record in case.records]
    case.options |= {"loss_on": "all", "unprinted": "report", "part_columns": False}
    assert shown_failure(case) is None
