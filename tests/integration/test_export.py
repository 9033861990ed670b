"""chatmill export: the rows in the layout of a trainer, resumed, refused, and the same at any parallelism."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.cli.program import main
from support.datasets import digests, manifest_of, rows_of
from support.paths import CHATS, ROOT, TOKENIZER
from transforms.exporting import shards
from transforms.exporting.plan import CLAIMS

ONE_WORKER = "--direct_num_workers=1"
# Claims a folder, and does not release it.
HOLDING = """
import sys
from transforms.storage.claim import Claim

Claim(sys.argv[1], "out").take()
print("holds", flush=True)
input()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A dataset of several shards and row groups, in two splits."""
    output = tmp_path_factory.mktemp("export") / "out"
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000"]
    assert main([*options, "--validation_fraction=0.2", ONE_WORKER, f"--output={output}", "--for=skyrl"]) == 0
    return output


def export(folder: Path, output: Path, *options: str) -> int:
    return main(["export", str(folder), "--for=skyrl", f"--output={output}", ONE_WORKER, *options])


def rows_in(output: Path, split: str = "train") -> list[list[dict[str, Any]]]:
    """The rows of each shard of an export for SkyRL."""
    return [pq.read_table(file).to_pylist() for file in sorted((output / split).glob("*.parquet"))]


def expected_rows(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    return [
        {"input_ids": row["input_ids"], "loss_mask": [int(label != -100) for label in row["labels"]]}
        for row in rows_of(folder, split)
    ]


def test_shards_have_the_rows_of_the_dataset_in_order_and_the_summary_adds_up(folder, tmp_path, capsys):
    assert export(folder, tmp_path / "a", "--shards=5") == 0
    for split in ("train", "validation"):
        found = rows_in(tmp_path / "a", split)
        assert len(found) == 5 and max(map(len, found)) - min(map(len, found)) <= 1
        assert [row for rows in found for row in rows] == expected_rows(folder, split)
    manifest, summary = (
        json.loads(path.read_text()) for path in (folder / "manifest.json", tmp_path / "a/export.json")
    )
    for what in ("rows", "tokens", "trained_tokens"):
        assert sum(split[what] for split in summary["splits"].values()) == manifest[what]
    assert not (tmp_path / "a" / "_export").exists()
    assert f"{len(expected_rows(folder)):,} rows in 5 shards" in capsys.readouterr().out


def test_rows_that_are_dropped_are_counted(folder, tmp_path):
    rows = expected_rows(folder)
    each = len(rows) // 7 - 1
    assert export(folder, tmp_path / "a", f"--rows_per_shard={each}", "--drop_remainder") == 0
    found = rows_in(tmp_path / "a")
    assert {len(of_shard) for of_shard in found} == {each}
    left = rows[len(found) * each :]
    dropped = json.loads((tmp_path / "a" / "export.json").read_text())["splits"]["train"]["dropped"]
    assert left and dropped == {
        "rows": len(left), "examples": len(left),
        "tokens": sum(len(row["input_ids"]) for row in left),
        "trained_tokens": sum(sum(row["loss_mask"]) for row in left),
    }  # fmt: skip


def test_rows_of_bridge_are_not_longer_than_max_length_with_examples_padded_to_a_multiple(tmp_path, capsys):
    packed, output = tmp_path / "packed", tmp_path / "a"
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", ONE_WORKER]
    options += ["--for=megatron_bridge", "--packing=bfd", "--max_length=256", "--pad_to_multiple_of=12"]
    assert main([*options, f"--output={packed}"]) == 0
    assert main(["export", str(packed), "--for=megatron_bridge", f"--output={output}", ONE_WORKER]) == 0
    before, rows = rows_of(packed), rows_in(output)[0]
    # Of each sequence the last token is a label alone.
    lengths = [
        [end - start - 1 for start, end in pairwise([*row["seq_start_id"], len(row["input_ids"])])] for row in rows
    ]
    assert lengths == [[-(-(length - 1) // 12) * 12 for length in row["seq_lengths"]] for row in before]
    assert 240 < max(map(sum, lengths)) <= 252
    found = json.loads((output / "export.json").read_text())["splits"]["train"]
    assert found["longest_row"] == max(map(sum, lengths))
    padding = sum(len(row["input_ids"]) for row in rows) - found["tokens"]
    assert found["padding"] == padding > 0
    assert f", {padding:,} more of padding, the longest row has " in capsys.readouterr().out
    trained = sum(label != -100 for row in before for label in row["labels"])
    assert sum(sum(row["loss_mask"]) for row in rows) == trained == found["trained_tokens"]
    assert manifest_of(packed)["layout"]["pad_to_multiple_of"] == 12
    other = ["export", str(packed), "--for=megatron_bridge", f"--output={tmp_path / 'b'}", "--pad_to_multiple_of=16"]
    assert main(other) == 2
    assert capsys.readouterr().err == (
        "chatmill: --pad_to_multiple_of decides what the rows are, and export takes them as they are: give it to "
        "chatmill build, or to chatmill repack.\n"
    )


def test_bytes_are_the_same_at_any_parallelism_and_after_a_run_that_was_stopped(folder, tmp_path, monkeypatch):
    assert export(folder, tmp_path / "a", "--shards=6") == 0
    assert export(folder, tmp_path / "b", "--shards=6", "--direct_num_workers=2") == 0
    written, write = [], shards.write_shard

    def stopping(dataset: Any, output: str, plan: Any, shard: Any) -> Any:
        if len(written) == 4:
            raise RuntimeError("stopped")
        written.append(shard)
        return write(dataset, output, plan, shard)

    monkeypatch.setattr(shards, "write_shard", stopping)
    assert export(folder, tmp_path / "c", "--shards=6") == 1
    assert not (tmp_path / "c" / "export.json").exists()
    damaged = next((tmp_path / "c").glob("*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    damaged.with_name(f"{damaged.name}.{'0' * 32}").touch()  # of a process that was killed while it wrote

    def noted(*arguments: Any) -> Any:
        written.append(arguments[-1])
        return write(*arguments)

    monkeypatch.setattr(shards, "write_shard", noted)
    assert export(folder, tmp_path / "c", "--shards=6") == 0
    assert len(written) == 12 + 1  # none twice but for the damaged one
    assert digests(tmp_path / "a") == digests(tmp_path / "b") == digests(tmp_path / "c")
    assert export(folder, tmp_path / "c", "--shards=6") == 0 and len(written) == 13


def test_second_export_is_refused_while_one_writes_and_takes_over_the_folder_of_one_that_is_gone(
    folder, tmp_path, capsys
):
    output = tmp_path / "a"
    command = [sys.executable, "-c", HOLDING, str(output / CLAIMS)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "holds\n"
        assert export(folder, output, "--shards=2") == 2
        shown = capsys.readouterr().err
        assert f"--output {output}: another run is writing to it: process {other.pid} on " in shown
        assert [path.name for path in output.iterdir()] == [CLAIMS] and len(shown.splitlines()) == 1
        other.kill()
    assert export(folder, output, "--shards=2") == 0
    assert "took over the output, whose lock is stale" in capsys.readouterr().err
    assert {path.name for path in output.iterdir()} == {"export.json", "train", "validation"}


@pytest.mark.slow
def test_exports_that_begin_together_write_one_export(folder, tmp_path):
    """One of them writes; the others are refused, or find what it has written."""
    command = [sys.executable, "-m", "pipeline", "export", str(folder), "--for=skyrl", ONE_WORKER]
    output = f"--output={tmp_path / 'a'}"
    started = [
        subprocess.Popen([*command, output, f"--shards={shards}"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for shards in (2, 3)
    ]
    errors = [process.communicate()[1] for process in started]
    codes = [process.returncode for process in started]
    assert sorted(codes) == [0, 2]
    assert re.search("another run is writing to it|another export ", errors[codes.index(2)])
    assert main([*command[3:], f"--output={tmp_path / 'b'}", f"--shards={(2, 3)[codes.index(0)]}"]) == 0
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--for=trl"], "--for trl: TRL reads the dataset as it is"),
        (["--for=skyrll"], "--for skyrll: .*skyrl"),
        (["--for=skyrl", "--rows_per_shard=0"], "--rows_per_shard 0: expected a whole number above 0"),
        (["--for=skyrl", "--shards=100000"], "--shards 100000: train has"),
        (["--for=skyrl", "--detach"], "--detach needs a cluster"),
        (["--for=skyrl", "--splits=2"], "unknown option --splits"),
        ([], "--for is missing"),
    ],
)
def test_wrong_options_are_refused_in_one_line(folder, tmp_path, capsys, options, error):
    assert main(["export", str(folder), f"--output={tmp_path / 'a'}", *options]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1 and not (tmp_path / "a").exists()
    assert re.search(error, shown)


def test_folder_with_another_export_or_other_files_is_refused(folder, tmp_path, capsys):
    assert export(folder, tmp_path / "a", "--shards=2") == 0
    assert export(folder, tmp_path / "a", "--shards=3") == 2
    assert "another export is there" in capsys.readouterr().err
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").touch()
    assert export(folder, tmp_path / "b") == 2
    assert "the folder holds other files" in capsys.readouterr().err
    assert export(folder, folder / "export") == 2
    assert "in the folder of the dataset" in capsys.readouterr().err


def test_damaged_shard_of_the_dataset_is_an_error_in_one_line(folder, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shard = sorted((copy / "data").glob("train-*"))[1]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert export(copy, tmp_path / "a") == 1
    shown = capsys.readouterr().err
    assert str(shard) in shown and "damaged" in shown and len(shown.splitlines()) == 1
