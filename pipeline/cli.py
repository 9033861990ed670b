"""The command line: its commands, and what a run ends with (0 done, 1 failed, 2 a user's mistake).

Nothing heavy is imported before the options are known to be right.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

from pipeline.options import parse_options, summary_asked_for
from transforms.errors import InputError, ParameterError, StoreError, Unavailable, UserError

_USAGE = """usage: chatmill build OPTIONS   builds a dataset (chatmill build --help lists the options)
       chatmill masks OPTIONS   shows what of conversations is trained on under a chat template"""


def main() -> int:
    """The console command `chatmill`."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command == "build":
        return build(arguments)
    if command == "masks":
        return run_command(lambda: _masks(arguments))
    if command in ("--help", "-h"):
        print(_USAGE)
        return 0
    print(f"chatmill: unknown command {command}.\n{_USAGE}", file=sys.stderr)
    return 2


def build(arguments: Sequence[str]) -> int:
    """Build a dataset as the options say. Returns the exit code."""
    return run_command(lambda: _build(arguments))


def run_command(command: Callable[[], int]) -> int:
    """Run a command to its exit code, and tell what it raises in one line."""
    quiet_libraries()
    gc.disable()  # what is imported and loaded stays; to look through it for garbage takes most of a second
    try:
        return command()
    except ParameterError as error:
        print(f"chatmill: --{error.parameter} {error.value}: {error.problem}", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"chatmill: {error}", file=sys.stderr)
        return 2
    except (InputError, StoreError, Unavailable) as error:
        print(f"chatmill: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(
            f"chatmill: {error.name} is not installed for {sys.executable}; ./run_local.sh sets it all up.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("chatmill: stopped before the work began.", file=sys.stderr)
        return 130
    except Exception:  # no mistake of the user's: whoever mends it needs the traceback
        traceback.print_exc()
        print(
            "chatmill: failed over the error above. What is done is kept: run the same command again, without "
            "--overwrite.",
            file=sys.stderr,
        )
        return 1
    finally:
        gc.enable()


def _build(arguments: Sequence[str]) -> int:
    try:
        options, beam_flags = parse_options(arguments)
    except UserError as mistake:
        if place := summary_asked_for(arguments):
            from pipeline.summary import check_summary, write_summary

            told = {"status": "failed", "error": str(mistake)}
            with suppress(UserError, Unavailable):  # a place that is mistaken too is told of next time
                check_summary(told, place, output=None)
                write_summary(told, place)
        raise
    from pipeline.launch import launch

    launch(options, beam_flags)
    return 0


def _masks(arguments: Sequence[str]) -> int:
    from pipeline.masks import show_masks

    return show_masks(arguments)


def quiet_libraries() -> None:
    """Keep the notes of Beam and transformers to themselves from this user, here and in the workers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    logging.basicConfig(level=logging.WARNING, format="chatmill: %(levelname)s: %(message)s")
    logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)  # it ends what it started
    logging.getLogger("apache_beam.options.pipeline_options").setLevel(logging.ERROR)  # a job server's are not its own
    logging.getLogger().addFilter(_is_for_the_user)


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Of what Beam logs without a name: not that it waits for a job server, nor an error, which is raised as well."""
    of_job_servers = record.module in ("portable_runner", "subprocess_server")
    return not of_job_servers and "apitools not found" not in record.getMessage()
