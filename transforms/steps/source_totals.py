"""What each source has of a shard with records of several: of their outcomes, and of the tokens of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from transforms.model.batches import Rows
from transforms.model.counts import RecordCounts, Totals


def totals_of_sources(chunk: Rows) -> list[Totals]:
    """Count what each source has of the rows of a chunk, and of the records that got their outcome in it.

    Returns:
        By the number of the source. A packed row counts for the source of its first example, each token for its own.
    """
    task, origin, used = chunk.task, chunk.origin, chunk.used
    of_rows = task.sources_of(origin.positions)
    of_used = of_rows[origin.first_rows()[used.records]]
    drops = chunk.outcomes.drops
    of_drops = task.sources_of(np.array([drop.position for drop in drops], np.int64)).tolist()
    count = 1 + int(task.received.sources.max()) if task.received else 1
    dropped = [Counter[str]() for _ in range(count)]
    for number, drop in zip(of_drops, drops, strict=True):
        dropped[number][drop.reason] += 1
    kept, truncated = (
        np.bincount(of_used[~used.copies & (used.truncated == flag)], minlength=count) for flag in (False, True)
    )
    rows, tokens, trained = (np.zeros(count, np.int64) for _ in range(3))
    for table in (chunk.train, chunk.validation):
        of_segments = of_rows[table.example_index]
        rows += np.bincount(of_segments[table.segment_offsets[:-1]], minlength=count)
        tokens += np.bincount(of_segments, table.segment_lengths, count).astype(np.int64)
        trained += np.bincount(of_segments, table.segment_trained_tokens, count).astype(np.int64)
    return [
        Totals(
            records=RecordCounts(
                read=int(kept[number] + truncated[number]) + dropped[number].total(),
                kept=int(kept[number]),
                truncated=int(truncated[number]),
                dropped=dict(sorted(dropped[number].items())),
            ),
            rows=int(rows[number]),
            tokens=int(tokens[number]),
            trained_tokens=int(trained[number]),
        )
        for number in range(count)
    ]


def added(some: Sequence[Totals], others: Sequence[Totals]) -> list[Totals]:
    """Add up the totals of sources, by their numbers."""
    return [one + other for one, other in zip_longest(some, others, fillvalue=Totals())]
