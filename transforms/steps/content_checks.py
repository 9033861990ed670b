"""The PTransforms of checks: a record in which one finds something is counted, dropped or rejected."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.model.batches import Examples, Labels
from transforms.model.examples import Content, Example, TokenRow, attempt
from transforms.model.outcomes import Drop
from transforms.rows.truncation import find_turns
from transforms.steps.base import Step
from transforms.steps.checks import Chosen, choose_checks
from transforms.steps.contents import Seen
from transforms.steps.row_options import CheckOptions

_MOST_CHARACTERS = 300  # of what is found


class ContentChecker:
    """Checks the contents of a batch. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        checks = [each for each in choose_checks(check) if each.group != "lengths"]
        self._checks = [(is_for, [*group]) for is_for, group in groupby(checks, lambda each: each.is_for)]

    def find(self, content: Content) -> dict[Chosen, str]:
        """Return what each check finds first in a content, if it finds something."""
        found: dict[Chosen, str] = {}
        if type(content) is TokenRow:
            return found
        seen = Seen(content)
        for is_for, checks in self._checks:
            if is_for(seen):
                for check in checks:
                    for words in islice(check.find(seen), 1):
                        found[check] = _in_one_line(words)
        return found

    def __call__(self, batch: Examples) -> Examples:
        if not self._checks:
            return batch
        pairs, rejects = attempt(batch.examples, lambda example: (example, self.find(example.content)))
        if not rejects and not any(found for _, found in pairs):
            return batch
        examples, drops, notes = list[Example](), list[Drop](), defaultdict[str, list[tuple[int, str]]](list)
        for _, group in groupby(pairs, lambda pair: pair[0].position):  # a record may have several examples
            of_record, all_found = zip(*group, strict=True)
            found = {check: words for each in reversed(all_found) for check, words in each.items()}
            if check := _find_action("reject", found):
                rejects.append(of_record[0].rejected(RecordError(check.name, found[check])))
            elif check := _find_action("drop", found):
                drops.append(dataclasses.replace(of_record[0].dropped(check.name), detail=found[check]))
            else:
                for name, words in {check.name: found[check] for check in reversed(found)}.items():  # may have values
                    notes[name].append((of_record[0].position, words))
                lines = [f"{check.name}: {words}" for check, words in found.items()]
                examples += (_with_detail(example, lines) for example in of_record)
        outcomes = batch.outcomes.reject(rejects).drop(drops)
        for name, records in notes.items():
            outcomes = outcomes.note(name, len(records), records[0])
        return dataclasses.replace(batch, outcomes=outcomes, examples=examples)


def _with_detail(example: Example, lines: Sequence[str]) -> Example:
    if not lines:
        return example
    return msgspec.structs.replace(example, detail="\n".join(filter(None, (example.detail, *lines))))


def _in_one_line(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…"


def _find_action(action: str, found: Mapping[Chosen, str]) -> Chosen | None:
    """The first check that found something of a record and that has an action."""
    return next((check for check in found if check.action == action), None)


class LengthChecker:
    """Checks how many trained tokens the turns of a batch have. check: as of CheckOptions."""

    def __init__(self, check: Mapping[str, str] | None):
        chosen = [each for each in choose_checks(check) if each.group == "lengths"]
        # With several values; those that drop come first.
        self._checks = [[*same] for _, same in groupby(sorted(chosen, key=_action_and_name), _action_and_name)]

    def __call__(self, batch: Labels) -> Labels:
        for checks in self._checks:
            batch = _checked(batch, checks)
        return batch


def _action_and_name(check: Chosen) -> tuple[str, str]:
    return check.action, check.name


def _checked(batch: Labels, checks: Sequence[Chosen]) -> Labels:
    """Return the rows of a batch without those that a check drops, or with what it finds of them.

    checks: of one action and name.
    """
    check = checks[0]
    turns, facts = find_turns(batch.labels, batch.offsets, np.arange(len(batch.offsets) - 1)), batch.facts
    lengths, numbers = turns.stop - turns.start, facts.record_numbers()
    at = np.flatnonzero(np.any([each.find(lengths) for each in checks], axis=0))
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
