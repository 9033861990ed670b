"""chatmill repack: makes other rows of the examples that a build kept."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser, show_phase
from pipeline.cli.options import (
    OPTIONS_OF_REPACK,
    Options,
    add_option,
    check_beam_flags,
    check_not_of_build,
    check_not_on_hub,
    option_name,
)
from transforms.base.declaring import options_in
from transforms.base.errors import UserError

_OF_RUN = {"output", "max_lost_fraction", "report", "runner"}


def run(arguments: Sequence[str]) -> int:
    """Repack a dataset: with another length, packing, truncation, or other columns and formats, without tokenizing.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or the dataset keeps no examples.
        InputError: if what it keeps is damaged.
        Unavailable: if a store or a cluster does not answer.
    """
    parser = CommandParser(
        "repack",
        usage="OUT --output URL [OPTIONS]",
        description="Make other rows of the examples that a dataset keeps (chatmill build --keep_examples): the same "
        "bytes as a build of the same records with these options, without reading, rendering and tokenizing them. "
        "Options that are not given are as they were.",
        examples=["out/mine --output out/mine-16k --max_length 16384 --packing bfd"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset; OUT@6 is its version 6")
    changeable = OPTIONS_OF_REPACK | _OF_RUN
    fields = {option_name(field.name): field for field in options_in(Options) if field.name in changeable}
    for field in fields.values():
        add_option(parser, field)
    known, rest = parser.parse_known_args(arguments)
    others = {option_name(field.name) for field in options_in(Options)} - fields.keys()
    why = "decides what the examples are, or how they are made, and repack takes them as they are"
    check_not_of_build(rest, others, f"{why}: build the records again.")
    given = vars(known)
    check_beam_flags("repack", rest, [*fields], given.get("runner", Options.runner))
    url = given.pop("dataset")
    if not given.get("output"):
        raise UserError("--output is missing: give one, such as --output out/mine-16k.")
    check_not_on_hub(given["output"])
    from pipeline.job.repack import repack

    show_phase(f"repacking {url}")
    repack(url, given, rest)
    return 0
