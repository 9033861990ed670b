"""chatmill masks: shows which parts of conversations are trained on under a chat template, before a build."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.cli.console import CommandParser, unknown_option
from pipeline.cli.options import add_option
from pipeline.config import Options
from transforms.base import kinds
from transforms.base.declaring import options_in
from transforms.base.errors import RecordDropped, RecordError, UserError
from transforms.inputs.input_options import ParseOptions

_SHOWN = 5
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

    from pipeline.artifacts import (
        check_configured_stop_tokens,
        check_stop_tokens,
        check_tokenizer,
        read_tokenizer_files,
        resolve_template,
    )
    from pipeline.show.text import as_text, legend, marked_spans, visible
    from transforms.chat.config import RenderConfig
    from transforms.chat.rendering.template import NO_TEMPLATE, load_template
    from transforms.chat.spans.stop_tokens import load_turn_rules
    from transforms.chat.spans.turns import TurnFinder
    from transforms.model.examples import attempt
    from transforms.model.outcomes import Reject
    from transforms.rows.parts import KINDS, kinds_of
    from transforms.steps.render import Omitted, Renderer
    from transforms.storage.files import join
    from transforms.storage.writing import write_atomically
    from transforms.tokens.strings import longest_of

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in read_tokenizer_files(options["tokenizer"]).items():
            write_atomically(join(folder, name), content)
        tokenizer = check_tokenizer(folder, options["tokenizer"])
        if not options["eot_tokens"]:
            check_configured_stop_tokens(folder, options["tokenizer"])
        check_stop_tokens(options["eot_tokens"], tokenizer)
        config = RenderConfig(
            tokenizer=folder,
            chat_template=resolve_template(options["chat_template"], tokenizer),
            now=datetime.now().isoformat(),
            loss_on=options["loss_on"],
            eot_tokens=options["eot_tokens"],
            after_end=options["after_end"],
            train_parts=options["train_parts"],
            engine="reference",
        )
        renderer, template, rules = Renderer(config), load_template(config), load_turn_rules(config)
    finder = TurnFinder(template, rules)
    found = list(_conversations_of(options, template) if options["input"] else _built_in_conversations())
    first = next((example for _, example in found if not isinstance(example, Reject)), None)
    if first is None:
        why = f" The first record is rejected ({found[0][1].reason}): {found[0][1].detail}." if found else ""
        raise UserError(f"--input {options['input']}: there is no conversation among the first records.{why}")
    for _, example in found:
        try:
            if not isinstance(example, Reject):
                template.render(example.content)
        except RecordError as error:  # others are shown below
            if error.reason == "no_chat_template":
                advice = "give it with --chat_template."
                raise UserError(f"--tokenizer {options['tokenizer']}: {NO_TEMPLATE}: {advice}") from None
    _print_template(console, finder, first.content)
    _print_stop_tokens(console, rules, tokenizer)
    _print_turn_endings(console, finder, first.content)
    if options["train_parts"]:
        console.print(legend())
    special_tokens = re.compile(longest_of(token.content for token in tokenizer.added_tokens_decoder.values()))
    rejected = untrained = 0
    for title, example in found:
        console.print(Text(f"\n{visible(title)}", "bold"))
        omitted: Omitted = {}
        render = functools.partial(_render, renderer, omitted)
        texts, rejects = ([], [example]) if isinstance(example, Reject) else attempt([example], render)
        for reject in rejects:
            rejected += 1
            console.print(f"rejected ({reject.reason}): {visible(reject.detail)}", style="red", markup=False)
        for omissions in omitted.values():
            console.print(f"note: {omissions.reasoning_detail()}", style="yellow", markup=False)
        for text in texts:
            kinds = kinds_of(np.array(text.parts or [0] * len(text.spans), np.int32)).tolist()
            chosen = options["train_parts"] or KINDS
            trained_on = [span for span, kind in zip(text.spans, kinds, strict=True) if KINDS[kind] in chosen]
            if not any(start < stop for start, stop in trained_on):
                untrained += 1
                console.print("nothing in this conversation is trained on:", style="yellow")
            special = [match.span() for match in special_tokens.finditer(text.text)]
            of_parts = zip(text.spans, kinds, strict=True)
            console.print(as_text(marked_spans(text.text, trained_on, special, of_parts)))
    trained = len(found) - rejected - untrained
    console.print(
        f"\n{trained} of {len(found)} conversations have trained parts (between ⟦ and ⟧); {untrained} have none and "
        f"would be dropped; {rejected} would be rejected."
    )
    return int(rejected > 0)


def _render(renderer: Any, omitted: Any, example: Any) -> Any:
    return renderer.check_keys(renderer.check_special_tokens(renderer.render(example, omitted)))


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The value of each option, None for one that is not given and has no default. Raises UserError."""
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
        help=f"files of your conversations, or a dataset on the Hub, of which the first {_SHOWN} are shown (default: "
        f"{len(_CONVERSATIONS)} built-in conversations)",
    )
    known, rest = parser.parse_known_args(arguments)
    for word in rest:
        if not word.startswith("--"):
            raise UserError(f"unexpected argument {word}. Conversations need their option: --input {word}")
        raise unknown_option("masks", word.removeprefix("--").partition("=")[0], [*fields, "input"])
    options = {"input": None} | {name: field.default for name, field in fields.items()} | vars(known)
    if not options["tokenizer"]:
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


def _conversations_of(options: Mapping[str, Any], template: Any) -> Iterator[tuple[str, Any]]:
    """The first conversations of the user's files, each with its position and schema: an example, or a reject."""
    import msgspec

    from transforms.chat.rendering.adapting import adapted
    from transforms.inputs.formats import input_format
    from transforms.inputs.listing import list_inputs
    from transforms.inputs.tasks import tasks_of
    from transforms.model.examples import Conversation, attempt
    from transforms.steps.parse import Parser
    from transforms.steps.read import read_task

    parsing = {field.name: options[field.name] for field in options_in(ParseOptions) if field.name not in _OF_ROWS}
    parser, shown = Parser(**parsing), 0
    inputs = list_inputs(kinds.list_of().parse(options["input"]), options["input_format"], "input", options["split"])
    for task in tasks_of(inputs, 1 << 20):
        for record in next(read_task(task, 1 << 20, options["max_record_bytes"], is_look=True)).records:
            piece, in_file = task.origin(record.position)
            position = f"{Path(piece.url).name}, {input_format(piece.format).position_unit} {in_file:,}"
            try:
                examples, rejects = attempt([record], parser.parse)
            except RecordDropped as drop:
                print(f"{position}: dropped ({drop.reason})", file=sys.stderr)
                continue
            if rejects or isinstance(content := examples[0].content, Conversation):
                if not rejects:
                    position += f", as {examples[0].schema}"
                    with suppress(RecordError):  # which rendering finds again
                        examples = [msgspec.structs.replace(examples[0], content=adapted(content, template)[0])]
                yield position, (rejects or examples)[0]
                shown += 1
                if shown == _SHOWN:
                    return
