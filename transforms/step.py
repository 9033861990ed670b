"""How a step becomes a DoFn: its function is made once for each worker, then maps batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam


class MapBatches(beam.DoFn):
    """Maps each batch with a function that `make` makes when the worker starts (and that may load a tokenizer)."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._make = make

    def setup(self) -> None:
        self._map = self._make()

    def process(self, batch: Any) -> Iterator[Any]:
        yield self._map(batch)
