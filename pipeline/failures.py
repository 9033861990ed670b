"""Failures: what is raised for a run that failed: the error of a worker, if it is meant for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transforms.base.errors import InputError, StoreError, Unavailable, UserError
from transforms.dataset.commit import is_committed
from transforms.dataset.layout import Folder
from transforms.steps.failures import last_failure
from transforms.storage.files import exists

# The errors that are meant for the user, and what Beam adds to their texts.
_OURS = (InputError, StoreError, Unavailable, UserError)
_STEP_OF_BEAM = " [while running '"
# One of them in the text of a runner's error, which has no more of it than its name and its text.
_IN_TEXT = re.compile(rf"transforms\.base\.errors\.\w+: (.+?)(?:{re.escape(_STEP_OF_BEAM)}|\n|$)")


@contextmanager
def raising_failures(folder: Folder) -> Iterator[None]:
    """Inside, an error of a worker that is meant for the user is raised in place of the runner's error.

    On this machine it is what the runner's error was raised for. A runner elsewhere has at most its text: the error is
    read from its file, and from the text if the store of the output did not take the file. The error of a run whose
    folder was removed is that it was; there is none if another run committed the same.

    Args:
        folder: of the increment.
    """
    try:
        yield
    except Exception as error:
        with suppress(StoreError, InputError):
            if not exists(folder.job):
                if is_committed(folder):
                    return
                raise UserError(
                    f"{folder.output}: it was removed during the build. Run the same command again."
                ) from None
        if found := _find_error(error):
            raise found from None
        failure, text = last_failure(folder.failures), str(error)
        # A traceback without it: the run failed because of another error, and this one is of an earlier attempt.
        if failure and ("Traceback" not in text or type(failure).__name__ in text):
            raise failure from None
        if shown := _IN_TEXT.search(text):
            raise InputError(shown[1]) from None
        raise


def _find_error(error: BaseException | None) -> BaseException | None:
    """The error of ours for which another one was raised, without what Beam adds to its text; None if there is none."""
    while error and not (isinstance(error, _OURS) and _STEP_OF_BEAM not in str(error)):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error
