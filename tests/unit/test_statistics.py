"""Statistics: what is counted of contents and tokens, and that sums do not depend on how records are divided."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transforms import Conversation, PlainText, PromptCompletion, TokenRow
from transforms.model.statistics import Beyond, Histogram, Statistics, Tools, bins_of, bounds_of, histogram_of
from transforms.rows.ragged import offsets_of
from transforms.steps.counting import LIMITS, of_contents, of_tokens

LENGTHS = st.lists(st.integers(1, 70_000), min_size=1, max_size=20)


def tokens_of(lengths: list[int], trained: list[int]) -> Statistics:
    """The statistics of examples whose last tokens are trained on, each of which is a row."""
    offsets = offsets_of(np.array(lengths, np.int64))
    labels = np.full(offsets[-1], -100, np.int32)
    for stop, count in zip(offsets[1:].tolist(), trained, strict=True):
        labels[stop - count : stop] = 1
    rows, ones = np.array(lengths, np.int64), np.ones(len(lengths), np.int64)
    return of_tokens(labels, offsets, np.array(trained, np.int64), rows, ones)


def test_buckets_are_exact_below_16_and_then_8_for_each_power_of_two():
    assert bounds_of("turns")[:28].tolist() == [*range(16), 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44]
    numbers = np.array([0, 15, 16, 17, 18, 1000, 1023, 1024])
    assert histogram_of("turns", numbers) == Histogram(
        buckets=[(0, 1), (15, 1), (16, 2), (18, 1), (960, 2), (1024, 1)], count=8, sum=3113, min=0, max=1024
    )


def test_bins_join_equally_many_buckets():
    histogram = msgspec.to_builtins(histogram_of("turns", np.array([2, 3, 3, 8])))
    assert bins_of("turns", histogram, 7) == [
        (2, 2, 1),
        (3, 3, 2),
        (4, 4, 0),
        (5, 5, 0),
        (6, 6, 0),
        (7, 7, 0),
        (8, 8, 1),
    ]
    assert bins_of("turns", histogram, 3) == [(2, 4, 3), (5, 7, 0), (8, 8, 1)]


def test_percents_have_buckets_of_five():
    found = histogram_of("trained_percent", np.array([0, 4, 5, 99, 100]))
    assert found.buckets == [(0, 2), (5, 1), (95, 1), (100, 1)]


@given(st.lists(st.integers(0, 1 << 22), min_size=1, max_size=30), st.integers(1, 60))
def test_bins_hold_each_number_once_without_gaps(numbers, most):
    found = bins_of("row_tokens", msgspec.to_builtins(histogram_of("row_tokens", np.array(numbers))), most)
    assert len(found) <= most
    assert [count for *_, count in found] == [sum(low <= n <= high for n in numbers) for low, high, _ in found]
    assert sum(count for *_, count in found) == len(numbers)
    assert [first for first, _, _ in found[1:]] == [last + 1 for _, last, _ in found[:-1]]
    assert (found[0][0], found[-1][1]) == (min(numbers), max(numbers))


@given(LENGTHS, st.data())
def test_a_limit_counts_the_tokens_beyond_it(lengths, data):
    trained = [data.draw(st.integers(1, length)) for length in lengths]
    expected = {
        str(limit): Beyond(
            sum(length > limit for length in lengths),
            sum(max(length - limit, 0) for length in lengths),
            sum(min(count, max(length - limit, 0)) for length, count in zip(lengths, trained, strict=True)),
            sum(count for length, count in zip(lengths, trained, strict=True) if length > limit),
        )
        for limit in LIMITS
    }
    assert tokens_of(lengths, trained).limits == expected


@given(st.lists(LENGTHS, min_size=1, max_size=4))
def test_the_sum_is_that_of_all_examples_however_they_are_divided(parts):
    every = [length for lengths in parts for length in lengths]
    assert Statistics.total(tokens_of(lengths, lengths) for lengths in parts) == tokens_of(every, every)


def test_messages_roles_tools_and_calls_are_counted():
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "content": "A"},
        {"role": "tool", "content": "B"},
        {"role": "assistant", "content": "C"},
    ]
    tools = [{"type": "function", "function": {"name": name}} for name in "fgh"]
    plain = (("system", "user", "assistant"), ["S", "Q", "A"], None)
    contents = [Conversation(messages, tools), Conversation(plain), Conversation(plain), PlainText("T")]
    found = of_contents(contents)
    assert found.roles == {"assistant": 4, "system": 2, "tool": 2, "user": 3}
    assert found.tools == Tools(conversations=1, definitions=3, calls=2, answers=2)
    assert found.histograms == {"turns": Histogram([(3, 2), (5, 1)], count=3, sum=11, min=3, max=5)}


def test_contents_without_messages_have_no_turns():
    row = TokenRow(np.array([1], np.int32), np.array([True]))
    assert of_contents([row]) == of_contents([]) == Statistics()
    assert of_contents([PlainText("ab"), PromptCompletion("ab", "ж"), row]) == Statistics()


def test_statistics_are_the_same_as_json():
    statistics = Statistics.total([tokens_of([5, 3000], [2, 1000]), of_contents([PlainText("ab")])])
    assert msgspec.json.decode(msgspec.json.encode(statistics), type=Statistics) == statistics
    assert msgspec.to_builtins(statistics)["histograms"]["row_tokens"] == {
        "buckets": [(5, 1), (2816, 1)],
        "count": 2,
        "sum": 3005,
        "min": 5,
        "max": 3000,
    }
