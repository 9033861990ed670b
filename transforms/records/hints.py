"""Hints for records of known datasets and logs that only an option reads: a formatter, or a format of traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.records.reading import ROLE_NAMES
from transforms.traces import TRACES, trace_format

# Columns that such records have, and the function of examples/formatters.py that reads them.
_FORMATTERS = {
    "deepseek_thinking_trajectory deepseek_attempt": "s1k",
    "thinking_trajectories attempt": "s1k",
    "question responses": "natural_reasoning",
    "message_1 message_2": "camel",
    "conversation_a conversation_b winner": "arena",
    "response1 response2 overall_preference": "helpsteer3",
    "system chat": "glaive",
    "id data": "ultrachat",
    "chat_history message response": "cohere",
    "method url body": "batch",
    "history trajectory": "swe_agent",
    "task_id traj": "tau",
    "tasks simulations": "tau",
    "nodes task": "verifiers",
}
# Columns of records that nothing else reads, also if some of them are those of a layout.
ONLY_BY_FORMATTER = ({"deepseek_thinking_trajectory", "deepseek_attempt"}, {"thinking_trajectories", "attempt"})


def formatter_hint(name: str) -> str:
    """Return what a record looks like, and the formatter of examples/formatters.py that reads it."""
    return f"it looks like {name}: --formatter examples/formatters.py:{name}"


def hint_for_record(record: Mapping[str, Any]) -> str:
    """Return what a record looks like, by its columns, and the option that reads it; empty if that is not known."""
    for columns, name in _FORMATTERS.items():
        if record.keys() >= {*columns.split()}:
            return formatter_hint(name)
    for name in TRACES:
        if trace_format(name).recognizes(record):
            return f"it looks like {trace_format(name).title}: --input_format {name}"
    return next((hint for value in record.values() if (hint := hint_for_turns(value))), "")


def hint_for_turns(turns: Any) -> str:
    """Return what turns look like, by the first one, and the formatter that reads them; empty if that is not known."""
    first = turns[0] if isinstance(turns, list) and turns and isinstance(turns[0], dict) else {}
    first = {key: value for key, value in first.items() if value is not None}  # as Arrow gives them to all
    parts = first.get("parts")
    if "role" in first and isinstance(parts, list) and any(isinstance(part, dict) and "type" in part for part in parts):
        return formatter_hint("vercel")
    if "role" not in first and first.get("type") in ("human", "ai", "system", "constructor"):
        return formatter_hint("langchain")
    if len(first) == 1 and str(next(iter(first))).lower() in ROLE_NAMES:
        return formatter_hint("roles_as_keys")
    return ""
