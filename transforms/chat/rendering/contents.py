"""Contents: every text that a record gives to a chat template, and where the template prints text of its own.

Contents are the texts of messages, with those of their calls, of the tools, and of the record's arguments of the
template. The role of a message is not a content: it is one of a few words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from transforms.chat.rendering.provenance import Run, is_copy, sourced
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span


class Content(NamedTuple):
    """A text that a record gives.

    Attributes:
        place: where it is, such as `messages[1]`.
        role: of its message; the same as place if it is in none.
        text: the text.
    """

    place: str
    role: str
    text: str


def contents_of_messages(conversation: Conversation) -> Iterator[Content]:
    """Give the contents of the messages of a conversation, in their order."""
    if plain := conversation.plain:  # they need not be decoded
        for number, (role, text) in enumerate(zip(*plain, strict=True)):
            yield Content(f"messages[{number}]", role, text)
        return
    for number, message in enumerate(conversation.messages):
        for key, value in message.items():
            if key != "role":
                yield from (Content(f"messages[{number}]", message["role"], text) for text in _texts_in(value))


def contents_of_value(place: str, value: Any) -> Iterator[Content]:
    """Give the contents of a value that is in no message: all strings in it."""
    return (Content(place, place, text) for text in _texts_in(value))


def _texts_in(value: Any) -> Iterator[str]:
    left = [value]  # no recursion: a record may be nested more deeply than Python calls functions
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += reversed([*value, *value.values()])
        elif isinstance(value, list):
            left += reversed(value)


def with_sourced_contents(values: Mapping[str, Any], conversation: Conversation) -> dict[str, Any]:
    """Give the contents of a conversation their sources, see `provenance`: each has its number and its text as key.

    Args:
        values: the variables of the template.
        conversation: whose contents they have.

    Returns:
        The variables with the contents.
    """
    numbers = count()

    def with_source(value: Any) -> Any:
        if isinstance(value, str):
            return sourced(value, (next(numbers), value))
        if isinstance(value, Mapping):
            return {with_source(name): with_source(item) for name, item in value.items()}
        return [with_source(item) for item in value] if isinstance(value, list) else value

    messages = [
        {key: value if key == "role" else with_source(value) for key, value in message.items()}
        for message in values["messages"]
    ]
    own = {name: with_source(values[name]) for name in ("tools", *conversation.template_kwargs)}
    return {**values, **own, "messages": messages}


def parts_of_template(text: str, runs: Sequence[Run], token: re.Pattern[str]) -> list[Span]:
    """Find what of a text the template printed as its own.

    Args:
        text: what a template printed for variables with sourced contents.
        runs: its runs.
        token: matches the strings of which it matters whether they are the template's own.

    Returns:
        The (start, stop) of each part, ascending and not adjacent.

    Raises:
        RecordError: if one of the strings is in a piece that the template made of contents in a way that is not
            followed, and is not in these contents.
    """
    parts: list[Span] = []
    at = 0
    for length, sources in runs:
        if not sources:
            start = parts.pop()[0] if parts and parts[-1][1] == at else at
            parts.append((start, at + length))
        elif not is_copy(length, sources):
            made = Counter(token.findall(text, at, at + length))
            given = Counter(one for (_, content), start, stop in sources for one in token.findall(content, start, stop))
            if made - given:
                found = f"the template prints {next(iter(made - given))} in a piece that it makes of contents"
                raise RecordError("special_tokens_in_content", f"{found}, so it is unknown which are its own")
        at += length
    return parts
