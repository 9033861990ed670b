"""The options of a build: one table, from which the command line and its help are made.

Nothing heavy is imported here, so that --help and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from transforms.chat.config import ENGINES, LOSSES, PARITIES, RESERVED_TEMPLATE_KWARGS
from transforms.errors import UserError
from transforms.inputs.formats import INPUT_FORMATS
from transforms.inputs.messages import ROLES
from transforms.inputs.schemas import INPUT_COLUMNS, SCHEMAS
from transforms.outputs import OUTPUT_FORMATS
from transforms.rows.columns import OUTPUT_COLUMNS
from transforms.rows.packing import PACKINGS
from transforms.rows.truncation import TRUNCATIONS


@dataclass(frozen=True)
class Kind:
    """What the text of an option is. parse: makes the value, and raises ArgumentTypeError.

    regex: what all the texts that parse takes match, and few others: a POSIX extended one without backslashes, since
    Dataflow goes by it too (deploy/dataflow/metadata.py). None where any text will do.
    """

    regex: str | None
    parse: Callable[[str], Any]


def _matching(regex: str, expected: str, convert: Callable[[str], Any] = str) -> Kind:
    def parse(text: str) -> Any:
        try:
            if re.fullmatch(regex, text):
                return convert(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")

    return Kind(regex, parse)


def _one_of(names: Sequence[str]) -> Kind:
    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}.{_meant(text, names)}")
        return text

    return Kind("|".join(names), parse)


def _list_of(kind: Kind | None = None) -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if not parts:
            raise argparse.ArgumentTypeError("expected at least one, separated by commas")
        return tuple(map(kind.parse, parts)) if kind else parts

    return Kind(f"[, ]*({kind.regex}) *(,[, ]*({kind.regex}) *)*[, ]*" if kind else ".*[^, ].*", parse)


def _map(names: Kind | None = None, kind: Kind | None = None) -> Kind:
    def parse(text: str) -> dict[str, str]:
        pairs = [tuple(side.strip() for side in part.partition("=")) for part in text.split(",")]
        if not all(left and right for left, _, right in pairs):
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=other,name=other")
        return {(names or _text).parse(left): (kind or _text).parse(right) for left, _, right in pairs}

    left = f" *({names.regex}) *" if names else "[^=,]*[^=, ][^=,]*"
    right = f" *({kind.regex}) *" if kind else "[^,]*[^, ][^,]*"
    return Kind(f"{left}={right}(,{left}={right})*", parse)


def _template_kwargs(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is not a JSON object, such as {{"enable_thinking": false}}')
    if taken := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys()):
        raise argparse.ArgumentTypeError(f"{', '.join(taken)} cannot be given, the job sets it")
    return arguments


_POSITIVE = "0*[1-9][0-9]*"
_text = Kind(None, str)
_flag = _matching("true|false", "true or false", lambda text: text == "true")
_integer = _matching("-?[0-9]+", "a whole number", int)
_positive = _matching(_POSITIVE, "a whole number above 0", int)
_length = _matching(f"none|{_POSITIVE}", "a whole number above 0", lambda text: None if text == "none" else int(text))
_fraction = _matching("1([.]0*)?|0?[.][0-9]+|0[.]?|[0-9]([.][0-9]*)?e-[0-9]*[1-9][0-9]*", "a number from 0 to 1", float)
_moment = _matching(
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?",
    "a moment like 2026-11-20T12:00:00",
    lambda text: datetime.fromisoformat(text).isoformat(),
)


def _option(
    group: str,
    help: str,
    kind: Kind = _text,
    default: Any = None,
    metavar: str | None = None,
    changes_rows: bool = True,
) -> Any:
    """A field of Options. changes_rows: whether a resumed run must have the same value."""
    metadata = {"group": group, "help": help, "kind": kind, "metavar": metavar, "changes_rows": changes_rows}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """What the user asked for. Each field is the option of its name."""

    input: tuple[str, ...] = _option(
        "Input",
        "files, folders, globs and urls of conversations, separated by commas; may be repeated",
        _list_of(),
        (),
        "URL,..",
        changes_rows=False,
    )
    input_format: str = _option(
        "Input",
        "auto goes by the file's name, and by its first bytes where that is .json or tells nothing",
        _one_of(INPUT_FORMATS),
        "auto",
        "|".join(INPUT_FORMATS),
    )
    schema: str = _option(
        "Input",
        "what the records are; auto looks at the columns of each",
        _one_of(SCHEMAS),
        "auto",
        "|".join(SCHEMAS),
    )
    columns: dict[str, str] | None = _option(
        "Input",
        "the names of columns that are called otherwise: messages=dialog,tools=functions",
        _map(names=_one_of(INPUT_COLUMNS)),
        None,
        "NAME=YOURS,..",
    )
    roles: dict[str, str] | None = _option(
        "Input",
        "roles to add to human=user, gpt=assistant, observation=tool",
        _map(kind=_one_of(ROLES)),
        None,
        "YOURS=ROLE,..",
    )
    formatter: str | None = _option(
        "Input",
        "a function that makes of each record (a dict) one of a known schema, or a text",
        _matching(".+:.+", "of the form module:function or file.py:function"),
        metavar="MODULE:FUNCTION|FILE.py:FUNCTION",
    )
    split_bytes: int | None = _option(
        "Input",
        "bytes of input for each split, which becomes a shard; by default from the size of the input, 4 MiB to 64 MiB",
        _positive,
        None,
        "INT",
    )
    tokenizer: str = _option(
        "Tokenizer and template",
        "a name on the hub, a folder or a url",
        metavar="NAME|URL",
        default="",
        changes_rows=False,
    )
    chat_template: str | None = _option(
        "Tokenizer and template",
        "instead of the tokenizer's own: a file, a url, the template itself, or the name of one "
        "that the tokenizer holds",
        metavar="URL|TEMPLATE|NAME",
        changes_rows=False,
    )
    chat_template_kwargs: dict[str, Any] | None = _option(
        "Tokenizer and template",
        "what the template reads besides messages and tools",
        Kind(" *[{].*[}] *", _template_kwargs),
        None,
        "JSON",
    )
    now: str | None = _option(
        "Tokenizer and template",
        "the moment that a template's strftime_now tells; by default that of the planning",
        _moment,
        None,
        "YYYY-MM-DDTHH:MM:SS",
        changes_rows=False,
    )
    strip_bos: bool = _option(
        "Tokenizer and template", "take off a BOS that a row begins with", _flag, False, "true|false"
    )
    loss_on: str = _option(
        "Rows",
        "what is trained on; auto: the completion of prompt and completion, the assistant's turns of a conversation, "
        "all of a text",
        _one_of(LOSSES),
        "auto",
        "|".join(LOSSES),
    )
    parity: str = _option(
        "Rows",
        "turns that are trained on in another context than a server would have rendered (earlier reasoning that the "
        "template drops); report: counted; expand: such a record becomes a row for each context; reject: rejected",
        _one_of(PARITIES),
        "report",
        "|".join(PARITIES),
    )
    max_length: int | None = _option("Rows", "tokens in a row at the most", _length, None, "INT|none")
    truncation: str = _option(
        "Rows",
        "what becomes of a longer row",
        _one_of(TRUNCATIONS),
        "keep_start",
        "|".join(TRUNCATIONS),
    )
    packing: str = _option(
        "Rows",
        "how rows are filled with several examples up to max_length; bfd: best fit decreasing, longer ones truncated; "
        "bfd_split: longer ones cut into pieces; ffd: first fit decreasing; wrapped: one stream, cut",
        _one_of(PACKINGS),
        "none",
        "|".join(PACKINGS),
    )
    shift_labels: bool = _option(
        "Rows", "write input_ids[:-1] and labels[1:], for trainers that do not shift", _flag, False, "true|false"
    )
    validation_fraction: float = _option(
        "Rows",
        "of the records, chosen by a hash of what they say: the same everywhere, duplicates together",
        _fraction,
        0.0,
        "FRACTION",
    )
    seed: int = _option("Rows", "another seed chooses other records for validation", _integer, 0, "INT")
    output: str = _option(
        "Output", "the folder of the dataset, at any url", metavar="URL", default="", changes_rows=False
    )
    overwrite: bool = _option(
        "Output", "replace the dataset that is there", _flag, False, "true|false", changes_rows=False
    )
    output_format: tuple[str, ...] = _option(
        "Output",
        "one or several",
        _list_of(_one_of(OUTPUT_FORMATS)),
        ("parquet",),
        ",".join(OUTPUT_FORMATS),
    )
    tfrecord_compression: str = _option("Output", "of TFRecord shards", _one_of(("none", "gzip")), "none", "none|gzip")
    write_columns: tuple[str, ...] | None = _option(
        "Output",
        f"of {', '.join(OUTPUT_COLUMNS)}; by default input_ids and labels, and seq_lengths when packed",
        _list_of(_one_of(OUTPUT_COLUMNS)),
        None,
        "NAME,..",
    )
    keep_columns: tuple[str, ...] = _option(
        "Output", "input columns to carry along, as strings; not when packed", _list_of(), (), "NAME,.."
    )
    provenance: bool = _option(
        "Output", "add the columns source and source_position (byte offset or row)", _flag, False, "true|false"
    )
    max_reject_fraction: float = _option(
        "Output",
        "the run fails where more of the records are rejected",
        _fraction,
        0.01,
        "FRACTION",
        changes_rows=False,
    )
    engine: str = _option(
        "Running",
        "reference: transformers renders and tokenizes; auto: the same sooner, and by the reference where a sample "
        "differs; fast: fails there. The bytes are the same",
        _one_of(ENGINES),
        "auto",
        "|".join(ENGINES),
        changes_rows=False,
    )
    summary_json: str | None = _option(
        "Running",
        "where to write how the run ended, and the sums of the manifest; - is standard output, as its last line",
        metavar="URL|-",
        changes_rows=False,
    )
    runner: str = _option(
        "Running",
        "DirectRunner (here, a process for each core), or any other of Beam's; Beam's own options are passed on",
        default="DirectRunner",
        metavar="NAME",
        changes_rows=False,
    )
    detach: bool = _option(
        "Running",
        "submit the job to its cluster and do not wait for it; the job itself finishes the dataset",
        _flag,
        False,
        changes_rows=False,
    )

    def shaping_rows(self) -> dict[str, Any]:
        """The options that decide what the rows are, as JSON has them."""
        shaping = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata["changes_rows"]}
        return json.loads(json.dumps(shaping))

    def urls(self) -> list[tuple[str, str]]:
        """Each url that the job reads or writes, behind the name of its option; files of this machine are none."""
        template = "" if self.chat_template is None or is_template(self.chat_template) else self.chat_template
        named = [("output", self.output), ("tokenizer", self.tokenizer), *(("input", url) for url in self.input)]
        return [(option, url) for option, url in (*named, ("chat_template", template)) if "://" in url]


def is_template(given: str) -> bool:
    """Whether --chat_template is given a template itself, not the name or url of one."""
    return "{{" in given or "{%" in given


def parse_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The options, and those that are Beam's own. Raises UserError; --help prints and exits."""
    parser = _Parser(
        prog="chatmill build",
        usage="%(prog)s --input URL,.. --tokenizer NAME|URL --output URL [OPTION ..]   (so does python -m pipeline)",
        description="Conversations in, training-ready token shards out.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28, width=110),
    )
    titles = dict.fromkeys(field.metadata["group"] for field in dataclasses.fields(Options))
    groups = {title: parser.add_argument_group(title) for title in titles}
    for field in dataclasses.fields(Options):
        kind, help, metavar = (field.metadata[key] for key in ("kind", "help", "metavar"))
        how: dict[str, Any] = {"type": kind.parse, "metavar": metavar, "help": help + default_text(field)}
        if kind is _flag:
            how |= {"nargs": "?", "const": True}
        elif field.name == "input":
            how["action"] = "extend"
        groups[field.metadata["group"]].add_argument(f"--{field.name}", **how)
    known, rest = parser.parse_known_args(arguments)
    if "input" in known:
        known.input = tuple(known.input)
    options = Options(**vars(known))
    _check_unknown(rest, [f.name for f in dataclasses.fields(Options)], options.runner)
    _check(options)
    return options, rest


def summary_asked_for(arguments: Sequence[str]) -> str | None:
    """What --summary_json says, of arguments that may be mistaken elsewhere."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--summary_json")
    try:
        return parser.parse_known_args(arguments)[0].summary_json
    except UserError:
        return None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument ").rstrip(".") + ". --help lists the options.")


def default_text(field: dataclasses.Field[Any]) -> str:
    if field.default in ("", None, ()) or field.default is False:
        return ""
    value = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    return f" (default: {value})"


def _check_unknown(rest: list[str], ours: list[str], runner: str) -> None:
    """Raise UserError for what neither we nor Beam know."""
    beams = _beam_option_names()
    after_option = False
    for word in rest:
        if not word.startswith("--"):
            if not after_option:
                raise UserError(f"{word!r} belongs to no option. Inputs are given as --input {word}")
            after_option = False
            continue
        name, _, value = word.removeprefix("--").partition("=")
        after_option = not value
        if name not in beams:
            meant = _meant(f"--{name}", [f"--{known}" for known in (*ours, *sorted(beams))])
            # The job server of a portable runner has options that this side does not know.
            if meant or runner in ("DirectRunner", "DataflowRunner", "PrismRunner"):
                raise UserError(f"there is no option --{name}.{meant} --help lists the options.")


def _beam_option_names() -> set[str]:
    """The names of Beam's own options, read from its source, since importing it takes seconds."""
    package = importlib.util.find_spec("apache_beam")
    if not package or not package.origin:
        return set()
    source = Path(package.origin).with_name("options") / "pipeline_options.py"
    return set(re.findall(r"""['"]--([a-zA-Z_]\w*)['"]""", source.read_text(encoding="utf-8")))


def _meant(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _check(options: Options) -> None:
    """Raise UserError for what is missing or does not go together."""
    for name, what in (("input", "files of conversations"), ("tokenizer", "a tokenizer"), ("output", "a folder")):
        if not getattr(options, name):
            raise UserError(f"--{name} is missing: give {what}. --help lists the options.")
    if options.packing != "none" and options.max_length is None:
        raise UserError(f"--packing {options.packing} needs a --max_length, such as --max_length 4096.")
    if options.keep_columns and options.packing != "none":
        raise UserError("--keep_columns needs --packing none: a packed row has the columns of no single record.")
    taken = {*(options.write_columns or ("input_ids", "labels", "seq_lengths"))}
    taken |= {"source", "source_position"} if options.provenance else set()
    if doubled := sorted(taken & set(options.keep_columns)):
        raise UserError(f"--keep_columns {doubled[0]}: a column of that name is written already.")
