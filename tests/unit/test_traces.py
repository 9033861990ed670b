"""Traces of agents: each event is read as part of a conversation, or counted by its kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import read_manifest
from support.paths import TOKENIZER
from support.reading import listed, read_content
from support.records import malformed
from support.traces import TRACES, parsed
from transforms import ParameterError, RecordDropped, RecordError, parse

TOOL = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}


EXPECTED: dict[str, list[list[dict[str, Any]]]] = {}
for line in (TRACES / "expected.jsonl").read_text().splitlines():
    EXPECTED.setdefault(json.loads(line)["file"], []).append(json.loads(line)["messages"])
SESSIONS = [json.loads(line) for line in (TRACES / "sessions.jsonl").read_text().splitlines()]


def read_events(batch: Any) -> dict[str, tuple[int, int]]:
    found = batch.outcomes.statistics.trace_events
    return {kind: (events.read, events.not_read) for kind, events in found.items()}


def notes_of(batch: Any) -> dict[str, int]:
    return dict(batch.outcomes.notes)


def test_each_file_is_read_and_each_format_has_one():
    assert (
        {path.name for path in TRACES.iterdir()} - {"SOURCES.md", "expected.jsonl", "sessions.jsonl"}
        == EXPECTED.keys()
        == {"atif.json", "claude_code.jsonl", "codex.jsonl"}
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_conversations_of_a_trace_are_whole(name):
    assert [example.content.messages for example in parsed(TRACES / name).examples] == EXPECTED[name]


@pytest.mark.parametrize("branches", ["examples", "main"])
@pytest.mark.parametrize("name", EXPECTED)
def test_events_are_read_or_counted(name, branches):
    events, text = read_events(parsed(TRACES / name, trace_branches=branches)), (TRACES / name).read_text()
    assert sum(map(sum, events.values())) == (text.count('"step_id"') or len(text.splitlines()))


def test_kinds_of_events_that_are_not_read_are_named():
    batch = parsed(TRACES / "claude_code.jsonl")
    assert {kind: counts for kind, counts in read_events(batch).items() if counts[1]} == {
        "claude_code/assistant (error of the API)": (0, 1),
        "claude_code/cut short": (0, 1),
        "claude_code/file-history-snapshot": (0, 1),
        "claude_code/system (compact_boundary)": (0, 1),
        "claude_code/system (stop_hook_summary)": (0, 1),
    }
    unread = batch.outcomes.statistics.unread
    assert {name: found.characters for name, found in unread.items()} == {
        "claude_code/redacted_thinking": 4,
        "claude_code/tool_reference": len("Read"),
    }
    codex = parsed(TRACES / "codex.jsonl").outcomes.statistics.unread
    assert {name: found.characters for name, found in codex.items()} == {
        "codex/encrypted_content": 4,
        "codex/summary": len("**Counting**"),
    }


def test_main_leaves_branches_and_subagents_to_the_counts():
    batch = parsed(TRACES / "claude_code.jsonl", trace_branches="main")
    main, _, _, compacted = EXPECTED["claude_code.jsonl"]
    assert [example.content.messages for example in batch.examples] == [main, compacted]
    everything = read_events(parsed(TRACES / "claude_code.jsonl"))
    assert everything["claude_code/user"] == (7, 0)
    assert read_events(batch)["claude_code/user"] == (5, 2)
    assert read_events(batch)["claude_code/assistant"] == (8, 2)
    codex = read_events(parsed(TRACES / "codex.jsonl", trace_branches="main"))
    assert {kind.partition("/")[2] for kind, counts in codex.items() if min(counts)} == {
        "response_item/message (assistant)",
        "response_item/message (user)",
        "response_item/reasoning",
    }
    assert codex["codex/response_item/custom_tool_call"] == (0, 1)


def test_a_session_with_branches_is_rejected_if_asked_for():
    batch = parsed(TRACES / "claude_code.jsonl", trace_branches="reject")
    (reject,) = batch.outcomes.rejects
    assert (reject.reason, batch.examples, read_events(batch)) == ("trace_branches", [], {})
    assert "1 conversations of the kind branch and 1 conversations of the kind subagent" in reject.detail
    assert json.loads(reject.record)["trace"] == "claude_code"


def test_traces_have_their_own_tools_or_those_that_are_given_or_are_counted():
    for name, has_tools in (("atif.json", True), ("claude_code.jsonl", False)):
        batch = parsed(TRACES / name)
        assert (batch.examples[0].content.tools is not None) == has_tools
        assert notes_of(batch).get("traces_without_tools", 0) == (not has_tools)
    batch = parsed(TRACES / "claude_code.jsonl", trace_tools=(TOOL,))
    assert [example.content.tools for example in batch.examples] == [[TOOL], [TOOL], None, [TOOL]]
    assert "traces_without_tools" not in notes_of(batch)
    own = parsed(TRACES / "atif.json", trace_tools=(TOOL,)).examples[0].content.tools
    assert own[0]["function"]["name"] == "shell"


def test_tools_are_a_list_or_a_file_that_has_one(tmp_path, capfd):
    anthropic = {"name": "Read", "input_schema": TOOL["function"]["parameters"]}
    (tmp_path / "tools.json").write_text(json.dumps([anthropic]))
    options = [f"--input={TRACES / 'codex.jsonl'}", "--input_format=codex", f"--tokenizer={TOKENIZER}"]
    options += ["--unprinted=report", "--direct_num_workers=1", "--report=none"]
    for number, given in enumerate((tmp_path / "tools.json", json.dumps([TOOL]))):
        assert chatmill("build", *options, f"--trace_tools={given}", f"--output={tmp_path / str(number)}") == 0
        assert "traces_without_tools" not in read_manifest(tmp_path / str(number))["notes"]
    for wrong in ("nowhere.json", "[1]", "[]", "[{]"):
        capfd.readouterr()
        assert chatmill("build", *options, f"--trace_tools={wrong}", f"--output={tmp_path / 'none'}") == 2
        assert "--trace_tools" in capfd.readouterr().err
    with pytest.raises(ParameterError):
        parsed(TRACES / "codex.jsonl", trace_tools=3)


def changed(tmp_path: Path, name: str, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Write a file of JSON lines whose events were changed."""
    events = [json.loads(line) for line in (TRACES / name).read_text().splitlines() if line.endswith("}")]
    change(events)
    (tmp_path / name).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return tmp_path / name


def beginning_alone(events: list[dict[str, Any]]) -> None:
    """Without parents, a session is read in the order of the file."""
    events[:] = [e for e in events if e["type"] in ("user", "assistant") and not e.get("isSidechain")][:7]
    for event in events:
        del event["parentUuid"]


def made_meanwhile(events: list[dict[str, Any]]) -> None:
    """A call that is made while another one runs, as newer versions write it: after the answer to the first call."""
    events[5]["parentUuid"] = "r1"
    events[5:7] = events[6], events[5]


CLAUDE = EXPECTED["claude_code.jsonl"]
ANSWER = "claude_code/user (answer without call)"
# Changes of the events of a session: its conversations, and how often some events were read and not read.
CHANGES: list[tuple[Callable[[list[dict[str, Any]]], object], list[Any] | None, dict[str, tuple[int, int]]]] = [
    # A second answer to a call, and answers to no call.
    (lambda events: events.append({**events[6], "uuid": "r5"}), CLAUDE, {ANSWER: (0, 1)}),
    (lambda events: events.__delitem__(slice(4, 6)), None, {ANSWER: (0, 2)}),
    (made_meanwhile, CLAUDE, {}),
    (beginning_alone, [CLAUDE[0][:4]], {}),
    # Events that a resumed session repeats are read once.
    (lambda events: events.extend(events[1:4]), CLAUDE, {"claude_code/assistant": (10, 2)}),
]


@pytest.mark.parametrize(("change", "conversations", "events"), CHANGES)
def test_events_in_another_order_or_number_are_read_or_counted(tmp_path, change, conversations, events):
    batch = parsed(changed(tmp_path, "claude_code.jsonl", change))
    if conversations:
        assert [example.content.messages for example in batch.examples] == conversations
    assert events.items() <= read_events(batch).items()


@pytest.mark.parametrize("case", SESSIONS, ids=lambda case: case["name"])
def test_what_becomes_of_a_session(tmp_path, case):
    lines = case["lines"] if "lines" in case else "".join(json.dumps(event) + "\n" for event in case["events"])
    (tmp_path / "session.jsonl").write_text(lines)
    batch = parsed(tmp_path / "session.jsonl", case["format"], **case.get("options", {}))
    rejects = [(reject.reason, reject.detail) for reject in batch.outcomes.rejects]
    if "rejected" in case:
        reason, words = case["rejected"]
        assert [(found, words in detail) for found, detail in rejects] == [(reason, True)]
    assert [drop.reason for drop in batch.outcomes.drops] == ([case["dropped"]] if "dropped" in case else [])
    expected = [case["messages"]] if "messages" in case else case.get("conversations", [])
    assert [example.content.messages for example in batch.examples] == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_a_malformed_session_is_read_or_rejected_with_where_it_is_wrong(name):
    lines = (TRACES / name).read_text()
    events = (
        json.loads(lines) if name == "atif.json" else [json.loads(one) for one in lines.splitlines() if one[-1] == "}"]
    )
    reasons = set[str]()
    for record in malformed({"session": events}):
        try:
            parse({"trace": name.partition(".")[0], **record})
        except (RecordError, RecordDropped) as error:
            reasons.add(error.reason)
    assert "bad_trace" in reasons and not reasons & {"malformed", "nested_too_deeply"}


def test_files_that_claude_code_writes_about_sessions_are_not_listed(tmp_path):
    for name in ("sessions-index.json", "agent-a9.meta.json", "5e55.jsonl"):
        (tmp_path / name).write_bytes((TRACES / "claude_code.jsonl").read_bytes())
    assert [Path(file.url).name for file in listed(str(tmp_path))] == ["5e55.jsonl"]


def test_a_file_is_a_trace_only_if_the_option_says_so(tmp_path):
    for name in EXPECTED:
        path = TRACES / name
        assert [file.format for file in listed(str(path))] == [path.suffix.removeprefix(".")]
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        files = listed([str(path), str(tmp_path / f"{name}.gz")], input_format=path.stem)
        assert [(file.format, file.compression) for file in files] == [(path.stem, None), (path.stem, "gzip")]


@pytest.mark.parametrize("format", ["atif", "claude_code", "codex"])
def test_a_file_that_begins_as_no_session_of_its_format_is_rejected(tmp_path, format):
    chat = b'{"conversation": "s0", "kind": "support", "messages": []}\n'
    found = read_content(tmp_path / "a.jsonl", chat * 2, input_format=format)
    assert (found.records, [reason for _, reason in found.rejected]) == ([], ["unknown_trace"] * 2)
    assert f"(input_format {format})" in found.rejects[0][2]


def test_a_file_may_have_several_sessions_that_are_objects(tmp_path):
    events = [json.loads(line) for line in (TRACES / "claude_code.jsonl").read_text().splitlines()[1:3]]
    for format, session in (
        ("claude_code", {"loglines": events}),
        ("atif", json.loads((TRACES / "atif.json").read_text())),
    ):
        line = json.dumps(session).encode()
        (tmp_path / f"{format}.jsonl").write_bytes(line)
        expected = [example.content.messages for example in parsed(tmp_path / f"{format}.jsonl").examples]
        (tmp_path / f"{format}.jsonl").write_bytes(line + b"\n" + line)
        batch = parsed(tmp_path / f"{format}.jsonl")
        assert expected and [example.content.messages for example in batch.examples] == expected * 2


def test_a_formatter_takes_each_conversation_and_columns_of_the_session_are_kept(tmp_path):
    (tmp_path / "first.py").write_text("def cut(record):\n    return {'messages': record['messages'][:2]}\n")
    batch = parsed(TRACES / "atif.json", formatter=f"{tmp_path}/first.py:cut")
    assert [example.content.count for example in batch.examples] == [2, 2]
    batch = parsed(TRACES / "claude_code.jsonl", keep_columns=("session_id", "trace"))
    assert {example.columns["session_id"] for example in batch.examples} == {"5e55"}
    assert batch.examples[0].columns["trace"] == "claude_code"
