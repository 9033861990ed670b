"""Small datasets of all kinds of options, for the commands that read a dataset. Each is built once per session."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from support.chats import assistant, user
from support.datasets import write_jsonl
from support.paths import CHATS, ROOT, TOKENIZER
from support.shared import built_once
from support.templates import DROPS_REASONING

ALL_COLUMNS = "input_ids,labels,seq_lengths,attention_mask,position_ids,loss_mask,part_lengths,part_kinds,part_messages"
_CHATS = {"input": CHATS, "split_bytes": 200_000}
_PACKED = {"max_length": 512, "packing": "bfd"}
_SEVERAL = """
def several(record):
    if not "messages" in record:
        return None
    return [record, {"text": record["messages"][-1]["content"] or "nothing"}]
"""

KINDS: dict[str, dict[str, Any]] = {
    "packed": _CHATS | _PACKED | {
        "output_format": "parquet,tfrecord", "write_columns": ALL_COLUMNS, "provenance": True,
        "validation_fraction": 0.2
    },
    "shifted": _CHATS | {
        "output_format": "parquet,tfrecord.gz", "shift_labels": True,
        "keep_columns": "id,topic", "provenance": True, "max_length": 200, "write_columns": ALL_COLUMNS,

    },
    "shifted_and_packed": _CHATS | _PACKED | {"shift_labels": True, "validation_fraction": 0.1},
    "wrapped": _CHATS | {
        "max_length": 100, "packing": "wrapped", "write_columns": ALL_COLUMNS, "shift_labels": True
    },
    "split": _CHATS | {
        "max_length": 64, "packing": "bfd_split", "provenance": True, "validation_fraction": 0.3
    },
    "ffd": _CHATS | {"max_length": 256, "packing": "ffd", "write_columns": "input_ids,position_ids,loss_mask"},
    "tfrecord": _CHATS | {
        "output_format": "tfrecord.gz", "provenance": True, "keep_columns": "id",
    },
    "packed_tfrecord": _CHATS | _PACKED | {"output_format": "tfrecord", "provenance": True},
    "keep_end": _CHATS | {"max_length": 50, "truncation": "keep_end", "write_columns": "input_ids,labels,loss_mask"},
    "without_labels": {"input": "completion.jsonl", "write_columns": "input_ids,loss_mask"},
    "drop": _CHATS | {"max_length": 80, "truncation": "drop", "packing": "bfd", "validation_fraction": 0.5},
    "windows": _CHATS | {"max_length": 48, "truncation": "windows", "provenance": True},
    "windows_and_pack": _CHATS | {
        "max_length": 64, "truncation": "windows", "window_overlap": 8, "packing": "bfd", "shift_labels": True,
        "provenance": True, "validation_fraction": 0.3,
    },
    "turns": _CHATS | {"max_length": 60, "truncation": "turns", "packing": "ffd"},
    "completion": {"input": "completion.jsonl", "loss_on": "all"},
    "token_rows": {"input": "token_rows.jsonl", "max_length": 6},
    "weights": {"input": "weights.jsonl", "write_columns": ALL_COLUMNS, "packing": "bfd", "max_length": 300},
    "expand": {"input": "reasoning.jsonl", "chat_template": DROPS_REASONING, "parity": "expand", "provenance": True},
    "expand_and_pack": {
        "input": "reasoning.jsonl", "chat_template": DROPS_REASONING, "parity": "expand", "provenance": True,
        "packing": "ffd", "max_length": 128,
    },
    "formatter": _CHATS | {"formatter": "several.py:several", "provenance": True, "shift_labels": True},
    "sources": {"recipe": ROOT / "examples" / "sources.yaml", "max_length": 512, "provenance": True},
    "one_file_twice": {"recipe": "twice.yaml", "provenance": True, "max_length": 300, "packing": "bfd"},
}  # fmt: skip


def build_dataset(kind: str) -> Path:
    """Build the dataset of a kind, once, and return its folder, which must not be changed."""
    return built_once(kind, functools.partial(_build, kind)) / "out"


def _build(kind: str, folder: Path) -> None:
    from support.command_line import chatmill

    options = {"tokenizer": TOKENIZER, "output": folder / "out", "max_reject_fraction": 0.9, "direct_num_workers": 1}
    options |= KINDS[kind]
    inputs = built_once("inputs-of-kinds", _write_inputs)
    for name in ("input", "formatter", "recipe"):
        if isinstance(options.get(name), str):
            options[name] = inputs / options[name]
    assert chatmill("build", *(f"--{name}={_typed(value)}" for name, value in options.items())) == 0


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_inputs(folder: Path) -> None:
    write_jsonl(folder / "completion.jsonl", [{"prompt": f"{n} + 1 =", "completion": f" {n + 1}."} for n in range(60)])
    write_jsonl(
        folder / "token_rows.jsonl",
        [{"input_ids": [n, n + 1, 7, 8], "labels": [-100, n + 1, 7, -100]} for n in range(60)]
        + [{"input_ids": list(range(20))}],
    )
    write_jsonl(
        folder / "weights.jsonl",
        [{"messages": [user("Hi"), assistant("A"), user("And?"), assistant("B", weight=n % 2)]} for n in range(40)],
    )
    thinking = [
        user("a?"), assistant("b", reasoning_content="first"), user("c?"), assistant("d", reasoning_content="then"),
    ]  # fmt: skip
    write_jsonl(folder / "reasoning.jsonl", [{"messages": thinking[: 2 + n % 2 * 2]} for n in range(50)])
    (folder / "several.py").write_text(_SEVERAL)
    twice = {"input": str(CHATS / "support.jsonl")}
    config = [twice | {"name": "once"}, twice | {"name": "again", "may_repeat": True, "loss_on": "last_assistant"}]
    (folder / "twice.yaml").write_text(json.dumps({"sources": config}))
