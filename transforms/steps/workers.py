"""Workers: a function is applied to each element in the worker processes of this machine, if there are any.

On a cluster, the runner has workers of its own, and the function is applied where the element is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from transforms.base.once import unpickled

_pool: Executor | None = None


@contextmanager
def worker_pool(pool: Executor) -> Iterator[None]:
    """Let the pipelines that this process runs inside apply the functions of OnWorkers in a pool of processes."""
    global _pool
    _pool = pool
    try:
        yield
    finally:
        _pool = None


class OnWorkers(beam.DoFn):
    """Applies a function to each element: in the pool of this machine, if there is one, otherwise here.

    In a pool, the results are those of a whole bundle, in its order: a stage after a Reshuffle is one bundle on Beam's
    in-memory runner.

    Args:
        function: takes an element, and returns or yields any number of results. It, the elements and the results can be
            pickled.
    """

    def __init__(self, function: Callable[[Any], Iterable[Any]]):
        self._function = function

    def start_bundle(self) -> None:
        self._futures: list[Future[list[Any]]] = []
        self._pickled = b"" if _pool is None else pickle.dumps(self._function)

    def process(self, element: Any) -> Iterator[Any]:
        if _pool is None:
            yield from self._function(element)
        else:
            self._futures.append(_pool.submit(_apply, self._pickled, element))

    def finish_bundle(self) -> Iterator[Any]:
        done, others = wait(self._futures, return_when=FIRST_EXCEPTION)
        for future in self._futures if not others else done:
            for result in future.result():
                if isinstance(result, beam.pvalue.TaggedOutput):
                    yield beam.pvalue.TaggedOutput(result.tag, GlobalWindows.windowed_value(result.value))
                else:
                    yield GlobalWindows.windowed_value(result)


def _apply(function: bytes, element: Any) -> list[Any]:
    return [*unpickled(function)(element)]
