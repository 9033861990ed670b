"""The command line: finds the command in the arguments and runs it. `chatmill` and `python -m pipeline` are the same.

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pipeline import commands
from pipeline.cli.console import RESUME, run_command
from transforms.base.phrases import did_you_mean

_DEFAULT = "build"
_COMMANDS = sorted(module.name for module in iter_modules(commands.__path__))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command and its options; by default those of this process.

    Returns:
        The exit code: 0 if the command did its work, 1 if it failed or found what it looks for, 2 after a user error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal may not have all characters of a template or text.
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if arguments is None else arguments
    is_build = not arguments or arguments[0] == _DEFAULT or arguments[0].startswith("-")
    return run_command(lambda: _run(arguments), RESUME if is_build else "")


def _run(arguments: Sequence[str]) -> int:
    """Run a command. Returns the exit code."""
    if not arguments:
        print(_usage(), file=sys.stderr)
        return 2
    if arguments[0] in ("--help", "-h"):
        print(f"{_usage()}\n")
    command, *rest = [_DEFAULT, *arguments] if arguments[0].startswith("-") else arguments
    if command not in _COMMANDS:
        expected = f"expected {', '.join(_COMMANDS)}.{did_you_mean(command, _COMMANDS)}"
        print(f"chatmill: unknown command {command}: {expected}\n{_usage()}", file=sys.stderr)
        return 2
    exit_code: int = _module(command).run(rest)
    return exit_code


def _module(command: str) -> Any:
    """The module of a command: SUMMARY, its arguments and what it does; and run, which returns the exit code."""
    return import_module(f"{commands.__name__}.{command}")


def _usage() -> str:
    summaries = {name: _module(name).SUMMARY for name in _COMMANDS}
    calls = {f"chatmill {name} {arguments}": does for name, (arguments, does) in summaries.items()}
    calls["chatmill --version"] = "show the version"
    lines = "\n".join(f"       {call:{max(map(len, calls)) + 4}}{does}" for call, does in calls.items())
    return f"""usage: {lines.lstrip()}

chatmill COMMAND --help lists the options of a command. Without a command,
options are those of {_DEFAULT}. `python -m pipeline` is the same program."""
