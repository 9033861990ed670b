"""chatmill masks: shows which parts of conversations are trained on under a chat template, before a build."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.console import CommandParser, marked_text, unknown_option
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
# Templates differ in these: a system message, several turns, reasoning before an answer, a tool call and its result.
_CONVERSATIONS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None]] = [
    (
        "a system message and two turns",
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
        "reasoning before the answers",
        [
            {"role": "user", "content": "Is 7 prime?"},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "No divisor from 2 to 2."},
            {"role": "user", "content": "And 8?"},
            {"role": "assistant", "content": "No.", "reasoning_content": "It is even."},
        ],
        None,
    ),
    (
        "a tool call",
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
    """Print what a chat template does, and conversations with their trained parts marked.

    Args:
        arguments: what follows the command.

    Returns:
        1 if one of the conversations would be rejected, otherwise 0.

    Raises:
        UserError: if an option is wrong, or the tokenizer, the template or the input cannot be read.
    """
    options = _parse(arguments)

    from rich.console import Console

    from pipeline.tokenizer_files import check_tokenizer, read_tokenizer_files, resolve_template
    from transforms.chat.template import ChatTemplate
    from transforms.chat.turns import TurnFinder
    from transforms.storage.files import join, write_atomically

    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in read_tokenizer_files(options["tokenizer"]).items():
            write_atomically(join(folder, name), content)
        tokenizer = check_tokenizer(folder, options["tokenizer"])
    template = ChatTemplate(tokenizer, resolve_template(options["chat_template"], tokenizer), now=datetime.now())
    finder = TurnFinder(template)
    conversations = list(_conversations_of(options["input"]) if options["input"] else _built_in_conversations())
    if not conversations:
        raise UserError(f"--input {options['input']}: there is no conversation among the first records.")
    rejected = untrained = 0
    for number, (title, conversation) in enumerate(conversations):
        if number == 0:
            _print_template(console, template, finder, conversation)
        console.print(f"\n[bold]{title}[/]")
        try:
            text, spans = finder.assistant_spans(conversation)
        except RecordError as error:
            rejected += 1
            console.print(f"rejected ({error.reason}): {error.detail}", style="red", markup=False)
            continue
        if not any(start < stop for start, stop in spans):
            untrained += 1
            console.print("nothing of this conversation is trained on:", style="yellow")
        pieces = ((text[start:stop], trained) for start, stop, trained in _alternating(len(text), spans))
        console.print(marked_text(console, pieces))
    mark = "in green" if console.color_system else "between ⟦ and ⟧"
    trained = len(conversations) - rejected - untrained
    console.print(
        f"\n{trained} of {len(conversations)} conversations have trained parts ({mark}); {untrained} have none and "
        f"would be dropped; {rejected} would be rejected."
    )
    return int(rejected > 0)


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The value of each option, None for one that is not given. Raises UserError."""
    parser = CommandParser(
        "masks",
        usage="--tokenizer NAME|URL [...]",
        description="Show which parts of conversations are trained on under a chat template.",
        examples=["--tokenizer Qwen/Qwen3-8B", "--tokenizer Qwen/Qwen3-8B --input chats/support.jsonl"],
    )
    texts = {
        "tokenizer": ("NAME|URL", "a name on the Hugging Face hub, a folder or a url (required)"),
        "chat_template": (
            "URL|TEMPLATE|NAME",
            "the chat template: a file, a url, the text of a template, or the name of one of the tokenizer's templates "
            "(default: that of the tokenizer)",
        ),
        "input": (
            "URL,..",
            f"files of your conversations, of which the first {_SHOWN} are shown (default: {len(_CONVERSATIONS)} "
            "built-in conversations)",
        ),
    }
    for name, (metavar, help) in texts.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=help)
    known, rest = parser.parse_known_args(arguments)
    for word in rest:
        if not word.startswith("--"):
            raise UserError(f"unexpected argument {word}. Conversations need their option: --input {word}")
        raise unknown_option("masks", word.removeprefix("--").partition("=")[0], list(texts))
    options = {name: getattr(known, name, None) for name in texts}
    if not options["tokenizer"]:
        raise UserError(
            "--tokenizer is missing: give one, such as --tokenizer Qwen/Qwen3-8B. "
            "chatmill masks --help lists the options."
        )
    return options


def _print_template(console: Any, template: Any, finder: Any, conversation: Any) -> None:
    """Print what a template does at the start and the end of each turn."""
    markers = template.has_generation_markers(conversation)
    source = "marked by the template" if markers else "derived from the template, which has no generation markers"
    console.print(f"trained parts: {source}")
    conventions = finder.conventions(conversation)
    for what, text in (
        ("generation prompt", conventions.prompt_after("user")),
        ("generation prompt after a tool's result", conventions.prompt_after("tool")),
        ("header of earlier assistant turns", conventions.header),
        ("end of a turn that is printed only before another turn", conventions.separator or None),
    ):
        console.print(f"{what}: {'none' if text is None else repr(text)}", markup=False)


def _built_in_conversations() -> Iterator[tuple[str, Any]]:
    from transforms.model.examples import Conversation

    for title, messages, tools in _CONVERSATIONS:
        yield title, Conversation(messages, tools)


def _conversations_of(inputs: str) -> Iterator[tuple[str, Any]]:
    """The first conversations of the user's files, each with its position; rejected records are printed."""
    from transforms.inputs.formats import input_format
    from transforms.inputs.listing import list_inputs
    from transforms.inputs.splits import splits_of
    from transforms.model.examples import Conversation
    from transforms.steps.parse import Parser
    from transforms.steps.read import read_split

    parser, shown = Parser(), 0
    for split in splits_of(list_inputs(inputs.split(","), parameter="input"), 1 << 20):
        unit = input_format(split.format).position_unit
        for record in next(read_split(split, 1 << 20)).records:
            position = f"{Path(split.url).name}, {unit} {record.position:,}"
            try:
                content = parser.parse(record).content
            except RecordError as error:
                print(f"{position}: rejected ({error.reason}): {error.detail}", file=sys.stderr)
                continue
            if isinstance(content, Conversation):
                yield position, content
                shown += 1
                if shown == _SHOWN:
                    return


def _alternating(length: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bool]]:
    """Cut a text at its spans: (start, stop, whether it is trained on)."""
    last = 0
    for start, stop in spans:
        yield last, start, False
        yield start, stop, True
        last = stop
    yield last, length, False
