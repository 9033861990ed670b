"""The command line: its commands, and what a run ends with (0 done, 1 failed, 2 a user's mistake).

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence

from pipeline.options import parse_options
from transforms.errors import InputError, UserError

_USAGE = "usage: chatmill build OPTIONS   (chatmill build --help lists them)"


def main() -> int:
    """The console command `chatmill`."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command == "build":
        return build(arguments)
    if command in ("--help", "-h"):
        print(_USAGE)
        return 0
    print(f"chatmill: unknown command {command}. {_USAGE}", file=sys.stderr)
    return 2


def build(arguments: Sequence[str]) -> int:
    """Build a dataset as the options say. Returns the exit code."""
    try:
        options, beam_flags = parse_options(arguments)
        _quiet_libraries()
        try:
            from pipeline.launch import launch
        except ModuleNotFoundError as error:
            raise UserError(
                f"{error.name} is not installed for {sys.executable}; ./run_local.sh sets it all up."
            ) from None
        launch(options, beam_flags)
    except UserError as error:
        print(f"chatmill: {error}", file=sys.stderr)
        return 2
    except InputError as error:
        print(f"chatmill: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("chatmill: stopped before the work began.", file=sys.stderr)
        return 130
    return 0


def _quiet_libraries() -> None:
    """Keep the notes of Beam and transformers to themselves from this user, here and in the workers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    logging.basicConfig(level=logging.WARNING, format="chatmill: %(levelname)s: %(message)s")
    logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())
