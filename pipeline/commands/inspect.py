"""chatmill inspect: shows rows of a dataset decoded, with what is trained on, and the records that were rejected."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser, paged
from transforms.base.errors import UserError

if TYPE_CHECKING:
    from pipeline.show.find import Found
    from transforms.dataset.reader import Dataset, FailedBuild
    from transforms.tokens.decoding import TokenDecoder

_LIMIT = 5


def run(arguments: Sequence[str]) -> int:
    """Show rows or rejects of a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or there is no such dataset, row or reject.
        InputError, StoreError: if the dataset cannot be read.
    """
    options = _parse(arguments)

    from transforms.dataset.reader import Dataset, open_rejects
    from transforms.tokens.decoding import TokenDecoder

    of_rejects = options.reject is not None or options.reason is not None
    opened = (open_rejects if of_rejects else Dataset)(options.dataset)
    decoder = TokenDecoder.load(opened.tokenizer_folder)
    found = _found(opened, decoder, options)
    (_print_json if options.json else _print)(found, decoder, options)
    return 0


def _found(dataset: Dataset | FailedBuild, decoder: TokenDecoder, options: argparse.Namespace) -> Iterator[Found]:
    """What the options ask for."""
    from pipeline.show import find
    from pipeline.show.rows import read_row
    from transforms.dataset.reader import FailedBuild

    if options.reject is not None:
        return find.reject(dataset, options.reject)
    if isinstance(dataset, FailedBuild):
        return find.of_reason_in_failed_build(dataset, options.reason, options.limit)
    if not options.split:
        options.split = "train" if dataset.shards("train") else "validation"
    if options.row is not None:
        return iter([read_row(dataset, options.row, options.split)])
    if options.source is not None:
        source, position = options.source
        return find.of_source(dataset, options.split, source, position, options.limit)
    if options.reason is not None:
        return find.of_reason(dataset, options.reason, options.limit)
    if options.sample is not None:
        return find.sample(dataset, options.split, options.sample, options.seed)
    if options.search is not None:
        return find.search(dataset, decoder, options.split, options.search, options.limit)
    return find.first_row(dataset, options.split)


def _print(found: Iterator[Found], decoder: TokenDecoder, options: argparse.Namespace) -> None:
    from rich.text import Text

    from pipeline.show.find import line_title
    from pipeline.show.rejects import Rejected, print_reject
    from pipeline.show.rows import TOKENS_FOUND, TOKENS_SHOWN, Row, print_row
    from pipeline.show.text import visible

    limit = None if options.full else TOKENS_FOUND if options.search else TOKENS_SHOWN
    with paged() as console:
        for item in found:
            if isinstance(item, Row):
                print_row(console, item, decoder, limit, options.tokens, options.search or "")
            elif isinstance(item, Rejected):
                print_reject(console, item, options.full)
            elif isinstance(item, dict):
                console.print(Text(visible(line_title(item)), "bold"))
            else:
                console.print(Text(visible(item)))


def _print_json(found: Iterator[Found], decoder: TokenDecoder, options: argparse.Namespace) -> None:
    import msgspec

    from pipeline.show.rejects import Rejected, reject_as_json
    from pipeline.show.rows import Row, row_as_json

    document: dict[str, list[Any]] = {"rows": [], "rejects": [], "records": [], "notes": []}
    for item in found:
        if isinstance(item, Row):
            document["rows"].append(row_as_json(item, decoder, options.tokens))
        elif isinstance(item, Rejected):
            document["rejects"].append(reject_as_json(item))
        elif isinstance(item, dict):
            document["records"].append(item)
        else:
            document["notes"].append(item)
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The value of each option. Raises UserError."""
    parser = CommandParser(
        "inspect",
        usage="OUT [--row N | --source FILE:POSITION | --reject N | --reason R | --sample N | --search TEXT] [...]",
        description="Show decoded rows of a dataset, with what is trained on between ⟦ and ⟧, or its rejected records. "
        "Without options: an overview and the first row.",
        examples=["out/mine", "out/mine --search refund", "out/mine --reason bad_message", "out/mine --row 7 --tokens"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--row", metavar="N", type=_number, help="a row, by its number in the split, from 0")
    which.add_argument(
        "--source",
        metavar="FILE:POSITION",
        type=_origin,
        help="the rows or the reject of a record: the url of its file, or the end of it, and the byte of its line or "
        "its number there (of a kept record, the build needs --provenance)",
    )
    which.add_argument("--reject", metavar="N", type=_number, help="a rejected record, by its number, from 0")
    which.add_argument("--reason", metavar="R", help="records that were rejected or dropped for a reason, or truncated")
    which.add_argument("--sample", metavar="N", type=_number, help="random rows, the same ones each time")
    which.add_argument("--search", metavar="TEXT", help="rows that contain a text")
    parser.add_argument("--split", choices=("train", "validation"), help="the split of the rows (default: train)")
    parser.add_argument("--seed", metavar="N", type=_number, help="seed of --sample (default: 0)")
    parser.add_argument(
        "--limit", metavar="N", type=_number, help=f"the most rows or records to show (default: {_LIMIT})"
    )
    parser.add_argument("--tokens", action="store_true", help="list the tokens, each with its id and its label")
    parser.add_argument("--full", action="store_true", help="show whole texts and records")
    parser.add_argument("--json", action="store_true", help="print JSON")
    for name in ("row", "source", "reject", "reason", "sample", "search", "split"):
        parser.set_defaults(**{name: None})
    parser.set_defaults(seed=0, limit=_LIMIT, tokens=False, full=False, json=False)
    options = parser.parse_args(arguments)
    if options.search == "":
        raise UserError("--search: give a text that is not empty.")
    return options


def _number(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 0")
    return number


_number.__name__ = "number"  # argparse names it in its error


def _origin(text: str) -> tuple[str, int]:
    source, _, position = text.rpartition(":")
    if not source or not position.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected a file and a position in it, such as chats.jsonl:1024")
    return source, int(position)
