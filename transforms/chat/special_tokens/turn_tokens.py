"""Turn tokens: what a chat template prints where a turn ends and another one begins, such as `<|im_end|>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from transforms.chat.rendering.renderings import Rendering
from transforms.chat.spans.conventions import DIALOGUE, PROBES, Template, rendering_of
from transforms.model.examples import Conversation

_MARKER = r"(?:<[^<>\s]{1,40}>|\[/?[A-Za-z_]{1,40}\])"
_SYSTEM = {"role": "system", "content": "Be kind."}
_ANSWER = {"role": "assistant", "content": "You are welcome."}
# Some templates refuse a system message.
_DIALOGUES = ([_SYSTEM, *DIALOGUE, _ANSWER, DIALOGUE[2]], [*DIALOGUE, _ANSWER, DIALOGUE[2]])
# Templates open and close the reasoning before an answer. A model writes these itself.
_OF_REASONING = re.compile("think|thought|reason", re.IGNORECASE)


def find_turn_tokens(template: Template, special_token: re.Pattern[str]) -> frozenset[str]:
    """Find what a chat template prints where turns end and begin.

    Args:
        template: the chat template.
        special_token: matches the special tokens of the tokenizer.

    Returns:
        The special tokens, and markers of ordinary text such as `[INST]`, between the contents of a dialogue; and the
        special tokens around the answer of a tool.
    """
    dialogues = [rendering_of(template, Conversation(messages)) for messages in _DIALOGUES]
    between = "".join(text for dialogue in dialogues for text in _between_contents(dialogue))
    around = "".join(_around_last(rendering_of(template, Conversation(PROBES["tool"]))))
    found = {*special_token.findall(between), *re.findall(_MARKER, between), *special_token.findall(around)}
    return frozenset(token for token in found if not _OF_REASONING.search(token))


def _between_contents(rendering: Rendering | None) -> Iterator[str]:
    """What is printed after each content, up to the next one."""
    if rendering:
        text, contents = rendering.text, [*sorted(rendering.contents.values()), (None, None)]
        yield from (text[end:start] for (_, end), (start, _) in pairwise(contents))


def _around_last(rendering: Rendering | None) -> Iterator[str]:
    """What is printed for the last message that has a content, before and after that."""
    if rendering and rendering.contents:
        last = max(rendering.contents)
        start, end = rendering.contents[last]
        first = rendering.pieces_of_messages().get(last, [(start, end)])[0][0]
        yield from (rendering.text[first:start], rendering.text[end:])
