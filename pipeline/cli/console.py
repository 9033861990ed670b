"""The console: what all commands share (options and their help, exit codes, errors in one line, the pager).

Only the standard library is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from transforms.base.errors import (
    CommittedMeanwhile,
    InputError,
    ParameterError,
    RejectsError,
    StoreError,
    Unavailable,
    UserError,
)
from transforms.base.phrases import did_you_mean
from transforms.base.version import __version__

# What to do after a build that was stopped.
RESUME = "Run the same command again, without --overwrite, to resume."
_DOCUMENTATION = "documentation: README.md and the docs/ folder of Chatmill's repository"
_SHOWN_CHARACTERS = 200
_PYTHON_WORDS = re.compile(r"\b(True|False|None)\b")
# The reasons that a RejectsError lists, each in a line of its own.
_REASONS = re.compile(r"^  (\w+) \(", re.MULTILINE)


class CommandParser(argparse.ArgumentParser):
    """The options of a command. Errors are raised as UserError.

    Args:
        command: its name.
        summary: its arguments, and what it does.
        description: what it does, in full: the docstring of its module.
        examples: calls to show, without the name of the command.
        settings: of argparse.
    """

    def __init__(
        self, command: str, summary: tuple[str, str], description: str | None, examples: Sequence[str], **settings: Any
    ):
        lines = "\n".join(f"  chatmill {command} {example}" for example in examples)
        super().__init__(
            prog=f"chatmill {command}",
            usage=f"%(prog)s {summary[0]}",
            description=textwrap.fill(description or "", 78),
            epilog=f"examples:\n{lines}\n\n{_DOCUMENTATION}",
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
            allow_abbrev=False,
            **settings,
        )
        self.add_argument("--version", action="version", version=f"chatmill {__version__}", help="show the version")

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ').rstrip('.')}. {self.prog} --help lists the options.")


def unknown_option(command: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an option that does not exist. known: the names of those that do."""
    hint = did_you_mean(f"--{name}", [f"--{other}" for other in known])
    return UserError(f"unknown option --{name}.{hint} chatmill {command} --help lists the options.")


def as_typed(value: Any) -> str:
    """A value of an option as it is typed on the command line."""
    if value is None or value == () or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(map(as_typed, value))
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict) else str(value)


def shortened(text: str) -> str:
    """A text for a message: in one line, without the end of a long one. Templates are given as options, too."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 3]}..."


def run_command(command: Callable[[], int], hint: str = "") -> int:
    """Run a command, and show what it raises on standard error.

    Args:
        command: does the work and returns the exit code.
        hint: what to do after an unexpected error, as a sentence.

    Returns:
        The exit code: that of the command; 2 after a user error, 3 if another run committed first, 1 after any other,
        130 after Ctrl-C, 143 after SIGTERM, 141 if nobody reads the output to its end.
    """
    quiet_libraries()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.current_thread() == threading.main_thread():
        signal.signal(signal.SIGTERM, raise_terminated)
    gc.disable()  # imports and loading create many objects that stay; scanning them costs most of a second
    try:
        return command()
    except (UserError, InputError, StoreError, Unavailable) as error:
        show(error_text(error))
        return 2 if isinstance(error, UserError) else 3 if isinstance(error, CommittedMeanwhile) else 1
    except KeyboardInterrupt as stop:
        show(f"stopped. {hint}".rstrip())
        return 143 if isinstance(stop, Terminated) else 130
    except BrokenPipeError:  # the reader of the output, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        package = (getattr(error, "name", "") or "").partition(".")[0]
        # A package that lacks a module is a defect.
        if isinstance(error, ModuleNotFoundError) and package and not importlib.util.find_spec(package):
            show(
                f"the Python package {error.name} is not installed for {sys.executable}. "
                "./run_local.sh in Chatmill's repository installs all packages that it needs."
            )
            return 2
        traceback.print_exc()  # a defect of ours or of a library
        show(f"unexpected error; the traceback is above. {hint}".rstrip())
        return 1
    finally:
        gc.enable()


class Terminated(KeyboardInterrupt):
    """SIGTERM, which a scheduler sends: it ends a command as Ctrl-C does."""


def raise_terminated(*_: object) -> NoReturn:
    """The handler of SIGTERM."""
    raise Terminated


def show(text: str) -> None:
    """Print a line to standard error."""
    print(f"chatmill: {text}", file=sys.stderr, flush=True)


def show_owner(owner: str) -> None:
    """Print for which process this one waits. owner: what is known of it."""
    show(f"waiting: the output is locked by {owner}")


def show_phase(text: str) -> None:
    """Print what begins now, if standard error is a terminal: a person should see at once that something happens.

    A log does not need it. What is there about a run that works is few lines, and an error is one.
    """
    if sys.stderr.isatty():
        show(text)


def import_beam() -> None:
    """Import Beam, which takes most of the time until a small job starts."""
    if "apache_beam" not in sys.modules:
        show_phase("importing Beam")
    import apache_beam  # noqa: F401


def parameter_text(error: ParameterError, place: str = "") -> str:
    """What to show of a wrong value: as it is typed. place: what names the recipe or source that has it."""
    option = f"{place}: {error.parameter}" if place else f"--{error.parameter}"
    problem = _PYTHON_WORDS.sub(lambda word: word[0].lower(), error.problem)
    return f"{option} {shortened(as_typed(error.value))}: {problem}"


def error_text(error: BaseException) -> str:
    """What to show of an error. The library's parameters are shown as the options of the command line."""
    if isinstance(error, UserError):  # in one line, also if a value has several
        shown = parameter_text(error) if isinstance(error, ParameterError) else str(error)
        return " ".join(shown.splitlines())
    if isinstance(error, RejectsError):
        from pipeline.show.hints import hints

        return "\n".join([str(error), *hints(_REASONS.findall(str(error)))])
    is_ours = isinstance(error, (InputError, StoreError, Unavailable))
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def quiet_libraries() -> None:
    """Hide the messages of Beam and transformers that are of no use to the user, in the launcher and in workers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    logging.basicConfig(level=logging.WARNING, format="chatmill: %(levelname)s: %(message)s")
    # Beam warns when it ends the job server that it started, of a job server's own options, and if there is no bson.
    for name in ("utils.subprocess_server", "options.pipeline_options", "io.mongodbio"):
        logging.getLogger(f"apache_beam.{name}").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_is_for_the_user)


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Hide what Beam logs to the root logger while it waits for a job server, whose errors are raised as well."""
    is_of_job_server = record.module in ("portable_runner", "subprocess_server")
    return not is_of_job_server and "apitools not found" not in record.getMessage()
