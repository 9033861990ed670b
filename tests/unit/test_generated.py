"""Templates of models applied to generated records: the right text, the right mask, and nothing vanishes uncounted."""

from __future__ import annotations

import functools
import importlib.util
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support.chats import SPLIT, render_config
from support.generated import Generated, generate
from support.paths import SHARED
from transforms.chat.transformers_jinja import apply_chat_template
from transforms.model.batches import Examples, Records, Texts
from transforms.model.examples import Record, Text
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.tokens.tokenizer import load_tokenizer

NOW = datetime(2026, 11, 20, 12)
RECORDS = 40
TOKENIZER = SHARED / "tokenizers" / "llama3"


def templates() -> dict[str, str]:
    """Return chat templates by their names: those of the shared oracle and, if TRL is installed, those of TRL."""
    found = {}
    for oracle in sorted((SHARED / "oracle").glob("*.jsonl")):
        for case in map(json.loads, oracle.read_text().splitlines()):
            found[case["template"]] = case["chat_template"]
    trl = importlib.util.find_spec("trl")
    if trl and trl.origin:
        files = sorted((Path(trl.origin).parent / "chat_templates").glob("*.jinja"))
        found |= {file.stem: file.read_text() for file in files}
    return found


TEMPLATES = templates()


def rendered(template: str, generated: list[Generated], **options: Any) -> Texts:
    """Parse and render records, one batch of them all; the position of each is its number."""
    records = [Record(number, json.dumps(one.record).encode()) for number, one in enumerate(generated)]
    batch = Records(SPLIT, 0, True, Outcomes(read=len(records)), records)
    examples: Examples = Parser()(batch)
    assert not examples.outcomes.rejects
    config = render_config(template, TOKENIZER, now=NOW.isoformat(), loss_on="assistant", **options)
    return Renderer(config)(examples)


def printed_by_transformers(template: str, messages: list[dict[str, Any]], tools: Any = None) -> str | None:
    """Return what transformers prints, None if the template refuses the messages."""
    tokenizer = load_tokenizer(str(TOKENIZER))
    try:
        return apply_chat_template(tokenizer, template, messages, tools, False, {}, NOW.strftime)
    except Exception:  # a template may raise anything
        return None


@functools.cache
def reads(template: str, role: str) -> tuple[bool, bool]:
    """Return whether a template prints contents of a role that are strings, and those that are parts."""
    before = [] if role in ("user", "system") else [{"role": "user", "content": "x1"}]
    printed = []
    for content in ("x7", [{"type": "text", "text": "x7"}]):
        after = [{"role": "user", "content": "x1"}] if role == "system" else []
        text = printed_by_transformers(template, [*before, {"role": role, "content": content}, *after]) or ""
        printed.append("x7" in text and not any(f"{mark}type{mark}" in text for mark in ("'", '"')))
    return printed[0], printed[1]


def expected_text(template: str, one: Generated) -> str | None:
    """Return what transformers prints for a record in the form that the template reads."""

    def normalized(role: str, content: Any) -> Any:
        strings, parts = reads(template, role)
        if isinstance(content, list) and strings and not parts:
            return "\n".join(part["text"] for part in content)
        if isinstance(content, str) and content.strip() and parts and not strings:
            return [{"type": "text", "text": content}]
        return content

    messages = [{**message, "content": normalized(message["role"], message["content"])} for message in one.messages]
    return printed_by_transformers(template, messages, one.tools)


def trained(text: Text) -> str:
    return "\n".join(text.text[start:stop] for start, stop in text.spans)


@pytest.mark.parametrize("engine", ["reference", "fast"])
@pytest.mark.parametrize("name", TEMPLATES or [pytest.param("none", marks=pytest.mark.skip("../shared is absent"))])
def test_generated_records_are_printed_and_masked_right_or_what_is_lost_is_counted(name: str, engine: str):
    generated = [generate(seed) for seed in range(RECORDS)]
    options = {"engine": engine, "special_tokens_in_content": "allow"}  # they have markers of other templates
    batch = rendered(TEMPLATES[name], generated, unprinted="report", **options)
    texts = {text.example.position: text for text in batch.texts}
    rejected = {reject.position for reject in batch.outcomes.rejects}
    strict = rendered(TEMPLATES[name], generated, **options)
    not_printed = {reject.position for reject in strict.outcomes.rejects if reject.reason == "not_printed"}
    assert {text.example.position for text in strict.texts} == texts.keys() - not_printed
    lost, lost_reasoning = set(), set()
    for number, text in texts.items():
        one, what_is_trained = generated[number], trained(text)
        assert text.text == expected_text(TEMPLATES[name], one), number
        for word in one.answers + one.others:
            if word not in text.text:
                lost.add(number)
        if any(word not in text.text for word in one.reasoning):
            lost_reasoning.add(number)
        assert [word for word in one.others if word in what_is_trained] == [], number
        untrained = [word for word in one.answers if word in text.text and word not in what_is_trained]
        assert untrained == [], number
    assert texts.keys() | rejected == set(range(RECORDS))
    assert lost == not_printed
    assert batch.outcomes.notes.get("not_printed", 0) == len(lost)
    assert batch.outcomes.notes.get("reasoning_not_printed", 0) == len(lost_reasoning)
