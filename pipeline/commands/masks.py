"""chatmill masks: shows which parts of conversations are trained on under a chat template, before a build."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, unknown_option
from pipeline.cli.options import add_option, parser_of
from pipeline.config import Options
from transforms.base import kinds
from transforms.base.declaring import options_in
from transforms.base.errors import RecordError, UserError
from transforms.inputs.input_options import ParseOptions

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


def run(arguments: Sequence[str]) -> int:
    """Print what a chat template does, and conversations with their trained parts marked.

    Args:
        arguments: what follows the command.

    Returns:
        1 if one of the conversations would be rejected, otherwise 0.

    Raises:
        UserError: if an option is wrong, or the tokenizer, the template or the input cannot be read.
    """
    options = _parse(arguments)

    import numpy as np
    from rich.console import Console
    from rich.text import Text

    from pipeline.artifacts import read_tokenizer_files
    from pipeline.first_records import checked_tokenizer, no_template, render
    from pipeline.show.text import as_text, legend, marked_spans, visible
    from transforms.model.outcomes import Reject
    from transforms.rows.parts import KINDS, kinds_of
    from transforms.tokens.strings import longest_of

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    with checked_tokenizer(options, read_tokenizer_files(options.tokenizer)) as checked:
        tokenizer, renderer = checked.tokenizer, checked.renderer(options)
    conversations = _first_conversations(options, renderer) if options.input else _built_in_conversations()
    found = list(conversations)
    first = next((example for _, example in found if not isinstance(example, Reject)), None)
    if first is None:
        why = f" The first record is rejected ({found[0][1].reason}): {found[0][1].detail}." if found else ""
        raise UserError(f"--input {','.join(options.input)}: there is no conversation among the first records.{why}")
    try:
        renderer.template.source(first.content)
    except RecordError:
        raise no_template(options) from None
    _print_template(console, renderer.turns, first.content)
    _print_stop_tokens(console, renderer.rules, tokenizer)
    _print_turn_endings(console, renderer.turns, first.content)
    if options.train_parts:
        console.print(legend())
    special_tokens = re.compile(longest_of(token.content for token in tokenizer.added_tokens_decoder.values()))
    rejected = untrained = 0
    for title, example in found:
        console.print(Text(f"\n{visible(title)}", "bold"))
        omitted: dict[Any, Any] = {}
        text = example if isinstance(example, Reject) else render(renderer, example, omitted)
        if isinstance(text, Reject):
            rejected += 1
            console.print(f"rejected ({text.reason}): {visible(text.detail)}", style="red", markup=False)
        for omissions in omitted.values():
            console.print(f"note: {omissions.reasoning_detail()}", style="yellow", markup=False)
        if isinstance(text, Reject):
            continue
        kinds = kinds_of(np.array(text.parts or [0] * len(text.spans), np.int32)).tolist()
        chosen = options.train_parts or KINDS
        trained_on = [span for span, kind in zip(text.spans, kinds, strict=True) if KINDS[kind] in chosen]
        if not any(start < stop for start, stop in trained_on):
            untrained += 1
            console.print("nothing in this conversation is trained on:", style="yellow")
        special = [match.span() for match in special_tokens.finditer(text.text)]
        console.print(as_text(marked_spans(text.text, trained_on, special, zip(text.spans, kinds, strict=True))))
    trained = len(found) - rejected - untrained
    console.print(
        f"\n{trained} of {len(found)} conversations have trained parts (between ⟦ and ⟧); {untrained} have none and "
        f"would be dropped; {rejected} would be rejected."
    )
    return int(rejected > 0)


def _parse(arguments: Sequence[str]) -> Options:
    """The options of a build that are given. Raises UserError."""
    parser = CommandParser(
        "masks",
        usage="--tokenizer NAME|URL [...]",
        description="Show which parts of conversations are trained on under a chat template.",
        examples=["--tokenizer Qwen/Qwen3-8B", "--tokenizer Qwen/Qwen3-8B --input chats/support.jsonl"],
    )
    reading = {field.name for field in options_in(ParseOptions)} - {*_OF_ROWS}
    shown = {*_OPTIONS, *reading, "input_format", "split", "max_record_bytes"}
    fields = {field.name: field for field in options_in(Options) if field.name in shown}
    for field in fields.values():
        add_option(parser, field)
    parser.add_argument(
        "--input",
        metavar="URL,..",
        type=parser_of("input", kinds.list_of()),
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


def _print_template(console: Any, finder: Any, conversation: Any) -> None:
    """Print what a template does at the start and the end of each turn."""
    if finder.follows_blocks(conversation):
        source = "marked by the template"
    else:
        source = "derived from the template, which has no generation markers"
    console.print(f"trained parts: {source}")
    facts = finder.facts(conversation)
    for what, text in (
        ("generation prompt", facts.prompt_after("user")),
        ("generation prompt after a tool's result", facts.prompt_after("tool")),
        ("header of earlier assistant turns", facts.header),
        ("end of a turn that is printed only before another turn", facts.separator or None),
    ):
        console.print(f"{what}: {'none' if text is None else repr(text)}", markup=False)


def _print_stop_tokens(console: Any, rules: Any, tokenizer: Any) -> None:
    """Print the stop tokens, how many tokens of the vocabulary each is, and where they were found."""
    if not rules.stop_tokens:
        found = "none; --eot_tokens names them, or generation_config.json next to the tokenizer"
    else:
        lengths = {text: len(tokenizer.encode(text, add_special_tokens=False)) for text in rules.stop_tokens}
        named = [f"{text!r}{'' if length == 1 else f' ({length} tokens)'}" for text, length in lengths.items()]
        found = f"{', '.join(named)}, from {'--eot_tokens' if rules.named else 'generation_config.json'}"
    console.print(f"stop tokens that are trained on if they follow an answer: {found}", markup=False)


# The kinds of turns whose end is shown, as in TemplateFacts.closings. Of the others, those that nothing closes are.
_SHOWN_ENDS = {(False, "user"): "an answer before a question", (False, None): "an answer at the end of the text"}
_OTHER_ENDS = {
    (False, "assistant"): "an answer before another one",
    (False, "tool"): "an answer before a tool's result",
    (True, "tool"): "a tool call before its result",
    (True, None): "a tool call at the end of the text",
}


def _print_turn_endings(console: Any, finder: Any, conversation: Any) -> None:
    """Print what closes an answer, and warn of what keeps a model from learning where its turns begin and end."""
    facts = finder.facts(conversation)
    for ending, what in (_SHOWN_ENDS | _OTHER_ENDS).items():
        closing = facts.closings[ending]
        if ending in _SHOWN_ENDS:
            console.print(f"end of {what}: {'unknown' if closing is None else repr(closing)}", markup=False)
        if ending in facts.open_endings:
            console.print(f"warning: nothing closes {what}, so a model does not learn to stop there", style="yellow")
    if finder.trains_on_headers(conversation):
        console.print(
            "warning: the template ignores add_generation_prompt, so the header of each answer is trained on",
            style="yellow",
        )


def _built_in_conversations() -> Iterator[tuple[str, Any]]:
    from transforms.model.examples import Conversation, Example

    for number, (title, messages, tools) in enumerate(_CONVERSATIONS):
        yield title, Example(number, Conversation(messages, tools), {}, False, b"")


def _first_conversations(options: Options, renderer: Any) -> Iterator[tuple[str, Any]]:
    """The first conversations of the user's files, each with its position and schema: an example, or a reject."""
    from pipeline.first_records import adapt, first_records
    from pipeline.recipe import files_of, read_sources
    from transforms.base.errors import RecordDropped
    from transforms.inputs.tasks import tasks_of
    from transforms.model.examples import Conversation, Example

    [source] = read_sources(options)
    shown = 0
    for url, place, found in first_records(source, tasks_of(files_of([source]), _LOOKED_AT), _LOOKED_AT):
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
