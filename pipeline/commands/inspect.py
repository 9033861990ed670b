"""Show decoded rows of a dataset, with what is trained on between ⟦ and ⟧, or its rejected records. Without options:
an overview and the first row.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pipeline.cli.console import CommandParser
from transforms.base.errors import UserError

SUMMARY = "OUT [OPTIONS]", "show rows of a dataset, or its rejects"


def run(arguments: Sequence[str]) -> int:
    """Show rows or rejects of a dataset."""
    parser = CommandParser(
        "inspect", SUMMARY, __doc__, ["out/mine", "out/mine --search refund", "out/mine --row 7 --tokens"]
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--row", metavar="N", type=number, help="a row, by its number in the split, from 0")
    which.add_argument(
        "--source",
        metavar="FILE:POSITION",
        type=_origin,
        help="the rows or the reject of a record: the url of its file, or the end of it, and the byte of its line or "
        "its number there (of a kept record, the build needs --provenance)",
    )
    which.add_argument("--reject", metavar="N", type=number, help="a rejected record, by its number, from 0")
    which.add_argument("--reason", metavar="R", help="records that were rejected or dropped for a reason, or truncated")
    which.add_argument("--check", metavar="NAME", help="records in which a check of a build found something")
    which.add_argument("--sample", metavar="N", type=number, help="random rows, the same ones each time")
    which.add_argument("--search", metavar="TEXT", help="rows that contain a text")
    parser.add_argument("--split", choices=("train", "validation"), help="the split of the rows (default: train)")
    parser.add_argument("--seed", metavar="N", type=number, default=0, help="seed of --sample (default: 0)")
    parser.add_argument(
        "--limit", metavar="N", type=number, default=5, help="the most rows or records to show (default: 5)"
    )
    parser.add_argument("--tokens", action="store_true", help="list the tokens, each with its id and its label")
    parser.add_argument("--full", action="store_true", help="show whole texts and records")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.search == "":
        raise UserError("--search: give a text that is not empty.")

    from pipeline.show.find import find, items_as_json, print_items
    from pipeline.show.printing import paged, print_json
    from transforms.dataset.reader import Dataset, open_rejects

    shows_rejects = (options.reject, options.reason, options.check) != (None, None, None)
    dataset = (open_rejects if shows_rejects else Dataset)(options.dataset)
    items = find(dataset, options)
    if options.json:
        print_json(items_as_json(items, options.tokens))
        return 0
    with paged() as console:
        print_items(console, items, options)
    return 0


def number(text: str) -> int:
    """Read a number. argparse has the name of this function in its error."""
    value = int(text.replace(",", ""))
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 0")
    return value


def _origin(text: str) -> tuple[str, int]:
    source, _, position = text.rpartition(":")
    if not source or not position.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected a file and a position in it, such as chats.jsonl:1024")
    return source, int(position)
