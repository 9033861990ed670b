"""A rejected record: pretty-printed, with the place that was wrong marked where it can be found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.show.hints import hints
from pipeline.show.text import visible
from transforms.rows.columns import PROVENANCE_COLUMNS

_MARK, _NO_MARK = "▶ ", "  "
# A place in a detail: a column, and the keys and numbers that lead from there to what was wrong.
_PLACE = re.compile(r"\b([A-Za-z_]\w*)((?:\[\d+\]|\.[A-Za-z_]\w*)*)")
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")
_CHARACTERS_SHOWN, _LINES_SHOWN, _LINES_BEFORE = 600, 60, 10

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rejected:
    """A rejected record. number: among all rejects of the dataset, from 0."""

    number: int
    origin_file: str
    origin_position: int
    reason: str
    detail: str
    record: bytes


def reject_as_json(reject: Rejected) -> dict[str, Any]:
    """Return a reject for JSON: the record as a value if it is JSON, otherwise as text."""
    value = _value(reject.record, lambda _: None)
    if value is None:
        value = reject.record.decode(errors="replace")
    described = {name: getattr(reject, name) for name in (*PROVENANCE_COLUMNS, "reason", "detail")}
    return {"reject": reject.number, **described, "record": value, "marked": [_name(p) for p in _places(reject, value)]}


def print_reject(console: Console, reject: Rejected, full: bool) -> None:
    """Print a reject. full: whether to print all of it, also long strings, and lines far from a mark."""
    title = f"reject {reject.number:,}: {reject.reason}; {reject.origin_file}:{reject.origin_position}"
    console.print(Text(visible(title), "bold"))
    console.print(Text(visible(reject.detail), "red"))
    for line in hints([reject.reason]):
        console.print(line)
    value = _value(reject.record)
    lines = list(_text_lines(reject.record) if value is None else _value_lines(value, _places(reject, value), full))
    marked = next((number for number, (_, is_marked) in enumerate(lines) if is_marked), 0)
    start = 0 if full or len(lines) <= _LINES_SHOWN else max(min(marked - _LINES_BEFORE, len(lines) - _LINES_SHOWN), 0)
    stop = len(lines) if full else min(start + _LINES_SHOWN, len(lines))
    if start:
        console.print(Text(f"… {start:,} lines before this; inspect --full shows all", "yellow"))
    for line, is_marked in lines[start:stop]:
        console.print(Text((_MARK if is_marked else _NO_MARK) + visible(line), "bold red" if is_marked else ""))
    if stop < len(lines):
        console.print(Text(f"… {len(lines) - stop:,} lines after this; inspect --full shows all", "yellow"))
    console.print()


def _value(record: bytes, constant: Callable[[str], Any] | None = None) -> Any:
    """The JSON of a record, None if it is something else. constant: what NaN and Infinity become, if it is not that."""
    try:
        return json.loads(record, parse_constant=constant)
    except (ValueError, RecursionError):
        return None


def _text_lines(record: bytes) -> Iterator[tuple[str, bool]]:
    """What is not JSON, as text: up to the place where it is not, marked, and from there."""
    text, wrong = record.decode("utf-8", "surrogateescape"), len(record)
    if lone := re.search("[\ud800-\udfff]", text):
        wrong = lone.start()
    else:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            wrong = error.pos
        except (ValueError, RecursionError):
            pass
    before, after = text[:wrong][-_CHARACTERS_SHOWN:], text[wrong:][:_CHARACTERS_SHOWN]
    if left := wrong - len(before):
        yield f"… {left:,} characters", False
    yield from ((line, False) for line in before.splitlines())
    if after:
        first, *others = after.splitlines() or [""]
        yield first, True
        yield from ((line, False) for line in others)
    else:
        yield "(the record ends here)", True
    if left := len(text) - wrong - len(after):
        yield f"… {left:,} characters", False


def _value_lines(value: Any, places: list[_Path], full: bool) -> Iterator[tuple[str, bool]]:
    """The lines of pretty-printed JSON, and whether each is marked: those of the places, or of what they are in."""

    def lines(value: Any, path: _Path, before: str, after: str) -> Iterator[tuple[str, bool]]:
        # All of what a place of several steps leads to is marked; of a column only its first line.
        is_marked = path in places or any(path[: len(place)] == place for place in places if len(place) > 1)
        indent = "  " * len(path)
        if not isinstance(value, (dict, list)) or not value:
            text = json.dumps(value, ensure_ascii=False)
            if not full and len(text) > _CHARACTERS_SHOWN:
                text = f"{text[:_CHARACTERS_SHOWN]}… {len(text) - _CHARACTERS_SHOWN:,} characters"
            yield f"{indent}{before}{text}{after}", is_marked
            return
        is_list = isinstance(value, list)
        yield f"{indent}{before}{'[' if is_list else '{'}", is_marked
        items: list[tuple[Any, Any]] = list(enumerate(value) if isinstance(value, list) else value.items())
        for number, (key, inner) in enumerate(items):
            name = "" if is_list else f"{json.dumps(key, ensure_ascii=False)}: "
            yield from lines(inner, (*path, key), name, "," if number < len(items) - 1 else "")
        yield f"{indent}{']' if is_list else '}'}{after}", is_marked and len(path) > 1

    yield from lines(value, (), "", "")


def _places(reject: Rejected, value: Any) -> list[_Path]:
    """The places in a record that the detail of its reject names, as far as the record has them."""
    if not isinstance(value, dict):
        return []
    found = []
    for name, steps in _PLACE.findall(reject.detail):
        path: _Path = (name,)
        if name not in value:
            # A detail has the names of our schema: the messages may be in another column.
            lists = [key for key, inner in value.items() if isinstance(inner, list)]
            if not steps.startswith("[") or len(lists) != 1:
                continue
            path = (lists[0],)
        inner: Any = value[path[0]]
        for number, key in _STEP.findall(steps):
            step: Any = int(number) if number else key
            if not isinstance(inner, (dict, list)):
                break
            try:
                inner = inner[step]
            except (KeyError, IndexError, TypeError):
                break
            path = (*path, step)
        found.append(path)
    return list(dict.fromkeys(found))


def _name(path: _Path) -> str:
    """A place as a detail names it, such as messages[3].role."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
