"""The command line: finds the command in the arguments and runs it. `chatmill` and `python -m pipeline` are the same.

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module

from pipeline.cli.console import run_command
from transforms.base.checks import did_you_mean

# Each is a module of pipeline.commands: its arguments, and what it does.
_COMMANDS = {
    "build": ("[RECIPE] OPTIONS", "build a dataset"),
    "masks": ("OPTIONS", "show what is trained on under a chat template"),
    "diff": ("A B", "show what differs between two datasets"),
    "inspect": ("OUT [OPTIONS]", "show rows of a dataset, or its rejects"),
    "snapshots": ("OUT", "list the versions of a dataset"),
    "stats": ("OUT", "print histograms and counts of a dataset"),
    "verify": ("OUT", "compare all files of a dataset with their checksums"),
    "push": ("OUT ORG/NAME", "upload a dataset to the Hugging Face Hub"),
    "expire": ("OUT --older_than DURATION", "drop old versions of a dataset, and their files"),
}
_DEFAULT = "build"
_ADVICE = {
    "build": "Run the same command again, without --overwrite, to go on from here.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command and its options; by default those of this process.

    Returns:
        The exit code: 0 if the command did its work, 1 if it failed or found what it looks for, 2 after a user error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal may not have all characters of a template or text
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print(_usage(), file=sys.stderr)
        return 2
    if arguments[0] in ("--help", "-h"):
        print(f"{_usage()}\n")
    if arguments[0].startswith("-"):
        arguments = [_DEFAULT, *arguments]
    command, *rest = arguments
    if command not in _COMMANDS:
        expected = f"expected {', '.join(_COMMANDS)}.{did_you_mean(command, list(_COMMANDS))}"
        print(f"chatmill: unknown command {command}: {expected}\n{_usage()}", file=sys.stderr)
        return 2
    return run_command(lambda: import_module(f"pipeline.commands.{command}").run(rest), _ADVICE.get(command, ""))


def _usage() -> str:
    calls = [(f"chatmill {name} {arguments}", does) for name, (arguments, does) in _COMMANDS.items()]
    calls.append(("chatmill --version", "show the version"))
    width = max(len(call) for call, _ in calls) + 4
    lines = "\n".join(f"       {call:{width}}{does}" for call, does in calls)
    return f"""usage: {lines.lstrip()}

chatmill COMMAND --help lists the options of a command. Without a command,
options are those of {_DEFAULT}. `python -m pipeline` is the same program."""
