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
_SEVERAL = """
def several(record):
    if not "messages" in record:
        return None
    return [record, {"text": record["messages"][-1]["content"] or "nothing"}]
"""

KINDS: dict[str, dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "kinds.json").read_text())
_NAMED: dict[str, Any] = {"CHATS": CHATS, "ALL_COLUMNS": ALL_COLUMNS, "DROPS_REASONING": DROPS_REASONING}
_NAMED["EXAMPLE"] = ROOT / "examples" / "sources.yaml"


def build_dataset(kind: str) -> Path:
    """Build the dataset of a kind, once, and return its folder, which must not be changed."""
    return built_once(kind, functools.partial(_build, kind)) / "out"


def _build(kind: str, folder: Path) -> None:
    from support.command_line import chatmill

    options = {"tokenizer": TOKENIZER, "output": folder / "out", "max_reject_fraction": 0.9, "direct_num_workers": 1}
    options |= {name: _NAMED.get(str(value), value) for name, value in KINDS[kind].items()}
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
