"""The options of a build: one table, from which the command line and its help are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import kinds
from pipeline.console import CommandParser, as_typed, unknown_option
from pipeline.kinds import Kind
from pipeline.runners import runner_of
from transforms.chat.config import (
    AFTER_END,
    AT_PROMPT_END,
    CONTENT_FORMATS,
    ENGINES,
    LOSSES,
    MAX_TEXT_BYTES,
    PARITIES,
    SPANS,
    SPECIAL_TOKENS_IN_CONTENT,
    UNPRINTED,
)
from transforms.checks import check_choices
from transforms.dataset import REPORTS
from transforms.dataset.consumers import CONSUMERS, RowLayout, columns_for, problems
from transforms.errors import UserError
from transforms.inputs.formats import INPUT_FORMATS, MAX_RECORD_BYTES
from transforms.inputs.options import FORMATTER_SECONDS
from transforms.inputs.reading import ROLES, TOOL_ARGUMENTS
from transforms.inputs.schemas import INPUT_COLUMNS, SCHEMAS
from transforms.outputs import OUTPUT_FORMATS
from transforms.rows.columns import LEDGERS, OUTPUT_COLUMNS, check_kept_columns
from transforms.rows.packing import PACKINGS
from transforms.rows.truncation import TRUNCATIONS


def _option(
    group: str | None,
    help: str,
    kind: Kind = kinds.any_text,
    default: Any = None,
    metavar: str | None = None,
    default_help: str | None = None,
    name: str | None = None,
    common: bool = False,
) -> Any:
    """A field of Options.

    group: its title in --help; None if only a recipe has the option. default_help: what the default is, if the value
    does not say it. name: the option's, if it is not the field's. common: whether --help without `all` shows it.
    """
    metadata = {
        "group": group,
        "help": help,
        "kind": kind,
        "metavar": metavar,
        "default_help": default_help,
        "name": name,
        "common": common,
    }
    return dataclasses.field(default=default, metadata=metadata)


REWRITTEN = ("refuse", "append", "replace")
PREFERENCE_ADVICE = "--schema preference --overwrite trains on the chosen answers instead"
_REQUIRED = "required"


@dataclass(frozen=True)
class Options:
    """The options of a build. Each field is the option of its name; its metadata are its place and text in --help."""

    input: tuple[str, ...] = _option(
        "Input",
        "files, folders, globs or urls to read, separated by commas (\\, is a comma in a name); may be given several "
        "times",
        kinds.list_of(),
        (),
        "URL,..",
        "none; one of input and sources is required",
        common=True,
    )
    sources: tuple[Any, ...] = _option(
        None,
        "the sources of a recipe, each with its input and options of its own, such as schema, columns and loss_on",
        kinds.any_list,
        (),
    )
    recipe: str | None = _option(
        "Input",
        "a YAML file with options, which those of the command line replace, and with input or sources; also the first "
        "argument: chatmill build recipe.yaml",
        metavar="URL",
        common=True,
    )
    input_format: str = _option(
        "Input",
        "format of the input files; auto: by the file's name, and by its first bytes if it is named .json or has "
        "no known ending",
        kinds.one_of(INPUT_FORMATS),
        "auto",
        "|".join(INPUT_FORMATS),
    )
    schema: str = _option(
        "Input",
        f"schema of the records: {', '.join(SCHEMAS)}; auto: detected for each record by its columns; preference: "
        "trains on the chosen one of two answers, which auto rejects",
        kinds.one_of(SCHEMAS),
        "auto",
        "NAME",
        common=True,
    )
    as_chat: bool = _option(
        "Input",
        "render a prompt and a completion that are strings as messages of a user and of the assistant, with the chat "
        "template",
        kinds.flag,
        False,
        "true|false",
    )
    columns: dict[str, str] | None = _option(
        "Input",
        "columns that have other names in your data, such as messages=dialog,tools=functions",
        kinds.map_of(names=kinds.one_of(INPUT_COLUMNS)),
        None,
        "NAME=YOURS,..",
        common=True,
    )
    roles: dict[str, str] | None = _option(
        "Input",
        "roles that have other names in your data, such as bot=assistant; human=user, gpt=assistant and "
        "observation=tool are known",
        kinds.map_of(kind=kinds.one_of(ROLES)),
        None,
        "YOURS=ROLE,..",
    )
    message_fields: dict[str, str] | None = _option(
        "Input",
        "fields of messages that have other names in your data, such as role=speaker,content=utterance; from and value "
        "are known",
        kinds.map_of(),
        None,
        "NAME=YOURS,..",
    )
    train_field: str | None = _option(
        "Input",
        "a field of messages that says whether they are trained on: true or false, or a weight; train, training, loss, "
        "masked, weight and loss_weight are known",
        kinds.any_text,
        None,
        "NAME",
    )
    tool_arguments: str = _option(
        "Input",
        "what to do with arguments of tool calls that are strings of JSON; parse: parse them, as a server does before "
        "it renders; keep: give the strings to the template",
        kinds.one_of(TOOL_ARGUMENTS),
        "parse",
        "|".join(TOOL_ARGUMENTS),
    )
    formatter: str | None = _option(
        "Input",
        "a Python function that turns each record (a dict) into a record of a known schema or a text, into a list of "
        "them, or into None, which drops the record",
        kinds.matching(".+:.+", "the form module:function or file.py:function"),
        None,
        "MODULE:FUNCTION|FILE.py:FUNCTION",
        common=True,
    )
    formatter_seconds: int = _option(
        "Input",
        "seconds that the formatter may take for a record, which is rejected if it takes longer",
        kinds.positive,
        FORMATTER_SECONDS,
        "INT",
    )
    split_bytes: int | None = _option(
        "Input",
        "bytes of input in each split; a split becomes one shard",
        kinds.positive,
        None,
        "INT",
        "chosen by the size of the input, 4 MiB to 256 MiB",
    )
    max_record_bytes: int = _option(
        "Input",
        "a record of more bytes is rejected as too_long",
        kinds.positive,
        MAX_RECORD_BYTES,
        "INT",
    )
    tokenizer: str = _option(
        "Tokenizer and template",
        "a name on the Hugging Face hub, a folder or a url",
        default="",
        metavar="NAME|URL",
        default_help=_REQUIRED,
        common=True,
    )
    chat_template: str | None = _option(
        "Tokenizer and template",
        "the chat template: a file, a url, the text of a template, or the name of one of the tokenizer's templates",
        metavar="URL|TEMPLATE|NAME",
        default_help="that of the tokenizer",
        common=True,
    )
    chat_template_kwargs: dict[str, Any] | None = _option(
        "Tokenizer and template",
        'variables that the template reads besides messages and tools, such as {"enable_thinking": false}',
        kinds.template_kwargs,
        None,
        "JSON",
    )
    max_text_bytes: int = _option(
        "Tokenizer and template",
        "a conversation whose text has more bytes is rejected as template_limit",
        kinds.positive,
        MAX_TEXT_BYTES,
        "INT",
    )
    now: str | None = _option(
        "Tokenizer and template",
        "the date and time that a template prints with strftime_now",
        kinds.moment,
        None,
        "YYYY-MM-DDTHH:MM:SS",
        "when the build starts; a resumed build keeps it",
    )
    strip_bos: bool = _option(
        "Tokenizer and template", "remove a BOS token from the start of each row", kinds.flag, False, "true|false"
    )
    loss_on: str = _option(
        "Rows",
        "what is trained on; auto: the completion of a prompt and completion (of several messages, the assistant's), "
        "the assistant's turns of a conversation, all of a plain text",
        kinds.one_of(LOSSES),
        "auto",
        "|".join(LOSSES),
        common=True,
    )
    eot_tokens: tuple[str, ...] = _option(
        "Rows",
        "texts with which the model ends its turn, such as <|user|>,<|observation|>; one that follows an answer is "
        "trained on",
        kinds.list_of(),
        (),
        "TEXT,..",
        "the eos_token_id of generation_config.json next to the tokenizer, if there is one",
    )
    spans: str = _option(
        "Rows",
        "how the text of the assistant is found; auto: by the {% generation %} markers of the template, or if it has "
        "none, derived from the template; traced: derived from the template, also if it has markers",
        kinds.one_of(SPANS),
        "auto",
        "|".join(SPANS),
    )
    content_format: str = _option(
        "Rows",
        "the form in which the chat template is given contents; auto: that of the record, or the other one if the "
        "template does not print it; string: text parts are joined; openai: strings become a list of one part",
        kinds.one_of(CONTENT_FORMATS),
        "auto",
        "|".join(CONTENT_FORMATS),
    )
    after_end: str = _option(
        "Rows",
        "what to do with white space that the chat template prints after the end-of-turn token of an answer, such as "
        "the line break after <|im_end|>, which no model writes; train: train on it, as TRL does; mask: do not",
        kinds.one_of(AFTER_END),
        "train",
        "|".join(AFTER_END),
    )
    unprinted: str = _option(
        "Rows",
        "what to do with a conversation of which the chat template does not print a content, a tool call or the tools; "
        "reject: reject the record; report: keep the record and count it",
        kinds.one_of(UNPRINTED),
        "reject",
        "|".join(UNPRINTED),
    )
    special_tokens_in_content: str = _option(
        "Rows",
        "what to do with special tokens that were typed into a message, a tool or a text, such as <|im_end|>; report: "
        "encode them as transformers does, count them, and reject a record in which the assistant's text ends or "
        "begins a turn; plain: encode them as plain text; allow: do not look for them; reject: reject the record",
        kinds.one_of(SPECIAL_TOKENS_IN_CONTENT),
        "report",
        "|".join(SPECIAL_TOKENS_IN_CONTENT),
    )
    parity: str = _option(
        "Rows",
        "what to do if a trained turn or the text before it is not what it is at inference, for example because the "
        "template drops earlier reasoning; report: count such turns; expand: write a row for each context; reject: "
        "reject the record; off: do not compare",
        kinds.one_of(PARITIES),
        "report",
        "|".join(PARITIES),
        common=True,
    )
    at_prompt_end: str = _option(
        "Rows",
        "how a text is encoded where a turn begins that is trained on; join: as one text, as transformers and TRL do, "
        "so that a token may have the end of the prompt and the beginning of the answer; split: cut there, as on a "
        "server, where the model writes the answer after the prompt",
        kinds.one_of(AT_PROMPT_END),
        "join",
        "|".join(AT_PROMPT_END),
    )
    max_length: int | None = _option(
        "Rows", "the maximum number of tokens in a row", kinds.length, None, "INT|none", common=True
    )
    truncation: str = _option(
        "Rows",
        "what to do with a row that is longer than max_length; keep_start or keep_end: keep that end of it; drop: drop "
        "the record",
        kinds.one_of(TRUNCATIONS),
        "keep_start",
        "|".join(TRUNCATIONS),
        common=True,
    )
    packing: str = _option(
        "Rows",
        "how to pack several examples into each row, up to max_length; bfd: best fit decreasing, longer examples are "
        "truncated; bfd_split: longer examples are split; ffd: first fit decreasing; wrapped: all tokens in one "
        "sequence, cut at max_length",
        kinds.one_of(PACKINGS),
        "none",
        "|".join(PACKINGS),
        common=True,
    )
    shift_labels: bool = _option(
        "Rows",
        "write input_ids[:-1] and labels[1:], for trainers that do not shift labels themselves",
        kinds.flag,
        False,
        "true|false",
    )
    validation_fraction: float = _option(
        "Rows",
        "the fraction of records in the validation split; a hash of the content decides, so duplicates stay in the "
        "same split",
        kinds.fraction,
        0.0,
        "FRACTION",
        common=True,
    )
    seed: int = _option("Rows", "another seed puts other records in the validation split", kinds.integer, 0, "INT")
    consumer: str | None = _option(
        "Output",
        "the trainer that will read the rows: chooses the columns that it needs, and refuses options with which it "
        "would train on something else, such as examples that attend to each other; trainer: that of transformers",
        kinds.one_of(CONSUMERS),
        None,
        "|".join(CONSUMERS),
        "any; traps are warned of",
        "for",
        common=True,
    )
    output: str = _option(
        "Output",
        "the folder or url to write the dataset to",
        default="",
        metavar="URL",
        default_help=_REQUIRED,
        common=True,
    )
    overwrite: bool = _option(
        "Output",
        "replace the dataset that is in the output; it can be read until the new one is complete, and then as OUT@1 "
        "until `chatmill expire` removes it",
        kinds.flag,
        False,
        "true|false",
        common=True,
    )
    expire_replaced: bool = _option(
        "Output",
        "with --overwrite, remove what was replaced when the new dataset is complete, although somebody may read it",
        kinds.flag,
        False,
        "true|false",
    )
    append: bool = _option(
        "Output",
        "add what is new in the inputs to the dataset that is in the output; if there is none, it begins",
        kinds.flag,
        False,
        "true|false",
        common=True,
    )
    rewritten: str = _option(
        "Output",
        "with --append, what to do with a file that was rewritten after the dataset took it; refuse: fail; append: "
        "take it as one more; replace: build again what came from it, and from the files that were built with it",
        kinds.one_of(REWRITTEN),
        "refuse",
        "|".join(REWRITTEN),
    )
    retry_failed: bool = _option(
        "Output",
        "with --append, take the files of failed increments again, in the place of these",
        kinds.flag,
        False,
        "true|false",
    )
    output_format: tuple[str, ...] = _option(
        "Output",
        "the formats of the shards, one or several",
        kinds.list_of(kinds.one_of(OUTPUT_FORMATS)),
        ("parquet",),
        ",".join(OUTPUT_FORMATS),
        common=True,
    )
    write_columns: tuple[str, ...] | None = _option(
        "Output",
        f"the columns to write, of {', '.join(OUTPUT_COLUMNS)}",
        kinds.list_of(kinds.one_of(OUTPUT_COLUMNS)),
        None,
        "NAME,..",
        "input_ids,labels; with packing also seq_lengths",
    )
    keep_columns: tuple[str, ...] = _option(
        "Output",
        "input columns to copy to the rows and to the ledger, as strings; with packing to the ledger alone",
        kinds.list_of(),
        (),
        "NAME,..",
        common=True,
    )
    provenance: bool = _option(
        "Output", "add the columns source and source_position (byte offset or number)", kinds.flag, False, "true|false"
    )
    ledger: str = _option(
        "Output",
        "which records the ledger lists, each with its outcome, shard, row and tokens; exceptions: those that are "
        "truncated, dropped or rejected, or lost tokens otherwise",
        kinds.one_of(LEDGERS),
        "exceptions",
        "|".join(LEDGERS),
    )
    max_reject_fraction: float = _option(
        "Output",
        "the build fails if more than this fraction of the records is rejected",
        kinds.fraction,
        0.01,
        "FRACTION",
        common=True,
    )
    max_lost_fraction: float = _option(
        "Output",
        "the build fails if more than this fraction of the tokens to train on is in no row because of max_length",
        kinds.fraction,
        1.0,
        "FRACTION",
    )
    max_parity_fraction: float = _option(
        "Output",
        "with --parity report, the build fails if more than this fraction of the trained turns that were compared "
        "differs from inference",
        kinds.fraction,
        1.0,
        "FRACTION",
    )
    max_unprinted_fraction: float = _option(
        "Output",
        "with --unprinted report, the build fails if more than this fraction of the records has a content, a tool call "
        "or tools that the chat template does not print",
        kinds.fraction,
        1.0,
        "FRACTION",
    )
    report: str = _option(
        "Output",
        "the report of the dataset; html: report.html, a page to open in a browser",
        kinds.one_of(REPORTS),
        "html",
        "|".join(REPORTS),
    )
    engine: str = _option(
        "Running",
        "what renders and tokenizes, with the same output; auto: the fast engine, compared with transformers on a "
        "sample, and transformers if they differ; fast: fail if they differ; reference: transformers only",
        kinds.one_of(ENGINES),
        "auto",
        "|".join(ENGINES),
    )
    summary_json: str | None = _option(
        "Running",
        "where to write the outcome of the run, with the sums of the manifest, as JSON; -: on the last line of "
        "standard output",
        metavar="URL|-",
        common=True,
    )
    runner: str = _option(
        "Running",
        "Beam's runner; DirectRunner: on this machine, with a process for each core; Beam's own options are passed on",
        default="DirectRunner",
        metavar="NAME",
        common=True,
    )
    detach: bool = _option(
        "Running",
        "submit the job to its cluster and do not wait for it; the job itself finishes the dataset",
        kinds.flag,
        False,
        "true|false",
    )

    def urls(self) -> list[tuple[str, str]]:
        """The urls that the job reads or writes, each after the name of its option; not the paths on this machine."""
        template = "" if self.chat_template is None or is_template(self.chat_template) else self.chat_template
        named = [("output", self.output), ("tokenizer", self.tokenizer), *(("input", url) for url in self.input)]
        named += [("chat_template", template), ("recipe", self.recipe or "")]
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
            "--input 'chats/*.jsonl' --tokenizer Qwen/Qwen3-8B \\\n"
            "      --output out/chats --max_length 4096 --packing bfd",
            "--input gs://corpus/chats/ --tokenizer gs://models/qwen3 \\\n"
            "      --output gs://shards/chats --validation_fraction 0.02",
        ],
    )
    return parse_build("build", parser, arguments)[:2]


def command_line_fields() -> list[dataclasses.Field[Any]]:
    """The fields of Options that are options of the command line."""
    return [field for field in dataclasses.fields(Options) if field.metadata["group"]]


def parse_build(
    command: str,
    parser: CommandParser,
    arguments: Sequence[str],
    settings: Mapping[str, Kind] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> tuple[Options, list[str], dict[str, Any]]:
    """Parse the options of a build, of the command line and of its recipe, and check them.

    Args:
        command: its name, for errors.
        parser: of the command, with its own options.
        arguments: what follows the command.
        settings: the kinds of the command's own options, by name, which a recipe may have, too.
        fixed: values of fields that the command sets itself.

    Returns:
        The options of the build, the arguments that are options of Beam, and the values of the command's own options.

    Raises:
        UserError, Unavailable: as parse_options does.
    """
    settings = settings or {}
    _add_options(parser, shows_all=[*arguments[:2]] == ["--help", "all"])
    if arguments and not arguments[0].startswith("-"):
        if not arguments[0].endswith((".yaml", ".yml", ".json")):
            raise UserError(
                f"unexpected argument {arguments[0]}: a recipe is named .yaml, .yml or .json. Each input needs its "
                f"option: --input {arguments[0]}"
            )
        arguments = ["--recipe", *arguments]
    known, rest = parser.parse_known_args(arguments)
    given = vars(known)
    if "input" in given:
        given["input"] = tuple(given["input"])
    fields = {option_name(field.name): field for field in dataclasses.fields(Options)}
    names = [*fields, *settings]
    of_recipe: list[str] = []
    if "recipe" in given:
        from pipeline.recipe_file import read_recipe

        all_kinds = {name: field.metadata["kind"] for name, field in fields.items()} | dict(settings)
        values, of_recipe = read_recipe(given["recipe"], all_kinds)
        given = {fields[name].name if name in fields else name: value for name, value in values.items()} | given
        options_given = {word.partition("=")[0] for word in rest}
        of_recipe = [word for word in of_recipe if word.partition("=")[0] not in options_given]
    own = {name: given.pop(name) for name in settings if name in given}
    options = Options(**given | dict(fixed or {}))
    try:
        _check_unknown(command, of_recipe, names, options.runner)
    except UserError as error:
        raise UserError(f"{options.recipe}: {error}") from None
    _check_unknown(command, rest, names, options.runner)
    check_options(options)
    return _for_consumer(options), [*of_recipe, *rest], own


def _add_options(parser: CommandParser, shows_all: bool) -> None:
    """Add the options of a build to those of a command. shows_all: whether --help shows those that few people need."""
    titles = dict.fromkeys(field.metadata["group"] for field in command_line_fields())
    groups = {title: parser.add_argument_group(title) for title in titles}
    for field in command_line_fields():
        is_shown = shows_all or field.metadata["common"]
        settings: dict[str, Any] = {
            "type": parser_of(option_name(field.name), field.metadata["kind"]),
            "metavar": field.metadata["metavar"],
            "help": help_text(field).replace("%", "%%") if is_shown else argparse.SUPPRESS,
        }
        if field.metadata["kind"] is kinds.flag:
            settings |= {"nargs": "?", "const": True}
        elif field.name == "input":
            settings["action"] = "extend"
        groups[field.metadata["group"]].add_argument(f"--{option_name(field.name)}", dest=field.name, **settings)


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


def find_summary_json(arguments: Sequence[str]) -> str | None:
    """The value of --summary_json in arguments that are wrong elsewhere, None if it has none."""
    found = None
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--summary_json":
            found = value if equals else following
    return found if found and not found.startswith("--") else None


def _check_unknown(command: str, rest: Sequence[str], names: Sequence[str], runner: str) -> None:
    """Raise UserError for an argument that is neither an option of ours nor of Beam."""
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
    if options.packing != "none" and options.max_length is None:
        raise UserError(f"--packing {options.packing} needs --max_length, such as --max_length 4096.")
    if options.append and options.overwrite:
        raise UserError("--append adds to a dataset, and --overwrite replaces it. Leave one of the two out.")
    if options.expire_replaced and (options.detach or not options.overwrite):
        raise UserError("--expire_replaced needs --overwrite, without --detach.")
    if options.rewritten != "refuse" and not options.append:
        raise UserError(f"--rewritten {options.rewritten} needs --append.")
    if options.retry_failed and not options.append:
        raise UserError("--retry_failed needs --append.")
    check_choices("output_format", options.output_format, OUTPUT_FORMATS)
    if options.write_columns is not None:
        check_choices("write_columns", options.write_columns, OUTPUT_COLUMNS)
    check_kept_columns(options.keep_columns, options.packing, options.write_columns, options.provenance, options.ledger)


def _for_consumer(options: Options) -> Options:
    """The options with the columns that the trainer needs. Raises UserError if another option does not suit it."""
    consumer = options.consumer
    if consumer is None:
        return options
    columns = options.write_columns or columns_for(consumer, options.packing != "none")
    options = dataclasses.replace(options, write_columns=columns)
    for option, text in problems(consumer, RowLayout.of(vars(options))):
        raise UserError(f"--for {consumer}: --{option} {as_typed(getattr(options, option))}: {text}")
    return options
