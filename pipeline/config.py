"""The options of a build: one table, from which the command line, its help and recipes are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MinLen

from pipeline.cli.console import as_typed, parameter_text
from transforms.base.errors import ParameterError, UserError
from transforms.base.options import (
    Configuration,
    Flag,
    Moment,
    PositiveInt,
    String,
    Urls,
    Values,
    checked,
    one_name,
    option,
    option_values,
)
from transforms.chat.config import Engine, ParityOptions, RenderOptions, TokenizeOptions
from transforms.contamination.config import ContaminationOptions
from transforms.dataset import REPORTS, Budgets
from transforms.records.input_options import InputOptions, ParseOptions
from transforms.report.trainers import TRAINERS
from transforms.rows.columns import check_kept_columns
from transforms.rows.layout import RowLayout
from transforms.steps.row_options import CheckOptions, CorpusOptions, PackOptions, WriteOptions

ON_CHANGED_FILE = ("error", "append")
REQUIRED = "required"
# Where no dataset can be written, whatever the store answers.
_FROM_WEB = "web servers are only read from. Give a disk or a bucket."
_NO_OUTPUT = {
    "memory://": "memory:// is lost when the process ends. Give a disk or a bucket.",
    "http://": _FROM_WEB,
    "https://": _FROM_WEB,
    "hf://": "a build needs a disk or a bucket, where files are created one by one. Give one, and upload the dataset "
    "with `chatmill push OUT ORG/NAME`.",
}
GROUPS = ("Input", "Tokenizer and template", "Rows", "Output", "Running")


@dataclass(frozen=True, kw_only=True)
class _WhichInput(Configuration):
    input: Urls = option(
        "Input",
        "files, folders, globs or urls to read, or datasets on the Hub (ORG/NAME, ORG/NAME:CONFIG@REVISION), separated "
        "by commas (\\, is a comma in a name); may be given several times",
        (),
        default_help="none; one of input and sources is required",
        common=True,
    )
    sources: Annotated[tuple[Any, ...], Values("a list of at least one element", bounds=(MinLen(1),))] = option(
        None,
        "the sources of a recipe, each with its input and options of its own, such as schema, columns and loss_on",
        (),
    )
    recipe: String | None = option(
        "Input",
        "a YAML file with options, which those of the command line replace, and with input or sources; also the first "
        "argument: chatmill build recipe.yaml",
        metavar="URL",
    )


@dataclass(frozen=True, kw_only=True)
class RowOptions(
    WriteOptions,
    PackOptions,
    CorpusOptions,
    TokenizeOptions,
    ParityOptions,
    RenderOptions,
    CheckOptions,
    ContaminationOptions,
    ParseOptions,
    InputOptions,
):
    """The options that decide what the rows are: those of all steps, which a resumed build must have the same."""

    consumer: Annotated[str, one_name(TRAINERS)] | None = option(
        "Output",
        f"the trainer that will read the rows, one of {', '.join(TRAINERS)}: chooses the columns that it needs, and "
        "refuses options with which it would train on something else, such as examples that attend to each other; "
        "trainer: that of transformers",
        metavar="TRAINER",
        default_help="none; the build warns of traps",
        name="for",
        common=True,
    )

    def __post_init__(self) -> None:
        """Check each option; the steps check what does not go together, when all are known."""
        Configuration.__post_init__(self)


# The configurations of the steps: where each option of rows is declared.
STEPS = RowOptions.__bases__


@dataclass(frozen=True, kw_only=True)
class _WhichOutput(Configuration):
    tokenizer: String = option(
        "Tokenizer and template",
        "a name on the Hugging Face hub, a folder or a url; there must be a tokenizer.json",
        "",
        metavar="NAME|URL",
        default_help=REQUIRED,
        common=True,
    )
    chat_template: String | None = option(
        "Tokenizer and template",
        "the chat template: a file, a url, the text of a template, or the name of one of the tokenizer's templates",
        metavar="URL|TEMPLATE|NAME",
        default_help="that of the tokenizer",
        common=True,
    )
    now: Moment | None = option(
        "Tokenizer and template",
        "the date and time that a template prints with strftime_now",
        default_help="when the build starts; a resumed build keeps it",
    )
    output: String = option(
        "Output",
        "the folder or url to write the dataset to",
        "",
        metavar="URL",
        default_help=REQUIRED,
        common=True,
    )
    overwrite: Flag = option(
        "Output",
        "replace the dataset that is in the output; it can be read until the new one is complete, and then as OUT@1 "
        "until `chatmill expire` removes it",
        False,
        common=True,
    )
    expire_replaced: Flag = option(
        "Output",
        "with --overwrite, remove what was replaced when the new dataset is complete, even if somebody reads it",
        False,
    )
    append: Flag = option(
        "Output",
        "add what is new in the inputs to the dataset in the output; the first run builds it",
        False,
        common=True,
    )
    every: PositiveInt | None = option(
        "Output",
        "with --append, add what is new again and again, so many seconds apart, until SIGTERM; files are added when "
        "their size and version are those of the look before",
        metavar="SECONDS",
        default_help="append once",
    )
    on_changed_file: Annotated[str, one_name(ON_CHANGED_FILE)] = option(
        "Output",
        "with --append, what to do with a file that changed after it was added; error: fail; append: add it again, so "
        "that records which it still has are there twice",
        "error",
    )


@dataclass(frozen=True, kw_only=True)
class Options(Budgets, _WhichOutput, RowOptions, _WhichInput):
    """The options of a build. Each field is the option of its name; its metadata are its place and text in --help."""

    report: Annotated[str, one_name(REPORTS)] = option(
        "Output",
        "the report of the dataset; html: report.html, a page to open in a browser",
        "html",
    )
    engine: Engine = option(
        "Running",
        "what renders and tokenizes, with the same output; auto: compiled templates and gigatoken; reference: "
        "transformers only",
        "auto",
    )
    json: Flag = option(
        "Running",
        "print the outcome of the run, with the sums of the manifest, as JSON on the last line of standard output",
        False,
    )
    runner: String = option(
        "Running",
        "Beam's runner; DirectRunner: on this machine, with a process for each core; Beam's own options are passed on",
        "DirectRunner",
        metavar="NAME",
        common=True,
    )


def is_template(text: str) -> bool:
    """Whether the value of --chat_template is the text of a template, not its name or url."""
    return "{{" in text or "{%" in text


def option_name(field: str) -> str:
    """The name of the option of a field of Options, without dashes."""
    return Options.__dataclass_fields__[field].metadata["name"] or field


def read_value(option: str, value: Any, type: Any, place: str = "") -> Any:
    """Return the value of an option that a command line or a recipe has. Raises UserError if it is not of the type.

    value: a text; or what YAML has. place: what names the recipe, or the source in it.
    """
    with named_in_errors(place):
        return checked(option, value, type, is_written=True)


@contextmanager
def named_in_errors(place: str) -> Iterator[None]:
    """Inside, an error about a parameter names the recipe, or the source in it, that has its value."""
    try:
        yield
    except ParameterError as error:
        raise UserError(parameter_text(error, place)) from None


def check_options(options: Options) -> None:
    """Raise UserError if an option is missing, or if some do not go together."""
    if options.sources and options.input:
        raise UserError(
            f"{options.recipe} has sources, which name their inputs, so that input does not go with it: add a source."
        )
    for name, example in (("input", "chats/"), ("tokenizer", "Qwen/Qwen3-8B"), ("output", "out/chats")):
        if not getattr(options, name) and not (name == "input" and options.sources):
            raise UserError(
                f"--{name} is missing: give one, such as --{name} {example}. chatmill build --help lists the options."
            )
    for scheme, problem in _NO_OUTPUT.items():
        if options.output.startswith(scheme):
            raise UserError(f"--output {options.output}: {problem}")
    if options.append and options.overwrite:
        raise UserError("--append adds to a dataset, and --overwrite replaces it. Leave one of the two out.")
    if options.append and any((options.weight, options.max_examples, options.max_tokens, options.mix_tokens)):
        raise UserError(
            "weight, max_examples, max_tokens and mix_tokens count the records of one build, and an append does not "
            "count those that are there. Build all inputs in one, or leave them out."
        )
    if options.expire_replaced and not options.overwrite:
        raise UserError("--expire_replaced needs --overwrite.")
    for name in ("every", "on_changed_file"):
        if getattr(options, name) != Options.__dataclass_fields__[name].default and not options.append:
            raise UserError(f"--{name} {getattr(options, name)} needs --append.")
    for step in STEPS:
        step(**option_values(step, options))  # checks what does not go together
    check_kept_columns(options.keep_columns, options.write_columns, options.provenance)


def for_consumer(options: Options) -> Options:
    """Return the options with the columns that their trainer needs, if they name one. Raises UserError."""
    consumer = options.consumer
    if consumer is None:
        return options
    columns = options.write_columns or TRAINERS[consumer].columns_for(options.packing != "none")
    options = dataclasses.replace(options, write_columns=columns)
    for name, text in TRAINERS[consumer].problems(RowLayout.of(vars(options))):
        raise UserError(f"--for {consumer}: --{name} {as_typed(getattr(options, name))}: {text}")
    return options
