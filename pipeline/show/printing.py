"""How commands print: for a terminal or a pipe, in tables, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table


def new_console(width: int | None = None) -> Console:
    """Make a console that prints texts as they are: nothing in them is a colour, and no line is broken."""
    return Console(highlight=False, soft_wrap=True, emoji=False, markup=False, width=width)


@contextmanager
def paged() -> Iterator[Console]:
    """Give a console for what a command shows: in a terminal with a pager, otherwise plain."""
    console = new_console()
    if not console.is_terminal:
        yield console
        return
    os.environ.setdefault("LESS", "-FRX")  # with colours, and without a page of its own for what fits on the screen
    with console.pager(styles=True):
        yield console


def new_table(justify: str, titles: Sequence[str] = ()) -> Table:
    """Make a table without lines. justify: l or r for each column. titles: none for no header."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(titles), header_style="bold")
    for side, title in zip_longest(justify, titles, fillvalue=""):
        table.add_column(title, justify="right" if side == "r" else "left", overflow="fold")
    return table


def print_json(document: Any) -> None:
    """Print a document as JSON. What of it is not UTF-8 is escaped by standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False))
