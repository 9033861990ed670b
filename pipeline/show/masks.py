"""What a chat template does with turns, and conversations with their trained parts marked."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from pipeline.first_records import render
from pipeline.show.printing import new_console
from pipeline.show.text import as_text, legend, marked_spans, visible
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Conversation, Example
from transforms.model.outcomes import Reject
from transforms.rows.parts import KINDS, kinds_of
from transforms.steps.render import Omitted, Renderer
from transforms.tokens.strings import longest_of


def print_template(renderer: Renderer, tokenizer: Any, conversation: Conversation) -> None:
    """Print what a chat template does for conversations such as one.

    Args:
        renderer: has the template.
        tokenizer: of transformers.
        conversation: the first one.
    """
    console = new_console()
    _print_starts(console, renderer.turns, conversation)
    _print_stop_tokens(console, renderer.rules, tokenizer)
    _print_turn_endings(console, renderer.turns, conversation)


def print_conversations(
    renderer: Renderer,
    tokenizer: Any,
    found: Collection[tuple[str, Example | Reject]],
    train_parts: Collection[str] | None,
) -> int:
    """Print conversations with their trained parts marked, and how many have some.

    Args:
        renderer: of the options.
        tokenizer: of transformers.
        found: each with its title: an example, or why there is none.
        train_parts: the parts of turns that are trained on; None for all.

    Returns:
        How many would be rejected.
    """
    console = new_console()
    if train_parts:
        console.print(legend())
    special_tokens = re.compile(longest_of(token.content for token in tokenizer.added_tokens_decoder.values()))
    rejected = untrained = 0
    for title, example in found:
        console.print(Text(f"\n{visible(title)}", "bold"))
        omitted: Omitted = {}
        text = example if isinstance(example, Reject) else render(renderer, example, omitted)
        if isinstance(text, Reject):
            rejected += 1
            console.print(f"rejected ({text.reason}): {visible(text.detail)}", style="red")
        for omissions in omitted.values():
            console.print(f"note: {omissions.reasoning_detail()}", style="yellow")
        if isinstance(text, Reject):
            continue
        kinds = kinds_of(np.array(text.parts or [0] * len(text.spans), np.int32)).tolist()
        trained_on = [
            span for span, kind in zip(text.spans, kinds, strict=True) if KINDS[kind] in (train_parts or KINDS)
        ]
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
    return rejected


def _print_starts(console: Console, finder: TurnFinder, conversation: Conversation) -> None:
    """Print what a template does at the start of each turn."""
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
        console.print(f"{what}: {'none' if text is None else repr(text)}")


def _print_stop_tokens(console: Console, rules: TurnRules, tokenizer: Any) -> None:
    """Print the stop tokens, how many tokens of the vocabulary each is, and where they were found."""
    if not rules.stop_tokens:
        found = "none; --eot_tokens names them, or generation_config.json next to the tokenizer"
    else:
        lengths = {text: len(tokenizer.encode(text, add_special_tokens=False)) for text in rules.stop_tokens}
        named = [f"{text!r}{'' if length == 1 else f' ({length} tokens)'}" for text, length in lengths.items()]
        found = f"{', '.join(named)}, from {'--eot_tokens' if rules.named else 'generation_config.json'}"
    console.print(f"stop tokens that are trained on if they follow an answer: {found}")


# The kinds of turns whose end is shown, as in TemplateFacts.closings. Of the others, those that nothing closes are.
_SHOWN_ENDS = {(False, "user"): "an answer before a question", (False, None): "an answer at the end of the text"}
_OTHER_ENDS = {
    (False, "assistant"): "an answer before another one",
    (False, "tool"): "an answer before a tool's result",
    (True, "tool"): "a tool call before its result",
    (True, None): "a tool call at the end of the text",
}


def _print_turn_endings(console: Console, finder: TurnFinder, conversation: Conversation) -> None:
    """Print what closes an answer, and warn of what keeps a model from learning where its turns begin and end."""
    facts = finder.facts(conversation)
    for ending, what in (_SHOWN_ENDS | _OTHER_ENDS).items():
        closing = facts.closings[ending]
        if ending in _SHOWN_ENDS:
            console.print(f"end of {what}: {'unknown' if closing is None else repr(closing)}")
        if ending in facts.open_endings:
            console.print(f"warning: nothing closes {what}, so a model does not learn to stop there", style="yellow")
    if finder.trains_on_headers(conversation):
        console.print(
            "warning: the template ignores add_generation_prompt, so the header of each answer is trained on",
            style="yellow",
        )
