"""examples/formatters.py: each formatter makes whole conversations of a real record, and a reject names it.

The records of tests/data/formatters.jsonl are as their datasets and logs have them; the expected ones are by hand.
"""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import manifest_of
from support.paths import ROOT, TOKENIZER
from support.traces import TRACES
from transforms import RecordDropped, RecordError
from transforms import parse as read_record
from transforms.inputs.hints import FORMATTERS as BY_COLUMNS

FORMATTERS = ROOT / "examples" / "formatters.py"
CASES = [json.loads(line) for line in (ROOT / "tests" / "data" / "formatters.jsonl").read_text().splitlines()]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["formatter"])


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


def test_each_formatter_is_tried_and_each_hint_names_one():
    functions = {node.name for node in ast.parse(FORMATTERS.read_text()).body if isinstance(node, ast.FunctionDef)}
    named = {name for name in functions if not name.startswith("_")}
    assert named == {case["formatter"] for case in CASES}
    assert named == {name for _, name in BY_COLUMNS} | {"hermes", "vercel", "langchain", "roles_as_keys"}


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
    manifest = manifest_of(tmp_path / "out")
    assert manifest["records"]["rejected"] == manifest["records"]["dropped"] == manifest["statistics"]["unread"] == {}
    assert manifest["records"]["read"] == len(CASES)
    assert manifest["rows"] == sum(len(case["expected"]) for case in CASES)


def test_what_was_not_preferred_is_dropped():
    messages = [user("Hi"), assistant("Hello")]
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
