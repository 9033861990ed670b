"""Caches of what a process loads: it is loaded once, however many threads need it at the same time.

Runners run several bundles in threads of one process: Beam's embedded workers and Dataflow's do.
"""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable)

# One lock for all, since what is loaded loads other things. It also guards imports: while transformers is imported, it
# replaces its module by another, and a thread that imports it at that moment gets the first one, which has no names.
_LOADING = threading.RLock()


def once(function: _Function) -> _Function:
    """Decorate a function so that its results are kept, as by functools.cache.

    Of threads that call it at the same time, one runs the function, and the others wait for its result.
    """
    return once_per_version(lambda *_: None)(function)


def once_per_version(version: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorate a function as `once` does, but run it again when what it reads has changed.

    version: a function of the same arguments. It is called each time, and returns another value when what the decorated
    function reads has changed. The last result for the same arguments is kept.
    """

    def decorate(function: Any) -> Any:
        results: dict[tuple[Any, ...], tuple[Any, Any]] = {}

        @functools.wraps(function)
        def loaded(*arguments: Any) -> Any:
            current = version(*arguments)
            with _LOADING:
                if arguments not in results or results[arguments][0] != current:
                    results[arguments] = current, function(*arguments)
                return results[arguments][1]

        return loaded

    return decorate


@functools.lru_cache(16)
def unpickled(content: bytes) -> Any:
    """Return what was pickled: the same object for the same bytes, so that a process keeps what the object loads."""
    return pickle.loads(content)
