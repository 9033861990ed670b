"""What is known of a trainer: the form in which each is described."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout


class Problem(NamedTuple):
    """Why rows of a layout are not trained on as they should be.

    option: the option of the job that has to be another. text: what would happen, and what to do.
    """

    option: str
    text: str


@dataclass(frozen=True)
class Consumer:
    """What is known of a trainer.

    Attributes:
        title: its name.
        columns: the columns that it reads, by whether rows are packed.
        problems: finds what is wrong with a layout, beyond what is wrong for each trainer.
        recipe: makes the code that reads a dataset: of its path, of the name of a model, and of its layout.
        language: of the recipe.
        schema: of the preference data that it reads; empty if it reads other records.
    """

    title: str
    columns: Callable[[bool], tuple[str, ...]]
    problems: Callable[[RowLayout], Iterator[Problem]]
    recipe: Callable[[str, str, RowLayout], str]
    language: str = "python"
    schema: str = ""
