"""The options of a build: one table, from which the command line, its help and recipes are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pipeline.cli.console import as_typed
from transforms.base import kinds
from transforms.base.declaring import option, values_of
from transforms.base.errors import UserError
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
REQUIRED = "required"
GROUPS = ("Input", "Tokenizer and template", "Rows", "Output", "Running")


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
        default_help=REQUIRED,
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
        default_help=REQUIRED,
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


def option_name(field: str) -> str:
    """The name of the option of a field of Options, without dashes."""
    return Options.__dataclass_fields__[field].metadata["name"] or field


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
