"""The first records of an input: what a build warns of before it starts, and what `chatmill masks` shows.

They are read, parsed and rendered as workers do it, one by one and by the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

from pipeline.cli.console import shortened
from pipeline.recipe import Source
from pipeline.show.hints import HINTS
from pipeline.tokenizer import CheckedTokenizer
from transforms.base.errors import RecordDropped, RecordError, before_the_work
from transforms.base.options import option_values
from transforms.chat.rendering.template import ChatTemplate
from transforms.files.formats import input_format
from transforms.files.listing import InputFile
from transforms.files.tasks import make_tasks
from transforms.model.batches import Task
from transforms.model.examples import Conversation, Example, PromptCompletion, Record, attempt
from transforms.model.outcomes import Reject
from transforms.records.input_options import ParseOptions
from transforms.steps.parse import Parser
from transforms.steps.read import read_task
from transforms.steps.render import Rendered, Renderer

# The url of its file, where it is there, such as `byte 1,024`, and its first example, or why there is none.
FirstRecord: TypeAlias = tuple[str, str, Example | Reject | RecordDropped]
_LOOKED_AT = 1 << 16  # bytes of the first file of a source


def first_records(source: Source, tasks: Iterable[Task], chunk_bytes: int) -> Iterator[FirstRecord]:
    """Read and parse the first records of each task of a source.

    Args:
        source, tasks: with the options by which records are read, and of its files.
        chunk_bytes: about how much of each task is looked at.

    Raises:
        UserError, Unavailable, InputError: if a file cannot be read.
    """
    parser = Parser(ParseOptions(**option_values(ParseOptions, source.options)))

    def parse(record: Record) -> Example | RecordDropped:
        try:
            return parser.parse_all(record)[0]
        except RecordDropped as drop:
            return drop

    for task in tasks:
        with before_the_work(f"{source.option('input')} "):
            records = next(read_task(task, chunk_bytes, source.options.max_record_bytes, is_look=True)).records
        for record in records:
            piece, position = task.origin(record.position)
            parsed, rejects = attempt([record], parse)
            place = f"{input_format(piece.format).position_unit} {position:,}"
            yield piece.url, place, (parsed or rejects)[0]


def render(renderer: Renderer, example: Example) -> Rendered | Reject:
    """Return an example as a build renders it, or why the build rejects the record."""
    rendered, rejects = attempt([example], renderer.render)
    return (rendered or rejects)[0]


def check_first_records(source: Source, file: InputFile, checked: CheckedTokenizer) -> Iterator[str]:
    """Warn if a source's first records are pairs of answers, or if its first conversation has no certain mask.

    Args:
        source, file: of the build, and the first file of it.
        checked: the tokenizer and the chat template of the build.

    Raises:
        UserError: if the first record that can be read is a conversation and there is no chat template; or as
            first_records does.
    """
    options, is_warned = source.options, False
    first_task = next(make_tasks([file], _LOOKED_AT))
    for url, place, parsed in first_records(source, [first_task], _LOOKED_AT):
        if not isinstance(parsed, Example):
            if isinstance(parsed, Reject) and parsed.reason == "preference_data" and not is_warned:
                is_warned = True
                pair = f"a chosen and a rejected answer ({url}, {place})"
                yield f"warning: {pair} are rejected as preference_data. {HINTS[parsed.reason]}."
            continue
        if isinstance(parsed.content, PromptCompletion) and checked.has_template:
            where = f" of the source {source.name}" if source.place else ""
            yield (
                f"note: prompt and completion{where} are strings, and are tokenized as plain text. --as_chat true "
                "renders them as messages of a user and of the assistant, with the chat template."
            )
        if not isinstance(parsed.content, Conversation):
            return
        if not checked.has_template:
            raise checked.no_template()
        renderer = checked.renderer(options)
        with suppress(RecordError):
            yield from _describe_changed_contents(renderer.template, parsed.content)
        if isinstance(rendered := render(renderer, parsed), Reject):
            name = shortened(options.chat_template or f"of {options.tokenizer}")
            yield (
                f"warning: with the chat template {name}, the first conversation ({url}, {place}) would be rejected: "
                f"{rendered.detail}. Others may be rejected for the same reason."
            )
        return


def _describe_changed_contents(template: ChatTemplate, conversation: Conversation) -> Iterator[str]:
    """Say which contents of a conversation are given to the chat template in another form. Raises RecordError."""
    for kind, form in ((str, "lists of one text part"), (list, "strings, with a line break between two parts")):
        pairs = zip(conversation.messages, template.plain_messages(conversation), strict=True)
        roles = dict.fromkeys(
            one["role"]
            for one, given in pairs
            if isinstance(one.get("content"), kind) and not isinstance(given.get("content"), kind)
        )
        if roles:
            yield (
                f"note: the chat template does not print contents of {' and '.join(roles)} in the form that the "
                f"records have, so it is given {form}."
            )
