"""Progress: what workers report of each chunk, and what a launcher shows of it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import progress
from pipeline.progress import ReportProgress
from transforms import Chunks, Slice, Task
from transforms.dataset.layout import Folder
from transforms.model.batches import Rows, RowTable, Used
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Outcomes
from transforms.steps.read import CHUNK_BYTES
from transforms.steps.reports import Done, progress_written_to, read_progress
from transforms.steps.write import ShardWriter, WriteConfig, _Write

INCREMENT = "0123456789abcdef"


def make_table(rows: int) -> RowTable:
    """Rows of three tokens."""
    ids, numbers = np.arange(3 * rows, dtype=np.int32), np.arange(rows + 1)
    return RowTable(ids, ids, np.full(rows, 3), numbers, numbers[:-1])


def chunk_of(task: Task, chunk: int, last: bool, rows: int) -> Rows:
    outcomes = Outcomes(read=rows)
    facts = RowFacts(pa.table({"position": np.arange(rows)}))
    used = Used(np.ones(rows, bool), *np.zeros((2, rows), bool), *np.zeros((2, rows), np.int64))
    return Rows(task, chunk, last, outcomes, make_table(rows), make_table(0), packing="none", facts=facts, used=used)


def reports_of(folder: Path, slices: list[Slice], rows: list[int]) -> list[Done]:
    """What is reported while the chunks of a task, with so many rows each, are written: before each, and at the end."""
    reports = folder / "reports"
    reports.mkdir()
    with progress_written_to(str(reports)):
        step = pickle.loads(pickle.dumps(_Write(Writer(str(folder)))))
    task, seen = Task(0, tuple(slices)), []

    def chunks(_: Task) -> Iterator[Rows]:
        for number, count in enumerate(rows):
            seen.append(read_progress(str(reports)))
            yield chunk_of(task, number, number == len(rows) - 1, count)

    (receipt,) = step(Chunks(task, chunks))
    assert receipt.sums().totals().records.read == sum(rows)
    return [*seen, read_progress(str(reports))]


class Writer:
    """Makes writers. It can be pickled."""

    def __init__(self, folder: str):
        self._folder = folder

    def __call__(self) -> ShardWriter:
        return ShardWriter(WriteConfig(folder=self._folder))


def test_each_chunk_of_a_task_is_reported_when_it_is_written(tmp_path: Path):
    pieces = [Slice("a.jsonl", "jsonl", None, 7, 9), Slice("b.jsonl", "jsonl", None, 0, 2 * CHUNK_BYTES)]
    assert reports_of(tmp_path, pieces, rows=[1, 2, 1]) == [
        Done(0, 0, 0),
        Done(CHUNK_BYTES, 1, 3),
        Done(2 * CHUNK_BYTES, 3, 9),
        Done(2 * CHUNK_BYTES + 2, 4, 12),
    ]


def test_chunks_of_a_compressed_file_are_reported_as_bytes_of_the_file(tmp_path: Path):
    piece = Slice("a.jsonl.zst", "jsonl", "zstd", 0, 1000, unpacked=4 * CHUNK_BYTES)
    # It has more chunks than were expected.
    bytes_done = [done.work for done in reports_of(tmp_path, [piece], rows=[1] * 6)]
    assert bytes_done == [0, 250, 500, 750, 1000, 1000, 1000]


def test_steps_outside_of_a_build_report_nothing(tmp_path: Path):
    write = _Write(Writer(str(tmp_path)))
    task = Task(0, (Slice("a.jsonl", "jsonl", None, 0, 1),))
    assert list(write(Chunks(task, lambda _: iter([chunk_of(task, 0, True, 1)]))))
    assert not list(tmp_path.rglob("reports"))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    for name in ("_SECONDS_TO_FIRST_LINE", "_SECONDS_ELSEWHERE"):
        monkeypatch.setattr(progress, name, 0.01)
    return SimpleNamespace(tasks=4, input_bytes=8_000_000)


def wait_for(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    err = ""
    for _ in range(1000):
        err += capsys.readouterr().err
        if line in err:
            return
        time.sleep(0.01)
    raise AssertionError(err)


def finish_a_task(folder: Folder) -> None:
    task = Task(2, (Slice("a.jsonl", "jsonl", None, 0, 1),), increment=folder.increment)
    ShardWriter(WriteConfig(folder=folder.output))(chunk_of(task, 0, True, rows=5))


def test_a_log_has_the_bytes_that_all_workers_on_this_machine_have_done(job, tmp_path: Path, capsys):
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "1").write_text("1000000 10 100\n500000 2 30\n")
    (reports / "2").write_text("2000000 3 4\n")
    with ReportProgress(job, Folder(str(tmp_path), INCREMENT), str(reports)):
        wait_for("chatmill: 3.5 MB of 8.0 MB, 15 records, 134 tokens, ", capsys)


def test_a_resumed_build_shows_the_bytes_that_were_left(job, tmp_path: Path, capsys):
    folder, reports = Folder(str(tmp_path), INCREMENT), tmp_path / "reports"
    finish_a_task(folder)
    second = tmp_path / "_chatmill/building" / INCREMENT / "receipts/0000002-00001.json"  # of the same task
    second.write_bytes((second.parent / "0000002-00000.json").read_bytes())
    reports.mkdir()
    with ReportProgress(job, folder, str(reports)):
        wait_for("chatmill: resuming: 1 of 4 tasks were finished or begun before.\n", capsys)
        wait_for("chatmill: 0 bytes of 6.0 MB, 0 records, 0 tokens, ", capsys)


def test_a_log_has_the_tasks_that_workers_elsewhere_have_finished(job, tmp_path: Path, capsys):
    folder = Folder(str(tmp_path), INCREMENT)
    with ReportProgress(job, folder):
        finish_a_task(folder)
        wait_for("chatmill: 1 of 4 tasks, 5 records, 15 tokens, ", capsys)
