"""Failures: the launcher reads from a file what a worker raised."""

from __future__ import annotations

import pickle

import pytest

from pipeline.job.run import _raising_failures
from transforms import InputError, ParameterError, StoreError, Unavailable, UserError
from transforms.steps.failures import FailureWriter, failures_written_to, last_failure

MESSAGE = "corpus [while running it].jsonl, byte 7:\n\nit says \"no\"\n  [while running 'read']"


def writer_for(folder) -> FailureWriter:
    with failures_written_to(str(folder)):
        return FailureWriter()


def fail(writer: FailureWriter, error: BaseException) -> None:
    with pytest.raises(type(error)), writer:
        raise error


@pytest.mark.parametrize(
    "error",
    [
        InputError(MESSAGE),
        UserError(MESSAGE),
        Unavailable(MESSAGE),
        ParameterError("packing", "bdf", MESSAGE),
        ParameterError("max_length", 0, MESSAGE),
        StoreError("s3://bucket/key", "read", MESSAGE, is_transient=True),
    ],
)
def test_error_is_read_as_it_was_raised(error, tmp_path):
    fail(writer_for(tmp_path), error)
    read = last_failure(str(tmp_path))
    assert type(read) is type(error)
    assert str(read) == str(error)
    assert vars(read) == vars(error)


def test_writer_is_pickled_with_its_step_and_used_again(tmp_path):
    writer = pickle.loads(pickle.dumps(writer_for(tmp_path)))
    fail(writer, InputError("first"))
    fail(writer, InputError("second"))
    assert str(last_failure(str(tmp_path))) == "second"


def test_value_of_a_parameter_that_json_does_not_have_is_shown_by_its_repr(tmp_path):
    fail(writer_for(tmp_path), ParameterError("function", int, "expected a function of an Example."))
    assert last_failure(str(tmp_path)).value == repr(int)


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt(), GeneratorExit()])
def test_other_errors_are_not_written(error, tmp_path):
    fail(writer_for(tmp_path / "failures"), error)
    assert not (tmp_path / "failures").exists()


def test_steps_of_a_pipeline_without_a_launcher_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fail(FailureWriter(), InputError(MESSAGE))
    assert not list(tmp_path.iterdir())


def test_folder_that_cannot_be_written_or_read_hides_no_error(tmp_path):
    occupied = tmp_path / "failures"
    occupied.write_text("a file with the name of the folder")
    fail(writer_for(occupied), InputError(MESSAGE))
    assert last_failure(str(occupied)) is None
    assert last_failure(str(tmp_path / "nothing")) is None
    (tmp_path / "0.json").write_text("{}")
    assert last_failure(str(tmp_path)) is None


def test_failure_of_the_store_itself_is_not_written_to_it(monkeypatch):
    written = []
    monkeypatch.setattr("transforms.steps.failures.write_atomically", lambda url, content: written.append(url))
    writer = writer_for("s3://bucket/out/_chatmill/failures")
    fail(writer, StoreError("s3://bucket/out/shard", "written", "503", is_transient=True))
    assert not written
    fail(writer, StoreError("gs://inputs/corpus.jsonl", "read", "503", is_transient=True))
    fail(writer, StoreError("s3://bucket/out/shard", "written", "403", is_transient=False))
    assert len(written) == 2


@pytest.fixture
def failures(tmp_path) -> str:
    """The folder of failures of a run in which a worker failed."""
    fail(writer_for(tmp_path), InputError(MESSAGE))
    return str(tmp_path)


def test_run_that_succeeded_after_a_retry_does_not_fail(failures):
    with _raising_failures(failures):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  ...\ntransforms.errors.InputError: corpus [while running 'read']\n",
        "the job failed, see its log",
    ],
)
def test_error_in_the_file_is_raised_if_the_runner_shows_it_or_shows_nothing(text, failures):
    with pytest.raises(InputError) as raised, _raising_failures(failures):
        raise RuntimeError(text)
    assert str(raised.value) == MESSAGE


def test_another_error_in_the_runners_traceback_is_not_replaced_by_that_of_an_earlier_attempt(failures):
    with pytest.raises(RuntimeError, match="a bug"), _raising_failures(failures):
        raise RuntimeError("Traceback (most recent call last):\n  ...\nTypeError: a bug [while running 'read']\n")


@pytest.mark.parametrize("kind", [InputError, UserError, Unavailable])
def test_error_is_found_in_the_runners_traceback_if_there_is_no_file(kind, tmp_path):
    text = f"Traceback:\n  ...\ntransforms.errors.{kind.__name__}: what was wrong [while running 'read']\n\nMore."
    with pytest.raises(kind, match=r"^what was wrong$"), _raising_failures(str(tmp_path)):
        raise RuntimeError(text)
