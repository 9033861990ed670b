"""What the manifest counts of contents and tokens is what slow plain Python counts, however the records are divided."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.paths import CHATS, TOKENIZER

LINES = (CHATS / "support.jsonl").read_text().split("\n")[88:122]
LIMITS = (2048, 4096, 8192, 16384, 32768)


def length_bucket(number: int) -> int:
    """Exact below 16, and then 8 buckets for each power of two."""
    shift = max(number.bit_length() - 4, 0)
    return number >> shift << shift


def histogram(numbers: Iterable[int], bucket: Callable[[int], int] = length_bucket) -> dict[str, Any]:
    numbers = [*numbers]
    buckets = sorted(Counter(map(bucket, numbers)).items())
    sums = {"count": len(numbers), "sum": sum(numbers), "min": min(numbers), "max": max(numbers)}
    return {"buckets": [[*each] for each in buckets]} | sums


def beyond(limit: int, masks: list[list[bool]]) -> dict[str, int]:
    """What would be cut off, and with `--truncation turns` the turns that do not end before it."""
    turns = 0
    for mask in masks:
        stop = 0
        for is_trained, run in groupby(mask):
            length = len([*run])
            stop += length
            turns += length if is_trained and stop > limit else 0
    return {
        "examples": sum(len(mask) > limit for mask in masks),
        "tokens": sum(len(mask[limit:]) for mask in masks),
        "trained_tokens": sum(sum(mask[limit:]) for mask in masks),
        "trained_tokens_of_turns": turns,
    }


def test_tokens_and_what_a_limit_loses_are_counted(tmp_path: Path):
    draw = random.Random(3)
    masks = [[is_trained for _ in range(draw.randint(1, 30)) for is_trained in [draw.random() < 0.5]
              for _ in range(draw.choice((1, 7, 100, 1000, 2000)))] for _ in range(60)]  # fmt: skip
    masks += [[True] * length for length in (1, 15, 16, 17, 18, *LIMITS, *(limit + 1 for limit in LIMITS))]
    rows = [{"input_ids": [7] * len(mask), "labels": [7 if each else -100 for each in mask]} for mask in masks]
    corpus = write_jsonl(tmp_path / "rows.jsonl", rows)
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--split_bytes=500000"]
    assert chatmill("build", *options) == 0
    masks = [mask for mask in masks if any(mask)]
    found = read_manifest(tmp_path / "out")["statistics"]
    assert found["limits"] == {str(limit): beyond(limit, masks) for limit in LIMITS}
    lengths = histogram(map(len, masks))
    assert found["histograms"] == {
        "example_tokens": lengths,
        "example_trained_tokens": histogram(map(sum, masks)),
        "examples_per_row": histogram(1 for _ in masks),
        "row_tokens": lengths,
        "trained_percent": histogram((100 * sum(mask) // len(mask) for mask in masks), lambda n: n // 5 * 5),
    }


def test_messages_roles_tools_and_calls_are_counted(tmp_path: Path):
    chats = [json.loads(line) for line in LINES]
    corpus = write_jsonl(tmp_path / "chats.jsonl", [*chats, {"text": "no messages"}])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--split_bytes=60000"]
    assert chatmill("build", *options, "--max_reject_fraction=0.1") == 0
    found, messages = read_manifest(tmp_path / "out"), [message for chat in chats for message in chat["messages"]]
    assert found["records"]["kept"] == len(chats) + 1
    statistics, tools = found["statistics"], [chat["tools"] for chat in chats if chat.get("tools")]
    assert statistics["roles"] == dict(sorted(Counter(message["role"] for message in messages).items()))
    assert statistics["tools"] == {
        "conversations": len(tools),
        "definitions": sum(map(len, tools)),
        "calls": sum(len(message.get("tool_calls") or []) for message in messages),
        "answers": sum(message["role"] == "tool" for message in messages),
    }
    assert min(statistics["tools"].values()) > 0
    assert statistics["histograms"]["turns"] == histogram(len(chat["messages"]) for chat in chats)


@pytest.mark.slow
def test_sums_of_appends_are_those_of_one_build(tmp_path: Path):
    """Of several sources, of which some have no record, at first or at all; of examples the first one is kept."""
    recipe = {"sources": [{"name": name, "input": f"{name}*.jsonl"} for name in ("a", "b", "none")]}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    options = [
        tmp_path / "recipe.yaml",
        f"--tokenizer={TOKENIZER}",
        "--max_length=40",
        "--max_reject_fraction=0.9",
        "--parity=off",
    ]
    lines = [f"{line}\n" for line in LINES]
    twice = '{"text": "", "text": "a"}\n'
    files = {"a1": lines[:15], "a2": [lines[15], twice, *lines[16:20], "{\n"], "b1": lines[20:27]}
    files |= {"b2": [lines[27], twice, "[]\n"], "a3": [lines[28], "{\n"], "none1": ["\n"]}
    (tmp_path / "b0.jsonl").write_text("\n")
    (tmp_path / "none0.jsonl").write_text("\n")
    for name, content in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(content))
        assert chatmill("build", *options, f"--output={tmp_path}/days", "--append") == 0
    assert chatmill("build", *options, f"--output={tmp_path}/whole") == 0
    days, whole = (read_manifest(tmp_path / name) for name in ("days", "whole"))
    assert [source["records"]["read"] for source in whole["sources"]] == [24, 10, 0]
    own = {"version", "increments", "job", "shards", "exceptions"}
    assert {key: days[key] for key in days.keys() - own} == {key: whole[key] for key in whole.keys() - own}
    first = whole["first_examples"]["duplicate_json_keys"]
    assert first["file"] == str(tmp_path / "a2.jsonl")
    assert first["position"] == f"byte {len(files['a2'][0].encode()):,}"
