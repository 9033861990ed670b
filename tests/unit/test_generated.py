"""Templates of models applied to generated records: the right text, the right mask, and nothing vanishes uncounted."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from support.chats import SPLIT, render_config
from support.generated import Generated, generate
from support.models import DEEPSEEK as TOKENIZER
from support.templates import models_and_odd, templates_of_trl
from support.transformers_text import TransformersText
from transforms import Examples
from transforms.model.batches import Records, Texts
from transforms.model.examples import Record, Text
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer

NOW = datetime(2026, 11, 20, 12)
RECORDS = 40
# The fast lane has one of each kind.
IN_FAST = models_and_odd()
TEMPLATES = {**templates_of_trl(), **IN_FAST}
NAMES = [pytest.param(name, marks=() if name in IN_FAST else pytest.mark.slow) for name in TEMPLATES]


def rendered(template: str, generated: list[Generated], **options: Any) -> Texts:
    """Parse and render records, one batch of them all; the position of each is its number."""
    records = [Record(number, json.dumps(one.record).encode()) for number, one in enumerate(generated)]
    batch = Records(SPLIT, 0, True, Outcomes(read=len(records)), records)
    examples: Examples = Parser()(batch)
    assert not examples.outcomes.rejects
    config = render_config(template, TOKENIZER, now=NOW.isoformat(), loss_on="assistant", **options)
    return Renderer(config)(examples)


# Templates that print a part of a content, so that its word may be printed although the content is not.
CUTS = ("cut_at_24", "keeps_tail")


def contents(one: Generated) -> list[str]:
    """Return the contents of messages as a template that reads strings is given them, without white space around."""
    given = [message["content"] for message in one.messages]
    strings = [c if isinstance(c, str) else "\n".join(part["text"] for part in c) for c in given]
    return [string.strip() for string in strings]


def trained(text: Text) -> str:
    return "\n".join(text.text[start:stop] for start, stop in text.spans)


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_generated_records_are_printed_and_masked_right_or_what_is_lost_is_counted(name: str, engine: str):
    generated = [generate(seed) for seed in range(RECORDS)]
    options = {"engine": engine, "special_tokens_in_content": "allow"}  # they have markers of other templates
    batch = rendered(TEMPLATES[name], generated, unprinted="report", **options)
    texts = {text.example.position: text for text in batch.texts}
    rejected = {reject.position for reject in batch.outcomes.rejects}
    strict = rendered(TEMPLATES[name], generated, **options)
    not_printed = {reject.position for reject in strict.outcomes.rejects if reject.reason == "not_printed"}
    assert {text.example.position for text in strict.texts} == texts.keys() - not_printed
    transformers = TransformersText(TEMPLATES[name], TOKENIZER, NOW)
    lost, lost_reasoning = set(), set()
    for number, text in texts.items():
        one, what_is_trained = generated[number], trained(text)
        assert text.text == transformers.apply(transformers.prepared(one.messages), one.tools), number
        for word in one.answers + one.others:
            if word not in text.text:
                lost.add(number)
        if any(word not in text.text for word in one.reasoning):
            lost_reasoning.add(number)
        assert [word for word in one.others if word in what_is_trained] == [], number
        untrained = [word for word in one.answers if word in text.text and word not in what_is_trained]
        assert untrained == [], number
    assert texts.keys() | rejected == set(range(RECORDS))
    assert lost <= not_printed
    for number in not_printed - lost:  # what is lost of a text may have no word
        assert any(piece.strip() not in texts[number].text for piece in generated[number].texts), number
    assert batch.outcomes.notes.get("not_printed", 0) == len(not_printed)
    assert batch.outcomes.notes.get("reasoning_not_printed", 0) == len(lost_reasoning)
