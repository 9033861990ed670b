"""The command line: finds the command in the arguments and runs it. `chatmill` and `python -m pipeline` are the same.

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from pipeline.console import error_text, run_command, show_phase
from pipeline.options import find_summary_json, parse_options
from transforms.checks import did_you_mean
from transforms.errors import Unavailable, UserError

_COMMANDS = ("build", "masks")
_USAGE = """usage: chatmill build OPTIONS    build a dataset
       chatmill masks OPTIONS    show what is trained on under a chat template
       chatmill --version        show the version

chatmill COMMAND --help lists the options of a command. Without a command,
options are those of build. `python -m pipeline` is the same program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command and its options; by default those of this process.

    Returns:
        The exit code: 0 if the command did its work, 1 if it failed, 2 after a user error.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print(_USAGE, file=sys.stderr)
        return 2
    command, *rest = arguments
    if command == "build":
        return build(rest)
    if command == "masks":
        return masks(rest)
    if command in ("--help", "-h"):
        print(f"{_USAGE}\n")
    if command.startswith("-"):
        return build(arguments)
    hint = did_you_mean(command, _COMMANDS)
    print(f"chatmill: unknown command {command}: expected build or masks.{hint}\n{_USAGE}", file=sys.stderr)
    return 2


def build(arguments: Sequence[str]) -> int:
    """Build a dataset. Returns the exit code."""
    return run_command(
        lambda: _build(arguments),
        advice="Finished work is kept: run the same command again, without --overwrite, to resume.",
    )


def masks(arguments: Sequence[str]) -> int:
    """Show which parts of conversations are trained on. Returns the exit code."""
    return run_command(lambda: _masks(arguments))


def _build(arguments: Sequence[str]) -> int:
    try:
        options, beam_flags = parse_options(arguments)
        show_phase(f"building {options.output}")
        from pipeline.sources import read_sources

        sources = read_sources(options)
    except (UserError, Unavailable) as error:
        if url := find_summary_json(arguments):
            from pipeline.summary import check_summary_json, write_summary_json

            summary = {"status": "failed", "error": error_text(error)}
            with suppress(UserError, Unavailable):  # if this url is wrong too, the first error is the one to show
                check_summary_json(summary, url, output=None)
                write_summary_json(summary, url)
        raise
    from pipeline.launch import launch

    launch(options, sources, beam_flags)
    return 0


def _masks(arguments: Sequence[str]) -> int:
    from pipeline.masks import show_masks

    return show_masks(arguments)
