"""Failures: what is raised for a run that failed: the error of a worker, if it is meant for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transforms.base.errors import CommittedMeanwhile, InputError, RejectsError, StoreError, Unavailable, UserError
from transforms.dataset.commit import is_committed
from transforms.dataset.layout import Folder
from transforms.steps.failures import last_failure
from transforms.storage.files import exists

# One of our errors in a worker's traceback: up to where Beam names the step, or Python the next exception. The class is
# the one that is raised for it: the arguments of the others are not in the text.
_RAISED_AS: dict[str, type[Exception]] = {
    "CommittedMeanwhile": CommittedMeanwhile,
    "InputError": InputError,
    "RejectsError": RejectsError,
    "StoreError": InputError,
    "Unavailable": Unavailable,
    "UserError": UserError,
    "ParameterError": UserError,
}
_OUR_ERROR = re.compile(rf"\b({'|'.join(_RAISED_AS)}): (.*?)(?=\s*\[while running|\n\n|\Z)", re.DOTALL)


@contextmanager
def noticing_removal(folder: Folder) -> Iterator[None]:
    """Inside, the error of a run whose folder was removed is that it was; none if another one committed the same."""
    try:
        yield
    except Exception:
        with suppress(StoreError, InputError):
            if not exists(folder.job):
                if is_committed(folder):
                    return
                raise UserError(
                    f"{folder.output}: it was removed during the build. Run the same command again."
                ) from None
        raise


@contextmanager
def raising_failures(failures: str) -> Iterator[None]:
    """Inside, an error of a worker that is meant for the user is raised in place of the runner's error.

    Args:
        failures: the url of the folder of failures of the run.
    """
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        found = _OUR_ERROR.search(text)
        # A traceback without such an error: the run failed because of another one, and the file is of an earlier
        # attempt.
        if (found or "Traceback" not in text) and (failure := last_failure(failures)):
            raise failure from None
        if found:
            raise _RAISED_AS[found[1]](found[2].strip()) from None
        raise
