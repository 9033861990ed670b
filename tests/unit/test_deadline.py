"""Deadlines: a formatter without end costs its record, in whatever thread it runs, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.paths import ROOT
from transforms.base.errors import RecordDropped, RecordError
from transforms.inputs.deadline import OutOfTime, call_within
from transforms.model.examples import Record
from transforms.steps.parse import Parser

FORMATTER = """
def without_end(record):
    while record["text"] == "endless":
        try:
            sum(range(100))
        except Exception:
            pass
    return record
"""


def test_formatter_without_end_rejects_its_record_in_any_thread(tmp_path):
    (tmp_path / "own.py").write_text(FORMATTER)
    parser = Parser(formatter=f"{tmp_path}/own.py:without_end", formatter_seconds=1)

    def outcome(text: str) -> str:
        try:
            return parser.parse(Record(0, b'{"text": "%s"}' % text.encode())).content.text
        except RecordError as error:
            return f"{error.reason}: {error.detail}"

    late = "formatter: it took longer than 1 s (formatter_seconds)"
    texts = ["endless", "a", "endless", "b", "endless", "c"]
    with ThreadPoolExecutor(3) as threads:
        assert [*threads.map(outcome, texts)] == [late, "a", late, "b", late, "c"]
    assert outcome("d") == "d"


def test_function_that_catches_everything_is_late_all_the_same():
    def catches(_):
        try:
            while True:
                sum(range(100))
        except BaseException:
            return "ended"

    with pytest.raises(OutOfTime):
        call_within(0.1, catches, None)
    for _ in range(1000):  # the exception does not arrive here
        time.sleep(0)


STUCK = """
import re, threading, time
from transforms.inputs import deadline

def regex(_):
    re.match(r"(a+)+$", "a" * 60 + "b")

def catches(_):
    while True:
        try:
            time.sleep(0.1)
        except BaseException:
            pass

deadline._until_stuck = lambda seconds: 2 * seconds
deadline.end_process_if_stuck()
call = threading.Thread(target=deadline.call_within, args=(0.5, FUNCTION, None))
call.start()
call.join()
"""


@pytest.mark.parametrize("function", ["regex", "catches"])
def test_process_ends_if_a_call_cannot_be_ended(function):
    script = STUCK.replace("FUNCTION", function)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (-signal.SIGVTALRM, b"")


def test_time_of_the_processor_does_not_go_on_while_a_call_waits():
    call_within(0.1, time.sleep, 0.5, of_processor=True)
    with pytest.raises(OutOfTime):
        call_within(0.1, lambda: [None for _ in iter(int, 1)], of_processor=True)


def test_calls_that_end_at_their_deadline_raise_inside_of_the_call_or_never():
    late = 0
    for i in range(60):
        until = time.monotonic() + 0.04 + i / 1000
        try:
            call_within(
                0.05, lambda _, until=until: [None for _ in iter(lambda: time.monotonic() < until, False)], None
            )
        except OutOfTime:
            late += 1
        time.sleep(0.001)
    assert 0 < late <= 60


def test_what_a_function_returns_and_raises_is_unchanged():
    assert call_within(5, len, "abc") == 3
    with pytest.raises(RecordDropped):
        call_within(5, lambda _: (_ for _ in ()).throw(RecordDropped("a")), None)
