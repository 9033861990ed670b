"""Gather: what all splits of a plan have sent, as one element, once all of them have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam

from transforms.model.receipts import Receipt, Sent


class SentBy(NamedTuple):
    """What a split has sent: of its receipt the number of the split, its source and increment, and the file, if any."""

    split: int
    source: int
    increment: str
    sent: Sent | None


# The key of the one element, by which it is joined with others.
KEY = 0


class Gather(beam.PTransform):
    """Gather what splits have sent, in their order. It is one element, so that receipts go to one more place only.

    PCollection[Receipt] -> PCollection[tuple[int, list[SentBy]]], whose number is KEY.
    """

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        keyed = receipts | beam.Map(_sent_by) | beam.WithKeys(KEY)
        return keyed | beam.GroupByKey() | beam.Map(_in_order)


def _sent_by(receipt: Receipt) -> SentBy:
    return SentBy(receipt.split, receipt.source, receipt.increment, receipt.sent)


def _in_order(group: tuple[int, Iterable[SentBy]]) -> tuple[int, list[SentBy]]:
    return group[0], sorted(group[1], key=lambda each: each.split)
