"""What a process loads once, however many threads of it ask."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable)

# One for all, since what is loaded loads other things. It guards imports, too: transformers puts another module in its
# own place as it is imported, and a thread that asked for it just before gets the one without names.
_LOADING = threading.RLock()


def once(function: _Function) -> _Function:
    """functools.cache, but of threads that ask at the same time one calls the function, and the others wait.

    Runners run several bundles in threads of one process: Beam's embedded workers and Dataflow's do.
    """
    cached = functools.cache(function)

    @functools.wraps(function)
    def loaded(*arguments):
        with _LOADING:
            return cached(*arguments)

    return loaded  # type: ignore[return-value]
