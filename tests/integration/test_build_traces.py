"""Sessions of agents and chats are built together, each as its source says, and every event is accounted for."""

from __future__ import annotations

import json
import re

import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import assert_statistics_add_up, read_manifest, write_jsonl
from support.paths import TOKENIZER
from support.traces import TRACES

SESSIONS = ("claude_code.jsonl", "codex.jsonl", "atif.json")
OPTIONS = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--unprinted=report"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    # As sessions of Claude Code have it: a corpus was taken for one.
    chat = {"sessionId": "s0", "type": "support", "messages": [user("a"), assistant("b")]}
    write_jsonl(folder / "chats.jsonl", [chat] * 3)
    sources = [{"name": "chats", "input": str(folder / "chats.jsonl")}]
    for name in SESSIONS:
        format = name.partition(".")[0]
        sources.append({"name": format, "input": str(TRACES / name), "input_format": format})
    (folder / "recipe.yaml").write_text(json.dumps({"sources": sources}))
    assert chatmill("build", folder / "recipe.yaml", f"--output={folder / 'out'}", *OPTIONS) == 0
    return folder / "out"


def test_sessions_and_chats_are_read_each_as_its_source_says(built):
    manifest = read_manifest(built)
    assert_statistics_add_up(manifest)
    assert manifest["statistics"]["schemas"] == {"atif": 2, "claude_code": 4, "codex": 3, "messages": 3}
    assert manifest["records"]["read"] == 6
    assert manifest["records"]["rejected"] == {}


def test_traces_with_calls_and_without_tools_have_a_warning(built):
    warning = "2 traces with calls and no tool definitions, which a model is given at inference"
    text = re.sub("<[^>]*>", "", (built / "report.html").read_text())
    assert warning in text and "--trace_tools gives them, docs/traces.md" in text


def test_events_of_all_files_are_in_the_manifest_the_card_the_report_and_the_statistics(built, capsys):
    events = read_manifest(built)["statistics"]["trace_events"]
    lines = sum(len((TRACES / name).read_text().splitlines()) for name in ("claude_code.jsonl", "codex.jsonl"))
    counted = [sum(each.values()) for kind, each in events.items() if kind.startswith(("claude_code/", "codex/"))]
    assert sum(counted) == lines
    shown = "codex/event_msg/thread_rolled_back"
    assert events[shown] == {"read": 0, "not_read": 1}
    assert chatmill("stats", built) == 0
    assert "events of traces not read" in capsys.readouterr().out
    assert "Events of traces that were not read: " in (built / "README.md").read_text()
    assert shown in (built / "report.html").read_text()
