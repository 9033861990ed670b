"""JSON in the cells of tables: text becomes a list or an object only if the schema can use nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.inputs.json_text import NOT_JSON, decode_json
from transforms.inputs.media import MEDIA_COLUMNS
from transforms.inputs.preference import LABELS
from transforms.inputs.reading import Reading
from transforms.inputs.token_rows import MASKS, OF_PACKED_ROWS

# Columns that have lists in every schema that has them.
_LISTS = (
    *("messages", "conversations", "history", "input_ids", "labels", "loss_weights", *OF_PACKED_ROWS),
    *(*MASKS, *MEDIA_COLUMNS),
)
# Columns that have texts or messages, all of them the same.
_ANSWERS = (("prompt", "completion"), ("chosen", "rejected"))
_BOOLEANS = {"true": True, "false": False, "0": 0, "1": 1, "-1": -1}


def with_lists(record: Mapping[str, Any], reading: Reading) -> Mapping[str, Any]:
    """Decode the columns of a record that are the JSON of a list, as tables have them, if they cannot be a text."""
    lists: dict[str, Any] = {}
    for name in _LISTS:
        if isinstance(cell := record.get(name), str) and _list(cell) is not None:
            lists[name] = decode_json(cell, "bad_value", name, reading)  # which notes duplicate keys
    return {**record, **lists} if lists else record


def with_answers(record: dict[str, Any]) -> dict[str, Any]:
    """Decode the columns of a record of untyped cells that may be text, if it is certain that they are not.

    A prompt and its completion become messages if both are the JSON of lists of messages; so do a chosen and a rejected
    answer, and their prompt. A label becomes a boolean or a number.
    """
    decoded: dict[str, Any] = {}
    for names in _ANSWERS:
        found = {name: _list(record.get(name)) for name in names}
        if all(_are_messages(turns) for turns in found.values()):
            decoded |= found
            if "prompt" in record and _are_messages(prompt := _list(record["prompt"])):
                decoded["prompt"] = prompt
    for name in LABELS:
        label = str(record.get(name)).lower()
        if label in _BOOLEANS:
            decoded[name] = _BOOLEANS[label]
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
