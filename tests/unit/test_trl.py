"""The rows equal the rows of TRL's SFTTrainer for the same records (tests/trl/make_expected.py, TRL 1.16).

Rows whose labels are all -100 are ignored on both sides, because Chatmill does not write them. Unpacked and wrapped
rows must be equal and in the same order. Rows of bfd and bfd_split must have the same segments, in no more rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import read_rows
from support.paths import ROOT
from transforms import pack

HERE = ROOT / "tests" / "trl"
MODES = {
    "none": {"packing": "none", "truncation": "keep_start"},
    "keep_end": {"packing": "none", "truncation": "keep_end"},
    "bfd": {"packing": "bfd"},
    "bfd_split": {"packing": "bfd_split"},
    "wrapped": {"packing": "wrapped"},
}
CASES = sorted({path.name.split(".")[0] + "." + path.name.split(".")[1] for path in (HERE / "expected").iterdir()})

Segment = tuple[tuple[int, ...], tuple[int, ...]]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def segment_messages(rows: list[dict[str, Any]], are_rows: bool) -> Iterator[Segment]:
    """The segments of rows, or the rows themselves, that are trained on."""
    for row in rows:
        start = 0
        for length in (row.get("seq_lengths") if not are_rows else None) or [len(row["input_ids"])]:
            stop = start + length
            labels = tuple(row["labels"][start:stop])
            if any(label != -100 for label in labels):
                yield tuple(row["input_ids"][start:stop]), labels
            start = stop


@pytest.mark.parametrize("case", CASES)
def test_rows_equal_sft_trainer(case: str, tmp_path: Path):
    name, loss = case.split(".")
    options = [f"--input={HERE}/inputs/{name}.jsonl", f"--tokenizer={HERE}/tokenizer", f"--output={tmp_path}/out"]
    assert chatmill("build", *options, f"--loss_on={loss}", "--keep_columns=id,score") == 0
    examples = read_rows(tmp_path / "out")
    if loss == "all":
        records = read_jsonl(HERE / "inputs" / f"{name}.jsonl")
        assert [(row["id"], row["score"]) for row in examples] == [(of["id"], str(of["score"])) for of in records]
    for mode, packing in MODES.items():
        theirs = read_jsonl(HERE / "expected" / f"{case}.{mode}.jsonl")
        ours = pack(examples, 17, **packing)
        if mode.startswith("bfd"):
            assert Counter(segment_messages(ours, False)) == Counter(segment_messages(theirs, False)), mode
            assert len(ours) <= len(theirs)
        else:
            assert [*segment_messages(ours, True)] == [*segment_messages(theirs, True)], mode


def test_every_kind_of_record_is_compared():
    assert len(CASES) == 7 and len([*(HERE / "expected").iterdir()]) == 7 * len(MODES)  # TRL's pull request 3572
