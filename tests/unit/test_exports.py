"""Layouts that are not columns: what examples/megatron_bridge.py and the code of the guide make, with whole values."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import DatasetDict, load_from_disk

from support.datasets import build_in_process, read_rows, write_jsonl
from support.paths import CHATS, ROOT, TOKENIZER

GUIDE = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / "docs/guide/trainers.md").read_text(), re.DOTALL | re.MULTILINE)
SCRIPT = ROOT / "examples" / "megatron_bridge.py"
packed_rows = runpy.run_path(str(SCRIPT))["packed_rows"]
EXAMPLES = pa.table({
    "input_ids": pa.array([[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]], pa.list_(pa.int32())),
    "labels": pa.array([[-100, 2, -100], [-100, 5], [-100, 7, -100, 9], [10]], pa.list_(pa.int32())),
})  # fmt: skip


def test_bridge_gets_the_mask_of_the_next_token_and_each_example_padded_to_one_more_than_the_multiple():
    table = packed_rows(EXAMPLES, 4, 2, 99)
    assert table.to_pylist() == [
        {"input_ids": [6, 7, 8, 9, 99], "loss_mask": [1, 0, 1, 0, 0], "seq_start_id": [0]},
        {"input_ids": [1, 2, 3, 4, 5, 99], "loss_mask": [1, 0, 0, 1, 0, 0], "seq_start_id": [0, 3]},
    ]
    assert [str(field.type.value_type) for field in table.schema] == ["int32", "int8", "int32"]
    assert packed_rows(EXAMPLES, 3, 1, None)["input_ids"].to_pylist() == [[6, 7, 8, 9], [1, 2, 3, 4, 5]]


TOO_LONG = "An example has 4 tokens: build the dataset with --max_length 3."


@pytest.mark.parametrize(
    ("max_length", "multiple", "eos", "error"),
    [
        (2, 1, 99, TOO_LONG),
        (3, 2, 99, TOO_LONG),
        (4, 2, None, "The tokenizer has no eos_token, with which Bridge pads."),
    ],
)
def test_examples_that_do_not_fit_or_cannot_be_padded_are_refused(max_length, multiple, eos, error):
    with pytest.raises(SystemExit) as raised:
        packed_rows(EXAMPLES, max_length, multiple, eos)
    assert str(raised.value) == error


@pytest.mark.slow
def test_script_packs_each_example_of_a_dataset_once_within_the_length_of_the_trainer(tmp_path):
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]
    options += ["--max_length=253", "--validation_fraction=0.2"]
    done = build_in_process(*options, f"--output={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    command = [sys.executable, SCRIPT, tmp_path / "out", tmp_path / "bridge", "--max_length=256", "--multiple=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for split in ("train", "validation"):
        files = sorted((tmp_path / "bridge" / split).glob("*.idx.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        found, lengths = [], []
        for row in rows:
            for start, stop in pairwise([*row["seq_start_id"], len(row["input_ids"])]):
                assert (stop - start - 1) % 12 == 0
                found.append((row["input_ids"][start:stop], row["loss_mask"][start:stop]))
            lengths.append(len(row["input_ids"]) - len(row["seq_start_id"]))
        assert 240 < max(lengths) <= 256 and len(rows) < len(found)
        expected = read_rows(tmp_path / "out", split)
        assert len(found) == len(expected)
        for (ids, mask), row in zip(sorted(found), sorted(expected, key=lambda row: row["input_ids"]), strict=True):
            length = len(row["input_ids"])
            assert ids[:length] == row["input_ids"] and mask[: length - 1] == [
                int(label != -100) for label in row["labels"][1:]
            ]
            assert not any(mask[length - 1 :]) and {*ids[length:]} <= {2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved", "columns", "extra"),
    [
        ("out/llamafactory", "input_ids,attention_mask,labels", ["attention_mask"]),
        ("out/ms_swift", "input_ids,attention_mask,labels", ["lengths"]),
        ("out/skyrl", "input_ids,loss_mask", []),
    ],
)
def test_code_of_the_guide_saves_the_columns_that_the_trainer_reads(tmp_path, saved, columns, extra):
    records = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * n}]} for n in (1, 9)
    ]
    corpus = write_jsonl(tmp_path / "chats.jsonl", records)
    job = [
        f"--input={corpus}",
        f"--tokenizer={TOKENIZER}",
        f"--output={tmp_path / 'out/rows'}",
        "--direct_num_workers=1",
    ]
    done = build_in_process(*job, f"--write_columns={columns}")
    assert done.returncode == 0, done.stderr
    code = next(code for code in GUIDE if f'save_to_disk("{saved}")' in code).replace("out/mine", "out/rows")
    command = ["bash", "-euc", code.splitlines()[0]] if code.startswith("python") else [sys.executable, "-c", code]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=tmp_path, env=environment | {"HF_DATASETS_CACHE": str(tmp_path)}, check=True)
    loaded = load_from_disk(str(tmp_path / saved))
    expected = []
    for row in read_rows(tmp_path / "out/rows"):
        ids = row["input_ids"]
        more = {"attention_mask": [1] * len(ids), "lengths": len(ids)}
        expected.append(
            {name: value for name, value in row.items() if name != "attention_mask"}
            | {name: more[name] for name in extra}
        )
    assert (loaded["train"] if isinstance(loaded, DatasetDict) else loaded).to_list() == expected and len(expected) == 2
