"""Turn tokens: what a chat template prints where a turn ends and another one begins, such as `<|im_end|>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from transforms.chat.conventions import DIALOGUE, PROBES, Template
from transforms.chat.message_map import MessageMap
from transforms.errors import RecordError
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
    between = "".join(text for messages in _DIALOGUES for text in _between_contents(_mapped(template, messages)))
    around = "".join(_around_last(_mapped(template, PROBES["tool"])))
    found = {*special_token.findall(between), *re.findall(_MARKER, between), *special_token.findall(around)}
    return frozenset(token for token in found if not _OF_REASONING.search(token))


def _mapped(template: Template, messages: list[dict[str, Any]]) -> MessageMap | None:
    """What is printed for messages of our own; None if the template refuses them, or prints them in another way."""
    conversation = Conversation(messages)
    try:
        text = template.render(conversation)
        found = template.map_messages(conversation, text)
    except RecordError:
        return None
    return found if found.text == text else None


def _between_contents(message_map: MessageMap | None) -> Iterator[str]:
    """What is printed after each content, up to the next one."""
    if message_map:
        text, contents = message_map.text, [*sorted(message_map.contents.values()), (None, None)]
        yield from (text[end:start] for (_, end), (start, _) in pairwise(contents))


def _around_last(message_map: MessageMap | None) -> Iterator[str]:
    """What is printed for the last message that has a content, before and after that."""
    if message_map and message_map.contents:
        last = max(message_map.contents)
        start, end = message_map.contents[last]
        first = message_map.pieces_of_messages().get(last, [(start, end)])[0][0]
        yield from (message_map.text[first:start], message_map.text[end:])
