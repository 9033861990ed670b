"""Mix: how often each record of each source is in the dataset.

The records of a source are taken in a pseudo-random order, all of them as often as possible and the first of them once
more, so that it has exactly as many examples as asked for, or as many trained tokens as whole examples can have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from transforms.base.errors import InputError


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


def make_mix(options: Mapping[str, Any], sources: Sequence[tuple[str, Mapping[str, Any]]]) -> Mix | None:
    """Return the mix of a job; None if each record of each source is to be there once.

    Args:
        options: of the job, by name; those that are missing have their defaults.
        sources: the name of each, and the options that are its own.
    """
    names = [field.name for field in fields(SourceMix) if field.name != "name"]
    values = [(source, {**options, **own}) for source, own in sources]
    mixes = [SourceMix(source, **{name: given[name] for name in names if name in given}) for source, given in values]
    mix = Mix(tuple(mixes), options.get("mix_by", Mix.by), options.get("mix_tokens"))
    return mix if mix.shares_out or any(source.epochs != 1 for source in mixes) else None


def count_copies(mix: Mix, trained: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return how often each record is in the dataset.

    Args:
        mix: what is asked for.
        trained: int32, shape (records,) for each source: the trained tokens of its records, without duplicates, in the
            order in which they are taken.

    Returns:
        int32, shape (records,) for each source.

    Raises:
        InputError: if the shares cannot be met.
    """
    shares_tokens = mix.by == "trained_tokens"
    has_shares = mix.tokens is not None or any(source.weight is not None for source in mix.sources)
    # What each of them counts for, of those that are used, and how often they are used, as far as no other source says.
    values, most = list[np.ndarray](), list[Fraction]()
    for source, tokens in zip(mix.sources, trained, strict=True):
        used, limit = tokens[: source.max_examples], source.max_tokens
        is_counted = shares_tokens if has_shares else limit is not None
        values.append(used if is_counted else np.ones(len(used), np.int32))
        size = Fraction(str(source.epochs)) * int(values[-1].sum(dtype=np.int64))
        most.append(size if limit is None else min(size, Fraction(limit)))
    wanted = _shared_out(mix, most) if has_shares else most
    all_copies = []
    for source, tokens, counted, amount in zip(mix.sources, trained, values, wanted, strict=True):
        copies = np.zeros(len(tokens), np.int32)
        copies[: len(counted)] = _copies(counted, amount, is_most=source.max_tokens is not None)
        all_copies.append(copies)
    return all_copies


def _shared_out(mix: Mix, most: Sequence[Fraction]) -> list[Fraction]:
    """Return how much each source has. most: as much as each has by itself, which is its weight if it has no other."""
    for source, size in zip(mix.sources, most, strict=True):
        if not size and source.weight is not None:
            raise InputError(f"the source {source.name} has no record that is trained on, so it cannot have its share.")
    weights = [
        size if source.weight is None else Fraction(str(source.weight))
        for source, size in zip(mix.sources, most, strict=True)
    ]
    shares = [weight / sum(weights) if weight else Fraction(0) for weight in weights]
    if mix.tokens is None:
        total = min(size / share for size, share in zip(most, shares, strict=True) if share)
    else:
        total = Fraction(mix.tokens)
    for source, share in zip(mix.sources, shares, strict=True):
        if source.max_tokens is not None and total * share > source.max_tokens:
            raise InputError(
                f"the source {source.name} is to have {float(total * share):,.0f} trained tokens, more than its "
                f"max_tokens {source.max_tokens:,}. Give it a smaller weight, or fewer mix_tokens."
            )
    return [total * share for share in shares]


def _copies(values: np.ndarray, wanted: Fraction, is_most: bool) -> np.ndarray:
    """Return how often each of the used records of a source is there.

    Args:
        values: int32, shape (records,): what each counts for, which is more than 0.
        wanted: how much they are to have together.
        is_most: whether that may not be exceeded, not even by a part of an example.
    """
    sums = np.cumsum(values, dtype=np.int64)
    if not len(sums):
        return values
    times, rest = divmod(wanted, int(sums[-1]))
    count = int(np.searchsorted(sums, int(rest), side="right"))  # as many have no more than that
    if not is_most and 2 * (rest - int(sums[count - 1] if count else 0)) >= int(values[count]):
        count += 1
    copies = np.full(len(sums), times, np.int32)
    copies[:count] += 1
    return copies
