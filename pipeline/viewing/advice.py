"""Advice: the one command that keeps the records that a build rejects most often, to be pasted into a shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.cli.console import as_typed
from pipeline.cli.options import Options, option_name
from pipeline.cli.sources import Source
from pipeline.viewing.remedies import find_remedy
from transforms.catalog.layout import Folder


def advice(
    folder: Folder,
    options: Options,
    sources: Sequence[Source],
    arguments: Sequence[str],
    rejected: Mapping[str, int] | None = None,
) -> str:
    """Say what to do about rejected records.

    Args:
        folder: of the increment, committed or not, with its rejects.
        options: of the build.
        sources: its sources.
        arguments: those that were typed after `build`.
        rejected: how many records were rejected, by reason; None if the build failed.
    """
    remedy = find_remedy(folder, vars(options), rejected)
    if remedy is None:
        return "docs/records.md has what each reason means."
    of_sources = [source.name for source in sources if source.place and source.own.keys() & remedy.changes.keys()]
    if of_sources:
        changes = ", ".join(f"{name}: {as_typed(value)}" for name, value in remedy.changes.items())
        return (
            f"Records rejected as {remedy.reason}: {changes} for their source in {options.recipe} "
            f"{remedy.does}. Then build again with --overwrite."
        )
    return f"Records rejected as {remedy.reason}: this command {remedy.does}:\n  {retyped(arguments, remedy.changes)}"


def retyped(arguments: Sequence[str], changes: Mapping[str, Any]) -> str:
    """Return the command of a build with changed options, quoted for a shell.

    Args:
        arguments: those that were typed after `build`.
        changes: new values of options, by the name of their field. With any other option than max_reject_fraction the
            dataset is built again, with --overwrite.
    """
    if changes.keys() - {"max_reject_fraction"}:
        changes = {**changes, "overwrite": True}
    names = {f"--{option_name(field)}": value for field, value in changes.items()}
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            is_value = name in names and not value
            if name not in names:
                kept.append(argument)
        elif is_value:
            is_value = False
        else:
            kept.append(argument)
    added = [word for name, value in names.items() for word in (name, _value(value)) if word]
    return shlex.join([*_program(), "build", *kept, *added])


def _value(value: Any) -> str:
    if value is True:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{name}={other}" for name, other in value.items())
    return as_typed(value)


def _program() -> list[str]:
    """How this program was called, without its arguments."""
    words = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    script = words[-1]
    if os.path.basename(script) == "chatmill":
        return ["chatmill" if shutil.which("chatmill") == script else script]
    program = os.path.relpath(words[0])
    return [words[0] if program.startswith("..") or os.path.basename(words[0]) == words[0] else program, *words[1:]]
