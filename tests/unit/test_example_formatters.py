"""Datasets that are used most, and logs: their records build with no option, or the error names the one they need.

The datasets cannot be had here. The records of tests/data/datasets.jsonl and formatters.jsonl are as their cards and
their programs have them; the messages that are expected are by hand.
"""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from transformers import AutoTokenizer

from support.command_line import chatmill
from support.datasets import read_manifest
from support.paths import ROOT, TOKENIZER
from support.templates import read_template
from support.traces import TRACES
from transforms import RecordDropped, RecordError, render
from transforms import parse as read_record

DATA = ROOT / "tests" / "data"
FORMATTERS = ROOT / "examples" / "formatters.py"
CASES, DATASETS = (
    [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    for name in ("formatters", "datasets")
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["formatter"])

# Prints all that the conversations have, with markers of what is trained on.
TEMPLATE = read_template("prints_all")


@pytest.mark.parametrize("case", DATASETS, ids=lambda case: case["name"])
def test_a_record_of_a_dataset_has_the_text_and_the_mask_that_transformers_gives(case, monkeypatch):
    monkeypatch.chdir(ROOT)
    record, option = case["record"], case.get("option", {})
    for raw in (json.dumps(record).encode(), record):
        if option:
            with pytest.raises(RecordError) as refused:
                read_record(raw)
            assert all(f"{name} {value}" in refused.value.detail for name, value in option.items())
        [example] = read_record(raw, **option)
        found: Any = example.content
        options = {
            "tokenizer": str(TOKENIZER),
            "chat_template": TEMPLATE,
            "chat_template_kwargs": found.template_kwargs,
        }
        rendered = render(found.messages, found.tools, **options)
        expected = AutoTokenizer.from_pretrained(TOKENIZER).apply_chat_template(
            case["messages"],
            tools=case.get("tools"),
            chat_template=TEMPLATE,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **case.get("template_kwargs", {}),
        )
        assert rendered.input_ids == expected["input_ids"]
        assert [int(label >= 0) for label in rendered.labels] == expected["assistant_masks"]


def test_most_datasets_build_with_no_option():
    assert len(DATASETS) >= 40 and sum("option" not in case for case in DATASETS) >= 36


def parse(record: Any, formatter: str | None = None) -> list[list[dict[str, Any]]]:
    """The messages of the conversations of a record, without what is empty."""
    raw = json.dumps(record).encode()
    made = read_record(raw, formatter=f"{FORMATTERS}:{formatter}" if formatter else None)
    return [
        [
            {key: value for key, value in message.items() if key == "content" or value not in ("", None, 1)}
            for message in each.content.messages
        ]
        for each in made
    ]


@each_case
def test_a_record_becomes_whole_conversations(case):
    assert parse(case["record"], case["formatter"]) == case["expected"]


@each_case
def test_a_record_without_its_formatter_is_rejected_with_its_name(case):
    name, record = case["formatter"], case["record"]
    if name == "hermes" and "tools" not in record:
        assert [len(messages) for messages in parse(record)] == [5]  # its calls are text
        return
    for raw in (json.dumps(record).encode(), record):
        with pytest.raises(RecordError) as raised:
            read_record(raw)[0]
        assert raised.value.detail.endswith(f"it looks like {name}: --formatter examples/formatters.py:{name}")


def test_each_formatter_is_tried():
    functions = {node.name for node in ast.parse(FORMATTERS.read_text()).body if isinstance(node, ast.FunctionDef)}
    named = {name for name in functions if not name.startswith("_")}
    assert named == {case["formatter"] for case in CASES}


def test_a_build_reads_each_record_by_the_formatter_of_its_source(tmp_path):
    sources = []
    for number, case in enumerate(CASES):
        is_file = case["formatter"] in ("swe_agent", "tau")  # which have a file for each object
        path = tmp_path / f"{number}.{'traj' if is_file else 'jsonl'}"
        path.write_text(json.dumps(case["record"], indent=1 if is_file else None) + "\n")
        name = f"{case['formatter']}_{number}"
        sources.append({"name": name, "input": str(path), "formatter": f"{FORMATTERS}:{case['formatter']}"})
    (tmp_path / "recipe.yaml").write_text(json.dumps({"sources": sources}))
    options = [f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}", "--direct_num_workers=1"]
    assert chatmill("build", tmp_path / "recipe.yaml", *options) == 0
    manifest = read_manifest(tmp_path / "out")
    assert manifest["records"]["rejected"] == manifest["records"]["dropped"] == {}
    assert [*manifest["statistics"]["unread"]] == ["messages[].content[].cache_control"]  # which is for the API
    assert manifest["records"]["read"] == len(CASES)
    assert manifest["rows"] == sum(len(case["expected"]) for case in CASES)


def test_what_was_not_preferred_is_dropped():
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    tie = {"conversation_a": messages, "conversation_b": messages, "winner": "tie"}
    even = {"context": messages[:1], "response1": "What", "response2": "Hello", "overall_preference": 0}
    for name, record in (("arena", tie), ("helpsteer3", even)):
        with pytest.raises(RecordDropped, match="filtered"):
            parse(record, name)


@pytest.mark.parametrize(("name", "title"), [
    ("claude_code.jsonl", "a session of Claude Code"),
    ("codex.jsonl", "a session of Codex"),
    ("atif.json", "a trajectory in ATIF"),
])  # fmt: skip
def test_the_first_event_of_a_session_is_rejected_with_the_input_format(name, title):
    path = TRACES / name
    event = path.read_text().partition("\n")[0] if path.suffix == ".jsonl" else path.read_text()
    with pytest.raises(RecordError) as raised:
        read_record(event.encode())[0]
    assert raised.value.detail == f"it looks like {title}: --input_format {path.stem}"
