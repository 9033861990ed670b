"""Expanded rows: each turn is trained on once, in its context of inference; and a record has one outcome."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.chats import assistant, make_examples, render_config, user
from support.datasets import read_manifest, read_rows, write_jsonl
from support.paths import ROOT, TOKENIZER
from support.templates import CHATML, GIVEN, NOW, make_cases, model_templates
from support.transformers_text import TransformersText
from transforms import ApplyChatTemplate, CheckParity, Conversation

FOLDER = ROOT / "tests" / "data" / "templates"
# Like Qwen 3 and others: reasoning is printed after the last user message, and dropped before it.
DROPS_EARLIER, MARKED = ((FOLDER / f"{name}.jinja").read_text() for name in ("drops_earlier", "marked_drops_earlier"))
PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6"), user("4+4?"), assistant("8")]
# The context of the second answer contains the reasoning of the first one, because no user message was between them.
WITH_A_TOOL = [
    user("2+2?"),
    assistant("add(2, 2)", reasoning_content="A sum."),
    {"role": "tool", "content": "4"},
    assistant("It is 4.", reasoning_content="The tool says 4."),
    user("And 4+4?"),
    assistant("8"),
]


def expanded(template: str, messages: Sequence[Any], tools: Any = None, **options: Any) -> list[tuple[str, str]]:
    """What each span of the rows of a record follows, and the span. None, if the record is rejected."""
    render, check = steps(template, tuple(options.items()))
    batch = check(render(make_examples(Conversation([*messages], tools))))
    return [(text.text[:start], text.text[start:stop]) for text in batch.texts for start, stop in text.spans]


@functools.cache
def steps(template: str, options: tuple[Any, ...]) -> tuple[Any, Any]:
    given = {name: dict(value) if name == "chat_template_kwargs" else value for name, value in options}
    config = render_config(template, **given)
    return ApplyChatTemplate(config).function(), CheckParity(config, parity="expand").function()


def contexts_of(template: str, messages: Sequence[Any], tools: Any = None, **arguments: Any) -> dict[str, Any]:
    """The messages of the assistant, by what a server gives to the model before it writes them."""
    apply = TransformersText(template, TOKENIZER, datetime.fromisoformat(NOW))
    answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    prompts = [apply.apply(apply.prepared(messages[:number]), tools, True, **arguments) for number in answers]
    return {prompt or "": messages[number] for prompt, number in zip(prompts, answers, strict=True)}


@st.composite
def dialogues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Exchanges: a user message and one or more answers, with tool results between them."""
    messages = []
    for number in range(draw(st.integers(1, 4))):
        messages.append(user(f"{number}?"))
        for answer in range(draw(st.integers(1, 3))):
            if answer:
                messages.append({"role": "tool", "content": "seen"})
            keys = {"reasoning_content": f"So {number}."} if draw(st.booleans()) else {}
            messages.append(assistant(draw(st.sampled_from(["", "yes", "no <think>", "yes"])), **keys))
    return messages


@given(st.sampled_from([DROPS_EARLIER, MARKED, CHATML]), dialogues())
def test_each_expanded_turn_is_trained_on_once_in_its_context_of_inference(template, messages):
    contexts = contexts_of(template, messages)
    found = expanded(template, messages)
    assert sorted(context for context, _ in found) == sorted(contexts)
    for context, answer in found:
        thought = contexts[context].get("reasoning_content", "") if template != CHATML else ""
        thought = f"<think>{thought}</think>" if thought else ""
        assert answer == thought + contexts[context]["content"] + "<|im_end|>\n"


def test_expand_trains_in_the_context_of_inference_under_real_templates():
    refused = kept = 0
    options = {"chat_template_kwargs": tuple(GIVEN.items()), "now": NOW, "unprinted": "report"}
    for case in make_cases("masks"):
        template, record = model_templates()[case["template"]], case["record"]
        found = [context for context, _ in expanded(template, record["messages"], record.get("tools"), **options)]
        refused, kept = refused + (not found), kept + bool(found)
        contexts = contexts_of(template, record["messages"], record.get("tools"), **GIVEN)
        assert len(found) == len(set(found)) and set(found) <= set(contexts), case["name"]
    assert refused < 20 < 100 < kept  # refused: the generation prompt is longer than the header in history


@pytest.fixture
def built(build, tmp_path):
    """Build two plain conversations and one with a tool; return the end of the build and the folder."""
    (tmp_path / "template.jinja").write_text(DROPS_EARLIER)
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": messages} for messages in (PLAIN, WITH_A_TOOL, PLAIN)])
    given = ["--input", chats, "--tokenizer", TOKENIZER, "--chat_template", tmp_path / "template.jinja"]
    return lambda *options: (
        build(*given, "--output", tmp_path / "_".join(options), *options),
        tmp_path / "_".join(options),
    )


def test_report_names_the_first_record_of_the_most_frequent_difference(build, tmp_path):
    other = [user("2+2?"), assistant("four"), user("3+3?"), assistant("six")]
    content = "(message.content if loop.last else message.content.replace('four', '4'))"
    (tmp_path / "template.jinja").write_text(DROPS_EARLIER.replace("message.content", content))
    records = [{"messages": messages} for messages in (other, WITH_A_TOOL, WITH_A_TOOL)]
    given = ["--input", write_jsonl(tmp_path / "chats.jsonl", records), "--tokenizer", TOKENIZER, "--parity=report"]
    ended = build(*given, "--chat_template", tmp_path / "template.jinja", "--output", tmp_path / "out")
    assert ended.code == 0
    found = f"context 2, other text 1, as chats.jsonl, byte {len(json.dumps(records[0])) + 1}"
    assert f"3 trained turns not as at inference: {found} (--parity expand writes each context" in ended.err


def test_expand_reconciles_records_and_rows(built):
    ended, output = built("--parity=expand", "--provenance")
    assert ended.code == 0
    manifest, rows = read_manifest(output), read_rows(output)
    assert (manifest["records"]["kept"], manifest["rows"], len(rows)) == (3, 4, 4)
    assert manifest["notes"]["parity_rows_added"] == 1
    assert rows[1]["origin_position"] == rows[2]["origin_position"]
    lengths = [len(row["input_ids"]) for row in rows]
    assert lengths[0] == lengths[3]
    # The longer row of the record with the tool is dropped, so this record is truncated.
    ended, output = built("--parity=expand", "--truncation=drop", f"--max_length={max(lengths) - 1}")
    assert ended.code == 0
    records, notes = read_manifest(output)["records"], read_manifest(output)["notes"]
    assert (records["kept"] + records["truncated"], "parity_rows_added" in notes) == (3, False)
    assert records["truncated"] and read_manifest(output)["trained_tokens_lost"]
