"""JSON in the cells of tables: text becomes a list or an object only if the schema can use nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.records.json_text import NOT_JSON, decode_json
from transforms.records.media import MEDIA_COLUMNS
from transforms.records.preference import LABELS
from transforms.records.reading import Reading
from transforms.records.token_rows import MASKS, OF_PACKED_ROWS

# Columns that have lists in every schema that has them.
_LISTS = (
    *("messages", "conversations", "history", "input_ids", "labels", "loss_weights", *OF_PACKED_ROWS),
    *(*MASKS, *MEDIA_COLUMNS),
)
# Columns that have texts or messages.
_ANSWERS = ("prompt", "completion", "chosen", "rejected")
_BOOLEANS = {"true": True, "false": False, "0": 0, "1": 1, "-1": -1}


def with_lists(record: Mapping[str, Any], reading: Reading) -> Mapping[str, Any]:
    """Decode the columns of a record that are the JSON of a list, as tables have them, if they cannot be a text.

    Answers, and their prompts, are texts unless they are the JSON of messages; a system message, of text blocks.
    """
    lists: dict[str, Any] = {}
    for name in _ANSWERS:
        if isinstance(record.get(name), str) and _are_messages(turns := _list(record[name])):
            lists[name] = turns
    if (blocks := _list(record.get("system"))) and all(isinstance(each, dict) and "text" in each for each in blocks):
        lists["system"] = blocks
    for name in _LISTS:
        if isinstance(cell := record.get(name), str) and _list(cell) is not None:
            lists[name] = decode_json(cell, "bad_value", name, reading)  # which notes duplicate keys
    return {**record, **lists} if lists else record


def with_labels(record: dict[str, Any]) -> dict[str, Any]:
    """Decode the labels of a record of untyped cells: each becomes a boolean or a number."""
    labels = {name: str(record[name]).lower() for name in LABELS if name in record}
    decoded = {name: _BOOLEANS[label] for name, label in labels.items() if label in _BOOLEANS}
    return {**record, **decoded} if decoded else record


def _list(cell: Any) -> list[Any] | None:
    if not isinstance(cell, str) or not cell.lstrip().startswith("["):
        return None
    try:
        decoded = msgspec.json.decode(cell)
    except NOT_JSON:
        return None
    return decoded if isinstance(decoded, list) else None


def _are_messages(turns: list[Any] | None) -> bool:
    return bool(turns) and all(
        isinstance(turn, dict) and ({"role", "content"} <= turn.keys() or {"from", "value"} <= turn.keys())
        for turn in turns or ()
    )
