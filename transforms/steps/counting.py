"""Count the statistics of contents and of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from transforms.model.counts import CutOff, Histogram, Statistics, Tools
from transforms.model.examples import Conversation
from transforms.model.statistics import make_histogram
from transforms.rows import IGNORED
from transforms.rows.ragged import join_slices
from transforms.rows.truncation import find_turns

# Values of max_length for which the tokens that they would cut off are counted.
LIMITS = (2048, 4096, 8192, 16384, 32768)


def count_contents(contents: Sequence[Any]) -> Statistics:
    """Count the contents of examples: messages, roles and tools.

    Args:
        contents: Conversations and other contents of Examples, those of one chunk of a task.
    """
    every: list[Any] = [content.lazy_messages for content in contents if type(content) is Conversation]
    others = [messages for messages in every if type(messages) is list]
    plain = [messages for messages in every if type(messages) is tuple] if others else every
    other_messages = [*chain.from_iterable(others)]
    calls = [len(own) for m in other_messages if "tool_calls" in m and isinstance(own := m["tool_calls"], list)]
    # Most conversations share the tuple of their roles with others, and it takes longer to compare tuples than ids.
    roles = [messages[0] for messages in plain]
    ids = [*map(id, roles)]
    times, roles_by_id = Counter(ids), dict(zip(ids, roles, strict=True))
    role_counts = Counter([str(message.get("role")) for message in other_messages])
    for number, count in times.items():
        for role, messages in Counter(roles_by_id[number]).items():
            role_counts[role] += messages * count
    definitions = [len(content.tools) for content in contents if type(content) is Conversation and content.tools]
    turns = np.array([len(roles_by_id[number]) for number in times], np.int64).repeat([*times.values()])
    return Statistics(
        histograms=_histograms(turns=np.concatenate([turns, [*map(len, others)]]).astype(np.int64)),
        roles=role_counts,
        tools=Tools(len(definitions), sum(definitions), sum(calls), role_counts["tool"]),
    )


def count_tokens(
    labels: np.ndarray,
    offsets: np.ndarray,
    trained_tokens: np.ndarray,
    row_lengths: np.ndarray,
    examples_per_row: np.ndarray,
) -> Statistics:
    """Count the tokens of examples, before they are truncated, and of the rows that are made of them.

    Args:
        labels: int32, shape (tokens,): -100 if the token is not trained on.
        offsets: int64, shape (examples + 1,): example i has the labels offsets[i]:offsets[i + 1].
        trained_tokens: of each example, int64, shape (examples,).
        row_lengths, examples_per_row: of each row, int64, shape (rows,).
    """
    lengths = np.diff(offsets)
    return Statistics(
        histograms=_histograms(
            example_tokens=lengths,
            example_trained_tokens=trained_tokens,
            trained_percent=trained_tokens * 100 // np.maximum(lengths, 1),
            row_tokens=row_lengths,
            examples_per_row=examples_per_row,
        ),
        limits=_limits(lengths, labels, offsets) if len(lengths) else {},
    )


def _histograms(**numbers: np.ndarray) -> dict[str, Histogram]:
    return {name: make_histogram(name, values) for name, values in numbers.items() if len(values)}


def _limits(lengths: np.ndarray, labels: np.ndarray, offsets: np.ndarray) -> dict[int, CutOff]:
    """What each limit would cut off: what is between it and the next one, and what the next one would cut off."""
    turns = find_turns(labels, offsets, np.flatnonzero(lengths > LIMITS[0]))
    limits: dict[int, CutOff] = {}
    cut = CutOff()
    for limit, following in reversed([*pairwise((*LIMITS, int(lengths.max()) + LIMITS[-1]))]):
        longer = np.flatnonzero(lengths > limit)
        between = np.minimum(lengths[longer], following) - limit
        trained = int(np.count_nonzero(join_slices(labels, offsets[longer] + limit, between) != IGNORED))
        turn_tokens = int((turns.stop - turns.start)[turns.stop > limit].sum())
        limits[limit] = cut = CutOff(
            len(longer), cut.tokens + int(between.sum()), cut.trained_tokens + trained, turn_tokens
        )
    return limits
