"""Omissions: what a record says and the chat template does not print, as it does on purpose of reasoning in tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from transforms.chat.rendering.renderings import (
    KEY,
    Key,
    Rendering,
    called_names,
    get_function,
    message_texts,
    name_field,
)
from transforms.model.examples import REASONING_KEYS

# For each text that is printed, also in part, the (start, stop) of its characters.
Printed: TypeAlias = Mapping[Key, Sequence[tuple[int, int]]]
_NAME = "messages[].name"
# The most names in a sentence.
_NAMED = 3
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

# What opens and closes reasoning in a content of the assistant.
_TAG_NAME = "(?:(?:seed:|longcat_)?think|thinking|thought|reasoning)"
OPENS = rf"<{_TAG_NAME}>|\[THINK\]|◁think▷|<\|channel>thought|<\|(?:START_THINKING|inner_prefix|begin_of_thought)\|>"
CLOSES = rf"</{_TAG_NAME}>|\[/THINK\]|◁/think▷|<channel\|>|<\|(?:END_THINKING|inner_suffix|end_of_thought)\|>"
# What some models write around the answer after the reasoning.
_AROUND_ANSWER = r"</?answer>|<\|(?:begin|end)_of_solution\|>"
# Without named groups, so that `re` looks for the first characters of tags, which is five times faster.
_TAG = re.compile(f"{OPENS}|{CLOSES}|{_AROUND_ANSWER}")
_OPENING, _CLOSING = re.compile(OPENS), re.compile(CLOSES)
_LONGEST_TAG = len("<|begin_of_solution|>")


@dataclass(frozen=True)
class Omissions:
    """What the chat template does not print of a conversation.

    Attributes:
        not_printed: names of contents, tool calls and tools, in the order of the conversation.
        reasoning: names of what holds reasoning. Templates drop that of earlier turns on purpose.
        of_last: whether some of it is that of the last message, or of the one whose tools answer last. A model writes
            it there, and no later turn is the reason why it is dropped.
        unread: the names of further keys, such as `messages[].mood`, and the characters of their texts.
    """

    not_printed: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    of_last: bool = False
    unread: tuple[tuple[str, int], ...] = ()

    def detail(self) -> str:
        """Return a sentence about `not_printed`."""
        return _sentence(self.not_printed)

    def reasoning_detail(self) -> str:
        """Return a sentence about `reasoning`."""
        return _sentence(self.reasoning)


NO_OMISSIONS = Omissions()


class MessageOmissions(NamedTuple):
    """What is not printed of a message or of tools, see Omissions. Of `unread` the names and the texts."""

    not_printed: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    unread: Sequence[tuple[str, str]] = ()


def find_omissions(rendering: Rendering) -> Omissions:
    """Find what a chat template does not print of the conversation of a rendering."""
    messages, tools = rendering.messages, rendering.tools
    unread = [*_find_joined_part_keys(rendering)]
    if tools and not rendering.keys.issuperset(tools.others):
        unread += [(key[2], text) for key, text in tools.others.items() if key not in rendering.keys]
    if rendering.prints_all:
        return joined_omissions(messages, [MessageOmissions(unread=unread)]) if unread else NO_OMISSIONS
    printed, keys = rendering.printed, rendering.keys
    omissions = [find_message_omissions(number, message, printed, keys) for number, message in enumerate(messages)]
    numbers = [key[2] for key, _ in tools.names if key not in printed] if tools else []
    names = [f"the {_ordinal(number)} tool" for number in numbers]
    if tools and len(names) == len(tools.given):
        names = ["the tools"]
    return joined_omissions(messages, [*omissions, MessageOmissions(names, unread=unread)])


def _find_joined_part_keys(rendering: Rendering) -> Iterator[tuple[str, str]]:
    """The further keys of parts that the template is not given, since it reads no parts: the names and the texts."""
    for number, (message, given) in enumerate(zip(rendering.messages, rendering.conversation.messages, strict=True)):
        if type(given.get("content")) is list and type(message["content"]) is str:
            parts = {"content": given["content"]}
            yield from ((key[2], text) for key, text in message_texts(number, parts) if key[1] == KEY)


def find_message_omissions(
    number: int, message: Mapping[str, Any], printed: Printed, keys: Collection[Key] = ()
) -> MessageOmissions:
    """Return what is not printed of a message. keys: those of further texts that are printed."""
    names: list[str] = []
    reasoning: list[str] = []
    unread: list[tuple[str, str]] = []
    for (_, kind, key, part), text in message_texts(number, message):
        if kind == KEY:
            unread += [(key, text)] * ((number, kind, key, part) not in keys)
            continue
        ranges = printed.get((number, kind, key, part), ())
        if kind == "call" or (len(ranges) == 1 and ranges[0] == (0, len(text))):
            continue  # all of it is printed, as of most texts
        name = _name_text(number, key, part, message)
        if kind == "reasoning":
            # Some servers write the same reasoning under two keys, and a template prints one of them.
            same = any((number, kind, other, None) in printed for other in REASONING_KEYS if message.get(other) == text)
            reasoning += [name] * (bool(text.strip()) and not ranges and not same)
            continue
        omission = find_content_omission(text, ranges, message.get("role") == "assistant")
        if omission == "text":
            is_shown = any(text[start:stop].strip() for start, stop in ranges)
            names.append(f"a part of {name}" if is_shown else name)
        elif omission:
            reasoning.append(f"the reasoning in {name}")
    calls = given if isinstance(given := message.get("tool_calls"), list) else []
    for at, call in enumerate(calls):
        names += _find_call_omissions(call, number, at, len(calls), printed)
    if unread and not calls and not has_text(message):
        unread_keys = {key for key, _ in unread}
        for key, value in message.items():
            if f"messages[].{key}" in unread_keys and isinstance(value, (list, Mapping)):
                names.append(f"the {key} of messages[{number}], which has nothing else")
    return MessageOmissions(names, reasoning, unread)


def joined_omissions(messages: Sequence[Mapping[str, Any]], omissions: Sequence[MessageOmissions]) -> Omissions:
    """Return the omissions of all messages, and those of tools after them, as those of a conversation."""
    if not any(map(any, omissions)):
        return NO_OMISSIONS
    last = max((at for at, message in enumerate(messages) if message.get("role") != "tool"), default=len(messages))
    texts = [*chain.from_iterable(each.unread for each in omissions)]
    called = called_names(messages) if any(name == _NAME for name, _ in texts) else frozenset()
    characters = Counter[str]()
    for name, text in texts:
        if name != _NAME or text not in called:
            characters[name] += len(text)
    return Omissions(
        tuple(chain.from_iterable(each.not_printed for each in omissions)),
        tuple(chain.from_iterable(each.reasoning for each in omissions)),
        any(each.reasoning for each in omissions[last : last + 1]),
        tuple(sorted(characters.items())),
    )


def gaps_between(text: str, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give the (start, stop) of what of a text is between ranges of its characters."""
    at = 0
    for start, stop in sorted(ranges):
        if at < start:
            yield at, start
        at = max(at, stop)
    if at < len(text):
        yield at, len(text)


def find_content_omission(text: str, ranges: Sequence[tuple[int, int]], is_answer: bool) -> str | None:
    """Return what of a content is not printed.

    Args:
        text: the content.
        ranges: the (start, stop) of its characters that are printed.
        is_answer: whether it is the assistant's. Templates drop nothing of others on purpose.

    Returns:
        "text"; "reasoning" if that is all; None if nothing is but white space, and tags of reasoning.
    """
    gaps = [gap for gap in gaps_between(text, ranges) if text[slice(*gap)].strip()]
    if not gaps:
        return None
    is_shown = any(text[start:stop].strip() for start, stop in ranges)
    omissions = {_find_gap_omission(text, *gap, is_shown) if is_answer else "text" for gap in gaps}
    return "text" if "text" in omissions else "reasoning" if "reasoning" in omissions else None


def _find_gap_omission(text: str, start: int, stop: int, is_shown: bool) -> str | None:
    """What a gap in a content of the assistant holds: "text", "reasoning", or None if these are tags alone.

    Templates drop reasoning on purpose: what is between its tags; at the beginning of the content, where a generation
    prompt may have opened it, up to the tag that closes it; and at the end what is opened and never closed.
    """
    tags = tags_in(text, start, stop)
    if not tags or (not is_shown and tags[-1].kind != "closes"):
        return "text"
    omission = None
    for before, after in pairwise([None, *tags, None]):
        if not text[before.stop if before else start : after.start if after else stop].strip():
            continue
        if before and before.kind == "opens":
            is_reasoning = after.kind != "answer" if after else not text[stop:].strip()
        else:
            is_closed_again = before.kind == "closes" if before else not text[:start].strip()
            is_reasoning = is_closed_again and after is not None and after.kind == "closes"
        if not is_reasoning:
            return "text"
        omission = "reasoning"
    return omission


def _find_call_omissions(call: Any, message: int, number: int, count: int, printed: Printed) -> list[str]:
    function = get_function(call)
    if function is None:
        return []
    name = f"the {f'{_ordinal(number)} ' * (count > 1)}tool call of messages[{message}]"
    if name_field(function) is not None and (message, "call", number, None) not in printed:
        return [name]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        empty = arguments.strip() in ("", "{}")
        return [] if empty or (message, "call", number, "") in printed else [f"the arguments of {name}"]
    keys = arguments if isinstance(arguments, Mapping) else ()
    return [f"the argument {key} of {name}" for key in keys if (message, "call", number, key) not in printed]


def has_text(message: Mapping[str, Any]) -> bool:
    """Return whether a message has a content or reasoning that is not empty."""
    content = message.get("content")
    if type(content) is str and content and not content.isspace():
        return True
    texts = [part.get("text") for part in content] if isinstance(content, list) else []
    texts += [message.get(key) for key in REASONING_KEYS]
    return any(isinstance(text, str) and text.strip() for text in texts)


def _name_text(number: int, key: str, part: int | None, message: Mapping[str, Any]) -> str:
    place = f"messages[{number}] ({message.get('role')})" if key == "content" else f"messages[{number}]"
    what = key if part is None or len(message["content"]) == 1 else f"{_ordinal(part)} part"
    return f"the {what} of {place}"


def _ordinal(number: int) -> str:
    return _ORDINALS[number] if number < len(_ORDINALS) else f"{number + 1}th"


def _sentence(names: Sequence[str]) -> str:
    shown = [*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED else names
    return f"the chat template does not print {' and '.join(filter(None, (', '.join(shown[:-1]), shown[-1])))}"


class Tag(NamedTuple):
    """A tag in a content, and the range of its characters there."""

    start: int
    stop: int
    kind: Literal["opens", "closes", "answer"]


def tags_in(text: str, start: int = 0, stop: int | None = None) -> list[Tag]:
    """Return the tags between two places in a content, in their order."""
    tags = _TAG.finditer(text, start, len(text) if stop is None else stop)
    return [Tag(*tag.span(), _kind(tag[0])) for tag in tags]


def may_complete_tag(text: str) -> bool:
    """Return whether a text has a tag of reasoning, or may end with the beginning of one."""
    if not _has_tag_beginning(text):  # as most, which is found in no time
        return False
    return _TAG.search(text) is not None or _has_tag_beginning(text[-_LONGEST_TAG:])


def is_whole_tag(literal: str) -> bool:
    """Return whether what may begin a tag of reasoning in a literal is one, whatever follows the literal."""
    return not _has_tag_beginning(_TAG.sub("", literal))


def _kind(tag: str) -> Literal["opens", "closes", "answer"]:
    return "opens" if _OPENING.match(tag) else "closes" if _CLOSING.match(tag) else "answer"


def _has_tag_beginning(text: str) -> bool:
    return "<" in text or "[" in text or "◁" in text
