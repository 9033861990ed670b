"""An output format is one file: a build, a reader, verify and the card take a new one as they take ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import CHATS, ROOT, TOKENIZER

LINES = '''
"""Rows as lines of JSON."""

import json
import pyarrow as pa
from transforms.outputs import OutputFormat, ShardReader


class Writer:
    def __init__(self, create):
        self._file = create(".jsonl")

    def write(self, table):
        self._file.write("".join(json.dumps(row) + "\\n" for row in table.to_pylist()).encode())

    def close(self):
        pass


class Reader(ShardReader):
    def __init__(self, file, path, schema):
        self._file, self._schema = file, schema

    def batches(self, start=0, stop=None, threads=True):
        rows = [json.loads(line) for line in self._file.read().splitlines()]
        yield pa.RecordBatch.from_pylist(rows, self._schema)


def loading_code(folder, shards):
    return f"lines of {folder}"


FORMAT = OutputFormat("lines", Writer, Reader, loading_code, datasets_files="*.jsonl")
'''

PROGRAM = """
import sys
from transforms import outputs
outputs.__path__.append(sys.argv.pop(1))
outputs.OUTPUT_FORMATS = ("lines", *outputs.OUTPUT_FORMATS)
from pipeline.cli.program import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_format_that_is_one_file_is_built_read_and_verified(tmp_path: Path):
    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "formats"), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "formats").mkdir()
    (tmp_path / "formats/lines.py").write_text(LINES)
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=30000"]
    rows = []
    for formats in ("lines", "parquet,lines"):
        output = str(tmp_path / formats)
        run("build", *options, "--direct_num_workers=1", f"--output={output}", f"--output_format={formats}")
        rows.append(run("inspect", output, "--row=3").partition("\n")[2])
        assert ": OK (" in run("verify", output)
    assert rows[0] == rows[1] != ""
    card = (tmp_path / "lines/README.md").read_text()
    assert "path: lines/" in card and "lines of " in card
