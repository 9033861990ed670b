"""python -m pipeline.masks: what of a conversation is trained on under a chat template, to look at before a build."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from transforms.errors import RecordError, UserError

_SHOWN = 5

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
# What templates differ over: a system message, several turns, reasoning in front of an answer, a call and its answer.
_CONVERSATIONS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None]] = [
    (
        "two turns behind a system message",
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "And 3 + 3?"},
            {"role": "assistant", "content": "6, of course."},
        ],
        None,
    ),
    (
        "reasoning in front of the answers",
        [
            {"role": "user", "content": "Is 7 prime?"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "No divisor from 2 to 2."},
            {"role": "user", "content": "And 8?"},
            {"role": "assistant", "content": "No.", "reasoning_content": "It is even."},
        ],
        None,
    ),
    (
        "a call of a tool",
        [
            {"role": "user", "content": "Weather in Zürich?"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"celsius": 20}'},
            {"role": "assistant", "content": "20 degrees."},
        ],
        [_TOOL],
    ),
]


def show_masks(arguments: Sequence[str]) -> int:
    """Show the masks that the arguments ask for. Returns 1 where one of the conversations would be refused, else 0.

    Raises UserError.
    """
    parser = _Parser(
        prog="chatmill masks",
        description="Shows what of conversations is trained on under a template (so does python -m pipeline.masks).",
        allow_abbrev=False,
    )
    parser.add_argument("--tokenizer", required=True, metavar="NAME|URL", help="a name on the hub, a folder or a url")
    parser.add_argument("--chat_template", metavar="URL|TEMPLATE|NAME", help="instead of the tokenizer's own")
    parser.add_argument("--input", metavar="URL,..", help=f"conversations of yours; the first {_SHOWN} are shown")
    given = parser.parse_args(arguments)

    from rich.console import Console

    from pipeline.summary import marked_text
    from pipeline.tokenizer_files import check_tokenizer, read_tokenizer_files, resolve_template
    from transforms.chat.template import ChatTemplate
    from transforms.chat.turns import TurnFinder
    from transforms.storage.files import join, write_atomically

    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in read_tokenizer_files(given.tokenizer).items():
            write_atomically(join(folder, name), content)
        tokenizer = check_tokenizer(folder, given.tokenizer)
    template = ChatTemplate(tokenizer, resolve_template(given.chat_template, tokenizer), now=datetime.now())
    finder = TurnFinder(template)
    conversations = list(_given(given.input) if given.input else _built_in())
    if not conversations:
        raise UserError(f"--input {given.input}: no conversation is among its first records.")
    refused = 0
    for number, (title, conversation) in enumerate(conversations):
        if number == 0:
            _print_conventions(console, template, finder, conversation)
        console.print(f"\n[bold]{title}[/]")
        try:
            text, spans = finder.assistant_spans(conversation)
        except RecordError as error:
            refused += 1
            console.print(f"refused ({error.reason}): {error.detail}", style="red", markup=False)
            continue
        pieces = ((text[start:stop], trained) for start, stop, trained in _alternating(len(text), spans))
        console.print(marked_text(console, pieces))
    console.print(
        f"\n{len(conversations) - refused} of {len(conversations)} conversations have a mask, {refused} are refused."
    )
    return int(refused > 0)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"masks: {message.rstrip('.')}. chatmill masks --help lists the options.")


def _print_conventions(console: Any, template: Any, finder: Any, conversation: Any) -> None:
    markers = template.has_generation_markers(conversation)
    console.print(f"generation markers: {'yes, they decide' if markers else 'none, the template itself is traced'}")
    conventions = finder.conventions(conversation)
    for what, shown in (
        ("generation prompt", conventions.prompt_after("user")),
        ("generation prompt after a tool's answer", conventions.prompt_after("tool")),
        ("header that history shows of it", conventions.header),
        ("closing that the next turn prints", conventions.separator or None),
    ):
        console.print(f"{what}: {'none' if shown is None else repr(shown)}", markup=False)


def _built_in() -> Iterator[tuple[str, Any]]:
    from transforms.model.examples import Conversation

    for title, messages, tools in _CONVERSATIONS:
        yield title, Conversation(messages, tools)


def _given(inputs: str) -> Iterator[tuple[str, Any]]:
    """The first conversations of a user's files, each with its place; what is no conversation is told and left out."""
    from transforms.inputs.listing import list_inputs
    from transforms.inputs.splits import splits_of
    from transforms.model.examples import Conversation
    from transforms.steps.parse import Parser
    from transforms.steps.read import read_split

    parser, shown = Parser(), 0
    for split in splits_of(list_inputs(inputs.split(","), parameter="input"), 1 << 20):
        for record in next(read_split(split, 1 << 20)).records:
            place = f"{Path(split.url).name}, {record.position:,}"
            try:
                content = parser.parse(record).content
            except RecordError as error:
                print(f"{place}: rejected ({error.reason}): {error.detail}", file=sys.stderr)
                continue
            if isinstance(content, Conversation):
                yield place, content
                shown += 1
                if shown == _SHOWN:
                    return


def _alternating(length: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """The text cut at the spans: (start, stop, whether it is trained on)."""
    last = 0
    for start, stop in spans:
        yield last, start, False
        yield start, stop, True
        last = stop
    yield last, length, False


if __name__ == "__main__":
    from pipeline.cli import run_command

    sys.exit(run_command(lambda: show_masks(sys.argv[1:])))
