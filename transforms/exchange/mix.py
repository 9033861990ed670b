"""Mix: how often each record of each source is in the dataset.

A record has a pseudo-random number, and its copy c is in the dataset if this is below the threshold of its split for
copy c. Thresholds are chosen so that a source has exactly as many examples as asked for, or as many trained tokens as
whole examples can have; each split of a source gives its share of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from transforms.base.errors import InputError
from transforms.exchange.places import places_of

# Above the number of any record.
ALL = 1 << 64
# Numbers for the mix are others than those for the order.
_FOR_MIX = 1 << 40


@dataclass(frozen=True)
class SourceMix:
    """What is asked of a source.

    Attributes:
        name: of the source, for errors.
        epochs: how often each of its records is in the dataset.
        weight: its share, in proportion to those of the others; None if all have the share that their epochs give.
        max_examples: how many of its records are used at most.
        max_tokens: how many trained tokens it has at most.
    """

    name: str
    epochs: float = 1
    weight: float | None = None
    max_examples: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Mix:
    """What is asked of all sources.

    Attributes:
        sources: by their numbers.
        by: examples or trained_tokens: what weights are shares of.
        tokens: how many trained tokens all have together; None for as many as there are for these weights.
    """

    sources: tuple[SourceMix, ...]
    by: str = "trained_tokens"
    tokens: int | None = None

    @property
    def copies(self) -> int:
        """How many copies a record has at most, as far as that does not depend on how many tokens there are."""
        return math.ceil(max(source.epochs for source in self.sources))

    @property
    def shares_out(self) -> bool:
        """Whether how often a record is used depends on how many others there are."""
        limits = {limit for of in self.sources for limit in (of.weight, of.max_examples, of.max_tokens)}
        return {*limits, self.tokens} != {None}


def mix_of(options: Mapping[str, Any], sources: Sequence[tuple[str, Mapping[str, Any]]]) -> Mix | None:
    """Return the mix of a job; None if each record of each source is to be there once.

    Args:
        options: of the job, by name; those that are missing have their defaults.
        sources: the name of each, and the options that are its own.
    """
    names = [field.name for field in fields(SourceMix) if field.name != "name"]
    of_sources = [(source, {**options, **own}) for source, own in sources]
    mixes = [SourceMix(source, **{name: of[name] for name in names if name in of}) for source, of in of_sources]
    mix = Mix(tuple(mixes), options.get("mix_by", Mix.by), options.get("mix_tokens"))
    return mix if mix.shares_out or any(source.epochs != 1 for source in mixes) else None


@dataclass(frozen=True)
class Amount:
    """How many records, and how many trained tokens these have."""

    records: int
    trained_tokens: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.records + other.records, self.trained_tokens + other.trained_tokens)


@dataclass(frozen=True)
class Demand:
    """How much of a source has a copy of some number: a count of records, or of trained tokens.

    Attributes:
        amount: of both, a whole number if it is of records.
        of: all that there is of it in the source.
        is_tokens: whether it is of trained tokens.
        records: the part of the records of the source that is used at most.
        is_most: whether it may not be exceeded, not even by a part of an example.
    """

    amount: Fraction
    of: int
    is_tokens: bool
    records: Fraction = Fraction(1)
    is_most: bool = False


def demands_of(mix: Mix, available: Sequence[Amount]) -> list[list[Demand]]:
    """Return how much of each source has a first copy, a second one and so on.

    Args:
        mix: what is asked for.
        available: of each source, without duplicates.

    Raises:
        InputError: if the shares cannot be met.
    """
    by_tokens = mix.by == "trained_tokens"
    usable = [_usable(source, amount, by_tokens) for source, amount in zip(mix.sources, available, strict=True)]
    if all(source.weight is None for source in mix.sources) and mix.tokens is None:
        return [_of_source(*each) for each in zip(mix.sources, available, strict=True)]
    for source, size in zip(mix.sources, usable, strict=True):
        if not size and source.weight is not None:
            raise InputError(f"the source {source.name} has no record that is trained on, so it cannot have its share.")
    most = [Fraction(str(source.epochs)) * size for source, size in zip(mix.sources, usable, strict=True)]
    if by_tokens:
        limits = [source.max_tokens for source in mix.sources]
        most = [size if limit is None else min(size, Fraction(limit)) for size, limit in zip(most, limits, strict=True)]
    weights = [
        size if source.weight is None else Fraction(str(source.weight))
        for source, size in zip(mix.sources, most, strict=True)
    ]
    shares = [weight / sum(weights) if weight else Fraction(0) for weight in weights]
    if mix.tokens is None:
        total = min(size / share for size, share in zip(most, shares, strict=True) if share)
    else:
        total = Fraction(mix.tokens)
    found = list[list[Demand]]()
    for source, amount, size, share in zip(mix.sources, available, usable, shares, strict=True):
        wanted = total * share
        if by_tokens and source.max_tokens is not None and wanted > source.max_tokens:
            raise InputError(
                f"the source {source.name} is to have {float(wanted):,.0f} trained tokens, more than its max_tokens "
                f"{source.max_tokens:,}. Give it a smaller weight, or fewer mix_tokens."
            )
        found.append(_copies(source, wanted, size, amount, by_tokens))
    return found


def _usable(source: SourceMix, amount: Amount, by_tokens: bool) -> Fraction:
    """How much of a source is used once."""
    return _records_used(source, amount) * (amount.trained_tokens if by_tokens else amount.records)


def _records_used(source: SourceMix, amount: Amount) -> Fraction:
    """The part of the records of a source that is used."""
    if source.max_examples is None or source.max_examples >= amount.records:
        return Fraction(1)
    return Fraction(source.max_examples, amount.records)


def _of_source(source: SourceMix, amount: Amount) -> list[Demand]:
    """The demands of a source that has its epochs, whatever the others have."""
    by_tokens = source.max_tokens is not None
    size = _usable(source, amount, by_tokens)
    wanted = size * Fraction(str(source.epochs))
    if source.max_tokens is not None:
        wanted = min(wanted, Fraction(source.max_tokens))
    return _copies(source, wanted, size, amount, by_tokens)


def _copies(source: SourceMix, wanted: Fraction, size: Fraction, amount: Amount, by_tokens: bool) -> list[Demand]:
    """Share out how much of a source is wanted among copies of what of it is used."""
    of, records = amount.trained_tokens if by_tokens else amount.records, _records_used(source, amount)
    if not by_tokens:
        wanted = Fraction(math.floor(wanted + Fraction(1, 2)))
    demands = list[Demand]()
    while wanted > 0 and size:
        demands.append(Demand(min(wanted, size), of, by_tokens, records, source.max_tokens is not None))
        wanted -= size
    return demands


def mix_places_of(seed: int, split: int, positions: np.ndarray) -> np.ndarray:
    """Return the numbers of records that are compared with thresholds, as places_of does."""
    return places_of(seed, split + _FOR_MIX, positions)


def threshold_of(demand: Demand, before: Amount, own: Amount, places: np.ndarray, trained: np.ndarray) -> int:
    """Return the threshold of a split.

    Args:
        demand: of its source.
        before: what the splits of the source before it have.
        own: what it has.
        places: uint64, shape (records,): of its records, ascending.
        trained: int64, shape (records,): the trained tokens of the same.
    """
    if demand.amount >= demand.of:
        return ALL
    ends = before.records, before.records + own.records
    if demand.is_tokens:
        wanted = demand.amount * own.trained_tokens / demand.of
        sums = np.concatenate([[0], np.cumsum(trained)])
        if demand.is_most:
            count = int(np.searchsorted(sums, math.floor(wanted), side="right")) - 1
        else:
            count = int(np.argmin(np.abs(sums - float(wanted))))
        count = min(count, _share(demand.records, ends))
    else:
        count = _share(demand.amount / demand.of, ends)
    return ALL if count == len(places) else int(places[count])


def _share(part: Fraction, ends: tuple[int, int]) -> int:
    """How many records of a split are of a part of its source, of which it has those between two numbers."""
    first, stop = (math.floor(part * end) for end in ends)
    return stop - first
