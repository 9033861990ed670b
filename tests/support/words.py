"""Words that only one text of a record has: what a rendering prints and trains on of each text is known by them.

Nothing of `transforms` is used, and nothing of the chat template is known, so that this finds what is wrong with masks
and omissions in both engines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# White space that no template prints: next to a word it is of the same text.
SPACE = "\u2003"
_WORD = re.compile(r"w\d+q", re.IGNORECASE)
_PRINTED = re.compile(rf"{SPACE}*(w\d+q){SPACE}*", re.IGNORECASE)


class _Owner(NamedTuple):
    """Where a record has a word: the number of the message and its key, or None and the key of the record."""

    message: int | None
    key: str


def wrong_words(
    record: Mapping[str, Any],
    text: str,
    spans: Sequence[tuple[int, int]],
    features: Mapping[str, Any],
    options: Mapping[str, Any],
) -> str | None:
    """Describe which word of a record is trained on and should not be, or the other way round, or is lost.

    Args:
        record: with `messages`, or `prompt` and `completion`.
        text: what was rendered of it.
        spans: what of the text is trained on.
        features: of the template. What `{% generation %}` leaves out need not be trained on.
        options: of the rendering.

    Returns:
        None if all is right.
    """
    messages = record.get("messages") or [*record["prompt"], *record["completion"]]
    owners = dict(_words_of(record, messages))
    trained = _trained(record, messages, options["loss_on"])
    whole: set[str] = set()
    shown: set[str] = set()
    for found in _PRINTED.finditer(text):
        word, (start, stop) = found[1].lower(), found.span()
        if word not in owners:  # it is cut
            continue
        shown.add(word)
        of_spans = sum(max(0, min(stop, b) - max(start, a)) for a, b in spans)
        if of_spans and owners[word].message not in trained:
            return f"{word} is trained on, and is in {owners[word]}"
        if of_spans == stop - start:
            whole.add(word)
    for word, owner in owners.items():
        if word in shown - whole and owner.message in trained and features.get("wrapped") != "generation":
            return f"{word} is not trained on, and is in {owner}"
        if word not in shown and options.get("unprinted") == "reject" and _must_be_printed(messages, owner):
            return f"{word} is not printed, and is in {owner}"
    return None


def _words_of(record: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, _Owner]]:
    for name in ("tools", "chat_template_kwargs"):
        yield from ((word, _Owner(None, name)) for word in _WORD.findall(json.dumps(record.get(name))))
    for number, message in enumerate(messages):
        for key, value in message.items():
            yield from ((word, _Owner(number, key)) for word in _WORD.findall(json.dumps(value)))


def _trained(record: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], loss_on: str) -> set[int | None]:
    """The numbers of the messages that are trained on."""
    if loss_on == "all":
        return {None, *range(len(messages))}
    first = len(record.get("prompt", ()))
    answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    if loss_on == "auto":
        is_answer = 0 < first == len(messages) - 1 and messages[first]["role"] == "assistant"
        loss_on = "completion" if is_answer else "assistant"
    if loss_on == "completion" and all("weight" not in messages[number] for number in answers if number >= first):
        return {*range(first, len(messages))}
    chosen = answers[-1:] if loss_on == "last_assistant" else [number for number in answers if number >= first]
    return {number for number in chosen if messages[number].get("weight") != 0}


def _must_be_printed(messages: Sequence[Mapping[str, Any]], owner: _Owner) -> bool:
    """Whether a record is rejected if a word is not printed: one of a content, but for reasoning of the assistant."""
    if owner.message is None or owner.key != "content":
        return False
    message = messages[owner.message]
    return message["role"] != "assistant" or "think" not in json.dumps(message["content"])
