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
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_HELP_WIDTH = 110
_SHOWN_CHARACTERS = 200
_PYTHON_WORDS = re.compile(r"\b(True|False|None)\b")
# The reasons that a RejectsError lists, each in a line of its own.
_REASONS = re.compile(r"^  (\w+) \(", re.MULTILINE)


class CommandParser(argparse.ArgumentParser):
    """The options of a command. Errors are raised as UserError; help is as wide as the terminal, up to 110 columns.

    Args:
        command: the name of the command.
        usage: the options of a typical call.
        description: what the command does.
        examples: calls to show, without the name of the command.
        argument_default: of options without a default; argparse.SUPPRESS to have those alone that are given.
    """

    def __init__(
        self, command: str, usage: str, description: str, examples: Sequence[str], argument_default: str | None = None
    ):
        lines = "\n".join(f"  chatmill {command} {example}" for example in examples)
        super().__init__(
            prog=f"chatmill {command}",
            usage=f"%(prog)s {usage}",
            description=description,
            epilog=f"examples:\n{lines}\n\n{_DOCUMENTATION}",
            formatter_class=_help_formatter,
            allow_abbrev=False,
            argument_default=argument_default,
        )
        self.add_argument("--version", action="version", version=f"chatmill {__version__}", help="show the version")

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ').rstrip('.')}. {self.prog} --help lists the options.")


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    width = min(shutil.get_terminal_size().columns - 2, _HELP_WIDTH)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width)


def unknown_option(command: str, name: str, known: Sequence[str]) -> UserError:
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
    gc.disable()  # imports and loading create many objects that stay; scanning them costs most of a second
    try:
        with _raising_terminated():
            return command()
    except UserError as error:
        print(f"chatmill: {error_text(error)}", file=sys.stderr)
        return 2
    except (InputError, StoreError, Unavailable) as error:
        print(f"chatmill: {error_text(error)}", file=sys.stderr)
        return 3 if isinstance(error, CommittedMeanwhile) else 1
    except KeyboardInterrupt as stop:
        print(f"chatmill: stopped. {hint}".rstrip(), file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except BrokenPipeError:  # the reader of the output, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_not_installed(error):
            print(
                f"chatmill: the Python package {error.name} is not installed for {sys.executable}. "
                "./run_local.sh in Chatmill's repository installs all packages that it needs.",
                file=sys.stderr,
            )
            return 2
        traceback.print_exc()  # a defect of ours or of a library
        print(f"chatmill: unexpected error; the traceback is above. {hint}".rstrip(), file=sys.stderr)
        return 1
    finally:
        gc.enable()


def _is_not_installed(error: ModuleNotFoundError) -> bool:
    """Whether a package is missing: others may lack a module, which is a defect."""
    return importlib.util.find_spec((error.name or "").partition(".")[0] or "pipeline") is None


class Terminated(KeyboardInterrupt):
    """SIGTERM, which a scheduler sends: it ends a command as Ctrl-C does."""


def raise_terminated(*_: object) -> NoReturn:
    """The handler of SIGTERM while a command runs."""
    raise Terminated


@contextmanager
def _raising_terminated() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated, unless it is ignored or the caller handles it."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL or threading.current_thread() != threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
        print(f"chatmill: {text}", file=sys.stderr, flush=True)


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
    if isinstance(error, (InputError, StoreError, Unavailable)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def quiet_libraries() -> None:
    """Hide the messages of Beam and transformers that are of no use to the user, in the launcher and in workers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # Beam logs an error when it ends the job server that it started, and warns of a job server's own options.
    logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)
    logging.getLogger("apache_beam.options.pipeline_options").setLevel(logging.ERROR)
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns if it does not find bson
    logging.getLogger().addFilter(_is_for_the_user)


class _LogFormatter(logging.Formatter):
    """Formats what libraries log as the messages of the commands are."""

    def format(self, record: logging.LogRecord) -> str:
        return f"chatmill: {record.levelname.lower()}: {super().format(record)}"


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Hide what Beam logs to the root logger while it waits for a job server, whose errors are raised as well."""
    of_job_servers = record.module in ("portable_runner", "subprocess_server")
    return not of_job_servers and "apitools not found" not in record.getMessage()
