"""Unread keys: what messages say under keys that the chat template does not print, and trained turns that are empty.

Which keys a template reads is not known before it is rendered, so that the text decides: what is in it was read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from transforms.chat.turns import loss_of, trained_turns
from transforms.errors import RecordError
from transforms.inputs.unread import ReadTexts, has_text, kind_of_name, texts_in
from transforms.model.batches import Texts
from transforms.model.examples import REASONING_KEYS, Conversation, PromptCompletion, Text
from transforms.model.outcomes import Reject
from transforms.model.statistics import Statistics, sum_of_unread

# Other modules judge these: contents, calls and reasoning that are not printed are omissions.
_OF_MESSAGES = {"role", "content", "tool_calls", "tool_call_id", "name", "weight", *REASONING_KEYS}
_OF_PARTS = {"type", "text", "weight"}
_ALL_PRINTED: Mapping[str, int] = {}
_OF_CALLS = {"id", "type", "function", "name", "arguments"}


class _Key(NamedTuple):
    """A key with text that is not printed: of the message with a number."""

    message: int
    key: str
    name: str  # as it is counted
    characters: int


def check_keys(texts: Texts, unprinted: str, loss_on: str) -> Texts:
    """Count the keys of messages that have text and are not printed, and the records with trained turns that are empty.

    Args:
        texts: of the examples of a part, as the chat template prints them.
        unprinted: `reject`, or `report`, which counts only.
        loss_on: what is trained on, one of LOSSES.

    Returns:
        The texts, without those of records that are rejected, see unread_keys.
    """
    rejects: dict[int, Reject] = {}
    unread: list[Mapping[str, int]] = []
    empty: list[int] = []
    for text in texts.texts:
        content = text.example.content
        if type(content) is Conversation:
            messages = content.lazy_messages
            if type(messages) is tuple:  # they have no other keys, and most have no empty text
                if all(messages[1]) and True not in map(str.isspace, messages[1]):
                    continue
            else:
                try:
                    if keys := unread_keys(text, unprinted):
                        unread.append(keys)
                except RecordError as error:
                    rejects.setdefault(text.example.position, text.example.rejected(error))
                if not any(message["role"] == "assistant" and _is_empty(message) for message in content.messages):
                    continue
            if any(_is_empty(content.messages[turn]) for turn in trained_turns(content, loss_of(content, loss_on))):
                empty.append(text.example.position)
        elif type(content) is PromptCompletion and loss_on != "all" and not content.completion.strip():
            empty.append(text.example.position)
    outcomes = texts.outcomes.reject([*rejects.values()]).count(Statistics(unread=sum_of_unread(unread)))
    if empty := [position for position in dict.fromkeys(empty) if position not in rejects]:
        found = "it is trained on a turn without content, call or reasoning: only on the end of the turn"
        outcomes = outcomes.note("empty_answers", len(empty), (empty[0], found))
    kept = [text for text in texts.texts if text.example.position not in rejects] if rejects else texts.texts
    return replace(texts, texts=kept, outcomes=outcomes)


def unread_keys(text: Text, unprinted: str) -> Mapping[str, int]:
    """Count the characters of the keys of a conversation's messages that are not printed, by the names of the keys.

    Args:
        text: of a conversation, as the chat template prints it.
        unprinted: as of check_keys.

    Raises:
        RecordError: with `reject`, if a message has a key that names an answer, a prompt, tools or reasoning; or if it
            has no content, no call and no reasoning, and a key with any text.
    """
    content: Any = text.example.content
    messages = content.lazy_messages
    if type(messages) is tuple or not (keys := _unread_keys(messages, text.text)):
        return _ALL_PRINTED
    if unprinted == "reject" and (lost := _lost(keys, messages)):
        raise lost
    sums = Counter[str]()
    for key in keys:
        sums[key.name] += key.characters
    return sums


def _unread_keys(messages: Sequence[Mapping[str, Any]], printed: str) -> list[_Key]:
    """Find the keys of messages, of their parts and of their calls that have text which is not printed."""
    found: list[_Key] = []
    for number, message in enumerate(messages):
        if _is_usual(message):
            continue
        for key, name, value in _further_keys(message):
            if kind_of_name(key) != "metadata" and has_text(value, key):
                read = ReadTexts([printed])
                texts = texts_in(value, key)
                unread = [text for text in texts if not read.have(text) and not read.have(_as_json(text))]
                found += [_Key(number, key, name, sum(map(len, unread)))] * bool(unread)
    return found


def _is_usual(message: Mapping[str, Any]) -> bool:
    """Whether a message has certainly no further keys, as most have."""
    calls = message.get("tool_calls") or []
    if type(message.get("content")) is list or type(calls) is not list or not message.keys() <= _OF_MESSAGES:
        return False
    for call in calls:
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or not call.keys() <= _OF_CALLS or not function.keys() <= _OF_CALLS:
            return False
    return True


def _further_keys(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Give the keys that other modules do not judge: the key, the name by which it is counted, and its value."""
    if not message.keys() <= _OF_MESSAGES:
        yield from ((key, f"messages[].{key}", message[key]) for key in message if key not in _OF_MESSAGES)
    inner = [("content", message.get("content"), _OF_PARTS), ("tool_calls", message.get("tool_calls"), _OF_CALLS)]
    for outer, items, known in inner:
        for item in items if isinstance(items, list) else ():
            if isinstance(item, Mapping):
                for at in (item, item.get("function")):
                    if isinstance(at, Mapping) and not at.keys() <= known:
                        yield from ((key, f"messages[].{outer}[].{key}", at[key]) for key in at if key not in known)


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _lost(keys: Sequence[_Key], messages: Sequence[Mapping[str, Any]]) -> RecordError | None:
    """Why a record is rejected for what is not printed; None if it is only counted."""
    for number, key, name, _ in keys:
        kind = kind_of_name(key)
        if kind is None and not _is_empty(messages[number]):
            continue
        field = {"reasoning": "reasoning_content", "tools": "tool_calls"}.get(kind or "", "content")
        return RecordError(
            "not_printed",
            f"the chat template does not print the {key} of messages[{number}] ({name}); give another name with "
            f"message_fields, such as {field}={key}, or keep such records and count them (unprinted: report)",
        )
    return None


def _is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message has no content, no call and no reasoning."""
    content = message.get("content")
    if (type(content) is str and content and not content.isspace()) or message.get("tool_calls"):
        return False
    return not any(has_text(message.get(key)) for key in ("content", *REASONING_KEYS))
