"""The command line of a build, made from its options."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, as_typed, unknown_option
from pipeline.config import GROUPS, REQUIRED, Options, check_options, for_consumer, option_name, read_value
from pipeline.runners import find_runner
from transforms.base.errors import UserError
from transforms.base.options import Flag, field_types, values_in

BUILD = "[RECIPE] OPTIONS", "build a dataset"


def parse_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Parse the arguments of a build. --help and --version print and exit.

    Args:
        arguments: what follows the command.

    Returns:
        The options, and the arguments that are options of Beam.

    Raises:
        UserError: if an option is unknown, has a wrong value, is missing, or does not go with another.
        Unavailable: if the store of the recipe does not answer.
    """
    parser = CommandParser(
        "build",
        BUILD,
        "Build a dataset of token shards for training from conversations. --help all lists all options.",
        [
            "recipe.yaml --output out/chats",
            "--input HuggingFaceH4/ultrachat_200k --split train_sft \\\n"
            "      --tokenizer Qwen/Qwen3-8B --output out/ultrachat",
            "--input 'chats/*.jsonl' --tokenizer Qwen/Qwen3-8B \\\n"
            "      --output out/chats --max_length 4096 --packing bfd",
            "--input gs://corpus/chats/ --tokenizer gs://models/qwen3 \\\n"
            "      --output gs://shards/chats --validation_fraction 0.02",
        ],
        argument_default=argparse.SUPPRESS,
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    shows_all = ("--help", "all") in pairwise(arguments)
    for field in command_line_fields():
        is_shown = shows_all or field.metadata["common"]
        add_option(groups[field.metadata["group"]], field, help_text(field) if is_shown else argparse.SUPPRESS)
    named = list[str]()
    for before, word in pairwise(["", *arguments]):
        is_recipe = _is_recipe(before, word) and not any(other.startswith("--recipe") for other in named)
        named.append(f"--recipe={word}" if is_recipe else word)
    known, rest = parser.parse_known_args(named)
    values, recipe_arguments = dict[str, Any](), list[str]()
    if "recipe" in known:
        from pipeline.recipe import read_recipe

        values, recipe_arguments = read_recipe(known.recipe)
        given = {word.partition("=")[0] for word in rest}
        recipe_arguments = [word for word in recipe_arguments if word.partition("=")[0] not in given]
    options = Options(**values | vars(known))
    _check_beam_flags(recipe_arguments, options.runner, f"{options.recipe}: ")
    _check_beam_flags(rest, options.runner)
    options = for_consumer(options)
    check_options(options)
    return options, [*recipe_arguments, *rest]


def _is_recipe(before: str, word: str) -> bool:
    """Whether an argument is a recipe, and no option or its value. before: the argument before it."""
    is_option, is_value = word.startswith("-"), before.startswith("-") and "=" not in before
    return word.endswith((".yaml", ".yml", ".json")) and not is_option and not is_value


def command_line_fields() -> list[dataclasses.Field[Any]]:
    """The fields of Options that are options of the command line."""
    fields = [field for field in dataclasses.fields(Options) if field.metadata["group"]]
    return sorted(fields, key=lambda field: (GROUPS.index(field.metadata["group"]), not field.metadata["common"]))


def add_option(group: Any, field: dataclasses.Field[Any], help: str) -> None:
    """Add a field of Options to a group of argparse, or to a parser. help: for --help, or SUPPRESS."""
    name, type = option_name(field.name), field_types(Options)[field.name]
    settings: dict[str, Any] = {"nargs": "?", "const": True} if type == Flag else {}
    if field.name == "input":
        settings["action"] = "extend"
    read = functools.partial(read_value, name, type=type)
    help = help.replace("%", "%%")
    group.add_argument(f"--{name}", dest=field.name, type=read, metavar=metavar(field), help=help, **settings)


def metavar(field: dataclasses.Field[Any]) -> str | None:
    """What --help calls the value of an option."""
    return field.metadata["metavar"] or values_in(field_types(Options)[field.name]).metavar


def help_text(field: dataclasses.Field[Any]) -> str:
    """What an option is for, and its default."""
    default_help = field.metadata["default_help"]
    if default_help == REQUIRED:
        return f"{field.metadata['help']} ({REQUIRED})"
    return f"{field.metadata['help']} (default: {default_help or as_typed(field.default)})"


def _check_beam_flags(arguments: Sequence[str], runner: str, place: str = "") -> None:
    """Raise UserError for an argument that is no option of Beam. place: what errors begin with."""
    beam_names = _beam_option_names()
    for before, word in pairwise(["", *arguments]):
        name = word.partition("=")[0].removeprefix("--")
        if not word.startswith("--"):
            if not before.startswith("--") or "=" in before:
                raise UserError(
                    f"{place}unexpected argument {word}. Each input needs its option: --input {word}; there is one "
                    "recipe at most, which is named .yaml, .yml or .json."
                )
        elif name not in beam_names:
            error = unknown_option("build", name, [*map(option_name, field_types(Options)), *sorted(beam_names)])
            # The job server of a portable runner has options that Beam's Python SDK does not know.
            if "Did you mean" in str(error) or find_runner(runner).options_are_known:
                raise UserError(f"{place}{error}")


def _beam_option_names() -> set[str]:
    """The names of Beam's own options, read from its source, since importing it takes seconds."""
    package = importlib.util.find_spec("apache_beam")
    if not package or not package.origin:
        return set()
    source = Path(package.origin).with_name("options") / "pipeline_options.py"
    return set(re.findall(r"""['"]--([a-zA-Z_]\w*)['"]""", source.read_text(encoding="utf-8")))
