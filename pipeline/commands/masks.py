"""Show which parts of conversations are trained on under a chat template."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, unknown_option
from pipeline.cli.options import add_option, help_text
from pipeline.config import Options
from transforms.base.errors import RecordError, UserError
from transforms.base.options import options_in
from transforms.records.input_options import ParseOptions

SUMMARY = "OPTIONS", "show what is trained on under a chat template"
_SHOWN = 5
_LOOKED_AT = 1 << 20  # bytes of a task
# The options of a build that decide what is trained on, and those that say how a record is read.
_OPTIONS = {"tokenizer", "chat_template", "eot_tokens", "loss_on", "after_end", "train_parts", "check"}
_OPTIONS |= {"input", "input_format", "split", "max_record_bytes"} | {field.name for field in options_in(ParseOptions)}
_OPTIONS -= {"validation_fraction", "seed", "keep_columns"}
# Templates differ in these: a system message, several turns, reasoning before an answer, a tool call and its result.
_BUILT_IN = Path(__file__).with_name("built-in.jsonl")
_INPUT = (
    "files of your conversations, or a dataset on the Hub, of which the first "
    f"{_SHOWN} are shown (default: built-in conversations)"
)


def run(arguments: Sequence[str]) -> int:
    """Print what a chat template does, and conversations with their trained parts marked.

    Returns 1 if one of the conversations would be rejected, otherwise 0.
    """
    options = _parse(arguments)

    from pipeline.show.masks import print_conversations, print_template
    from pipeline.tokenizer import checked_tokenizer, read_tokenizer_files
    from transforms.chat.rendering.probes import adapted
    from transforms.model.outcomes import Reject
    from transforms.steps.content_checks import ContentChecker

    with checked_tokenizer(options, read_tokenizer_files(options.tokenizer)) as checked:
        tokenizer, renderer = checked.tokenizer, checked.renderer(options)
    conversations = list(_first_conversations(options))
    first = next((example for _, example in conversations if not isinstance(example, Reject)), None)
    if first is None:
        rejects = (reject for _, reject in conversations[:1])
        why = "".join(f" The first record is rejected ({each.reason}): {each.detail}." for each in rejects)
        raise UserError(f"--input {','.join(options.input)}: there is no conversation among the first records.{why}")
    try:
        content, _ = adapted(first.content, renderer.template)
        renderer.template.source(content)
    except RecordError:
        raise checked.no_template() from None
    print_template(renderer, tokenizer, content)
    checker = ContentChecker(options.check)
    return int(print_conversations(renderer, checker, conversations, options.train_parts) > 0)


def _parse(arguments: Sequence[str]) -> Options:
    """The options of a build that are given. Raises UserError."""
    parser = CommandParser(
        "masks",
        SUMMARY,
        __doc__,
        ["--tokenizer Qwen/Qwen3-8B", "--tokenizer Qwen/Qwen3-8B --input chats/support.jsonl"],
        argument_default=argparse.SUPPRESS,
    )
    for field in options_in(Options):
        if field.name in _OPTIONS:
            add_option(parser, field, _INPUT if field.name == "input" else help_text(field))
    known, rest = parser.parse_known_args(arguments)
    for word in rest:
        if not word.startswith("--"):
            raise UserError(f"unexpected argument {word}. Conversations need their option: --input {word}")
        raise unknown_option("masks", word.removeprefix("--").partition("=")[0], _OPTIONS)
    options = Options(**{"input": (str(_BUILT_IN),)} | vars(known))
    if not options.tokenizer:
        raise UserError(
            "--tokenizer is missing: give one, such as --tokenizer Qwen/Qwen3-8B. "
            "chatmill masks --help lists the options."
        )
    return options


def _first_conversations(options: Options) -> Iterator[tuple[str, Any]]:
    """The first conversations of the input, each with its position and schema: an example, or a reject."""
    from pipeline.first_records import first_records
    from pipeline.inputs import list_files
    from pipeline.job import Request
    from pipeline.recipe import read_sources
    from transforms.base.errors import RecordDropped
    from transforms.files.tasks import make_tasks
    from transforms.model.examples import Conversation, Example

    [source] = sources = read_sources(options)
    tasks = make_tasks(list_files(Request(options, sources)), _LOOKED_AT)
    shown = 0
    for url, place, parsed in first_records(source, tasks, _LOOKED_AT):
        title = f"{Path(url).name}, {place}"
        if isinstance(parsed, RecordDropped):
            print(f"{title}: dropped ({parsed.reason})", file=sys.stderr)
            continue
        if isinstance(parsed, Example):
            if not isinstance(parsed.content, Conversation):
                continue
            title = f"{title}, as {parsed.schema}"
        yield title, parsed
        shown += 1
        if shown == _SHOWN:
            return
