"""The loaders of docs/guide/trainers.md: ranks are killed, and others go on, more or fewer. Each row is used once."""

from __future__ import annotations

import json
import random
import re
import subprocess
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.paths import ROOT
from support.trainers import HERE, environment_in, find_python, needs_trainers

pytestmark = needs_trainers
ROWS = 500
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/trainers.md").read_text(), re.DOTALL)
DATASETS = next(code for code in BLOCKS if "used, rank, ranks" in code)
TORCHDATA, GRAIN = (next(code for code in BLOCKS if f"{name}" in code) for name in ("StatefulDataLoader", "grain"))
LOADERS = {
    "datasets": f"{DATASETS}loader = rows.iter(batch_size=4)\nloader = (as_rows(batch) for batch in loader)",
    "torchdata": DATASETS + TORCHDATA,
    "torchdata-workers": DATASETS + TORCHDATA.replace("batch_size=4", "batch_size=4, num_workers=1"),
    "grain": GRAIN,
}
AS_ROWS = 'def as_rows(batch):\n    return [{"input_ids": ids} for ids in batch["input_ids"]]\n\n\n'


@pytest.mark.parametrize("loader", LOADERS)
def test_each_row_is_used_once_by_eight_ranks_that_are_killed_and_six_that_go_on(tmp_path, loader):
    folder = tmp_path / "rows"
    folder.mkdir()
    for start, stop in pairwise([0, 150, 190, ROWS]):
        rows = [[number] * (1 + number % 3) for number in range(start, stop)]
        pq.write_table(pa.table({"input_ids": rows}), folder / f"train-{start:03}.parquet")
    draw = random.Random(loader)
    batch = draw.randint(1, 4)
    kills = [(8, draw.randint(1, 4)), (8, draw.randint(1, 4)), (7, draw.randint(1, 3))]
    code = AS_ROWS + LOADERS[loader].replace("out/mine", str(folder)).replace("batch_size=4", f"batch_size={batch}")
    done = subprocess.run(
        [find_python("requirements.txt"), HERE / "run_loaders.py"],
        input=json.dumps({"code": code, "kills": kills, "ranks": 6}), cwd=tmp_path, env=environment_in(tmp_path),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout.splitlines()[-1])
    assert [len(rows) for rows in used[:-1]] == [ranks * step * batch for ranks, step in kills]
    assert sorted(row for rows in used for row in rows) == [*range(ROWS)]
