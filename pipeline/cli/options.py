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

_OF_RECIPES = (".yaml", ".yml", ".json")  # the suffixes of their files


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
        usage="[RECIPE] --input URL,.. --tokenizer NAME|URL --output URL",
        description="Build a dataset of token shards for training from conversations.\n--help all lists all options.",
        examples=[
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
        add_option(groups[field.metadata["group"]], field, is_shown=shows_all or field.metadata["common"])
    if arguments and not arguments[0].startswith("-"):
        if not arguments[0].endswith(_OF_RECIPES):
            raise UserError(
                f"unexpected argument {arguments[0]}: a recipe is named .yaml, .yml or .json. Each input needs its "
                f"option: --input {arguments[0]}"
            )
        arguments = ["--recipe", *arguments]
    known, rest = parser.parse_known_args(arguments)
    given = vars(known)
    if _ends_with_recipe(arguments, rest) and "recipe" not in given:
        given["recipe"] = rest.pop()
    if "input" in given:
        given["input"] = tuple(given["input"])
    of_recipe: list[str] = []
    if "recipe" in given:
        from pipeline.recipe import read_recipe

        values, of_recipe = read_recipe(given["recipe"])
        given = values | given
        options_given = {word.partition("=")[0] for word in rest}
        of_recipe = [word for word in of_recipe if word.partition("=")[0] not in options_given]
    options = Options(**given)
    _check_beam_flags(of_recipe, options.runner, f"{options.recipe}: ")
    _check_beam_flags(rest, options.runner)
    options = for_consumer(options)
    check_options(options)
    return options, [*of_recipe, *rest]


def _ends_with_recipe(arguments: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether the last argument is a recipe, and no value of an option of Beam. rest: what is none of our options."""
    if not rest or rest[-1] != arguments[-1] or not rest[-1].endswith(_OF_RECIPES):
        return False
    before = arguments[-2] if len(arguments) > 1 else ""
    return not (before in rest and before.startswith("-") and "=" not in before)


def command_line_fields() -> list[dataclasses.Field[Any]]:
    """The fields of Options that are options of the command line."""
    fields = [field for field in dataclasses.fields(Options) if field.metadata["group"]]
    return sorted(fields, key=lambda field: (GROUPS.index(field.metadata["group"]), not field.metadata["common"]))


def add_option(group: Any, field: dataclasses.Field[Any], is_shown: bool = True) -> None:
    """Add a field of Options to a group of argparse, or to a parser. is_shown: whether --help shows it."""
    name, type = option_name(field.name), field_types(Options)[field.name]
    settings: dict[str, Any] = {"nargs": "?", "const": True} if type == Flag else {}
    if field.name == "input":
        settings["action"] = "extend"
    group.add_argument(
        f"--{name}",
        dest=field.name,
        type=functools.partial(read_value, name, type=type),
        metavar=metavar(field),
        help=help_text(field).replace("%", "%%") if is_shown else argparse.SUPPRESS,
        **settings,
    )


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
    after_option = False
    for word in arguments:
        if not word.startswith("--"):
            if not after_option:
                raise UserError(f"{place}unexpected argument {word}. Each input needs its option: --input {word}")
            after_option = False
            continue
        name, _, value = word.removeprefix("--").partition("=")
        after_option = not value
        if name not in beam_names:
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
