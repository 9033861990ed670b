"""The errors that are meant for the person who runs the job: one line, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class UserError(Exception):
    """A user error: what was wrong, where, what was expected, what to do. Exit code 2."""


class ParameterError(UserError, ValueError):
    """A value that a parameter does not take.

    Args:
        parameter: its name, as the library has it. The command line shows it as its option.
        value: the value that was given.
        problem: what was expected, and what to do, as a sentence or several.
    """

    def __init__(self, parameter: str, value: Any, problem: str):
        super().__init__(f"{parameter}={value!r}: {problem}")
        self.parameter = parameter
        self.value = value
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return ParameterError, (self.parameter, self.value, self.problem)


class InputError(Exception):
    """An input file that cannot be read on (corrupt, cut short, gone): which one, where, what to do. Exit code 1."""


class Unavailable(Exception):
    """What cannot be had now, and may be later: a store or a cluster that gives no answer. Exit code 1."""


class StoreError(OSError):
    """What a store refuses, or fails to do however often it is asked. Exit code 1.

    reason: what the store said, in one line, without the url. is_transient: whether it may do later what it did not do.
    """

    def __init__(self, url: str, doing: str, reason: str, is_transient: bool):
        super().__init__(f"{url}: it cannot be {doing} ({reason}).")
        self.reason = reason
        self.is_transient = is_transient

    def before_work(self, told: str) -> Exception:
        """What is raised in its place before the work begins: a refusal is then the user's mistake, as told."""
        return (Unavailable if self.is_transient else UserError)(told)


class RecordError(Exception):
    """What is wrong with one record. It costs that record and nothing else.

    reason: the kind of fault, in snake_case, as it is counted in the manifest.
    detail: what was found and what was expected, for the person who has to mend it.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(reason, detail)
        self.reason = reason
        # In one line, and what is no Unicode as its escape: it is written down.
        self.detail = " ".join(detail.encode(errors="backslashreplace").decode().splitlines())


def call_user_function(function: Callable[[Any], Any], value: Any, reason: str) -> Any:
    """Call a function that a user gave.

    Raises:
        RecordError: if it raises anything, with the reason; or the RecordError that it raises.
    """
    try:
        return function(value)
    except RecordError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's function raises costs its record alone
        raise RecordError(reason, f"{type(error).__name__}: {error}") from error
