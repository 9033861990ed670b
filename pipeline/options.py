"""The options of a build: one table, from which the command line and its help are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import kinds
from pipeline.console import CommandParser, as_typed, unknown_option
from pipeline.kinds import Kind
from transforms.chat.config import ENGINES, LOSSES, PARITIES
from transforms.checks import check_choices
from transforms.errors import UserError
from transforms.inputs.formats import INPUT_FORMATS
from transforms.inputs.messages import ROLES
from transforms.inputs.schemas import INPUT_COLUMNS, SCHEMAS
from transforms.outputs import OUTPUT_FORMATS
from transforms.rows.columns import OUTPUT_COLUMNS, check_kept_columns
from transforms.rows.packing import PACKINGS
from transforms.rows.truncation import TRUNCATIONS


def _option(
    group: str,
    help: str,
    kind: Kind = kinds.any_text,
    default: Any = None,
    metavar: str | None = None,
    default_help: str | None = None,
) -> Any:
    """A field of Options. default_help: what the default is, if the value does not say it."""
    metadata = {"group": group, "help": help, "kind": kind, "metavar": metavar, "default_help": default_help}
    return dataclasses.field(default=default, metadata=metadata)


_REQUIRED = "required"


@dataclass(frozen=True)
class Options:
    """The options of a build. Each field is the option of its name; its metadata are its place and text in --help."""

    input: tuple[str, ...] = _option(
        "Input",
        "files, folders, globs or urls to read, separated by commas; may be given several times",
        kinds.list_of(),
        (),
        "URL,..",
        _REQUIRED,
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
        "schema of the records; auto: detected for each record by its columns",
        kinds.one_of(SCHEMAS),
        "auto",
        "|".join(SCHEMAS),
    )
    columns: dict[str, str] | None = _option(
        "Input",
        "columns that have other names in your data, such as messages=dialog,tools=functions",
        kinds.map_of(names=kinds.one_of(INPUT_COLUMNS)),
        None,
        "NAME=YOURS,..",
    )
    roles: dict[str, str] | None = _option(
        "Input",
        "roles that have other names in your data, such as bot=assistant; human=user, gpt=assistant and "
        "observation=tool are known",
        kinds.map_of(kind=kinds.one_of(ROLES)),
        None,
        "YOURS=ROLE,..",
    )
    formatter: str | None = _option(
        "Input",
        "a Python function that turns each record (a dict) into a record of a known schema, or into a text",
        kinds.matching(".+:.+", "the form module:function or file.py:function"),
        None,
        "MODULE:FUNCTION|FILE.py:FUNCTION",
    )
    split_bytes: int | None = _option(
        "Input",
        "bytes of input in each split; a split becomes one shard",
        kinds.positive,
        None,
        "INT",
        "chosen by the size of the input, 4 MiB to 64 MiB",
    )
    tokenizer: str = _option(
        "Tokenizer and template",
        "a name on the Hugging Face hub, a folder or a url",
        default="",
        metavar="NAME|URL",
        default_help=_REQUIRED,
    )
    chat_template: str | None = _option(
        "Tokenizer and template",
        "the chat template: a file, a url, the text of a template, or the name of one of the tokenizer's templates",
        metavar="URL|TEMPLATE|NAME",
        default_help="that of the tokenizer",
    )
    chat_template_kwargs: dict[str, Any] | None = _option(
        "Tokenizer and template",
        'variables that the template reads besides messages and tools, such as {"enable_thinking": false}',
        kinds.template_kwargs,
        None,
        "JSON",
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
        "what is trained on; auto: the completion of a prompt and completion, the assistant's turns of a "
        "conversation, all of a plain text",
        kinds.one_of(LOSSES),
        "auto",
        "|".join(LOSSES),
    )
    parity: str = _option(
        "Rows",
        "what to do if a server would have rendered another context for a trained turn, for example because the "
        "template drops earlier reasoning; report: count such turns; expand: write a row for each context; reject: "
        "reject the record; off: do not compare",
        kinds.one_of(PARITIES),
        "report",
        "|".join(PARITIES),
    )
    max_length: int | None = _option("Rows", "the maximum number of tokens in a row", kinds.length, None, "INT|none")
    truncation: str = _option(
        "Rows",
        "what to do with a row that is longer than max_length; keep_start or keep_end: keep that end of it; drop: drop "
        "the record",
        kinds.one_of(TRUNCATIONS),
        "keep_start",
        "|".join(TRUNCATIONS),
    )
    packing: str = _option(
        "Rows",
        "how to pack several examples into each row, up to max_length; bfd: best fit decreasing, longer examples are "
        "truncated; bfd_split: longer examples are split; ffd: first fit decreasing; wrapped: all tokens in one "
        "sequence, cut at max_length",
        kinds.one_of(PACKINGS),
        "none",
        "|".join(PACKINGS),
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
    )
    seed: int = _option("Rows", "another seed puts other records in the validation split", kinds.integer, 0, "INT")
    output: str = _option(
        "Output", "the folder or url to write the dataset to", default="", metavar="URL", default_help=_REQUIRED
    )
    overwrite: bool = _option("Output", "replace the dataset that is in the output", kinds.flag, False, "true|false")
    output_format: tuple[str, ...] = _option(
        "Output",
        "the formats of the shards, one or several",
        kinds.list_of(kinds.one_of(OUTPUT_FORMATS)),
        ("parquet",),
        ",".join(OUTPUT_FORMATS),
    )
    tfrecord_compression: str = _option(
        "Output", "the compression of TFRecord shards", kinds.one_of(("none", "gzip")), "none", "none|gzip"
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
        "Output", "input columns to copy to the rows, as strings; not with packing", kinds.list_of(), (), "NAME,.."
    )
    provenance: bool = _option(
        "Output", "add the columns source and source_position (byte offset or row)", kinds.flag, False, "true|false"
    )
    max_reject_fraction: float = _option(
        "Output",
        "the build fails if more than this fraction of the records is rejected",
        kinds.fraction,
        0.01,
        "FRACTION",
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
    )
    runner: str = _option(
        "Running",
        "Beam's runner; DirectRunner: on this machine, with a process for each core; Beam's own options are passed on",
        default="DirectRunner",
        metavar="NAME",
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
        return [(option, url) for option, url in (*named, ("chat_template", template)) if "://" in url]


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
    """
    parser = CommandParser(
        "build",
        usage="--input URL,.. --tokenizer NAME|URL --output URL [...]",
        description="Build a dataset of token shards for training from conversations.",
        examples=[
            "--input 'chats/*.jsonl' --tokenizer Qwen/Qwen3-8B \\\n"
            "      --output out/chats --max_length 4096 --packing bfd",
            "--input gs://corpus/chats/ --tokenizer gs://models/qwen3 \\\n"
            "      --output gs://shards/chats --validation_fraction 0.02",
        ],
    )
    titles = dict.fromkeys(field.metadata["group"] for field in dataclasses.fields(Options))
    groups = {title: parser.add_argument_group(title) for title in titles}
    for field in dataclasses.fields(Options):
        settings: dict[str, Any] = {
            "type": _parser_of(field),
            "metavar": field.metadata["metavar"],
            "help": help_text(field).replace("%", "%%"),
        }
        if field.metadata["kind"] is kinds.flag:
            settings |= {"nargs": "?", "const": True}
        elif field.name == "input":
            settings["action"] = "extend"
        groups[field.metadata["group"]].add_argument(f"--{field.name}", **settings)
    known, rest = parser.parse_known_args(arguments)
    if "input" in known:
        known.input = tuple(known.input)
    options = Options(**vars(known))
    _check_unknown(rest, [f.name for f in dataclasses.fields(Options)], options.runner)
    _check(options)
    return options, rest


def _parser_of(field: dataclasses.Field[Any]) -> Callable[[str], Any]:
    """The function that parses an option's text; its error names the option and the text."""

    def parse(text: str) -> Any:
        try:
            return field.metadata["kind"].parse(text)
        except ValueError as error:
            raise UserError(f"--{field.name} {text}: {error}") from None

    return parse


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


def _check_unknown(rest: Sequence[str], names: Sequence[str], runner: str) -> None:
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
            error = unknown_option("build", name, [*names, *sorted(beam_names)])
            # The job server of a portable runner has options that Beam's Python SDK does not know.
            if "Did you mean" in str(error) or runner in ("DirectRunner", "DataflowRunner", "PrismRunner"):
                raise error


def _beam_option_names() -> set[str]:
    """The names of Beam's own options, read from its source, since importing it takes seconds."""
    package = importlib.util.find_spec("apache_beam")
    if not package or not package.origin:
        return set()
    source = Path(package.origin).with_name("options") / "pipeline_options.py"
    return set(re.findall(r"""['"]--([a-zA-Z_]\w*)['"]""", source.read_text(encoding="utf-8")))


def _check(options: Options) -> None:
    """Raise UserError if an option is missing, or if two do not go together."""
    for name, example in (("input", "chats/"), ("tokenizer", "Qwen/Qwen3-8B"), ("output", "out/chats")):
        if not getattr(options, name):
            raise UserError(
                f"--{name} is missing: give one, such as --{name} {example}. chatmill build --help lists the options."
            )
    if options.packing != "none" and options.max_length is None:
        raise UserError(f"--packing {options.packing} needs --max_length, such as --max_length 4096.")
    check_choices("output_format", options.output_format, OUTPUT_FORMATS)
    check_kept_columns(options.keep_columns, options.packing, options.write_columns, options.provenance)
