"""Texts of a record that are compared with others: what users, assistants and tools say, without system prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import mul
from typing import Any

from transforms.model.examples import REASONING_KEYS, Content, PlainText, PromptCompletion, TokenRow

# Of those who write the instructions of a conversation, which a whole corpus may share.
_NOT_COMPARED = ("system", "developer")


def compared(content: Content) -> tuple[Sequence[str], Sequence[str]]:
    """Return the roles of messages, and the text of each, with its reasoning; empty if it is not compared.

    Args:
        content: of an example. A prompt is of a user, and a completion or a text of an assistant; token ids have none.
    """
    if isinstance(content, PlainText):
        return ("assistant",), (content.text,)
    if isinstance(content, PromptCompletion):
        return ("user", "assistant"), (content.prompt, content.completion)
    if isinstance(content, TokenRow):
        return (), ()
    if found := content.plain:
        roles, texts = found
        return roles, [*map(mul, texts, _are_compared(roles))]
    messages = content.messages
    return [message["role"] for message in messages], ["\n".join(_texts_of(message)) for message in messages]


@lru_cache(1024)
def _are_compared(roles: tuple[str, ...]) -> tuple[bool, ...]:
    """For each message, by its role, whether it is compared."""
    return tuple(role not in _NOT_COMPARED for role in roles)


def _texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """The reasoning and the texts of a message."""
    if message["role"] in _NOT_COMPARED:
        return
    for key in (*REASONING_KEYS, "content"):
        value = message.get(key)
        for part in value if isinstance(value, list) else [value]:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
