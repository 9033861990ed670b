"""The options by which inputs are read and records become examples."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MinLen

from transforms.base.errors import ParameterError
from transforms.base.options import (
    PAIRS,
    Configuration,
    Flag,
    Fraction,
    Integer,
    Names,
    PositiveInt,
    String,
    Values,
    Word,
    Wrong,
    one_name,
    option,
    that,
)
from transforms.files.formats import INPUT_FORMATS, MAX_RECORD_BYTES
from transforms.records.layouts import INPUT_COLUMNS, SCHEMAS
from transforms.records.reading import ROLES, TOOL_ARGUMENTS
from transforms.traces import TRACE_BRANCHES

# Each source may have a value of its own for these.
_per_source = functools.partial(option, "Input", per_source=True)
_FUNCTION = Values("module:function or file.py:function", check=that(re.compile(".+:.+").fullmatch))
_DEFINITIONS = "a list of tool definitions, of at least one"


def _read_definitions(text: str) -> Any:
    """Read tool definitions: their JSON, or the file that has it."""
    from transforms.storage.files import read_bytes  # it imports fsspec, which --help needs not

    try:
        return json.loads(text if str.lstrip(text).startswith("[") else read_bytes(text))
    except (OSError, ValueError) as error:
        raise Wrong(f"expected {_DEFINITIONS}, as JSON or as a file that has it ({error}).") from None


ToolDefinitions = Annotated[
    tuple[dict[str, Any], ...], Values(_DEFINITIONS, "URL|JSON", _read_definitions, (MinLen(1),))
]


@dataclass(frozen=True, kw_only=True)
class InputOptions(Configuration):
    """How inputs are read."""

    split: Names = _per_source(
        "the split of a dataset, on the Hub, in a folder or of an earlier build, or several, separated by commas; not "
        "needed if it has only one",
        (),
        default_help="the only one",
        common=True,
    )
    input_format: Annotated[str, one_name(INPUT_FORMATS)] = _per_source(
        "format of the input files; auto: by the file's name, and by its first bytes if it is named .json or has "
        "no known ending; claude_code, codex, atif: sessions of agents, which auto does not look for",
        "auto",
    )
    split_bytes: PositiveInt | None = option(
        "Input",
        "bytes of input in each task; a task becomes one shard",
        default_help="chosen by the size of the input, 4 MiB to 256 MiB",
    )
    max_record_bytes: PositiveInt = option("Input", "a record of more bytes is rejected as too_long", MAX_RECORD_BYTES)


@dataclass(frozen=True, kw_only=True)
class ParseOptions(Configuration):
    """How records become examples: the options of ParseConversations.

    Raises:
        ParameterError: if a value is not one that the option takes.
    """

    schema: Annotated[str, one_name(SCHEMAS)] = _per_source(
        f"schema of the records: {', '.join(SCHEMAS)}; auto: detected for each record by its columns; chosen: "
        "trains on the chosen one of a chosen and a rejected answer",
        "auto",
        metavar="NAME",
        common=True,
    )
    as_chat: Flag = _per_source(
        "render a prompt and a completion that are strings as messages of a user and of the assistant, with the chat "
        "template",
        False,
    )
    columns: Annotated[Mapping[Annotated[str, one_name(INPUT_COLUMNS)], Word], PAIRS] | None = _per_source(
        "columns that have other names in your data, such as messages=dialog,tools=functions", common=True
    )
    roles: Annotated[Mapping[Word, Annotated[str, one_name(ROLES)]], PAIRS] | None = _per_source(
        "roles that have other names in your data, such as agent=assistant; human=user, gpt=assistant and "
        "observation=tool are known",
        metavar="YOURS=ROLE,..",
    )
    message_fields: Annotated[Mapping[Word, Word], PAIRS] | None = _per_source(
        "fields of messages that have other names in your data, such as role=speaker,content=utterance; from and value "
        "are known"
    )
    train_field: String | None = _per_source(
        "a field of messages that says whether they are trained on: true or false, or 1 or 0; train, training, loss, "
        "masked, weight and loss_weight are known",
        metavar="NAME",
    )
    tool_arguments: Annotated[str, one_name(TOOL_ARGUMENTS)] = _per_source(
        "what to do with arguments of tool calls that are strings of JSON; parse: parse them, as a server does before "
        "it renders; keep: give the strings to the template",
        "parse",
    )
    formatter: Annotated[str, _FUNCTION] | None = _per_source(
        "a Python function that turns each record (a dict) into a record of a known schema or a text, into a list of "
        "them, or into None, which drops the record",
        metavar="MODULE:FUNCTION|FILE.py:FUNCTION",
        common=True,
    )
    trace_branches: Annotated[str, one_name(TRACE_BRANCHES)] = _per_source(
        "what becomes of the branches of an agent's trace: messages that were edited, answers that were tried again, "
        "and subagents; examples: each is an example, and what several share is trained on once; main: only what the "
        "session came to is read; reject: a session that has some is rejected",
        "examples",
    )
    trace_tools: ToolDefinitions | None = _per_source(
        "tool definitions for traces of agents that have calls and no tools: a JSON list, or the file that has it"
    )
    validation_fraction: Fraction = option(
        "Rows",
        "the fraction of records in the validation split; a hash of the content decides, so duplicates stay in the "
        "same split",
        0.0,
        common=True,
    )
    seed: Integer = option("Rows", "seed of the validation split, and of the order of examples if they are shuffled", 0)
    keep_columns: Names = option(
        "Output",
        "input columns to copy to the rows, as strings; of a packed row as lists, with a value for each example",
        (),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_field in ("role", "content"):
            raise ParameterError("train_field", self.train_field, "expected the name of a field of messages.")
