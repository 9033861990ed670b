"""Traces of agents: each event is read as part of a conversation, or counted by its kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.chats import assistant, system, user
from support.paths import SHARED, TOKENIZER
from support.traces import TRACES, parsed, sessions_of
from transforms import render
from transforms.base.errors import ParameterError
from transforms.inputs import listing
from transforms.inputs.listing import list_inputs
from transforms.inputs.traces.tool_definitions import tool_definitions
from transforms.steps.parse import Parser
from transforms.tokens.tokenizer import load_tokenizer

TOOL = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}


def tool(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def calling(content: Any, *calls: tuple[str, str, dict[str, Any]], **keys: Any) -> dict[str, Any]:
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]
    return {**assistant(content, **keys), "tool_calls": made}


def texts(*contents: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content} for content in contents]


LOOKS = "I look at both."
BUILD = [
    user("Why does the build fail?"),
    calling(
        LOOKS,
        ("t1", "Read", {"file_path": "build.log"}),
        ("t2", "Read", {"file_path": "Makefile"}),
        reasoning_content="Look at the log and at the Makefile.",
    ),
    tool("t1", "error: no rule to make target 'all'"),
    tool("t2", texts("build:", "\tcc main.c")),
    assistant("The target is called build, not all."),
]
COUNTED = [
    system("You are Codex."),
    {"role": "developer", "content": "Sandbox: full access."},
    user("How many tests are there?"),
    calling("I count them.", ("c1", "exec_command", {"cmd": "ls tests | wc -l"})),
    tool("c1", "12\n"),
    assistant("There are 12.", reasoning_content="Twelve files."),
]
ECHO = [system("Use echo."), user("Say hi."), assistant("As before: hi.", weight=0), user("Again.")]

EXPECTED: dict[str, list[list[dict[str, Any]]]] = {
    "claude_code.jsonl": [
        [
            *BUILD,
            user(texts("Rename it to all, ", "and build.")),
            calling("", ("t3", "Task", {"prompt": "Rename the target."})),
            tool("t3", "Renamed."),
            assistant("No response requested.", weight=0),
        ],
        [
            *({**m, "weight": 0} if m["role"] == "assistant" else m for m in BUILD),
            user("Rename it."),
            assistant("I would rename it to all."),
        ],
        [user("Rename the target."), assistant("Renamed.")],
        [
            user("This session is being continued. The target was renamed; the build is left."),
            calling("I build it.", ("t4", "Bash", {"command": "make all"})),
        ],
    ],
    "codex.jsonl": [
        [
            *COUNTED,
            user("Add one."),
            calling("", ("c3", "exec_command", {"cmd": "touch tests/b.py"})),
            tool("c3", ""),
            assistant("Added."),
        ],
        [system("You are Codex."), user("We have 13 tests."), user("And now?"), assistant("13.")],
        [
            *({**m, "weight": 0} if m["role"] == "assistant" else m for m in COUNTED),
            user("Delete them."),
            calling("", ("c2", "apply_patch", {"input": "*** Delete File: tests/a.py"})),
            tool("c2", '{"output":"Success."}'),
            assistant("Deleted."),
        ],
    ],
    "swe_agent.traj": [
        [
            system("SETTING: You are a programmer."),
            user("Here is how it was done before."),
            user("Solve the issue."),
            calling(
                "I list the files.", ("call_1", "bash", {"command": "ls"}), reasoning_content="Which files are there?"
            ),
            tool("call_1", "a.py"),
            calling("Done.", ("call_1", "submit", {})),
        ]
    ],
    "mini_swe_agent.traj.json": [
        [
            system("You can use a shell."),
            user("Solve the issue."),
            calling("I list the files.", ("call_1", "bash", {"command": "ls"}), reasoning_content="Which files?"),
            tool("call_1", "<returncode>0</returncode>\na.py"),
            assistant("Done."),
        ]
    ],
    "openhands.json": [
        [
            system("You are OpenHands."),
            user("What is here?"),
            calling(LOOKS, ("c1", "execute_bash", {"command": "ls"}), ("c2", "execute_bash", {"command": "pwd"})),
            tool("c1", "a.py"),
            tool("c2", "/work"),
            assistant("a.py, in /work."),
            calling("", ("c3", "finish", {"message": "Done."})),
        ]
    ],
    "openhands_sdk.jsonl": [
        [
            system("You are OpenHands."),
            user("What is here?"),
            calling(LOOKS, ("c1", "terminal", {"command": "ls"}), ("c2", "terminal", {"command": "pwd"})),
            tool("c1", "a.py"),
            tool("c2", "timed out"),
            assistant("a.py."),
        ]
    ],
    "atif.json": [
        [
            system("You work in a terminal."),
            user("Make hello.txt."),
            assistant("Copied.", weight=0),
            calling(
                "I write it.",
                ("k1", "shell", {"keys": "echo hi > hello.txt\n"}),
                ("k2", "shell", {"keys": "cat hello.txt\n"}),
                reasoning_content="One command will do.",
            ),
            tool("k1", ""),
            tool("k2", "hi"),
            user("The terminal is idle."),
            assistant("Done."),
        ],
        [user("Check it."), assistant("Checked.")],
    ],
    "tau_bench.json": [
        [
            system("# Policy"),
            user("Cancel W1."),
            calling("", ("c1", "cancel", {"id": "W1"})),
            tool("c1", "cancelled"),
            assistant("It is cancelled."),
            user("###STOP###"),
        ]
    ],
    "tau2.json": [
        [
            assistant("Hi! How can I help?"),
            user("My phone is off."),
            calling("", ("c1", "get_line", {"n": 1})),
            tool("c1", '{"on": false}'),
            assistant("Turn it on.", reasoning_content="The line is fine."),
            user("Done."),
            assistant("Great."),
        ]
    ],
    "verifiers.jsonl": [
        [*ECHO, assistant("Hi!")],
        [*ECHO, calling("", ("e1", "echo", {"text": "hi"})), tool("e1", "hi"), assistant("hi")],
    ],
    "openai_batch.jsonl": [
        [user("2+2?"), assistant("4")],
        [user("3+3?"), assistant("6")],
        [system("Be brief."), user("5+5?"), assistant("10")],
    ],
    "openai_responses.jsonl": [
        [system("Be brief."), user("Weather in Paris?"), calling("", ("c1", "get_weather", {"city": "Paris"}))]
    ],
    "langsmith.jsonl": [
        [
            user("Weather in Paris?"),
            calling("", ("c1", "get_weather", {"city": "Paris"})),
            tool("c1", "15 C"),
            assistant("15 C."),
        ]
    ],
    "chatgpt_export.json": [
        [
            user("2+2?"),
            calling("", ("call4", "python", {"input": "print(2+2)"})),
            tool("call4", "4"),
            assistant("It is 4."),
        ],
        [user("2+2?"), assistant("5")],
    ],
    "claude_export.json": [
        [
            user(texts("a.txt\nLONG TEXT", "Summarise.")),
            calling("I search.", ("t1", "web_search", {"query": "x"}), reasoning_content="A long text."),
            tool("t1", "found"),
            assistant("It is long."),
        ]
    ],
}


def lines(text: str) -> int:
    return len(text.splitlines())


# How many events a file has, counted without the code that reads them.
EVENTS: dict[str, Callable[[str], int]] = {
    "claude_code.jsonl": lines,
    "codex.jsonl": lines,
    "swe_agent.traj": lambda text: sum(len(json.loads(text)[name]) for name in ("history", "trajectory")),
    "mini_swe_agent.traj.json": lambda text: len(json.loads(text)["messages"]),
    "openhands.json": lambda text: len(json.loads(text)),
    "openhands_sdk.jsonl": lambda text: text.count('Event", ') + text.count('Event"}'),
    "atif.json": lambda text: text.count('"step_id"'),
    "tau_bench.json": lambda text: text.count('"role"'),
    "tau2.json": lambda text: text.count('"role"'),
    "verifiers.jsonl": lambda text: text.count('"parent"'),
    # Of three requests with results; what has only one of them is rejected.
    "openai_batch.jsonl": lambda text: 2 + 2 + 4,
    "openai_responses.jsonl": lambda text: 3,
    "langsmith.jsonl": lines,
    "chatgpt_export.json": lambda text: text.count('"author"'),
    "claude_export.json": lambda text: text.count('"sender"'),
}


def events_of(batch: Any) -> dict[str, tuple[int, int]]:
    found = batch.outcomes.statistics.trace_events
    return {kind: (events.read, events.not_read) for kind, events in found.items()}


def notes_of(batch: Any) -> dict[str, int]:
    return dict(batch.outcomes.notes)


def test_each_file_is_read_and_each_format_has_one():
    assert {path.name for path in TRACES.iterdir()} - {"SOURCES.md"} == EXPECTED.keys() == EVENTS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_conversations_of_a_trace_are_whole(name):
    assert [example.content.messages for example in parsed(TRACES / name).examples] == EXPECTED[name]


@pytest.mark.parametrize("branches", ["examples", "main"])
@pytest.mark.parametrize("name", EVENTS)
def test_events_are_read_or_counted(name, branches):
    events = events_of(parsed(TRACES / name, trace_branches=branches))
    assert sum(map(sum, events.values())) == EVENTS[name]((TRACES / name).read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_trace_is_recognized_by_its_first_bytes_whatever_its_name_is(tmp_path, name):
    content = (TRACES / name).read_bytes()
    for other in ("a.jsonl", "a.json", "a.traj", "a"):
        (tmp_path / other).write_bytes(content)
        assert [file.format for file in list_inputs(str(tmp_path / other))] == ["trace"]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    assert [file.format for file in list_inputs(str(tmp_path / "a.jsonl.gz"))] == ["trace"]


@pytest.mark.parametrize("name", ["swe_agent.traj", "atif.json", "chatgpt_export.json", "verifiers.jsonl"])
def test_a_trace_whose_first_value_is_longer_than_the_first_bytes_is_recognized(tmp_path, name):
    long = "word " * 50_000
    content = (TRACES / name).read_text()
    for text in ("I list the files.", "Make hello.txt.", "2+2?", "Say hi."):
        content = content.replace(f'"{text}"', f'"{long}"')
    (tmp_path / "long").write_text(content)
    assert [file.format for file in list_inputs(str(tmp_path / "long"))] == ["trace"]


def test_chats_are_not_traces(tmp_path):
    chat = {"messages": [user("a"), assistant("b")]}
    records = [
        chat,
        {"id": "1", "type": "chat", "prompt": "a", "completion": "b"},
        {"trajectory": [user("a"), assistant("b")], "instance_id": "i"},
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "info": {}},
        {"history": [["a", "b"]], "instruction": "a", "output": "b"},
        {"input": "a", "output": "b"},
    ]
    for record in records:
        (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
        assert [file.format for file in list_inputs(str(tmp_path))] == ["jsonl"], record


def test_a_file_that_is_said_to_be_json_is_not_read_as_a_trace():
    files = list_inputs([str(TRACES / name) for name in ("claude_code.jsonl", "atif.json")], format="json")
    assert [file.format for file in files] == ["jsonl", "json"]


def test_of_many_files_all_are_looked_at_if_the_first_ones_are_traces(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MANY", 5)
    for number in range(7):
        (tmp_path / f"{number}.jsonl").write_bytes((TRACES / "codex.jsonl").read_bytes())
    (tmp_path / "8.jsonl").write_text('{"text": "a"}\n')
    assert [file.format for file in list_inputs(str(tmp_path))] == ["trace"] * 7 + ["jsonl"]


def test_kinds_of_events_that_are_not_read_are_named():
    batch = parsed(TRACES / "claude_code.jsonl")
    assert {kind: counts for kind, counts in events_of(batch).items() if counts[1]} == {
        "claude_code/assistant (error of the API)": (0, 1),
        "claude_code/cut short": (0, 1),
        "claude_code/file-history-snapshot": (0, 1),
        "claude_code/system (compact_boundary)": (0, 1),
        "claude_code/system (stop_hook_summary)": (0, 1),
    }
    unread = batch.outcomes.statistics.unread
    assert {name: found.characters for name, found in unread.items()} == {
        "claude_code/thinking (encrypted)": 4,
        "claude_code/tool_reference": len("Read"),
    }
    codex = parsed(TRACES / "codex.jsonl").outcomes.statistics.unread
    assert {name: found.characters for name, found in codex.items()} == {
        "codex/reasoning (encrypted)": 4,
        "codex/reasoning (summary)": len("**Counting**"),
    }


def test_main_leaves_branches_and_subagents_to_the_counts():
    batch = parsed(TRACES / "claude_code.jsonl", trace_branches="main")
    main, _, _, compacted = EXPECTED["claude_code.jsonl"]
    assert [example.content.messages for example in batch.examples] == [main, compacted]
    everything = events_of(parsed(TRACES / "claude_code.jsonl"))
    assert everything["claude_code/user"] == (7, 0)
    assert events_of(batch)["claude_code/user"] == (5, 2)
    assert events_of(batch)["claude_code/assistant"] == (8, 2)


def test_a_session_with_branches_is_rejected_if_asked_for():
    batch = parsed(TRACES / "claude_code.jsonl", trace_branches="reject")
    (reject,) = batch.outcomes.rejects
    assert (reject.reason, batch.examples, events_of(batch)) == ("trace_branches", [], {})
    assert "1 conversations of the kind branch and 1 conversations of the kind subagent" in reject.detail
    assert json.loads(reject.record)["trace"] == "claude_code"
    assert not parsed(TRACES / "openhands.json", trace_branches="reject").outcomes.rejects


def test_traces_have_their_own_tools_or_those_that_are_given_or_are_counted():
    for name, has_tools in (("openhands.json", True), ("langsmith.jsonl", True), ("claude_code.jsonl", False)):
        batch = parsed(TRACES / name)
        assert (batch.examples[0].content.tools is not None) == has_tools
        assert notes_of(batch).get("traces_without_tools", 0) == (not has_tools)
    batch = parsed(TRACES / "claude_code.jsonl", trace_tools=(TOOL,))
    assert [example.content.tools for example in batch.examples] == [[TOOL], [TOOL], None, [TOOL]]
    assert "traces_without_tools" not in notes_of(batch)
    own = parsed(TRACES / "openhands.json", trace_tools=(TOOL,)).examples[0].content.tools
    assert own[0]["function"]["name"] == "execute_bash"


def test_tools_are_a_list_or_a_file_that_has_one(tmp_path):
    anthropic = {"name": "Read", "input_schema": TOOL["function"]["parameters"]}
    (tmp_path / "tools.json").write_text(json.dumps([anthropic]))
    assert tool_definitions.of_argument(str(tmp_path / "tools.json")) == (TOOL,)
    assert tool_definitions.of_value([TOOL]) == tool_definitions.of_argument(json.dumps([TOOL])) == (TOOL,)
    for wrong in ("nowhere.json", "[1]", "[]", "[{]"):
        with pytest.raises(ValueError, match=r"expected a|not valid JSON"):
            tool_definitions.parse(wrong)
    with pytest.raises(ParameterError):
        parsed(TRACES / "codex.jsonl", trace_tools=3)


def changed(tmp_path: Path, name: str, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Write a file of JSON lines whose events were changed."""
    events = [json.loads(line) for line in (TRACES / name).read_text().splitlines() if line.endswith("}")]
    change(events)
    (tmp_path / name).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return tmp_path / name


def test_an_answer_belongs_to_the_last_call_with_its_id():
    line = '{"role": "%s", "content": "%s", "tool_call%s": %s}'
    calls = '[{"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}]'
    turns = ", ".join(
        [
            line % ("assistant", text, "s", calls) + ", " + line % ("tool", answer, "_id", '"c"')
            for text, answer in ("12", "34")
        ]
    )
    (record,), _ = sessions_of(f'{{"task_id": 1, "traj": [{turns}]}}'.encode())
    content: Any = Parser().parse(record).content
    assert [message["content"] for message in content.messages] == ["1", "2", "3", "4"]


def test_a_second_answer_to_a_call_is_counted(tmp_path):
    def change(events):
        events.append({**events[6], "uuid": "r5"})  # the answer to t1 once more

    batch = parsed(changed(tmp_path, "claude_code.jsonl", change))
    assert [example.content.messages for example in batch.examples] == EXPECTED["claude_code.jsonl"]
    assert events_of(batch)["claude_code/user (answer without call)"] == (0, 1)


def test_runs_that_a_later_one_goes_on_from_are_read_with_it():
    assert events_of(parsed(TRACES / "langsmith.jsonl"))["langsmith/llm"] == (2, 0)


def test_an_answer_to_no_call_is_counted(tmp_path):
    def change(events):
        del events[4:6]  # the calls t1 and t2

    batch = parsed(changed(tmp_path, "claude_code.jsonl", change))
    assert events_of(batch)["claude_code/user (answer without call)"] == (0, 2)


def test_a_call_that_is_made_while_another_one_runs_is_of_the_same_turn(tmp_path):
    def change(events):
        events[5]["parentUuid"] = "r1"  # as newer versions write it: after the answer to the first call
        events[5:7] = events[6], events[5]

    batch = parsed(changed(tmp_path, "claude_code.jsonl", change))
    assert [example.content.messages for example in batch.examples] == EXPECTED["claude_code.jsonl"]


def test_a_session_without_parents_is_read_in_the_order_of_the_file(tmp_path):
    def change(events):
        events[:] = [e for e in events if e["type"] in ("user", "assistant") and not e.get("isSidechain")][:7]
        for event in events:
            del event["parentUuid"]

    batch = parsed(changed(tmp_path, "claude_code.jsonl", change))
    assert [example.content.messages for example in batch.examples] == [BUILD[:4]]


def test_a_session_of_a_subagent_alone_is_its_main_conversation(tmp_path):
    def change(events):
        events[:] = [event for event in events if event.get("isSidechain")]

    batch = parsed(changed(tmp_path, "claude_code.jsonl", change), trace_branches="reject")
    assert [example.content.messages for example in batch.examples] == EXPECTED["claude_code.jsonl"][2:3]


def test_events_that_a_resumed_session_repeats_are_read_once(tmp_path):
    batch = parsed(changed(tmp_path, "claude_code.jsonl", lambda events: events.extend(events[1:4])))
    assert [example.content.messages for example in batch.examples] == EXPECTED["claude_code.jsonl"]
    assert events_of(batch)["claude_code/assistant"] == (10, 2)


def test_an_image_rejects_its_session(tmp_path):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}

    def change(events):
        events[1]["message"]["content"] = [image]

    (reject,) = parsed(changed(tmp_path, "claude_code.jsonl", change)).outcomes.rejects
    assert (reject.reason, reject.detail.partition(":")[0]) == ("image", "conversation 1 of the trace")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"type": "session_meta", "payload": {}}\n{"type": \n{"type": "x", "payload": {}}\n', "bad_trace"),
        (b'{"type": "session_meta", "payload": {}}\n{"type": "turn_context", "payload": 1}\n', "bad_trace"),
        (b'{"type": "user", "sessionId": "a", "uuid": "b", "message": "hi"}\n', "bad_trace"),
        (b'{"schema_version": "ATIF-v1.4", "steps": {}}', "bad_trace"),
        (b'{"nodes": [{"message": {"role": "user", "content": "a"}, "parent": 3}]}', "bad_trace"),
        (b'{"mapping": {"a": 1}, "current_node": "a"}', "bad_trace"),
        (b'{"custom_id": "1", "response": {"status_code": 200}}', "no_prompt"),
        (b'{"custom_id": "1", "url": "/v1", "body": {"messages": [{"role": "user", "content": "a"}]}}', "no_answer"),
        (b'[{"source": "agent", "action": "run", "args": {"command": "ls"}}]', "bad_trace"),
        (b'[{"source": "agent", "action": "run"}, {"source": "user", "action": "message"}]', "bad_trace"),
        (b'[{"kind": "MessageEvent", "llm_message": {"role": "assistant", "content": "a"}}]', "bad_trace"),
        (b'[{"kind": "ActionEvent", "action": {}}, {"kind": "PauseEvent"}]', "bad_trace"),
    ],
)
def test_a_trace_that_cannot_be_understood_is_rejected(tmp_path, content, reason):
    (tmp_path / "a").write_bytes(content)
    batch = parsed(tmp_path / "a")
    assert [reject.reason for reject in batch.outcomes.rejects] == [reason]
    assert not batch.examples


def test_a_session_in_which_the_model_wrote_nothing_is_dropped(tmp_path):
    (tmp_path / "a").write_text('{"type": "summary", "summary": "a", "leafUuid": "b"}\n')
    batch = parsed(tmp_path / "a")
    assert [drop.reason for drop in batch.outcomes.drops] == ["no_trained_tokens"]
    assert not batch.outcomes.rejects


def test_files_that_claude_code_writes_about_sessions_are_not_listed(tmp_path):
    for name in ("sessions-index.json", "agent-a9.meta.json", "5e55.jsonl"):
        (tmp_path / name).write_bytes((TRACES / "claude_code.jsonl").read_bytes())
    assert [Path(file.url).name for file in list_inputs(str(tmp_path))] == ["5e55.jsonl"]


def test_what_begins_no_trace_is_rejected():
    records, rejects = sessions_of(b'{"a": 1}\n{"a": 2}\n')
    assert (records, [reject.reason for reject in rejects]) == ([], ["unknown_trace"] * 2)


def test_a_session_that_is_too_long_is_rejected_and_its_start_kept():
    content = (TRACES / "codex.jsonl").read_bytes()
    records, (reject,) = sessions_of(content, max_record_bytes=2000)
    assert (records, reject.reason, reject.position) == ([], "too_long", 0)
    assert content.startswith(reject.record)
    assert len(sessions_of(content, max_record_bytes=len(content))[0]) == 1


def test_of_groups_that_are_anywhere_no_more_is_held_than_memory_may():
    line = '{"custom_id": "%d", "url": "/v1", "body": {"messages": [{"role": "user", "content": "%s"}]}}\n'
    content = "".join(line % (number, "x" * 400) for number in range(40)).encode()
    assert len(sessions_of(content, max_record_bytes=2000)[0]) == 40
    with pytest.raises(ValueError, match="more than 8,"):
        sessions_of(content, max_record_bytes=500)


def test_a_formatter_takes_each_conversation_and_columns_of_the_session_are_kept(tmp_path):
    (tmp_path / "first.py").write_text("def cut(record):\n    return {'messages': record['messages'][:2]}\n")
    batch = parsed(TRACES / "openhands.json", formatter=f"{tmp_path}/first.py:cut")
    assert [example.content.count for example in batch.examples] == [2]
    batch = parsed(TRACES / "claude_code.jsonl", keep_columns=("session_id", "trace"))
    assert {example.columns["session_id"] for example in batch.examples} == {"5e55"}
    assert batch.examples[0].columns["trace"] == "claude_code"


LLAMA_LIKE = """
{%- for m in messages -%}
<|im_start|>{{ m.role }}

{% if m.reasoning_content %}{{ m.reasoning_content }}
{% endif %}
{%- if m.content is string %}{{ m.content }}
{%- else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant

{% endif %}"""


def trained_texts(messages: list[dict[str, Any]]) -> list[str]:
    """The texts that are trained on, under a template with headers as those of Llama 3."""
    rendered = render(messages, tokenizer=str(TOKENIZER), chat_template=LLAMA_LIKE, unprinted="report")
    tokenizer = load_tokenizer(str(TOKENIZER))
    runs: list[list[int]] = [[]]
    for label in rendered.labels:
        if label >= 0:
            runs[-1].append(label)
        elif runs[-1]:
            runs.append([])
    return [tokenizer.decode(run) for run in runs if run]


def test_of_a_session_of_claude_code_what_the_model_wrote_is_trained_on_once():
    main, branch, _, _ = [example.content.messages for example in parsed(TRACES / "claude_code.jsonl").examples]
    assert trained_texts(main) == [
        'Look at the log and at the Makefile.\nI look at both.{"name": "Read", "arguments": {"file_path": "build.log"}}'
        '{"name": "Read", "arguments": {"file_path": "Makefile"}}<|im_end|>',
        "The target is called build, not all.<|im_end|>",
        '{"name": "Task", "arguments": {"prompt": "Rename the target."}}<|im_end|>',
    ]
    assert trained_texts(branch) == ["I would rename it to all.<|im_end|>"]


REAL = sorted((SHARED / "traces").glob("*")) if (SHARED / "traces").is_dir() else []


@pytest.mark.skipif(not REAL, reason="there are no real traces in shared/traces")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_traces_are_read_and_their_events_add_up(path):
    assert [file.format for file in list_inputs(str(path))] == ["trace"]
    batch = parsed(path)
    assert batch.examples
    if path.suffix == ".jsonl" and batch.examples[0].schema in ("claude_code", "codex"):  # each line is an event
        assert sum(map(sum, events_of(batch).values())) == lines(path.read_text())
