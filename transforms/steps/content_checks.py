"""The PTransforms of checks: a record in which one finds something is counted, dropped or rejected."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.model.batches import Examples, Labels
from transforms.model.examples import NOT_FROM_A_RECORD, Content, Example, TokenRow, attempt
from transforms.model.outcomes import Reject
from transforms.rows.truncation import find_turns
from transforms.steps.base import Step
from transforms.steps.checks import CHECKS, LENGTHS, choose_checks
from transforms.steps.contents import Contents
from transforms.steps.row_options import CheckOptions

_MOST_CHARACTERS = 300  # of what is found


class ContentChecker:
    """Checks the contents of a batch. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        self._actions, functions = _load(check, are_lengths=False)
        # Checks that look at the same contents share the choice.
        groups = groupby(functions, lambda given: CHECKS[_name(given)].choose)
        self._checks = [(choose, [(given, functions[given]) for given in group]) for choose, group in groups]

    def find(self, contents: Sequence[Content]) -> dict[int, dict[str, str]]:
        """Return what checks find first in contents: by their numbers, and by the checks as they were given."""
        numbers = [number for number, content in enumerate(contents) if not isinstance(content, TokenRow)]
        looked_at, found = Contents([contents[number] for number in numbers]), dict[int, dict[str, str]]()
        for choose, checks in self._checks:
            for at in dict.fromkeys(choose(looked_at)):
                for given, find in checks:
                    for words in find(looked_at.seen[at]):
                        words = " ".join(words.split())
                        words = f"{words[:_MOST_CHARACTERS]}{'…' * (len(words) > _MOST_CHARACTERS)}"
                        found.setdefault(numbers[at], {})[given] = words
                        break
        return found

    def __call__(self, batch: Examples) -> Examples:
        try:
            found_by_number, rejects = self.find([example.content for example in batch.examples]), list[Reject]()
        except NOT_FROM_A_RECORD:
            raise
        except Exception:  # of some record, which the others do not pay for
            pairs, rejects = attempt(batch.examples, lambda example: (example, self.find([example.content])))
            batch = dataclasses.replace(batch, examples=[example for example, _ in pairs])
            found_by_number = {number: found[0] for number, (_, found) in enumerate(pairs) if found}
        if not found_by_number and not rejects:
            return batch
        by_position = dict[int, dict[str, str]]()  # of a record, which may have several examples
        for number, found in found_by_number.items():
            position = batch.examples[number].position
            by_position[position] = by_position.get(position, {}) | found
        examples, drops, counts, firsts = list[Example](), [], Counter[str](), dict[str, tuple[int, str]]()
        for example in batch.examples:
            found = by_position.get(example.position, {})
            for action in ("reject", "drop"):
                if given := next((each for each in found if self._actions[each] == action), None):
                    if not example.number and action == "reject":
                        rejects.append(example.rejected(RecordError(_name(given), found[given])))
                    elif not example.number:
                        drops.append(dataclasses.replace(example.dropped(_name(given)), detail=found[given]))
                    break
            else:
                names = {_name(given): words for given, words in found.items()}
                if names and not example.number:
                    counts.update([*names])
                    firsts = {name: (example.position, words) for name, words in names.items()} | firsts
                if names:
                    lines = (f"{name}: {words}" for name, words in names.items())
                    example = msgspec.structs.replace(example, detail="\n".join(filter(None, (example.detail, *lines))))
                examples.append(example)
        outcomes = batch.outcomes.reject(rejects).drop(drops)
        for name, count in counts.items():
            outcomes = outcomes.note(name, count, firsts[name])
        return dataclasses.replace(batch, outcomes=outcomes, examples=examples)


class LengthChecker:
    """Checks how many trained tokens the turns of a batch have. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        self._actions, self._functions = _load(check, are_lengths=True)

    def __call__(self, batch: Labels) -> Labels:
        for given, find in self._functions.items():
            batch = self._checked(batch, _name(given), find, self._actions[given])
        return batch

    def _checked(self, batch: Labels, name: str, find: Callable[[np.ndarray], np.ndarray], action: str) -> Labels:
        turns, numbers, facts = (
            find_turns(batch.labels, batch.offsets, np.arange(len(batch.offsets) - 1)),
            None,
            batch.facts,
        )
        lengths = turns.stop - turns.start
        at, numbers = np.flatnonzero(find(lengths)), facts.record_numbers()
        records, first = np.unique(numbers[turns.row[at]], return_index=True)
        if not len(records):
            return batch
        words = [f"a turn has {count:,} trained tokens" for count in lengths[at[first]].tolist()]
        if action == "drop":
            drops = facts.drops(records, name, np.diff(batch.offsets), batch.trained_tokens)
            drops = [  # without tokens, which are those lost to max_length
                dataclasses.replace(drop, detail=each, tokens=None, trained_tokens=None)
                for drop, each in zip(drops, words, strict=True)
            ]
            return batch.take(np.flatnonzero(~np.isin(numbers, records)), batch.outcomes.drop(drops))
        position = int(facts.positions[facts.first_rows()[records[0]]])
        outcomes = batch.outcomes.note(name, len(records), (position, words[0]))
        details = dict(zip(records.tolist(), (f"{name}: {each}" for each in words), strict=True))
        return dataclasses.replace(batch, outcomes=outcomes, facts=facts.with_details(details))


def _load(check: Mapping[str, str] | None, are_lengths: bool) -> tuple[dict[str, str], dict[str, Callable[..., Any]]]:
    """The checks that are on, of contents or of lengths, as they were given: what they do, and their functions."""
    actions = {each: action for each, action in choose_checks(check).items() if (_name(each) in LENGTHS) == are_lengths}
    functions = dict[str, Callable[..., Any]]()
    for given in actions:
        name, _, value = given.partition(":")
        functions[given] = functools.partial(CHECKS[name].find, value=value) if value else CHECKS[name].find
    return actions, functions


def _name(given: str) -> str:
    """The name of a check, without its value."""
    return given.partition(":")[0]


class CheckContents(Step):
    """Check the content of each example.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]].

    Args:
        options: that of a build, by name: check.

    Raises:
        ParameterError: if its value is not a possible one.
    """

    input, output = Examples, Examples

    def __init__(self, **options: Any):
        super().__init__(ContentChecker, check=CheckOptions(**options).check)


class CheckLengths(Step):
    """Check how many trained tokens each turn has.

    PCollection[Chunks[Labels]] -> PCollection[Chunks[Labels]].

    Args, Raises: as of CheckContents.
    """

    input, output = Labels, Labels

    def __init__(self, **options: Any):
        super().__init__(LengthChecker, check=CheckOptions(**options).check)
