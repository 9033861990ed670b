"""examples/formatters.py: each formatter makes whole conversations of a real record, and a reject names it."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.program import main
from support.chats import assistant, system, user
from support.datasets import manifest_of, write_jsonl
from support.paths import ROOT, TOKENIZER
from transforms.base.errors import RecordDropped, RecordError
from transforms.inputs.formats import MAX_RECORD_BYTES, input_format
from transforms.inputs.hints import FORMATTERS as BY_COLUMNS
from transforms.inputs.listing import list_inputs
from transforms.model.examples import Record
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


SUM = [user("What is 6*7?"), assistant("It is 42.")]
THOUGHT = [user("What is 6*7?"), assistant("It is 42.", reasoning_content="6 times 7 is 42.")]
HELLO = [user("Hi"), assistant("Hello")]
WHAT = [user("Hi"), assistant("What")]
WEATHER = [
    user("Weather in Paris?"),
    calling("", ("c1", "get_weather", {"city": "Paris"})),
    {**tool("15 C", "c1"), "name": "get_weather"},
    assistant("15 C."),
]
LANGCHAIN = [
    {"type": "human", "content": "Weather in Paris?"},
    {
        **{"type": "ai", "content": "", "additional_kwargs": {}, "response_metadata": {}, "invalid_tool_calls": []},
        "tool_calls": [{"name": "get_weather", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}],
    },
    {"type": "tool", "content": "15 C", "tool_call_id": "c1", "name": "get_weather"},
    {"type": "AIMessageChunk", "content": "15 C."},
]
CLASSES = ("HumanMessage", "AIMessage", "ToolMessage", "AIMessageChunk")


def in_parts(id: str, role: str, *parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"id": id, "role": role, "parts": list(parts), **keys}


def text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def step(city: str, answer: str, number: int) -> list[dict[str, Any]]:
    """A step of version 4 of Vercel's AI SDK, and one of version 5."""
    old = {"toolCallId": f"c{number}", "toolName": "get_weather", "args": {"city": city}, "result": answer}
    new = {"type": "tool-get_weather", "toolCallId": f"c{number}", "input": {"city": city}, "output": answer}
    return [{"type": "step-start"}, {"type": "tool-invocation", "toolInvocation": old} if number % 2 else new]


# Of each formatter: a record of its dataset, and its conversation.
RECORDS: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "s1k",
        {
            **{"question": "What is 6*7?", "solution": "42", "cot_type": "math", "gemini_attempt": "The answer is 42."},
            **{"gemini_thinking_trajectory": "Seven sixes.", "deepseek_thinking_trajectory": "6 times 7 is 42."},
            "deepseek_attempt": "It is 42.",
        },
        THOUGHT,
    ),
    (
        "s1k",
        {
            **{"question": "What is 6*7?", "solution": "42", "attempt": "It is 42."},
            "thinking_trajectories": ["6 times 7 is 42."],
        },
        THOUGHT,
    ),
    (
        "natural_reasoning",
        {
            **{"question": "What is 6*7?", "reference_answer": "42"},
            "responses": [{"response_model": "Llama3.3-70B-Instruct", "response": "It is 42."}],
        },
        SUM,
    ),
    ("camel", {"role_1": "T", "topic": "Sums", "message_1": "What is 6*7?", "message_2": "It is 42."}, SUM),
    (
        "arena",
        {"model_a": "x", "model_b": "y", "winner": "model_b", "conversation_a": WHAT, "conversation_b": HELLO},
        HELLO,
    ),
    (
        "helpsteer3",
        {"context": HELLO[:1], "response1": "What", "response2": "Hello", "overall_preference": 2},
        HELLO,
    ),
    (
        "helpsteer3",
        {"context": HELLO[:1], "response1": "What", "response2": "Hello", "overall_preference": -1},
        WHAT,
    ),
    (
        "glaive",
        {
            "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if "
            'required -\n{\n    "name": "get_weather",\n    "description": "d",\n    "parameters": {}\n}\n',
            "chat": 'USER: Weather in Paris?\n\n\nASSISTANT: I look. <functioncall> {"name": "get_weather", '
            '"arguments": \'{"city": "Paris"}\'} <|endoftext|>\n\n\nFUNCTION RESPONSE: {"t": 15}\n\n\n'
            "ASSISTANT: 15 C. <|endoftext|>\n\n\n",
        },
        [
            system("You are a helpful assistant with access to the following functions. Use them if required"),
            user("Weather in Paris?"),
            calling("I look.", (None, "get_weather", {"city": "Paris"})),
            tool('{"t": 15}'),
            assistant("15 C."),
        ],
    ),
    (
        "glaive",
        {"system": "SYSTEM: Be brief.", "chat": "USER: Hi\n\n\nASSISTANT: Hello <|endoftext|>\n\n\n"},
        [system("Be brief."), *HELLO],
    ),
    ("ultrachat", {"id": "0", "data": ["Hi", "Hello", "What is 6*7?", "It is 42."]}, [*HELLO, *SUM]),
    (
        "cohere",
        {
            "preamble": "Be brief.",
            "chat_history": [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello"}],
            **{"message": "What is 6*7?", "response": "It is 42."},
        },
        [system("Be brief."), *HELLO, *SUM],
    ),
    (
        "batch",
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": HELLO}},
        HELLO,
    ),
    (
        "batch",
        {
            **{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions"},
            "body": {"model": "m", "messages": HELLO[:1]},
            "response": {"status_code": 200, "body": {"choices": [{"index": 0, "message": HELLO[1]}]}},
        },
        HELLO,
    ),
    (
        "vercel",
        {
            "messages": [
                in_parts("1", "user", text("Weather?"), content="Weather?"),
                in_parts(
                    *("2", "assistant", {"type": "reasoning", "text": "I look "}, {"type": "reasoning", "text": "."}),
                    *(text("Let me look."), *step("Paris", "15 C", 1), *step("Rome", "20 C", 2)),
                    *({"type": "step-start"}, text("15 and 20 C.")),
                    content="Let me look.15 and 20 C.",
                ),
            ]
        },
        [
            user("Weather?"),
            calling("Let me look.", ("c1", "get_weather", {"city": "Paris"}), reasoning_content="I look ."),
            tool("15 C", "c1"),
            calling("", ("c2", "get_weather", {"city": "Rome"})),
            tool("20 C", "c2"),
            assistant("15 and 20 C."),
        ],
    ),
    ("vercel", {"messages": [in_parts("1", "user", text("Hi")), in_parts("2", "assistant", text("Hello"))]}, HELLO),
    ("langchain", {"messages": LANGCHAIN}, WEATHER),
    ("langchain", {"messages": [{"type": each["type"], "data": each} for each in LANGCHAIN]}, WEATHER),
    (
        "langchain",
        {
            "messages": [
                {"lc": 1, "type": "constructor", "id": ["langchain", "schema", name], "kwargs": each}
                for name, each in zip(CLASSES, LANGCHAIN, strict=True)
            ]
        },
        WEATHER,
    ),
    ("roles_as_keys", {"dialog": [{"user": "Hi"}, {"bot": "Hello"}]}, HELLO),
    ("roles_as_keys", {"messages": [{"user": "Hi"}, {"assistant": "Hello"}]}, HELLO),
]


@pytest.mark.parametrize(("name", "record", "expected"), RECORDS, ids=[name for name, _, _ in RECORDS])
def test_each_record_of_a_dataset_becomes_a_whole_conversation(name, record, expected):
    assert conversations(name, Record(0, json.dumps(record).encode())) == [expected]


@pytest.mark.parametrize(("name", "record", "expected"), RECORDS, ids=[name for name, _, _ in RECORDS])
def test_a_record_without_its_formatter_is_rejected_with_its_name(name, record, expected):
    for raw in (json.dumps(record).encode(), record):
        with pytest.raises(RecordError) as raised:
            Parser().parse(Record(0, raw))
        assert raised.value.detail.endswith(f"it looks like {name}: --formatter examples/formatters.py:{name}")


@pytest.mark.parametrize("file", [file for file in LOGS if file != "hermes.jsonl"])
def test_a_record_of_a_log_is_rejected_with_the_name_of_its_formatter(file):
    with pytest.raises(RecordError, match=f"--formatter examples/formatters.py:{LOGS[file][0]}'"):
        Parser().parse(records_of(FILES / file)[0])


def test_hermes_is_read_as_it_is_unless_it_has_tools_twice():
    as_text, twice = records_of(FILES / "hermes.jsonl")
    assert Parser().parse(as_text).schema == "sharegpt"
    with pytest.raises(
        RecordError, match=r"print again; it looks like hermes: --formatter examples/formatters\.py:hermes"
    ):
        Parser().parse(twice)


@pytest.mark.parametrize(("name", "title"), [
    ("claude_code.jsonl", "a session of Claude Code"),
    ("codex.jsonl", "a session of Codex"),
    ("atif.json", "a trajectory in ATIF"),
])  # fmt: skip
def test_the_first_event_of_a_session_is_rejected_with_the_input_format(name, title):
    path = ROOT / "tests" / "data" / "traces" / name
    with pytest.raises(RecordError) as raised:
        Parser().parse(records_of(path)[0])
    assert raised.value.detail == f"it looks like {title}: --input_format {path.stem}"


def test_each_formatter_is_tried_and_each_hint_names_one():
    functions = {node.name for node in ast.parse(FORMATTERS.read_text()).body if isinstance(node, ast.FunctionDef)}
    named = {name for name in functions if not name.startswith("_")}
    assert named == {name for name, _, _ in RECORDS} | {name for name, _ in LOGS.values()}
    assert named == {name for _, name in BY_COLUMNS} | {"hermes", "vercel", "langchain", "roles_as_keys"}


def test_a_build_reads_each_record_by_the_formatter_of_its_source(tmp_path):
    sources = [(name, FILES / file) for file, (name, _) in LOGS.items()]
    for number, (name, record, _) in enumerate(RECORDS):
        write_jsonl(tmp_path / f"{number}.jsonl", [record])
        sources.append((name, tmp_path / f"{number}.jsonl"))
    recipe = {
        "sources": [
            {"name": f"{name}_{number}", "input": str(path), "formatter": f"{FORMATTERS}:{name}"}
            for number, (name, path) in enumerate(sources)
        ]
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    options = [f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}", "--direct_num_workers=1"]
    assert main(["build", str(tmp_path / "recipe.yaml"), *options]) == 0
    manifest = manifest_of(tmp_path / "out")
    assert manifest["records"]["rejected"] == manifest["records"]["dropped"] == {}
    assert manifest["records"]["read"] == len(sources) + 1
    assert manifest["rows"] == sum(len(each) for _, expected in LOGS.values() for each in expected) + len(RECORDS)
    assert manifest["statistics"]["unread"] == {}


def test_what_was_not_preferred_is_dropped():
    tie = {"conversation_a": HELLO, "conversation_b": HELLO, "winner": "tie"}
    even = {"context": HELLO[:1], "response1": "What", "response2": "Hello", "overall_preference": 0}
    for name, record in (("arena", tie), ("helpsteer3", even)):
        with pytest.raises(RecordDropped, match="filtered"):
            Parser(formatter=f"{FORMATTERS}:{name}").parse(Record(0, record))


def test_each_file_of_a_log_has_an_expected_value():
    assert {path.name for path in FILES.iterdir()} == LOGS.keys()
