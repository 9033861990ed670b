"""The PTransforms of checks: a record in which one finds something is counted, dropped or rejected."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.model.batches import Examples, Labels
from transforms.model.examples import NOT_FROM_A_RECORD, Content, Example, TokenRow, attempt
from transforms.model.outcomes import Drop, Reject
from transforms.rows.truncation import find_turns
from transforms.steps.base import Step
from transforms.steps.checks import Chosen, choose_checks
from transforms.steps.contents import Contents
from transforms.steps.row_options import CheckOptions

_MOST_CHARACTERS = 300  # of what is found


class ContentChecker:
    """Checks the contents of a batch. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        checks = [each for each in choose_checks(check) if each.group != "lengths"]
        # Those that look at the same contents share the choice.
        self._checks = [(choose, [*group]) for choose, group in groupby(checks, lambda each: each.choose)]

    def find(self, contents: Sequence[Content]) -> dict[int, dict[Chosen, str]]:
        """Return what checks find first in contents, by their numbers, and by the checks."""
        found = dict[int, dict[Chosen, str]]()
        if not self._checks:
            return found
        numbers = [number for number, content in enumerate(contents) if not isinstance(content, TokenRow)]
        looked_at = Contents([contents[number] for number in numbers])
        for choose, checks in self._checks:
            for at in dict.fromkeys(choose(looked_at)):
                for check in checks:
                    if words := next(iter(check.find(looked_at.seen[at])), None):
                        found.setdefault(numbers[at], {})[check] = _in_one_line(words)
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
        by_position = dict[int, dict[Chosen, str]]()  # of a record, which may have several examples
        for number, found in found_by_number.items():
            position = batch.examples[number].position
            by_position[position] = by_position.get(position, {}) | found
        examples, drops, counts, firsts = list[Example](), list[Drop](), Counter[str](), dict[str, tuple[int, str]]()
        for example in batch.examples:
            found = by_position.get(example.position, {})
            is_first = not example.number
            if check := _find_action("reject", found):
                rejects += [example.rejected(RecordError(check.name, found[check]))] * is_first
            elif check := _find_action("drop", found):
                drops += [dataclasses.replace(example.dropped(check.name), detail=found[check])] * is_first
            else:
                names = {check.name: words for check, words in found.items()}
                if names and is_first:
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


def _in_one_line(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…"


def _find_action(action: str, found: Mapping[Chosen, str]) -> Chosen | None:
    """The first check that found something of a record and that has an action."""
    return next((check for check in found if check.action == action), None)


class LengthChecker:
    """Checks how many trained tokens the turns of a batch have. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        self._checks = [each for each in choose_checks(check) if each.group == "lengths"]

    def __call__(self, batch: Labels) -> Labels:
        for check in self._checks:
            batch = _checked(batch, check)
        return batch


def _checked(batch: Labels, check: Chosen) -> Labels:
    """Return the rows of a batch without those that a check drops, or with what it finds of them."""
    turns, facts = find_turns(batch.labels, batch.offsets, np.arange(len(batch.offsets) - 1)), batch.facts
    lengths, numbers = turns.stop - turns.start, facts.record_numbers()
    at = np.flatnonzero(check.find(lengths))
    records, first = np.unique(numbers[turns.row[at]], return_index=True)
    if not len(records):
        return batch
    words = [f"a turn has {count:,} trained tokens" for count in lengths[at[first]].tolist()]
    if check.action == "drop":
        drops = facts.drops(records, check.name, np.diff(batch.offsets), batch.trained_tokens)
        drops = [  # without tokens, which are those lost to max_length
            dataclasses.replace(drop, detail=each, tokens=None, trained_tokens=None)
            for drop, each in zip(drops, words, strict=True)
        ]
        return batch.take(np.flatnonzero(~np.isin(numbers, records)), batch.outcomes.drop(drops))
    position = int(facts.positions[facts.first_rows()[records[0]]])
    outcomes = batch.outcomes.note(check.name, len(records), (position, words[0]))
    details = dict(zip(records.tolist(), (f"{check.name}: {each}" for each in words), strict=True))
    return dataclasses.replace(batch, outcomes=outcomes, facts=facts.with_details(details))


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
