"""Steps for custom functions, between ParseConversations and ApplyChatTemplate, which keep the sums right."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import Any, TypeAlias

import msgspec

from transforms.base.errors import ParameterError, RecordError, call_user_function
from transforms.model.batches import Examples
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, TokenRow, attempt
from transforms.model.outcomes import Drop
from transforms.steps.base import Step

MapFunction: TypeAlias = Callable[[Example], Example | list[Example] | None]


class _Filter:
    def __init__(self, keep: Callable[[Example], bool], reason: str):
        self._keep = keep
        self._reason = reason

    def __call__(self, batch: Examples) -> Examples:
        judged, rejects = attempt(batch.examples, self._judged)
        kept = [example for example, is_kept in judged if is_kept]
        outcomes = batch.outcomes.reject(rejects)
        outcomes = outcomes.drop(_drops([example for example, _ in judged], kept, self._reason))
        return batch.succeeded_by(Examples, outcomes, examples=kept)

    def _judged(self, example: Example) -> tuple[Example, bool]:
        return example, call_user_function(lambda given: bool(self._keep(given)), _with_own_tools(example), "filter")


class _Map:
    def __init__(self, function: MapFunction):
        self._function = function

    def __call__(self, batch: Examples) -> Examples:
        replaced, rejects = attempt(batch.examples, self._replacements)
        examples = [
            example if example.number == number else msgspec.structs.replace(example, number=number)
            for _, of_record in groupby(chain.from_iterable(replaced), key=lambda example: example.position)
            for number, example in enumerate(of_record)
        ]
        outcomes = batch.outcomes.reject(rejects)
        rejected = {reject.position for reject in rejects}
        mapped = [example for example in batch.examples if example.position not in rejected]
        outcomes = outcomes.drop(_drops(mapped, examples, "filtered"))
        return batch.succeeded_by(Examples, outcomes, examples=examples)

    def _replacements(self, example: Example) -> list[Example]:
        replaced = call_user_function(self._function, _with_own_tools(example), "map")
        if replaced is None:
            return []
        return [self._checked(one, example) for one in (replaced if isinstance(replaced, list) else [replaced])]

    def _checked(self, replaced: Any, example: Example) -> Example:
        if not isinstance(replaced, Example):
            raise RecordError("map", f"it returned {type(replaced).__name__}; expected an Example")
        if replaced.position != example.position:
            raise RecordError("map", "it returned an example with the position of another record")
        if not isinstance(replaced.content, (Conversation, PromptCompletion, PlainText, TokenRow)):
            raise RecordError(
                "map", f"it returned the content {type(replaced.content).__name__}; expected a Conversation"
            )
        if replaced.columns.keys() != example.columns.keys():
            raise RecordError("map", "it returned other columns than keep_columns names")
        if not all(value is None or isinstance(value, str) for value in replaced.columns.values()):
            raise RecordError("map", "it returned a column that is not a string")
        return replaced


class FilterExamples(Step):
    """Keep the examples for which a function returns true; count the others as dropped.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]]. What the function raises rejects that record.

    Args:
        keep: takes an Example. It is shipped to workers as Beam ships functions.
        reason: why the others are dropped, in snake_case, as it is counted in the manifest.

    Raises:
        ParameterError: if keep cannot be called, or the reason is not in snake_case.
    """

    input, output = Examples, Examples

    def __init__(self, keep: Callable[[Example], bool], *, reason: str):
        _check_callable("keep", keep)
        if not isinstance(reason, str) or not re.fullmatch("[a-z][a-z0-9_]*", reason):
            raise ParameterError("reason", reason, "expected a name in snake_case, such as too_short.")
        super().__init__(_Filter, keep=keep, reason=reason)


class MapExamples(Step):
    """Replace each example by what a function returns for it: an example, several, or none.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]]. What the function raises rejects that record.

    Args:
        function: takes an Example and returns one, such as `msgspec.structs.replace(example, content=...)`, or a list
            of them. A record without examples, since it returned None or an empty list, is dropped as
            `filtered`. It is shipped to workers as Beam ships functions.

    Raises:
        ParameterError: if the function cannot be called.
    """

    input, output = Examples, Examples

    def __init__(self, function: MapFunction):
        _check_callable("function", function)
        super().__init__(_Map, function=function)


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


def _drops(examples: list[Example], kept: list[Example], reason: str) -> Iterator[Drop]:
    """Yield the drop of each record without an example that is kept."""
    positions = {example.position for example in kept}
    for position, of_record in groupby(examples, key=lambda example: example.position):
        if position not in positions:
            yield next(of_record).dropped(reason)
