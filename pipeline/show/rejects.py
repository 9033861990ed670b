"""A rejected record: what its detail names of it, and the record, pretty-printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.show.hints import hints
from transforms.base.hidden import visible
from transforms.rows.columns import PROVENANCE_COLUMNS

# A place in a detail: a column, and the keys and numbers that lead from there to what was wrong.
_PLACE = re.compile(r"\b([A-Za-z_]\w*)((?:\[\d+\]|\.[A-Za-z_]\w*)*)")
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")
_CHARACTERS_SHOWN, _LINES_SHOWN = 600, 60


def reject_as_json(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rejected record for JSON: as a value if it is JSON, otherwise as text. line: of the exceptions."""
    value = _value(line["record"], lambda _: None)
    if value is None:
        value = line["record"].decode(errors="replace")
    described = {name: line[name] for name in (*PROVENANCE_COLUMNS, "reason", "detail")}
    return {"reject": line["number"], **described, "record": value, "marked": [*_places(line["detail"], value)]}


def print_reject(console: Console, line: Mapping[str, Any], full: bool) -> None:
    """Print a rejected record.

    Args:
        line: of the exceptions.
        full: whether to print all of it, also long strings.
    """
    title = f"reject {line['number']:,}: {line['reason']}; {line['origin_file']}:{line['origin_position']}"
    console.print(Text(visible(title), "bold"))
    console.print(Text(visible(line["detail"]), "red"))
    for hint in hints([line["reason"]]):
        console.print(hint)
    value = _value(line["record"])
    if value is None:
        text = line["record"].decode("utf-8", "surrogateescape")
        place = _find_json_error(text)
        marked = {f"character {place:,}": text[place:] or "(the record ends here)"}
    else:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        places = _places(line["detail"], value)
        marked = {name: json.dumps(part, ensure_ascii=False) for name, part in places.items()}

    def shown(text: str) -> str:
        left = 0 if full else max(len(text) - _CHARACTERS_SHOWN, 0)
        return visible(text[: len(text) - left]) + (f"… {left:,} characters" if left else "")

    for name, part in marked.items():
        console.print(Text(f"▶ {visible(name)}: {shown(part)}", "bold red"))
    lines = text.splitlines()
    for each in lines if full else lines[:_LINES_SHOWN]:
        console.print(Text(shown(each)))
    if not full and len(lines) > _LINES_SHOWN:
        console.print(Text(f"… {len(lines) - _LINES_SHOWN:,} lines after this; inspect --full shows all", "yellow"))
    console.print()


def _value(record: bytes, constant: Callable[[str], Any] | None = None) -> Any:
    """The JSON of a record, None if it is something else. constant: what NaN and Infinity become, if it is not that."""
    try:
        return json.loads(record, parse_constant=constant)
    except (ValueError, RecursionError):
        return None


def _find_json_error(text: str) -> int:
    """The first character of a text that is not UTF-8, or at which it is not JSON."""
    if lone := re.search("[\ud800-\udfff]", text):
        return lone.start()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos
    except (ValueError, RecursionError):
        pass
    return len(text)


def _places(detail: str, value: Any) -> dict[str, Any]:
    """What a detail names of a record, such as `messages[3].role`, as far as the record has it."""
    places: dict[str, Any] = {}
    if not isinstance(value, dict):
        return places
    for name, steps in _PLACE.findall(detail):
        if name not in value:
            # A detail has the names of our schema: the messages may be in another column.
            lists = [key for key, inner in value.items() if isinstance(inner, list)]
            if not steps.startswith("[") or len(lists) != 1:
                continue
            [name] = lists
        inner: Any = value[name]
        for number, key in _STEP.findall(steps):
            step = int(number) if number else key
            if isinstance(inner, str):
                break
            try:
                inner = inner[step]
            except (KeyError, IndexError, TypeError):
                break
            name += f"[{step}]" if number else f".{step}"
        places[name] = inner
    return places
