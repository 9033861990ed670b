"""examples/formatters.py: each formatter makes whole conversations of a real record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.chats import assistant, system, user
from support.paths import ROOT
from transforms.inputs.formats import MAX_RECORD_BYTES, input_format
from transforms.inputs.listing import list_inputs
from transforms.steps.parse import Parser

FORMATTERS = ROOT / "examples" / "formatters.py"
FILES = ROOT / "tests" / "data" / "formatters"


def tool(content: str, id: str | None = None) -> dict[str, Any]:
    return {"role": "tool", **({"tool_call_id": id} if id else {}), "content": content}


def calling(content: str, *calls: tuple[str | None, str, dict[str, Any]], **keys: Any) -> dict[str, Any]:
    made = [
        {**({"id": id} if id else {}), "type": "function", "function": {"name": name, "arguments": given}}
        for id, name, given in calls
    ]
    return {**assistant(content, **keys), "tool_calls": made}


def records_of(path: Path) -> list[Any]:
    """The records of a file, in the format that a build finds."""
    (file,) = list_inputs(str(path))
    with path.open("rb") as opened:
        parts = [*input_format(file.format).read(opened, 0, None, 1 << 20, MAX_RECORD_BYTES)]
    assert not any(part.rejects for part in parts)
    return [record for part in parts for record in part.records]


def conversations(name: str, record: Any) -> list[list[dict[str, Any]]]:
    """The messages that a formatter makes of a record, without what is empty."""
    made = Parser(formatter=f"{FORMATTERS}:{name}").parse_all(record)
    return [
        [
            {key: value for key, value in message.items() if key == "content" or value not in ("", None, 1)}
            for message in each.content.messages
        ]
        for each in made
    ]


ECHO = [system("Use echo."), user("Say hi."), assistant("As before: hi.", weight=0), user("Again.")]

# Of each file the conversations of each record.
LOGS: dict[str, tuple[str, list[list[list[dict[str, Any]]]]]] = {
    "swe_agent.traj": (
        "swe_agent",
        [[[
            system("SETTING: You are a programmer."),
            user("Here is how it was done before."),
            user([{"type": "text", "text": "Solve the issue.", "cache_control": {"type": "ephemeral"}}]),
            calling("I list the files.", ("call_1", "bash", {"command": "ls"}),
                    reasoning_content="Which files are there?"),
            tool("a.py", "call_1"),
            calling("Done.", ("call_1", "submit", {})),
        ]]],
    ),
    "tau_bench.json": (
        "tau",
        [[[
            system("# Policy"),
            user("Cancel W1."),
            {**calling("", ("c1", "cancel", {"id": "W1"})), "content": None},
            {**tool("cancelled", "c1"), "name": "cancel"},
            assistant("It is cancelled."),
            user("###STOP###"),
        ]]],
    ),
    "tau2.json": (
        "tau",
        [[[
            assistant("Hi! How can I help?"),
            user("My phone is off."),
            calling("", ("c1", "get_line", {"n": 1})),
            tool('{"on": false}', "c1"),
            assistant("Turn it on.", reasoning_content="The line is fine."),
            user("Done."),
            assistant("Great."),
        ]]],
    ),
    "verifiers.jsonl": (
        "verifiers",
        [[
            [*ECHO, assistant("Hi!")],
            [*ECHO, calling("", ("e1", "echo", {"text": "hi"})), tool("hi", "e1"), assistant("hi")],
        ]],
    ),
    "hermes.jsonl": (
        "hermes",
        [
            [[
                system('You are a function calling AI model. <tools>\n[{"type": "function", "function": '
                       '{"name": "get_weather"}}]\n</tools>'),
                user("Weather in Paris and in Rome?"),
                calling("I look.", ("call00000", "get_weather", {"city": "Paris"}),
                        ("call00001", "get_weather", {"city": "Rome"}), reasoning_content="Two calls."),
                tool('{"tool_call_id": "c1", "name": "get_weather", "content": "15 C"}', "call00000"),
                tool('{"tool_call_id": "c2", "name": "get_weather", "content": "20 C"}', "call00001"),
                assistant("15 and 20 C."),
            ]],
            [[
                system('You are a function calling AI model. <tools> [{"type":"function","function":'
                       '{"name":"get_weather"}}] </tools>'),
                user("Weather in Paris?"),
                calling("", (None, "get_weather", {"city": "Paris"})),
                tool('{"t":15}'),
                assistant("15 C"),
            ]],
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("file", LOGS)
def test_each_record_of_a_log_becomes_whole_conversations(file):
    name, expected = LOGS[file]
    assert [conversations(name, record) for record in records_of(FILES / file)] == expected


def test_each_file_of_a_log_has_an_expected_value():
    assert {path.name for path in FILES.iterdir()} == LOGS.keys()
