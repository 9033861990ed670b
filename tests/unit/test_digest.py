"""The digest of a function: the same in each process, different if the function may do something else."""

from __future__ import annotations

import argparse
import copy
import functools
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

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


WORDS = {"foo"}
PATTERN = re.compile("foo")


def has_a_word(values):
    return any(value in WORDS for value in values)


def matches(values):
    return PATTERN.search(values)


def calls_two_helpers(values):
    return helper(values) and uses_helper(values)


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (has_a_word, "WORDS", {"bar"}),
        (matches, "PATTERN", re.compile("bar")),
        (calls_two_helpers, "LIMIT", 6),
        (functools.partial(uses_helper), "LIMIT", 6),
        (beam.Map(uses_helper).fn, "LIMIT", 6),
        (beam.Filter(lambda values: uses_helper(values)).fn, "LIMIT", 6),
    ],
    ids=[
        "in a comprehension",
        "of another module's type",
        "of a helper",
        "of a partial",
        "of beam.Map",
        "of beam.Filter",
    ],
)
def test_global_values_count_wherever_they_are_used(monkeypatch, function, name, value):
    before = digest_of(function)
    assert digest_of(function) == before
    monkeypatch.setitem(globals(), name, value)
    assert digest_of(function) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), np.arange(4)),
        (argparse.Namespace(least=1), argparse.Namespace(least=2)),
        (Path("a"), Path("b")),
        (functools.partial(helper, n=3), functools.partial(helper, n=4)),
        ({"a", "b"}, {"a", "c"}),
    ],
    ids=["array", "namespace", "path", "partial", "set"],
)
def test_values_count(one, other):
    assert digest_of(one) == digest_of(copy.deepcopy(one)) != digest_of(other)


def test_all_of_a_class_counts():
    def make(value, method):
        class Base:
            limit = value

        class Own(Base):
            run = staticmethod(method)

        return Own()

    methods = [lambda: 1, lambda: 2]
    digests = {digest_of(make(value, method)) for value in (1, 2) for method in methods}
    assert len(digests) == 4
