"""chatmill masks: shows which parts of conversations are trained on under a chat template, before a build."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, unknown_option
from pipeline.cli.options import add_option
from pipeline.config import Options, read_value
from transforms.base.errors import RecordError, UserError
from transforms.base.options import Urls, options_in
from transforms.records.input_options import ParseOptions

SUMMARY = "OPTIONS", "show what is trained on under a chat template"
_SHOWN = 5
_LOOKED_AT = 1 << 20  # bytes of a task
# The options of a build that decide what is trained on.
_OPTIONS = ("tokenizer", "chat_template", "eot_tokens", "loss_on", "after_end", "train_parts")
# Those of ParseOptions that say nothing of how a record is read.
_OF_ROWS = ("validation_fraction", "seed", "keep_columns")

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
# Templates differ in these: a system message, several turns, reasoning before an answer, a tool call and its result.
_TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "And 3 + 3?"},
    {"role": "assistant", "content": "6, of course."},
]
_REASONING: list[dict[str, Any]] = [
    {"role": "user", "content": "Is 7 prime?"},
    {"role": "assistant", "content": "Yes.", "reasoning_content": "No divisor from 2 to 2."},
    {"role": "user", "content": "And 8?"},
    {"role": "assistant", "content": "No.", "reasoning_content": "It is even."},
]
_TOOL_USE: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather in Zürich?"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"celsius": 20}'},
    {"role": "assistant", "content": "20 degrees."},
]
_CONVERSATIONS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None]] = [
    ("a system message and two turns", _TURNS, None),
    ("reasoning before the answers", _REASONING, None),
    ("a tool call", _TOOL_USE, [_TOOL]),
]


def run(arguments: Sequence[str]) -> int:
    """Print what a chat template does, and conversations with their trained parts marked.

    Returns 1 if one of the conversations would be rejected, otherwise 0.
    """
    options = _parse(arguments)

    from pipeline.show.masks import print_conversations, print_template
    from pipeline.tokenizer import checked_tokenizer, read_tokenizer_files
    from transforms.model.outcomes import Reject

    with checked_tokenizer(options, read_tokenizer_files(options.tokenizer)) as checked:
        tokenizer, renderer = checked.tokenizer, checked.renderer(options)
    found = list(_first_conversations(options, renderer) if options.input else _built_in_conversations())
    first = next((example for _, example in found if not isinstance(example, Reject)), None)
    if first is None:
        why = f" The first record is rejected ({found[0][1].reason}): {found[0][1].detail}." if found else ""
        raise UserError(f"--input {','.join(options.input)}: there is no conversation among the first records.{why}")
    try:
        renderer.template.source(first.content)
    except RecordError:
        raise checked.no_template() from None
    print_template(renderer, tokenizer, first.content)
    return int(print_conversations(renderer, tokenizer, found, options.train_parts) > 0)


def _parse(arguments: Sequence[str]) -> Options:
    """The options of a build that are given. Raises UserError."""
    parser = CommandParser(
        "masks",
        usage="--tokenizer NAME|URL [...]",
        description="Show which parts of conversations are trained on under a chat template.",
        examples=["--tokenizer Qwen/Qwen3-8B", "--tokenizer Qwen/Qwen3-8B --input chats/support.jsonl"],
        argument_default=argparse.SUPPRESS,
    )
    reading = {field.name for field in options_in(ParseOptions)} - {*_OF_ROWS}
    shown = {*_OPTIONS, *reading, "input_format", "split", "max_record_bytes"}
    fields = {field.name: field for field in options_in(Options) if field.name in shown}
    for field in fields.values():
        add_option(parser, field)
    parser.add_argument(
        "--input",
        metavar="URL,..",
        type=functools.partial(read_value, "input", type=Urls),
        action="extend",
        help=f"files of your conversations, or a dataset on the Hub, of which the first {_SHOWN} are shown (default: "
        f"{len(_CONVERSATIONS)} built-in conversations)",
    )
    known, rest = parser.parse_known_args(arguments)
    for word in rest:
        if not word.startswith("--"):
            raise UserError(f"unexpected argument {word}. Conversations need their option: --input {word}")
        raise unknown_option("masks", word.removeprefix("--").partition("=")[0], [*fields, "input"])
    options = Options(**vars(known) | {"input": tuple(getattr(known, "input", ()))})
    if not options.tokenizer:
        raise UserError(
            "--tokenizer is missing: give one, such as --tokenizer Qwen/Qwen3-8B. "
            "chatmill masks --help lists the options."
        )
    return options


def _built_in_conversations() -> Iterator[tuple[str, Any]]:
    from transforms.model.examples import Conversation, Example

    for number, (title, messages, tools) in enumerate(_CONVERSATIONS):
        yield title, Example(number, Conversation(messages, tools), {}, False, b"")


def _first_conversations(options: Options, renderer: Any) -> Iterator[tuple[str, Any]]:
    """The first conversations of the user's files, each with its position and schema: an example, or a reject."""
    from pipeline.first_records import adapt, first_records
    from pipeline.inputs import list_files
    from pipeline.job import Request
    from pipeline.recipe import read_sources
    from transforms.base.errors import RecordDropped
    from transforms.files.tasks import tasks_of
    from transforms.model.examples import Conversation, Example

    sources, shown = read_sources(options), 0
    tasks = tasks_of(list_files(Request(options, sources)), _LOOKED_AT)
    for url, place, found in first_records(sources[0], tasks, _LOOKED_AT):
        title = f"{Path(url).name}, {place}"
        if isinstance(found, RecordDropped):
            print(f"{title}: dropped ({found.reason})", file=sys.stderr)
            continue
        if isinstance(found, Example):
            if not isinstance(found.content, Conversation):
                continue
            title, found = f"{title}, as {found.schema}", adapt(found, renderer.template)
        yield title, found
        shown += 1
        if shown == _SHOWN:
            return
