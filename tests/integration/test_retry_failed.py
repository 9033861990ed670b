"""An increment that failed in a watch: one command takes its file again, and the dataset is as if it had not failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.options import Options
from pipeline.cli.program import main
from support.arriving import lines, rows_of, taken, watch_here
from support.paths import TOKENIZER
from transforms.audit.verification.whole import verify
from transforms.reading.reader import Dataset

BAD = b'{"neither": "a conversation"}\n'


@pytest.mark.slow
def test_a_failed_increment_is_built_again_in_its_place_by_one_command(tmp_path, capfd):
    (tmp_path / "in").mkdir()
    output, options = tmp_path / "out", Options(
        input=(f"{tmp_path}/in",), tokenizer=str(TOKENIZER), output=str(tmp_path / "out"), append=True
    )  # fmt: skip
    for name, content in {"a": lines("a", 9), "b": lines("b", 9) + BAD, "c": lines("c", 9)}.items():
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(content)
        watch_here(options)
    assert taken(output) == [("a", "done"), ("b", "failed"), ("c", "done")]
    before = rows_of([str(path) for path in Path(output).glob("data/*.parquet")])

    command = ["--append", f"--input={tmp_path}/in", f"--tokenizer={TOKENIZER}", f"--output={output}"]
    assert main(command) == 0
    assert main([*command, "--retry_failed"]) == 1
    assert "1 of 10 records were rejected" in capfd.readouterr().err
    assert taken(output) == [("a", "done"), ("b", "failed"), ("c", "done")]

    assert main([*command, "--retry_failed", "--max_reject_fraction=0.2"]) == 0
    assert taken(output) == [("a", "done"), ("b", "done"), ("c", "done")]
    assert verify(str(output)).faults == []
    manifest = Dataset(str(output)).manifest
    assert (manifest["records"]["read"], manifest["records"]["rejected"]) == (28, {"unknown_schema": 1})
    after = rows_of([f"{output}/{shard['path']}" for shard in manifest["shards"]])
    assert before < after and after.total() == 27
    version = manifest["snapshot"]["version"]
    assert main([*command, "--retry_failed"]) == 0
    assert Dataset(str(output)).manifest["snapshot"]["version"] == version
