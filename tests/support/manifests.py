"""A manifest made by hand, with something in each of its parts."""

from __future__ import annotations

from typing import Any

HISTOGRAMS = {
    "example_tokens": {"buckets": [[5, 2], [16, 3], [18, 1], [128, 4]], "count": 10, "sum": 640, "min": 5, "max": 140},
    "example_trained_tokens": {"buckets": [[2, 4], [20, 6]], "count": 10, "sum": 130, "min": 2, "max": 21},
    "trained_percent": {"buckets": [[40, 10]], "count": 10, "sum": 410, "min": 40, "max": 43},
    "turns": {"buckets": [[2, 5], [3, 5]], "count": 10, "sum": 25, "min": 2, "max": 3},
    "row_tokens": {"buckets": [[96, 1], [256, 2]], "count": 3, "sum": 630, "min": 100, "max": 270},
    "examples_per_row": {"buckets": [[3, 2], [4, 1]], "count": 3, "sum": 10, "min": 3, "max": 4},
}


INCREMENT = "00000000000000ab"


def manifest_by_hand(**changes: Any) -> dict[str, Any]:
    """Return the manifest of a small packed dataset. changes: other values of its keys."""
    records = {
        "read": 16,
        "kept": 9,
        "truncated": 1,
        "dropped": {"too_long": 2},
        "rejected": {"not_json": 3, "empty": 1},
    }
    shard = {"split": "train", "format": "parquet", "rows": 3, "tokens": 630, "trained_tokens": 120, "bytes": 2048}
    return {
        "format": 2,
        "snapshot": {
            "version": 1,
            "increments": 1,
        },
        "records": records,
        "rows": 3,
        "tokens": 630,
        "trained_tokens": 120,
        "trained_tokens_lost": 10,
        "notes": {
            "parity_records_checked": 10,
            "parity_records_not_checked": 188,
            "parity_turns_checked": 20,
            "parity_turns_differing": 4,
            "parity_turns_context": 4,
            "records_that_lost_trained_tokens": 3,
        },
        "layout": {"columns": ["input_ids", "labels"], "packing": "bfd", "max_length": 270, "shift_labels": False},
        "sources": [
            {"name": "chats", "records": records, "rows": 2, "tokens": 430, "trained_tokens": 100},
            {"name": "code", "records": records, "rows": 1, "tokens": 200, "trained_tokens": 20},
        ],
        "rendered_by_reference": {"not_followed": 2},
        "tokenized_by_reference": {},
        "special_tokens_in_content": {"user <|im_end|>": 7},
        "first_examples": {"parity_turns_context": first_example("the turn differs")},
        "first_rejects": {"not_json": first_example("line 1: expected a value"), "empty": first_example("no message")},
        "first_drops": {"too_long": first_example("300 tokens, 20 of them trained on")},
        "shards": [{"path": f"data/train-{INCREMENT}-000000-000.parquet", "sha256": "0" * 64, **shard}],
        "rejects": [f"rejects/rejects-{INCREMENT}-000000-000.parquet"],
        "statistics": {
            "histograms": HISTOGRAMS,
            "limits": {
                str(limit): {"examples": 4 - i, "tokens": 400 - i, "trained_tokens": 60 - 10 * i}
                for i, limit in enumerate((2048, 4096, 8192, 16384, 32768))
            },
            "roles": {"assistant": 10, "user": 10, "system": 5},
            "tools": {"conversations": 1, "definitions": 2, "calls": 3, "answers": 4},
        },
        "job": {
            "options": {
                "packing": "bfd",
                "max_length": 270,
                "parity": "report",
                "roles": {"bot": "assistant"},
                "keep_columns": [],
            },
            "tokenizer": "1" * 64,
            "tokenizer_name": "Qwen/Qwen3-8B",
            "formatter": None,
            "inputs": "2" * 64,
            "input_bytes": 123_456,
            "splits": 1,
            "versions": {"chatmill": "1.0.0", "pyarrow": "25.0.1"},
            "recipe": {"input": ["chats/"], "tokenizer": "tok"},
            "chat_template": None,
        },
    } | changes


def first_example(detail: str) -> dict[str, str]:
    return {"source": "/corpus/chats.jsonl", "position": "byte 1,234", "detail": detail}
