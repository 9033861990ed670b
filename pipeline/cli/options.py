"""The options of a build: one table, from which the command line and its help are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, as_typed, unknown_option
from pipeline.runners import runner_of
from transforms.base import kinds
from transforms.base.declaring import option, values_of
from transforms.base.errors import UserError
from transforms.base.kinds import Kind
from transforms.chat.config import ENGINES, ParityOptions, RenderOptions, TokenizeOptions
from transforms.contamination.config import ContaminationOptions
from transforms.dataset import REPORTS
from transforms.inputs.input_options import InputOptions, ParseOptions
from transforms.report.trainers import TRAINERS
from transforms.rows.columns import check_kept_columns
from transforms.rows.layout import RowLayout
from transforms.steps.row_options import CorpusOptions, PackOptions, WriteOptions

ON_CHANGED_FILE = ("error", "append")
PREFERENCE_ADVICE = (
    "--schema chosen --overwrite trains on the chosen ones; for DPO and reward models, trainers tokenize pairs "
    "themselves"
)
_REQUIRED = "required"
_OF_RECIPES = (".yaml", ".yml", ".json")  # the suffixes of their files
_GROUPS = ("Input", "Tokenizer and template", "Rows", "Output", "Running")


@dataclass(frozen=True, kw_only=True)
class _WhichInput:
    input: tuple[str, ...] = option(
        "Input",
        "files, folders, globs or urls to read, or datasets on the Hub (ORG/NAME, ORG/NAME:CONFIG@REVISION), separated "
        "by commas (\\, is a comma in a name); may be given several times",
        kinds.list_of(),
        (),
        "URL,..",
        "none; one of input and sources is required",
        common=True,
    )
    sources: tuple[Any, ...] = option(
        None,
        "the sources of a recipe, each with its input and options of its own, such as schema, columns and loss_on",
        kinds.any_list,
        (),
    )
    recipe: str | None = option(
        "Input",
        "a YAML file with options, which those of the command line replace, and with input or sources; also the first "
        "argument: chatmill build recipe.yaml",
        metavar="URL",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class RowOptions(
    WriteOptions,
    PackOptions,
    CorpusOptions,
    TokenizeOptions,
    ParityOptions,
    RenderOptions,
    ContaminationOptions,
    ParseOptions,
    InputOptions,
):
    """The options that decide what the rows are: those of all steps, which a resumed build must have the same."""

    consumer: str | None = option(
        "Output",
        f"the trainer that will read the rows, one of {', '.join(TRAINERS)}: chooses the columns that it needs, and "
        "refuses options with which it would train on something else, such as examples that attend to each other; "
        "trainer: that of transformers",
        kinds.one_of(tuple(TRAINERS)),
        None,
        "TRAINER",
        "none; the build warns of traps",
        "for",
        common=True,
    )

    def __post_init__(self) -> None:
        """The steps check their options, when all are known."""


# The configurations of the steps: where each option of rows is declared.
STEPS = RowOptions.__bases__


@dataclass(frozen=True, kw_only=True)
class Options(RowOptions, _WhichInput):
    """The options of a build. Each field is the option of its name; its metadata are its place and text in --help."""

    tokenizer: str = option(
        "Tokenizer and template",
        "a name on the Hugging Face hub, a folder or a url; there must be a tokenizer.json",
        default="",
        metavar="NAME|URL",
        default_help=_REQUIRED,
        common=True,
    )
    chat_template: str | None = option(
        "Tokenizer and template",
        "the chat template: a file, a url, the text of a template, or the name of one of the tokenizer's templates",
        metavar="URL|TEMPLATE|NAME",
        default_help="that of the tokenizer",
        common=True,
    )
    now: str | None = option(
        "Tokenizer and template",
        "the date and time that a template prints with strftime_now",
        kinds.moment,
        None,
        None,
        "when the build starts; a resumed build keeps it",
    )
    output: str = option(
        "Output",
        "the folder or url to write the dataset to",
        default="",
        metavar="URL",
        default_help=_REQUIRED,
        common=True,
    )
    overwrite: bool = option(
        "Output",
        "replace the dataset that is in the output; it can be read until the new one is complete, and then as OUT@1 "
        "until `chatmill expire` removes it",
        kinds.flag,
        False,
        common=True,
    )
    expire_replaced: bool = option(
        "Output",
        "with --overwrite, remove what was replaced when the new dataset is complete, even if somebody reads it",
        kinds.flag,
        False,
    )
    append: bool = option(
        "Output",
        "add what is new in the inputs to the dataset in the output; the first run builds it",
        kinds.flag,
        False,
        common=True,
    )
    every: int | None = option(
        "Output",
        "with --append, add what is new again and again, so many seconds apart, until SIGTERM; files are added when "
        "their size and version are those of the look before",
        kinds.positive,
        None,
        "SECONDS",
        "append once",
    )
    on_changed_file: str = option(
        "Output",
        "with --append, what to do with a file that changed after it was added; error: fail; append: add it again, so "
        "that records which it still has are there twice",
        kinds.one_of(ON_CHANGED_FILE),
        "error",
    )
    max_reject_fraction: float = option(
        "Output",
        "the build fails if more than this fraction of the records is rejected",
        kinds.fraction,
        0.01,
        common=True,
    )
    max_lost_fraction: float = option(
        "Output",
        "the build fails if more than this fraction of the tokens to train on is in no row because of max_length",
        kinds.fraction,
        1.0,
    )
    max_parity_fraction: float = option(
        "Output",
        "with --parity report, the build fails if more than this fraction of the trained turns that were compared "
        "differs from inference",
        kinds.fraction,
        1.0,
    )
    max_unprinted_fraction: float = option(
        "Output",
        "with --unprinted report, the build fails if more than this fraction of the records has a content, a tool call "
        "or tools that the chat template does not print",
        kinds.fraction,
        1.0,
    )
    report: str = option(
        "Output",
        "the report of the dataset; html: report.html, a page to open in a browser",
        kinds.one_of(REPORTS),
        "html",
    )
    engine: str = option(
        "Running",
        "what renders and tokenizes, with the same output; auto: compiled templates and gigatoken; reference: "
        "transformers only",
        kinds.one_of(ENGINES),
        "auto",
    )
    json: bool = option(
        "Running",
        "print the outcome of the run, with the sums of the manifest, as JSON on the last line of standard output",
        kinds.flag,
        False,
        common=True,
    )
    runner: str = option(
        "Running",
        "Beam's runner; DirectRunner: on this machine, with a process for each core; Beam's own options are passed on",
        default="DirectRunner",
        metavar="NAME",
        common=True,
    )

    def urls(self) -> list[tuple[str, str]]:
        """The urls that the job reads or writes, each after the name of its option; not the paths on this machine."""
        template = "" if self.chat_template is None or is_template(self.chat_template) else self.chat_template
        named = [("output", self.output), ("tokenizer", self.tokenizer), *(("input", url) for url in self.input)]
        named += [("chat_template", template), ("recipe", self.recipe or "")]
        named += [("decontaminate", url) for url in self.decontaminate]
        return [(option, url) for option, url in named if "://" in url]


def is_template(text: str) -> bool:
    """Whether the value of --chat_template is the text of a template, not its name or url."""
    return "{{" in text or "{%" in text


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
    )
    _add_options(parser, shows_all=("--help", "all") in pairwise(arguments))
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
    fields = {option_name(field.name): field for field in dataclasses.fields(Options)}
    of_recipe: list[str] = []
    if "recipe" in given:
        from pipeline.cli.recipe_file import read_recipe

        values, of_recipe = read_recipe(
            given["recipe"], {name: field.metadata["kind"] for name, field in fields.items()}
        )
        given = {fields[name].name: value for name, value in values.items()} | given
        options_given = {word.partition("=")[0] for word in rest}
        of_recipe = [word for word in of_recipe if word.partition("=")[0] not in options_given]
    options = Options(**given)
    try:
        check_beam_flags("build", of_recipe, [*fields], options.runner)
    except UserError as error:
        raise UserError(f"{options.recipe}: {error}") from None
    check_beam_flags("build", rest, [*fields], options.runner)
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
    return sorted(fields, key=lambda field: (_GROUPS.index(field.metadata["group"]), not field.metadata["common"]))


def _add_options(parser: CommandParser, shows_all: bool) -> None:
    """Add the options of a build to those of a command. shows_all: whether --help shows those that few people need."""
    groups = {title: parser.add_argument_group(title) for title in _GROUPS}
    for field in command_line_fields():
        add_option(groups[field.metadata["group"]], field, is_shown=shows_all or field.metadata["common"])


def add_option(group: Any, field: dataclasses.Field[Any], is_shown: bool = True) -> None:
    """Add an option to a group of a command's options, or to its parser.

    Args:
        group: of argparse.
        field: of Options.
        is_shown: whether --help shows it.
    """
    settings: dict[str, Any] = {
        "type": parser_of(option_name(field.name), field.metadata["kind"]),
        "metavar": field.metadata["metavar"],
        "help": help_text(field).replace("%", "%%") if is_shown else argparse.SUPPRESS,
    }
    if field.metadata["kind"] is kinds.flag:
        settings |= {"nargs": "?", "const": True}
    elif field.name == "input":
        settings["action"] = "extend"
    group.add_argument(f"--{option_name(field.name)}", dest=field.name, **settings)


def parser_of(name: str, kind: Kind) -> Callable[[str], Any]:
    """Return the function that parses the text of an option; its error names the option and the text."""

    def parse(text: str) -> Any:
        try:
            return kind.parse(text)
        except ValueError as error:
            raise UserError(f"--{name} {text}: {error}") from None

    return parse


def option_name(field: str) -> str:
    """The name of the option of a field of Options, without dashes."""
    return Options.__dataclass_fields__[field].metadata["name"] or field


def help_text(field: dataclasses.Field[Any]) -> str:
    """What an option is for, and its default."""
    default_help = field.metadata["default_help"]
    if default_help == _REQUIRED:
        return f"{field.metadata['help']} ({_REQUIRED})"
    return f"{field.metadata['help']} (default: {default_help or as_typed(field.default)})"


def check_beam_flags(command: str, rest: Sequence[str], names: Sequence[str], runner: str) -> None:
    """Raise UserError for an argument that is neither an option of a command nor of Beam.

    Args:
        command: its name.
        rest: the arguments that are not options of the command.
        names: of its options.
        runner: Beam's, which may have options that Beam's Python SDK does not know.
    """
    beam_names = _beam_option_names()
    after_option = False
    for word in rest:
        if not word.startswith("--"):
            if not after_option:
                raise UserError(f"unexpected argument {word}. Each input needs its option: --input {word}")
            after_option = False
            continue
        name, _, value = word.removeprefix("--").partition("=")
        after_option = not value
        if name not in beam_names:
            error = unknown_option(command, name, [*names, *sorted(beam_names)])
            # The job server of a portable runner has options that Beam's Python SDK does not know.
            if "Did you mean" in str(error) or runner_of(runner).options_are_known:
                raise error


def _beam_option_names() -> set[str]:
    """The names of Beam's own options, read from its source, since importing it takes seconds."""
    package = importlib.util.find_spec("apache_beam")
    if not package or not package.origin:
        return set()
    source = Path(package.origin).with_name("options") / "pipeline_options.py"
    return set(re.findall(r"""['"]--([a-zA-Z_]\w*)['"]""", source.read_text(encoding="utf-8")))


def check_options(options: Options) -> None:
    """Raise UserError if an option is missing, or if two do not go together."""
    if options.sources and options.input:
        raise UserError(
            f"{options.recipe} has sources, which name their inputs, so that input does not go with it: add a source."
        )
    for name, example in (("input", "chats/"), ("tokenizer", "Qwen/Qwen3-8B"), ("output", "out/chats")):
        if not getattr(options, name) and not (name == "input" and options.sources):
            raise UserError(
                f"--{name} is missing: give one, such as --{name} {example}. chatmill build --help lists the options."
            )
    check_not_on_hub(options.output)
    if options.append and options.overwrite:
        raise UserError("--append adds to a dataset, and --overwrite replaces it. Leave one of the two out.")
    if options.expire_replaced and not options.overwrite:
        raise UserError("--expire_replaced needs --overwrite.")
    for name in ("every", "on_changed_file"):
        if getattr(options, name) != Options.__dataclass_fields__[name].default and not options.append:
            raise UserError(f"--{name} {getattr(options, name)} needs --append.")
    check_row_options(options)


def check_not_on_hub(output: str) -> None:
    """Raise UserError if a dataset is to be written to the Hub."""
    if output.startswith("hf://"):
        raise UserError(
            f"--output {output}: a build needs a disk or a bucket, where files are created one by one. Give "
            "one, and upload the dataset with `chatmill push OUT ORG/NAME`."
        )


def check_row_options(options: RowOptions) -> None:
    """Raise ParameterError if an option of rows has a wrong value, or two do not go together."""
    for step in STEPS:
        step(**values_of(step, options))  # which checks them
    check_kept_columns(options.keep_columns, options.write_columns, options.provenance)


def for_consumer(options: Options) -> Options:
    """Return the options with the columns that their trainer needs, if they name one.

    Raises:
        UserError: if another option does not suit it.
    """
    consumer = options.consumer
    if consumer is None:
        return options
    columns = options.write_columns or TRAINERS[consumer].columns_of(options.packing != "none")
    options = dataclasses.replace(options, write_columns=columns)
    for name, text in TRAINERS[consumer].problems(RowLayout.of(vars(options))):
        raise UserError(f"--for {consumer}: --{name} {as_typed(getattr(options, name))}: {text}")
    return options
