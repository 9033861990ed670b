"""Steps for custom functions, between ParseConversations and ApplyChatTemplate, which keep the sums right."""

from __future__ import annotations

import functools
import inspect
import pickle
import re
from collections.abc import Callable
from itertools import chain, groupby
from typing import Any, TypeAlias

import msgspec

from transforms.base.errors import ParameterError, RecordError, call_user_function
from transforms.model.batches import Examples
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, TokenRow, attempt
from transforms.model.outcomes import Drop
from transforms.steps.base import Step

MapFunction: TypeAlias = Callable[[Example], Example | list[Example] | None]


class FilterExamples(Step):
    """Keep the examples for which a function returns true. A record without any is dropped.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]]. What the function raises rejects that record. A
    record that loses only some of its examples is counted by the note `filtered_examples`.

    Args:
        keep: takes an Example. It is shipped to workers as Beam ships functions.
        reason: why records are dropped, in snake_case, as it is counted in the manifest.

    Raises:
        ParameterError: if keep cannot be called, or the reason is not in snake_case.
    """

    input, output = Examples, Examples

    def __init__(self, keep: Callable[[Example], bool], *, reason: str):
        _check_callable("keep", keep)
        if not isinstance(reason, str) or not re.fullmatch("[a-z][a-z0-9_]*", reason):
            raise ParameterError("reason", reason, "expected a name in snake_case, such as too_short.")
        super().__init__(_filter, keep=keep, reason=reason)


class MapExamples(Step):
    """Replace each example by what a function returns for it: an example, several, or none.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]]. What the function raises rejects that record.

    Args:
        function: takes an Example and returns one, such as `msgspec.structs.replace(example, content=...)`, or a list
            of them. A record without examples, since it returned None or an empty list, is dropped as
            `filtered`; one that loses only some is counted by the note `filtered_examples`. It is shipped to workers
            as Beam ships functions.

    Raises:
        ParameterError: if the function cannot be called.
    """

    input, output = Examples, Examples

    def __init__(self, function: MapFunction):
        _check_callable("function", function)
        super().__init__(_map, function=function)


def _filter(keep: Callable[[Example], bool], reason: str) -> Callable[[Examples], Examples]:
    def kept(example: Example) -> list[Example]:
        is_kept = call_user_function(lambda given: bool(keep(given)), _with_own_tools(example), "filter")
        return [example] if is_kept else []

    return functools.partial(_replace, kept, reason)


def _map(function: MapFunction) -> Callable[[Examples], Examples]:
    def mapped(example: Example) -> list[Example]:
        returned = call_user_function(function, _with_own_tools(example), "map")
        examples = returned if isinstance(returned, list) else [] if returned is None else [returned]
        for each in examples:
            _check_mapped(each, example)
        return examples

    return functools.partial(_replace, mapped, "filtered")


def _replace(function: Callable[[Example], list[Example]], reason: str, batch: Examples) -> Examples:
    """Replace each example by those that a function returns.

    A record of which none is left is dropped; one that loses some of several is noted.
    """
    pairs, rejects = attempt(batch.examples, lambda example: (example, function(example)))
    examples: list[Example] = []
    drops: list[Drop] = []
    partly: list[tuple[int, str]] = []
    for position, record_pairs in groupby(pairs, key=lambda pair: pair[0].position):
        before, after = zip(*record_pairs, strict=True)
        for number, example in enumerate(chain.from_iterable(after)):
            is_right = example.number == number
            examples.append(example if is_right else msgspec.structs.replace(example, number=number))
        if not any(after):
            drops.append(before[0].dropped(reason))
        elif not all(after):
            partly.append((position, f"{after.count([])} of its {len(after)} examples: {reason}"))
    outcomes = batch.outcomes.reject(rejects).drop(drops)
    outcomes = outcomes.note("filtered_examples", len(partly), partly[0] if partly else None)
    return batch.succeeded_by(Examples, outcomes, examples=examples)


def _check_mapped(mapped: Any, example: Example) -> None:
    if not isinstance(mapped, Example):
        problem = f"{type(mapped).__name__}; expected an Example"
    elif mapped.position != example.position:
        problem = "an example with the position of another record"
    elif not isinstance(mapped.content, (Conversation, PromptCompletion, PlainText, TokenRow)):
        problem = f"the content {type(mapped.content).__name__}; expected a Conversation"
    elif mapped.columns.keys() != example.columns.keys():
        problem = "other columns than keep_columns names"
    elif not all(value is None or isinstance(value, str) for value in mapped.columns.values()):
        problem = "a column that is not a string"
    else:
        return
    raise RecordError("map", f"it returned {problem}")


def _with_own_tools(example: Example) -> Example:
    """The example with a copy of its tools, which conversations share: a function may change them."""
    content = example.content
    if not isinstance(content, Conversation) or not content.tools:
        return example
    tools = pickle.loads(pickle.dumps(content.tools))  # a third of the time of copy.deepcopy
    return msgspec.structs.replace(example, content=msgspec.structs.replace(content, tools=tools))


def _check_callable(parameter: str, value: object) -> None:
    is_lazy = inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value)
    if not callable(value) or is_lazy:
        raise ParameterError(parameter, value, "expected a function of an Example, without async or yield.")
