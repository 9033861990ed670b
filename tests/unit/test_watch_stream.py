"""What a stream decides, look after look, whatever became of what it decided before; and its clock."""

from __future__ import annotations

import json
import os
from pathlib import Path

import apache_beam as beam
import pytest

from pipeline.cli.options import Options
from pipeline.cli.sources import read_sources
from pipeline.job.graph import budgets_of, build_splits
from pipeline.job.pinning import pin
from pipeline.watching.attempts import Attempts
from pipeline.watching.committing import CommitIncrements
from pipeline.watching.deciding import Deciding
from pipeline.watching.new_files import find_arriving
from pipeline.watching.settings import Settings
from pipeline.watching.stream import _Fail
from pipeline.watching.ticks import EmitTicks, _EveryTick
from support.paths import TOKENIZER
from transforms.base.errors import InputError, Unavailable, WorkerDied
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Snapshot
from transforms.model.batches import Split

AT_ONCE = Settings(every=1, settle=0, min_records=1, max_delay=0)


class Stream:
    """The parts of a stream, one look after the other. What is built is built on Beam's local runner."""

    def __init__(self, tmp_path: Path, **options: object):
        self.input = tmp_path / "in"
        self.input.mkdir()
        self.options = Options(
            input=(f"{self.input}/*.jsonl",), tokenizer=str(TOKENIZER), output=f"{tmp_path}/out", **options
        )
        self.sources = read_sources(self.options)
        self.folder = Folder(self.options.output)
        self.job = pin(self.options, self.sources, [], None, self.folder, Snapshot())
        self.lines: list[str] = []
        self.start("first")

    def start(self, run: str) -> None:
        """Begin another run, which knows nothing of those before it."""
        self.run, self.tick = run, -1
        self._deciding = Deciding(self.options, self.sources, AT_ONCE, self.lines.append, lambda *_: None)

    def write(self, name: str, *records: object) -> None:
        chats = [{"prompt": f"{name} {text}", "completion": str(text)} for text in records]
        (self.input / f"{name}.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))

    def look(self) -> list[Split] | None:
        self.tick += 1
        snapshot = Log(self.folder).newest() or Snapshot(0)
        return self._deciding.look(find_arriving(self.sources), snapshot, self.job, self.run, self.tick)

    def names(self, splits: list[Split] | None) -> str:
        """The files of splits, by the letters that they are called."""
        assert splits is not None
        return "".join(Path(piece.url).stem for split in splits for piece in split.slices)

    def build(self, splits: list[Split]) -> dict[str, int]:
        """Build splits. Returns the counters of the commit, and how often a lag was recorded."""
        pipeline = beam.Pipeline()
        planned = pipeline | beam.Create(splits).with_output_types(Split)
        receipts = build_splits(planned, self.job, self.folder, "fast", _Fail(self.folder.output))
        receipts | "commit" >> CommitIncrements(self.options, self.sources, budgets_of(self.options))
        result = pipeline.run()
        result.wait_until_finish()
        found = result.metrics().query(beam.metrics.MetricsFilter().with_step("commit"))
        counters = {each.key.metric.name: each.committed for each in found["counters"]}
        return counters | {each.key.metric.name: each.committed.count for each in found["distributions"]}

    def attempts(self, splits: list[Split]) -> Attempts:
        return Attempts(Folder(self.folder.output, splits[0].increment))

    def taken(self) -> list[tuple[str, str]]:
        """The letters of the files of each increment, and its status."""
        snapshot = Log(self.folder).newest() or Snapshot(0)
        return [
            ("".join(Path(file.url).stem for file in increment.inputs), increment.status)
            for increment in snapshot.increments
        ]


@pytest.fixture
def stream(tmp_path) -> Stream:
    return Stream(tmp_path)


def test_one_increment_is_built_at_a_time(stream):
    assert stream.look() == []
    stream.write("a", 1)
    splits = stream.look()
    assert stream.attempts(splits).last().waiting == 0
    stream.write("b", 1)
    assert stream.look() is None
    assert stream.build(splits) == {"increments": 1, "increments_failed": 0, "files": 1, "lag_seconds": 1}
    assert stream.taken() == [("a", "done")]
    assert stream.names(stream.look()) == "b"
    assert stream.lines == []


def test_a_run_goes_on_with_what_an_earlier_one_began_and_skips_what_it_wrote(stream):
    stream.write("a", 1)
    splits = stream.look()
    stream.start("second")
    stream.write("b", 1)
    assert stream.look() == splits
    stream.build(splits)
    assert stream.build(splits) == {}  # by a worker of the first run, which was taken for dead
    assert stream.taken() == [("a", "done")]
    stream.build(stream.look())
    assert stream.look() == []
    assert stream.taken() == [("a", "done"), ("b", "done")]
    assert not os.path.exists(stream.folder.increments)


def test_a_runner_that_goes_back_to_an_earlier_tick_is_given_the_splits_again(stream):
    stream.look()
    stream.write("a", 1)
    splits = stream.look()
    stream.tick -= 1
    assert stream.look() == splits


def test_files_that_kill_their_workers_are_found_by_halves_and_fail(stream):
    for name in "abc":
        stream.write(name, 1)
    for number in range(20):
        stream.start(f"run {number}")
        while splits := stream.look():
            if "b" in stream.names(splits):
                break  # its worker dies, and with it the run
            stream.build(splits)
    assert stream.taken() == [("a", "done"), ("b", "failed"), ("c", "done")]
    [failed] = [each for each in Log(stream.folder).newest().increments if each.status == "failed"]
    assert failed.error == "the worker, or the job, ended while it was built"
    assert not os.path.exists(stream.folder.increments)


def test_a_file_that_cannot_be_read_fails_after_three_attempts_of_its_own(stream):
    for name in "abc":
        stream.write(name, 1)
    tried = []
    while splits := stream.look():
        tried.append(stream.names(splits))
        if "b" in tried[-1]:
            stream.attempts(splits).fail(0, InputError("b.jsonl: it cannot be read"))
        else:
            stream.build(splits)
    assert tried == ["abc", "abc", "abc", "a", "bc", "bc", "bc", "b", "b", "b"]
    stream.build(stream.look())
    assert stream.taken() == [("a", "done"), ("b", "failed"), ("c", "done")]


def test_error_of_an_attempt_is_known_before_those_of_its_splits(stream):
    stream.write("a", 1)
    attempts = stream.attempts(stream.look())
    attempts.fail(0, Unavailable("s3://in: it does not answer"))
    attempts.fail(None, WorkerDied("a worker was ended by SIGKILL"))
    assert isinstance(attempts.error(), WorkerDied)


def test_a_file_fails_although_the_stream_was_killed_before_it_had_committed_that(stream):
    stream.write("a", 1)
    stream.attempts(stream.look()).break_off(InputError("a.jsonl: it cannot be read"))
    stream.start("second")
    assert stream.look() == stream.look() == []
    assert stream.taken() == [("a", "failed")]


def test_an_attempt_that_gave_a_receipt_does_not_count(tmp_path):
    stream = Stream(tmp_path, split_bytes=50)
    stream.write("a", 1)
    stream.write("b", 1)
    for number in range(6):
        stream.start(f"run {number}")
        splits = stream.look()
        assert stream.names(splits) == "ab"
        if number == 2:
            stream.build(splits[:1])
    stream.start("last")
    assert stream.names(stream.look()) == "a"
    assert "(try 2 of 3)" in stream.lines[1]


def test_an_error_of_a_store_is_no_error_of_a_file(stream):
    stream.write("a", 1)
    for _ in range(9):
        splits = stream.look()
        assert stream.names(splits) == "a"
        stream.attempts(splits).fail(0, Unavailable("s3://in: it does not answer"))
    assert set(stream.lines) == {"waiting: s3://in: it does not answer"}


def test_an_error_of_a_file_counts_when_all_splits_are_over(tmp_path):
    stream = Stream(tmp_path, split_bytes=50)
    for name in "ab":
        stream.write(name, 1)
    splits = stream.look()
    stream.attempts(splits).fail(1, InputError("b.jsonl: it cannot be read"))
    assert stream.look() is None
    stream.build([split for split in splits if split.number == 0])
    assert stream.names(stream.look()) == "ab"


def test_an_increment_of_which_a_file_changed_is_given_up(stream):
    for name in "ab":
        stream.write(name, 1)
    given_up = stream.look()
    stream.write("b", 1, 2)
    splits = stream.look()
    stream.build(given_up)  # by a worker that reads it later
    assert stream.names(splits) == "ab"
    stream.build(splits)
    assert stream.taken() == [("ab", "done")]
    assert len(os.listdir(f"{stream.folder.output}/data")) == 1


def test_what_replaces_a_file_and_fails_leaves_its_earlier_version(tmp_path):
    stream = Stream(tmp_path, rewritten="replace")
    for name in "ab":
        stream.write(name, 1)
    stream.build(stream.look())
    (stream.input / "a.jsonl").write_text('{"neither": 1}\n')
    stream.build(stream.look())
    assert stream.look() == stream.look() == []
    assert stream.taken() == [("ab", "done")]
    assert "the dataset keeps its earlier version" in stream.lines[0]
    stream.write("a", 3, 4)
    splits = stream.look()
    assert stream.attempts(splits).last().waiting == 0
    stream.build(splits)
    assert [each.sums["records"]["read"] for each in Log(stream.folder).newest().increments] == [3]


def test_a_rewritten_file_does_not_wait_for_all_that_came_after_it(tmp_path):
    stream = Stream(tmp_path, rewritten="replace")
    for name in ("a", "b"):
        stream.write(name, 1)
        splits = stream.look()
        if name == "a":
            stream.build(splits)
    stream.write("a", 2, 3)
    assert stream.look() is None  # it is seen while "b" is built
    stream.build(splits)
    stream.write("c", 1)
    for name in ("a", "c"):
        splits = stream.look()
        assert stream.names(splits) == name
        stream.build(splits)
    assert stream.look() == []


def test_ticks_have_one_successor_each():
    tracker = _EveryTick().create_tracker(_EveryTick().initial_restriction("run"))
    assert tracker.try_claim(0)
    assert tracker.try_split(0.5) is None
    done, rest = tracker.try_split(0)
    assert (done.start, done.stop, rest.start) == (0, 1, 1)
    tracker.check_done()


def test_ticks_are_a_stream():
    pipeline = beam.Pipeline()
    for defers in (False, True):
        assert not (pipeline | f"{defers}" >> EmitTicks(1, defers)).is_bounded
