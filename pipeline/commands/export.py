"""chatmill export: writes a dataset in the layout of a trainer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.cli.console import CommandParser, show, show_phase
from pipeline.cli.options import OPTIONS_OF_REPACK, Options, add_option, check_beam_flags, check_not_of_build, parser_of
from transforms.base import kinds
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.catalog.consumers import CONSUMERS, title_of
from transforms.exports import EXPORTS


def run(arguments: Sequence[str]) -> int:
    """Export a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0, also if the export is there already, or its job was submitted.

    Raises:
        UserError: if an option is wrong, there is no finished dataset, or its rows are not for the trainer.
        InputError: if the dataset is damaged.
        Unavailable: if a store or a cluster does not answer.
        StoreError: if a store fails.
    """
    given, beam_flags = _parse(arguments)
    options = Options(input=(given.dataset,), output=given.output, runner=given.runner, detach=given.detach)
    show_phase(f"reading {given.dataset}")

    from pipeline.job.export import export

    names = ("shards", "rows_per_shard", "drop_remainder")
    how = {name: getattr(given, name) for name in names if hasattr(given, name)}
    status, result = export(given.consumer, options, how, beam_flags)
    if isinstance(result, str):
        show(result)
    else:
        _print(given, result, status == "done")
    return 0


def _print(given: argparse.Namespace, summary: Mapping[str, Any], is_new: bool) -> None:
    print(f"{given.output}: {summary['dataset']} {'' if is_new else 'was exported already '}for {given.consumer}.")
    for split, found in summary["splits"].items():
        line = f"  {split}: {counted(found['rows'], 'row')} in {counted(len(found['shards']), 'shard')}, "
        line += f"{found['tokens']:,} tokens, {found['trained_tokens']:,} trained on, "
        line += f"{found['padding']:,} more of padding, " if found["padding"] else ""
        line += f"the longest row has {found['longest_row']:,}"
        if found["dropped"]["rows"]:
            line += f"; dropped: {counted(found['dropped']['rows'], 'row')}, {found['dropped']['tokens']:,} tokens"
        print(f"{line}.")


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The value of each option, and the options of Beam. Raises UserError."""
    parser = CommandParser(
        "export",
        usage="OUT --for NAME --output URL [--shards N | --rows_per_shard N] [--drop_remainder]",
        description="Write the rows of a dataset in the layout of a trainer. Nothing is tokenized again. Run the same "
        "command again after a kill: what is written is kept.",
        examples=[
            "out/mine --for llamafactory --output out/llamafactory",
            "gs://shards/mine@6 --for megatron_bridge --output gs://shards/bridge",
        ],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset; OUT@6 is its version 6")
    parser.add_argument(
        "--for",
        dest="consumer",
        metavar="NAME",
        type=parser_of("for", kinds.one_of(CONSUMERS)),
        help=f"the trainer: {', '.join(EXPORTS)} (required)",
    )
    parser.add_argument("--output", metavar="URL", help="the folder or url of the export (required)")
    numbers = {
        "shards": "how many shards each split has: one for each rank that reads whole shards; their rows differ by at "
        "most one (default: those of the dataset)",
        "rows_per_shard": "rows of each shard but the last one of a split",
    }
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", metavar="INT", type=parser_of(name, kinds.positive), help=text)
    parser.add_argument(
        "--drop_remainder",
        action="store_true",
        help="give all shards of a split the same number of rows, and drop what is left; it is counted",
    )
    for name in ("runner", "detach"):
        add_option(parser, Options.__dataclass_fields__[name])
    parser.set_defaults(runner=Options.runner, detach=Options.detach)
    given, beam_flags = parser.parse_known_args(arguments)
    known = ["for", "output", "runner", "detach", "drop_remainder", *numbers]
    why = "decides what the rows are, and export takes them as they are"
    check_not_of_build(beam_flags, OPTIONS_OF_REPACK, f"{why}: give it to chatmill build, or to chatmill repack.")
    check_beam_flags("export", beam_flags, known, given.runner)
    for name in ("for", "output"):
        if not hasattr(given, {"for": "consumer"}.get(name, name)):
            raise UserError(f"--{name} is missing. chatmill export --help lists the options.")
    if given.consumer not in EXPORTS:
        raise UserError(
            f"--for {given.consumer}: {title_of(given.consumer)} reads the dataset as it is. Its card, README.md, has "
            "the recipe."
        )
    return given, beam_flags
