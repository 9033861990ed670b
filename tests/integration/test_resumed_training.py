"""Training that begins again at step k with another number of ranks, as docs/guide/trainers.md shows: no row twice."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.drawn import examples
from support.paths import ROOT

ROWS = 101
PAGE = (ROOT / "docs/guide/trainers.md").read_text()
CODE = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "used, rank, ranks" in code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder that `load_dataset` loads: rows in files of several sizes."""
    folder = tmp_path_factory.mktemp("rows")
    bounds = [0, 40, 41, 90, ROWS]
    for start, stop in pairwise(bounds):
        rows = [[number] for number in range(start, stop)]
        pq.write_table(pa.table({"input_ids": rows}), folder / f"train-{start:03}.parquet")
    return folder


def rows_of_rank(folder: Path, used: int, rank: int, ranks: int) -> list[int]:
    """What the code of the page gives a rank."""
    numbers = f"used, rank, ranks = {used}, {rank}, {ranks}"
    code = re.sub("used, rank, ranks = .*", numbers, CODE.replace("out/mine", str(folder)))
    names: dict[str, datasets.Dataset] = {}
    exec(code, names)
    return [row["input_ids"][0] for row in names["rows"]]


@given(kills=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 6)), max_size=3), batch=st.integers(1, 3))
@examples(20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_row_is_used_once_whenever_it_is_killed_and_however_many_ranks_go_on(folder, kills, batch):
    used: list[int] = []
    for ranks, steps in kills:
        steps = min(steps, (ROWS - len(used)) // (ranks * batch))
        of_ranks = [rows_of_rank(folder, len(used), rank, ranks) for rank in range(ranks)]
        used += [row for rows in of_ranks for row in rows[: steps * batch]]
    left = [row for rank in range(6) for row in rows_of_rank(folder, len(used), rank, 6)]
    assert sorted(used + left) == [*range(ROWS)]
