"""The table of records in tests/data/records, what parsing makes of one record, and records of other values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.paths import ROOT
from transforms import Conversation, PlainText, PromptCompletion, RecordDropped, RecordError, parse

CASES: dict[str, list[dict[str, Any]]] = {
    path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted((ROOT / "tests" / "data" / "records").glob("*.jsonl"))
}
SAMPLES: list[dict[str, Any]] = [
    json.loads(line) for line in (ROOT / "tests" / "data" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
]
# What a value of a record is replaced by.
OTHERS = (None, 7, "x", True, [], {}, [{"a": [None, {"type": {}}]}], {"content": [1]})


def plain_records(case: dict[str, Any]) -> list[Any]:
    """The records of a case, without further columns."""
    return [case["record"]] if "record" in case else case.get("records", [])


def read_records(case: dict[str, Any]) -> list[Any]:
    """The records of a case, each with each of the further columns."""
    records = plain_records(case)
    return [{**record, **more} for record in records for more in case["with"]] if "with" in case else records


def read_lines(case: dict[str, Any]) -> list[bytes]:
    """The lines of a case, of which most are not JSON."""
    lines = [case["line"]] if "line" in case else case.get("lines", [])
    return [line.encode("utf-8", "surrogateescape") for line in lines]


def outcome(record: dict[str, Any] | bytes, **options: Any) -> dict[str, Any]:
    """What becomes of a record, as the table says it, with all that parsing says of it."""
    try:
        [example] = parse(record, **options)
    except RecordError as error:
        return {"rejected": [error.reason, error.detail]}
    except RecordDropped as drop:
        return {"dropped": drop.reason}
    found = {"notes": dict(example.notes), "unread": dict(example.unread), "columns": example.columns}
    found["validation"] = example.validation
    return {"becomes": make_content(example.content), "schema": example.schema, **found}


def make_content(content: Any) -> dict[str, Any]:
    """A content as the table says it: without what is empty."""
    if isinstance(content, Conversation):
        made = {"messages": content.messages, "tools": content.tools, "template_kwargs": content.template_kwargs}
        start = content.completion_start
        return {name: value for name, value in made.items() if value or name == "messages"} | (
            {} if start is None else {"completion_start": start}
        )
    if isinstance(content, PlainText):
        return {"text": content.text}
    if isinstance(content, PromptCompletion):
        return {"prompt": content.prompt, "completion": content.completion}
    return {"input_ids": content.input_ids.tolist(), "trained": content.trained.tolist()}


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from list_paths(each, (*path, key))


def changed(record: Any, path: tuple[Any, ...], *other: Any) -> Any:
    """A record with another value at a path, or without the one there."""
    record = json.loads(json.dumps(record))
    parent = record
    for key in path[:-1]:
        parent = parent[key]
    if other:
        parent[path[-1]] = other[0]
    else:
        del parent[path[-1]]
    return record


def malformed(record: Any) -> Iterator[Any]:
    """Give a record with one value after another missing, and of another type."""
    for number, path in enumerate(list_paths(record)):
        yield changed(record, path)
        # Of all others one in turn: every form has many paths of each kind.
        yield changed(record, path, OTHERS[number % len(OTHERS)])
        yield changed(record, path, OTHERS[(3 * number + 1) % len(OTHERS)])
