"""Unread keys: what a record says that the chat template does not print, and trained turns that are empty.

Which keys a template reads is not known before it is rendered, so that the text decides. What is not in it, in any of
the forms in which templates print texts, was not read. What is in it may be there by chance, or since another message
says it: then the rendering with sources says whether it was printed for the key.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.chat.rendering.arguments import names_read
from transforms.chat.rendering.omissions import gaps_between
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.loss import loss_of, trained_turns
from transforms.model.batches import Texts
from transforms.model.counts import Statistics
from transforms.model.examples import REASONING_KEYS, Conversation, PromptCompletion, Text, attempt
from transforms.model.outcomes import Reject
from transforms.model.statistics import sum_of_unread
from transforms.records.unread import has_text, kind_of_name, strings_in, texts_in, texts_of_argument
from transforms.steps.unread_tools import UnreadTools, not_in

# Other modules judge these: contents, calls and reasoning that are not printed are omissions.
_USUAL = {"role", "content", "tool_calls", "tool_call_id", "weight"}
_WITHOUT_REASONING = {*_USUAL, "name"}
_OF_MESSAGES = {*_USUAL, *REASONING_KEYS}
_WITH_NAME = {*_OF_MESSAGES, "name"}
_NESTED = "messages[].tool_calls[].arguments"
_WITH_PARTS = ("content", "tool_calls")
_OF_PARTS = {"type", "text", "weight"}
_ALL_PRINTED: Mapping[str, int] = {}
_OF_CALLS = {"id", "type", "function", "name", "arguments"}
# Keys that never reject a record: it is usual that a template does not print them.
_COUNTED = {"name", "arguments", *REASONING_KEYS}


class _Printed:
    """What of the texts of one conversation is printed.

    Args:
        template: the chat template.
        text: of the conversation.

    Attributes:
        text: what is printed.
    """

    def __init__(self, template: ChatTemplate, text: Text):
        self.text = text.text
        self._template, self._example = template, text.example

    def unread(self, message: int, key: str, texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those texts of a key that are not printed, with their names.

        Args:
            message: the number of the message.
            key: of the message.
            texts: each with the name by which it is counted.
        """
        texts = [*texts]
        unread = not_in(self.text, texts)
        if len(unread) == len(texts) or self._sources is None:
            return unread
        keys = REASONING_KEYS if key in REASONING_KEYS else (key,)  # transformers copies it to the others
        return [
            (name, text)
            for name, text in texts
            if (name, text) in unread or not any((message, one, text) in self._sources for one in keys)
        ]

    @functools.cached_property
    def _sources(self) -> set[tuple[int | None, str, str]] | None:
        """The message, the key and the text of each text that is printed; None if that is not known."""
        content: Any = self._example.content
        try:
            rendering = self._template.rendering_of_all_texts(content, self.text)
        except (RecordError, RecursionError):
            return None
        if not rendering.knows_texts:
            return None
        return {
            (message, named[0], text)
            for (message, _, named, text), ranges in rendering.printed.items()
            if not any(text[start:stop].strip() for start, stop in gaps_between(text, ranges))
        }


class _Key(NamedTuple):
    """A key with text that is not printed: of the message with a number."""

    message: int
    key: str
    name: str  # as it is counted
    characters: int


def check_keys(
    texts: Texts,
    template: ChatTemplate,
    unprinted: str,
    loss_on: str,
    template_kwargs: Mapping[str, Any] | None = None,
) -> Texts:
    """Count the keys that have text and are not printed, and the records with trained turns that are empty.

    Args:
        texts: of the examples of a chunk, as the chat template prints them.
        template: the chat template.
        unprinted: `reject`, or `report`, which counts only.
        loss_on: what is trained on, one of LOSSES.
        template_kwargs: arguments of the template that the job gives.

    Returns:
        The texts, without those of records that are rejected, see unread_keys.
    """
    rejects: dict[int, Reject] = {}
    unread: list[Mapping[str, int]] = []
    empty: list[int] = []
    tools = UnreadTools()
    given = {name: value for name, value in (template_kwargs or {}).items() if any(texts_of_argument(name, value))}
    for text in texts.texts:
        content = text.example.content
        if type(content) is Conversation:
            messages = content.lazy_messages
            has_keys = type(messages) is not tuple
            if has_keys or content.tools or content.template_kwargs or given:
                found, failed = _attempted(text, template, unprinted, tools, given)
                unread += [keys for keys in found if keys]
                for reject in failed:
                    rejects.setdefault(reject.position, reject)
            if not has_keys:  # most of them have no empty text
                if all(messages[1]) and True not in map(str.isspace, messages[1]):
                    continue
            elif not any(message["role"] == "assistant" and _is_empty(message) for message in content.messages):
                continue
            if any(_is_empty(content.messages[turn]) for turn in trained_turns(content, loss_of(content, loss_on))):
                empty.append(text.example.position)
        elif type(content) is PromptCompletion and loss_on != "all" and not content.completion.strip():
            empty.append(text.example.position)
    outcomes = texts.outcomes.reject([*rejects.values()]).plus(statistics=Statistics(unread=sum_of_unread(unread)))
    if empty := [position for position in dict.fromkeys(empty) if position not in rejects]:
        what = "it is trained on a turn without content, call or reasoning: only on the end of the turn"
        outcomes = outcomes.note("empty_answers", len(empty), (empty[0], what))
    kept = [text for text in texts.texts if text.example.position not in rejects] if rejects else texts.texts
    return replace(texts, texts=kept, outcomes=outcomes)


def _attempted(text: Text, *others: Any) -> tuple[list[Mapping[str, int]], list[Reject]]:
    """What unread_keys returns; or the reject, whatever it raises."""
    return attempt([text.example], lambda _: unread_keys(text, *others))


def unread_keys(
    text: Text,
    template: ChatTemplate,
    unprinted: str,
    tools: UnreadTools | None = None,
    template_kwargs: Mapping[str, Any] = _ALL_PRINTED,
) -> Mapping[str, int]:
    """Count the characters of what a conversation says that is not printed, by the names of the keys that say it.

    Args:
        text: of a conversation, as the chat template prints it.
        template: the chat template.
        unprinted: as of check_keys.
        tools: what is known of the tool definitions of other texts.
        template_kwargs: as of check_keys.

    Raises:
        RecordError: with `reject`, if a message has a key that names an answer, a prompt, tools or reasoning; or if it
            has no content, no call and no reasoning, and a key with any text.
    """
    content: Any = text.example.content
    messages = content.lazy_messages
    printed = _Printed(template, text)
    keys = [] if type(messages) is tuple else _unread_keys(messages, printed)
    if keys and unprinted == "reject" and (lost := _lost(keys, messages)):
        raise lost
    others = (tools or UnreadTools()).find(content.tools, text.text) if content.tools else []
    if arguments := {**template_kwargs, **content.template_kwargs}:
        read = names_read(template.source(content))
        for key, value in arguments.items():
            texts = [(f"chat_template_kwargs.{key}", one) for one in texts_of_argument(key, value)]
            others += not_in(text.text, texts) if key in read else texts
    if not keys and not others:
        return _ALL_PRINTED
    sums = Counter[str]()
    for key in keys:
        sums[key.name] += key.characters
    for name, unread in others:
        sums[name] += len(unread)
    return sums


def _unread_keys(messages: Sequence[Mapping[str, Any]], printed: _Printed) -> list[_Key]:
    """Find the keys of messages, of their parts and of their calls that have text which is not printed."""
    found: list[_Key] = []
    called: set[str] = set()
    for number, message in enumerate(messages):
        if _is_usual(message, called):
            continue
        for key, name, value in _further_keys(message):
            if kind_of_name(key) != "metadata" and has_text(value, key):
                texts = strings_in(value) if kind_of_name(key) == "tools" else texts_in(value, key)
                named = [(name, text) for text in texts]
                if name == _NESTED:  # whether any of them is printed is an omission
                    left = not_in(printed.text, named)
                else:
                    outer = next((one for one in _WITH_PARTS if name.startswith(f"messages[].{one}[].")), key)
                    left = printed.unread(number, outer, named)
                unread = sum(len(text) for _, text in left)
                found += [_Key(number, key, name, unread)] * bool(unread)
    return found


def _is_usual(message: Mapping[str, Any], called: set[str]) -> bool:
    """Whether a message has certainly no further keys, as most have.

    called: takes the names of its calls. If they are not printed, that is an omission, so that a message of a tool with
        such a name has nothing else to print.
    """
    content = message.get("content")
    if len(message) == 2 and type(content) is str:
        return True
    calls = message.get("tool_calls") or ()
    if type(content) is list or (calls and type(calls) is not list):
        return False
    for call in calls:
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or not call.keys() <= _OF_CALLS or not function.keys() <= _OF_CALLS:
            return False
        called.add(str(function.get("name")))
        if type(arguments := function.get("arguments")) is dict:
            for value in arguments.values():
                if type(value) is dict or type(value) is list:
                    return False
    keys = message.keys()
    if keys <= _USUAL:
        return True
    if not keys <= _WITHOUT_REASONING and not all(type(message.get(key, "")) is str for key in REASONING_KEYS):
        return False
    if message["role"] == "tool" and isinstance(name := message.get("name"), str) and name in called:
        return keys <= _WITH_NAME
    return keys <= _OF_MESSAGES


def _further_keys(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Give the keys that other modules do not judge: the key, the name by which it is counted, and its value."""
    for key, value in message.items():
        if key not in _OF_MESSAGES or (key in REASONING_KEYS and not isinstance(value, str)):
            yield key, f"messages[].{key}", value
    inner = [("content", message.get("content"), _OF_PARTS), ("tool_calls", message.get("tool_calls"), _OF_CALLS)]
    for outer, items, known in inner:
        for item in items if isinstance(items, list) else ():
            if isinstance(item, Mapping):
                for at in (item, item.get("function")):
                    if isinstance(at, Mapping):
                        yield from ((key, f"messages[].{outer}[].{key}", at[key]) for key in at if key not in known)
                        yield from _nested_arguments(at.get("arguments"))


def _nested_arguments(arguments: Any) -> Iterator[tuple[str, str, Any]]:
    """Give the arguments of a call that are lists or objects. Of others it is an omission if nothing is printed."""
    if isinstance(arguments, Mapping):
        nested = [value for value in arguments.values() if isinstance(value, (Mapping, list))]
        yield "arguments", _NESTED, [*strings_in(nested)]


def _lost(keys: Sequence[_Key], messages: Sequence[Mapping[str, Any]]) -> RecordError | None:
    """Why a record is rejected for what is not printed; None if it is only counted."""
    for number, key, name, _ in keys:
        kind = kind_of_name(key)
        if key in _COUNTED or (kind is None and not _is_empty(messages[number])):
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
