"""Choose: the thresholds of each split, once it is known how much each source has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np

from transforms.exchange.duplicates import ENTRY, Judged, decode_verdict, ranges_by_split
from transforms.exchange.gather import KEY, SentBy
from transforms.exchange.mix import Amount, Demand, Mix, demands_of, mix_places_of, threshold_of
from transforms.exchange.ranges import read_ranges
from transforms.model.receipts import Sent
from transforms.steps.failures import FailureWriter


class ChooseMix(beam.PTransform):
    """Choose the thresholds of each split.

    (PCollection[tuple[int, list[SentBy]]] of Gather, PCollection[Judged], if duplicates are dropped) ->
    PCollection[tuple[int, tuple[int, ...]]]: the number of the split, and its thresholds.

    Args:
        output: the folder of the dataset.
        mix: what is asked for.
        seed: of the choice.
    """

    def __init__(self, output: str, mix: Mix, seed: int):
        super().__init__()
        self._plan, self._choose = _Plan(mix), _Choose(output, seed)

    def expand(self, found: tuple[beam.PCollection, ...]) -> beam.PCollection:
        gathered, *judged = found
        groups = {"sent": gathered}
        if judged:
            groups["judged"] = judged[0] | "of judges" >> beam.WithKeys(KEY)
        tasks = groups | beam.CoGroupByKey() | beam.ParDo(self._plan) | beam.Reshuffle()
        return tasks | beam.ParDo(self._choose).with_output_types(tuple[int, tuple[int, ...]])


@dataclass(frozen=True)
class _OfSplit:
    """What is known of a split: its file and the bytes of its entries there, its verdicts, and how much it has."""

    split: int
    source: int
    path: str
    start: int
    stop: int
    verdicts: tuple[tuple[str, int, int], ...]
    amount: Amount


def _of_sent(each: SentBy, sent: Sent) -> _OfSplit:
    start, stop = sent.index[0], sent.index[-1]
    amount = Amount(sent.records, sent.trained_tokens)
    return _OfSplit(each.split, each.source, sent.path, start, stop, (), amount)


# The split, the demands of its source, and what the splits of the source before it have.
_Task = tuple[_OfSplit, list[Demand], Amount]


class _Plan(beam.DoFn):
    def __init__(self, mix: Mix):
        self._mix = mix
        self._failures = FailureWriter()

    def process(self, group: tuple[int, Mapping[str, Iterable[Any]]]) -> Iterator[_Task]:
        with self._failures:
            [gathered] = group[1]["sent"]
            splits = [_of_sent(each, each.sent) for each in gathered if each.sent]
            tasks = self._tasks(splits, group[1].get("judged", ()))
        yield from tasks

    def _tasks(self, sent: Iterable[_OfSplit], judged: Iterable[Judged]) -> list[_Task]:
        splits = {each.split: each for each in sent}
        for number, verdicts in ranges_by_split(judged).items():
            split = splits[number]
            records = split.amount.records - sum(found.records for _, found in verdicts)
            trained_tokens = split.amount.trained_tokens - sum(found.trained_tokens for _, found in verdicts)
            ranges = tuple(place for place, _ in verdicts)
            splits[number] = replace(split, verdicts=ranges, amount=Amount(records, trained_tokens))
        before: defaultdict[int, Amount] = defaultdict(lambda: Amount(0, 0))
        tasks = []
        for split in splits.values():
            tasks.append((split, before[split.source]))
            before[split.source] += split.amount
        available = [before[number] for number in range(len(self._mix.sources))]
        demands = demands_of(self._mix, available)
        return [(split, demands[split.source], earlier) for split, earlier in tasks]


class _Choose(beam.DoFn):
    def __init__(self, output: str, seed: int):
        self._output, self._seed = output, seed
        self._failures = FailureWriter()

    def process(self, task: _Task) -> Iterator[tuple[int, tuple[int, ...]]]:
        with self._failures:
            thresholds = self._thresholds(*task)
        yield task[0].split, thresholds

    def _thresholds(self, split: _OfSplit, demands: Sequence[Demand], before: Amount) -> tuple[int, ...]:
        content, *verdicts = read_ranges(self._output, [(split.path, split.start, split.stop), *split.verdicts])
        entries = np.frombuffer(content, ENTRY)
        entries = entries[~entries["validation"]]
        for verdict in map(decode_verdict, verdicts):
            entries = entries[~np.isin(entries["position"], np.frombuffer(verdict.positions, "<i8"))]
        places = mix_places_of(self._seed, split.split, entries["position"])
        order = np.argsort(places)
        trained = entries["trained"][order].astype(np.int64)
        return tuple(threshold_of(demand, before, split.amount, places[order], trained) for demand in demands)
