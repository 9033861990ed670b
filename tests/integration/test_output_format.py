"""An output format is one file: a build, verify and the card take a new one as they take ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.datasets import read_rows
from support.paths import CHATS, ROOT, TOKENIZER

LINES = '''
"""Rows as lines of JSON."""

import json
from transforms.outputs import OutputFormat


class Writer:
    def __init__(self, create):
        self._file = create(".jsonl")

    def write(self, table):
        self._file.write("".join(json.dumps(row) + "\\n" for row in table.to_pylist()).encode())

    def close(self):
        pass


def loading_code(folder, shards):
    return f"lines of {folder}"


FORMAT = OutputFormat("lines", Writer, loading_code, datasets_files="*.jsonl")
'''

PROGRAM = """
import sys
from transforms import outputs
outputs.__path__.append(sys.argv.pop(1))
outputs.OUTPUT_FORMATS = ("lines", *outputs.OUTPUT_FORMATS)
from pipeline import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_format_that_is_one_file_is_built_and_verified(tmp_path: Path):
    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "formats"), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "formats").mkdir()
    (tmp_path / "formats/lines.py").write_text(LINES)
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=30000"]
    for formats in ("lines", "parquet,lines"):
        output = str(tmp_path / formats)
        run("build", *options, "--direct_num_workers=1", f"--output={output}", f"--output_format={formats}")
        assert ": OK (" in run("verify", output)
    lines = [json.loads(line) for file in sorted(Path(output).glob("lines/*")) for line in file.open()]
    assert lines == read_rows(Path(output)) != []
    card = (tmp_path / "lines/README.md").read_text()
    assert "path: lines/" in card and "lines of " in card
