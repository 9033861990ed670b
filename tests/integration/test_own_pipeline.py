"""The README's pipeline of one's own, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
import pyarrow.parquet as pq

from support.places import ROOT
from transforms.model.receipts import Receipt


def test_a_step_between_two_of_ours_keeps_the_sums_right(tmp_path):
    readme = (ROOT / "README.md").read_text()
    program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "DropShort" in block)
    (tmp_path / "own.py").write_text(program)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    receipts = [
        msgspec.json.decode(path.read_bytes(), type=Receipt) for path in (tmp_path / "out/own/receipts").iterdir()
    ]
    assert sum(receipt.read for receipt in receipts) == 400
    assert sum(receipt.dropped["short"] for receipt in receipts) > 0
    for receipt in receipts:
        assert receipt.read == (
            receipt.kept + receipt.truncated + sum(receipt.dropped.values()) + sum(receipt.rejected.values())
        )
        for shard in receipt.shards:
            assert pq.read_metadata(tmp_path / "out/own/shards" / shard.file).num_rows == shard.rows > 0
