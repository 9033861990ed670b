"""Real records, which the registries of shapes show in the documentation and the tests read."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A record of a shape, made as short as possible.

    Attributes:
        record: its columns.
        dataset: whose records look like this.
        url: where that is to be seen.
    """

    record: Any
    dataset: str
    url: str
