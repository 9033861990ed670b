"""Content forms: whether a chat template reads the content of a role as a string, as a list of text parts, or as both.

Templates of vision models read parts only, and print nothing for a string. Other templates read strings only, and print
a list as Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

_QUESTION = {"role": "user", "content": "parts or text?"}
_FUNCTION = {"name": "look", "arguments": {"at": "it"}}
_CALLS = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [{"id": "call00000", "type": "function", "function": _FUNCTION}],
}
_PROBES: dict[str, list[dict[str, Any]]] = {
    "user": [_QUESTION],
    "assistant": [_QUESTION, {"role": "assistant", "content": "Both."}],
    "system": [{"role": "system", "content": "Answer."}, _QUESTION],
    "developer": [{"role": "developer", "content": "Answer."}, _QUESTION],
    "tool": [_QUESTION, _CALLS, {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "seen"}],
}


class ContentForms(NamedTuple):
    """The forms of content that a template reads.

    Attributes:
        strings: whether it reads strings, so that they are given as they are.
        parts: whether it reads text parts.
    """

    strings: bool
    parts: bool


def find_content_forms(role: str, printed: Callable[[list[dict[str, Any]], int], bool]) -> ContentForms:
    """Find the forms of content that a template reads in messages of a role.

    Args:
        role: of the messages.
        printed: takes messages and the number of one of them; returns whether the content of that one is printed as it
            is.
    """
    messages = _PROBES.get(role) or [{**_QUESTION, "role": role}]
    number = next(at for at, message in enumerate(messages) if message["role"] == role)
    in_parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
    string, part = printed(messages, number), printed(in_parts, number)
    if not string and not part:
        # Some templates read the contents of other roles in another form.
        string = printed([*in_parts[:number], messages[number], *in_parts[number + 1 :]], number)
        part = printed([*messages[:number], in_parts[number], *messages[number + 1 :]], number)
    return ContentForms(strings=string or not part, parts=part)
