"""The digest of a function: the same in each process, different if the function may do something else."""

from __future__ import annotations

import functools
import subprocess
import sys

import apache_beam as beam

from support.paths import ROOT
from transforms.dataset.digest import digest_of

LIMIT = 4


def at_least(limit):
    return lambda values: len(values) >= limit


def helper(values):
    return len(values) + 1


def uses_helper(values):
    return helper(values) > LIMIT


class Drop(beam.DoFn):
    def __init__(self, limit):
        self.limit = limit

    def process(self, values):
        yield values[: self.limit]


PROGRAM = """
import sys
sys.path.insert(0, "tests/unit"); sys.path.insert(0, "tests")
from test_digest import *
print(digest_of(lambda a: {"x", "y", "z"} & {a}), digest_of(uses_helper), digest_of(Drop(3)), digest_of(at_least(2)))
"""


def test_digest_is_the_same_in_each_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": s},
        ).stdout
        for s in ("1", "2", "3")
    }
    assert len(outputs) == 1 and len(set(outputs.pop().split())) == 4


def test_digest_depends_on_the_code():
    assert digest_of(lambda a: a > 1) == digest_of(lambda a: a > 1)
    assert digest_of(lambda a: a > 1) != digest_of(lambda a: a > 2)
    assert digest_of(lambda a: a > 1) != digest_of(lambda a: a < 1)
    assert digest_of(lambda a: a.lower()) != digest_of(lambda a: a.upper())


def test_digest_depends_on_values_that_the_function_uses(monkeypatch):
    assert digest_of(at_least(2)) == digest_of(at_least(2))
    assert digest_of(at_least(2)) != digest_of(at_least(3))
    assert digest_of(functools.partial(helper, 1)) != digest_of(functools.partial(helper, 2))
    assert digest_of(Drop(1)) != digest_of(Drop(2))
    before = digest_of(uses_helper)
    monkeypatch.setitem(globals(), "LIMIT", 5)
    assert digest_of(uses_helper) != before


def test_digest_depends_on_called_functions_of_the_same_module(monkeypatch):
    before = digest_of(uses_helper)

    def other(values):
        return len(values) + 2

    other.__module__ = helper.__module__
    monkeypatch.setitem(globals(), "helper", other)
    assert digest_of(uses_helper) != before


def test_digest_of_a_recursive_function_terminates():
    def countdown(n):
        return n and countdown(n - 1)

    assert digest_of(countdown) == digest_of(countdown)
