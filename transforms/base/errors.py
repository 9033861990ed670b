"""The errors that are meant for the person who runs the job: one line, no traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    """An input file that is corrupt, cut short or missing: which one, where, and what to do. Exit code 1."""


class RejectsError(InputError):
    """Too many records are rejected, or there is no row because of rejects, which can be read. Exit code 1."""


class Unavailable(Exception):
    """A store, a hub or a cluster that does not answer now, so that the same command may succeed later. Exit code 1."""


class CommittedMeanwhile(Unavailable):
    """Another run committed to the dataset first. What this one wrote stays, so that it can be resumed. Exit code 3."""


class WorkerDied(Unavailable):
    """A worker process that was killed, or ended by itself: the machine is short of memory, or a record crashes it."""


class StoreError(OSError):
    """An operation that a store refuses, or in which it fails after all retries. Exit code 1.

    Args:
        url: of the file or folder.
        action: what was to be done with it, as a past participle: "read".
        reason: the store's message, in one line, without the url.
        is_transient: whether the same operation may succeed later.
    """

    def __init__(self, url: str, action: str, reason: str, is_transient: bool):
        super().__init__(f"{url}: it cannot be {action} ({reason}).")
        self.url = url
        self.action = action
        self.reason = reason
        self.is_transient = is_transient

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreError, (self.url, self.action, self.reason, self.is_transient)

    def as_user_error(self, message: str) -> Exception:
        """Return a UserError to raise instead, or Unavailable if this error is transient."""
        return (Unavailable if self.is_transient else UserError)(message)


@contextmanager
def before_the_work(prefix: str = "") -> Iterator[None]:
    """Inside, and in a function with this decorator, a StoreError becomes one that the user is to correct.

    prefix: of the message, such as "--input ".
    """
    try:
        yield
    except StoreError as error:
        raise error.as_user_error(f"{prefix}{error}") from None


class RecordError(Exception):
    """What is wrong with one record. That record is rejected, and no other.

    Args:
        reason: the kind of fault, in snake_case, as it is counted in the manifest.
        detail: what was found and what was expected, for the person who corrects the record. Line breaks become
            spaces, and characters that UTF-8 cannot encode their escapes.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = " ".join(detail.encode(errors="backslashreplace").decode().splitlines())


class RecordDropped(Exception):
    """A record that is well-formed and does not belong in the dataset.

    Args:
        reason: why, in snake_case, as it is counted in the manifest.

    Attributes:
        columns: of the record that are kept, if they are known.
    """

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason
        self.columns: Mapping[str, str | None] = {}


def call_user_function(function: Callable[[Any], Any], value: Any, reason: str) -> Any:
    """Call a function that a user gave. Raises RecordError if it raises anything, with the reason unless it is one."""
    try:
        return function(value)
    except RecordError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's function raises costs its record alone
        raise RecordError(reason, f"{type(error).__name__}: {error}") from error
