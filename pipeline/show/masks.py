"""What a chat template does with turns, and conversations with their trained parts marked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from rich.text import Text

from pipeline.first_records import render
from pipeline.show.printing import new_console
from pipeline.show.text import as_text, cut, legend
from transforms.base.hidden import visible
from transforms.model.examples import Conversation, Example
from transforms.model.outcomes import Reject
from transforms.rows.parts import KINDS, code_kinds
from transforms.steps.content_checks import ContentChecker
from transforms.steps.render import Renderer

# The kinds of turns whose end is shown, as in TemplateFacts.closings.
_ENDS = {
    (False, "user"): "an answer before a question",
    (False, None): "an answer at the end of the text",
    (False, "assistant"): "an answer before another one",
    (False, "tool"): "an answer before a tool's result",
    (True, "tool"): "a tool call before its result",
    (True, None): "a tool call at the end of the text",
}


def print_template(renderer: Renderer, tokenizer: Any, conversation: Conversation) -> None:
    """Print what the template of a renderer does for conversations such as one."""
    console, finder, rules = new_console(), renderer.turns, renderer.rules
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
    lengths = {text: len(tokenizer.encode(text, add_special_tokens=False)) for text in rules.stop_tokens}
    named = [f"{text!r}{'' if length == 1 else f' ({length} tokens)'}" for text, length in lengths.items()]
    listed = f"{', '.join(named)}, from {'--eot_tokens' if rules.named else 'generation_config.json'}"
    if not named:
        listed = "none; --eot_tokens names them, or generation_config.json next to the tokenizer"
    console.print(f"stop tokens that are trained on if they follow an answer: {listed}")
    for ending, what in _ENDS.items():
        closing = facts.closings[ending]
        shown = "unknown" if closing is None else repr(closing)
        console.print(
            f"end of {what}: {shown}{', which is appended' * bool(not ending[1] and facts.appended.get(ending[0]))}"
        )
        if ending in facts.open_endings:
            console.print(f"warning: nothing closes {what}, so a model does not learn to stop there", style="yellow")
    if finder.trains_on_headers(conversation):
        ignores = "the template ignores add_generation_prompt, so the header of each answer is trained on"
        console.print(f"warning: {ignores}", style="yellow")


def print_conversations(
    renderer: Renderer,
    checker: ContentChecker,
    conversations: Collection[tuple[str, Example | Reject]],
    train_parts: Collection[str] | None,
) -> int:
    """Print conversations with their trained parts marked, and how many have some.

    Args:
        renderer, checker: of a build.
        conversations: each with its title: an example, or why there is none.
        train_parts: the parts of turns that are trained on; None for all.

    Returns:
        How many would be rejected.
    """
    console = new_console()
    if train_parts:
        console.print(legend())
    rejected = untrained = 0
    for title, example in conversations:
        console.print(Text(f"\n{visible(title)}", "bold"))
        rendered = example if isinstance(example, Reject) else render(renderer, example)
        found = {} if isinstance(example, Reject) else checker.find(example.content)
        if isinstance(rendered, Reject):
            rejected += 1
            console.print(f"rejected ({rendered.reason}): {visible(rendered.detail)}", style="red")
            continue
        text, omissions = rendered.text, rendered.omissions
        for check, words in found.items():
            console.print(f"check {check.name}: {visible(words)}", style="yellow")
        if omissions.reasoning:
            console.print(f"note: {omissions.reasoning_detail()}", style="yellow")
        for name, _ in omissions.unread:
            console.print(f"note: the chat template does not read {visible(name)}", style="yellow")
        kinds = code_kinds(np.array(text.parts or [0] * len(text.spans), np.int32)).tolist()
        spans = [
            (start, stop, True, kind)
            for (start, stop), kind in zip(text.spans, kinds, strict=True)
            if start < stop and KINDS[kind] in (train_parts or KINDS)
        ]
        if not spans:
            untrained += 1
            console.print("nothing in this conversation is trained on:", style="yellow")
        console.print(as_text(cut(text.text, spans)))
    trained = len(conversations) - rejected - untrained
    console.print(
        f"\n{trained} of {len(conversations)} conversations have trained parts (between ⟦ and ⟧); {untrained} have "
        f"none and would be dropped; {rejected} would be rejected."
    )
    return rejected
