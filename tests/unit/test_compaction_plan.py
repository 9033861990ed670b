"""The plan of a compaction: which increments become one."""

from __future__ import annotations

import pytest

from transforms.catalog.snapshot import Files, Increment, Snapshot
from transforms.inputs.listing import InputFile
from transforms.upkeep.compaction.groups import plan_compaction

LARGE = 1_000


def increment(id: str, *files: str, size: int = 10, status: str = "done") -> Increment:
    """An increment of one shard. files: each with its version, as a1."""
    shard = {"path": f"data/train-{id}-000000-000.parquet", "split": "train", "format": "parquet", "bytes": size}
    inputs = [InputFile(name[:-1], "jsonl", None, 10, name[-1]) for name in files]
    return Increment(id, Files([shard] if status == "done" else [], [], []), inputs, {}, status)


@pytest.mark.parametrize(
    ("increments", "joined"),
    [
        ([increment("A", "a1"), increment("B", "b1"), increment("C", "c1")], "ABC"),
        ([increment("A", "a1"), increment("L", "l1", size=LARGE), increment("B", "b1")], "AB"),
        ([increment("A", "a1"), increment("F", "f1", status="failed"), increment("B", "b1")], "AB"),
        # A file that was rewritten and taken again: a record has one place in an increment.
        ([increment("A", "a1"), increment("B", "a2", "b1"), increment("C", "c1")], "AC"),
        ([increment("L", "a1", size=LARGE), increment("B", "a2"), increment("C", "c1")], "BC"),
        ([increment("A", "a1"), increment("B", "a2")], ""),
    ],
)
def test_small_increments_are_joined_but_for_those_that_took_a_file_again(increments, joined):
    plan = plan_compaction(Snapshot(len(increments), tuple(increments)), shard_bytes=LARGE, sources=1)
    assert "".join(each.id for each in plan.increments) == joined if joined else plan is None
