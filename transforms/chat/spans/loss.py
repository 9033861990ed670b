"""Loss: which messages of a conversation are trained on, and which parts of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transforms.base.errors import RecordError
from transforms.chat.rendering.omissions import has_text
from transforms.chat.rendering.renderings import Key, Rendering
from transforms.model.examples import Conversation, PromptCompletion, Span, Text


def not_established(why: str) -> RecordError:
    """Return the error of a conversation of which it is unknown what is trained on. why: without a full stop."""
    return RecordError("spans_not_established", f"{why}, so it is unknown which part of the text is trained on")


def resolve_loss(conversation: Conversation, loss_on: str) -> str:
    """Resolve what is trained on of a conversation.

    Args:
        conversation: the conversation.
        loss_on: one of LOSSES.

    Returns:
        One of LOSSES but auto; or `completion_turns`: the assistant's messages of the completion, if one of these has a
        weight, or a part that is not to be trained on. With auto also if the completion has other messages.

    Raises:
        RecordError: if the loss is on a completion and there is none, or on everything and a message has a weight.
    """
    if loss_on == "all":
        if (weighted := _weighted(conversation)) is not None:
            how = f"loss_on all trains on everything, but messages[{weighted}] or a part of it has a weight: give auto"
            raise RecordError("loss_not_applicable", how)
        return loss_on
    if loss_on not in ("auto", "completion"):
        return loss_on
    first = conversation.completion_start
    if first is None:
        if loss_on == "completion":
            raise RecordError("loss_not_applicable", "loss_on completion asks for what messages do not have")
        return "assistant"
    if _weighted(conversation, first) is not None:
        return "completion_turns"
    if loss_on == "completion":
        return loss_on
    is_answer = first == len(conversation.messages) - 1 and conversation.messages[first]["role"] == "assistant"
    return "completion" if is_answer else "completion_turns"


def _weighted(conversation: Conversation, first: int = 0) -> int | None:
    """The number of the first of the assistant's messages that has another weight than 1, or such a part."""
    if conversation.plain:
        return None
    for number, message in enumerate(conversation.messages[first:], first):
        if message["role"] == "assistant" and (message.get("weight", 1) != 1 or untrained_parts(message)):
            return number
    return None


def assistant_turns(conversation: Conversation) -> list[int]:
    """Return the numbers of the assistant's messages."""
    return [number for number, message in enumerate(conversation.messages) if message["role"] == "assistant"]


def trained_turns(conversation: Conversation, loss_on: str = "assistant") -> list[int]:
    """Return the numbers of the assistant's messages that are trained on.

    Args:
        conversation: the conversation. Messages of weight 0 are not trained on.
        loss_on: `assistant`, all of them; `last_assistant`, the last one; `completion` and `completion_turns`, those of
            the completion.
    """
    messages = conversation.messages
    first = conversation.completion_start or 0 if loss_on in ("completion", "completion_turns") else 0
    turns = assistant_turns(conversation)[-1 if loss_on == "last_assistant" else 0 :]
    return [turn for turn in turns if turn >= first and messages[turn].get("weight") != 0]


def untrained_parts(message: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the parts of a message that are not trained on."""
    content = message.get("content")
    return [i for i, part in enumerate(content) if part.get("weight") == 0] if isinstance(content, list) else []


def has_untrained_parts(conversation: Conversation, turns: Sequence[int]) -> bool:
    """Return whether one of some messages has a part that is not trained on."""
    return any(untrained_parts(conversation.messages[turn]) for turn in turns)


def remove_untrained_parts(rendering: Rendering, by_turn: Mapping[int, Sequence[Span]]) -> dict[int, list[Span]]:
    """Remove the parts of messages that are not trained on from the spans of turns.

    Args:
        rendering: of the conversation.
        by_turn: the spans of each turn.

    Returns:
        What is left of the spans of each turn that has any. The white space of a part goes with it.

    Raises:
        RecordError: if it is unknown which characters are a part.
    """
    parts: dict[Key, list[Span]] = {}
    for turn in by_turn:
        for key, span in _find_untrained(rendering, turn):
            parts.setdefault(key, []).append(span)
    untrained: list[Span] = []  # ascending, as the texts
    for start, stop, key, first, last, is_copy in rendering.texts:
        for begin, end in parts.get(key, ()):
            begin, end = max(begin, first), min(end, last)
            if begin < end and not is_copy:
                raise not_established("the template makes another text of a part of a message")
            if begin < end:
                untrained.append((start + begin - first, stop + end - last))
    left = {turn: _subtract(spans, untrained) for turn, spans in by_turn.items()}
    return {turn: spans for turn, spans in left.items() if spans}


def _find_untrained(rendering: Rendering, turn: int) -> Iterator[tuple[Key, Span]]:
    """The parts of weight 0 of a message that have more than white space: the text that has each of them, and where."""
    message, given = rendering.conversation.messages[turn], rendering.messages[turn].get("content")
    is_joined = isinstance(given, str)  # of all parts, with a line break between each two
    for number in untrained_parts(message):
        text = message["content"][number]["text"]
        start = sum(len(part["text"]) + 1 for part in message["content"][:number]) if is_joined else 0
        if text.strip():
            yield (turn, "content", "content", None if is_joined else number), (start, start + len(text))


def _subtract(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of some spans is in none of the others, which are ascending."""
    left = []
    for start, stop in spans:
        for begin, end in others:
            if begin < stop and start < end:
                left.append((start, begin))
                start = end
        left.append((start, stop))
    return [(start, stop) for start, stop in left if start < stop]


def is_empty_answer(text: Text, loss_on: str) -> bool:
    """Return whether a turn of a text is trained on that has no content, call or reasoning: only its end.

    Args:
        text: of any content.
        loss_on: what is trained on.
    """
    content = text.example.content
    if type(content) is PromptCompletion:
        return loss_on != "all" and not content.completion.strip()
    if type(content) is not Conversation:
        return False
    texts = content.texts
    if texts and all(texts) and True not in map(str.isspace, texts):  # as most, which need not be decoded
        parts = content.in_parts
        if not parts or 0 not in parts[1]:
            return False
    answers = [content.messages[turn] for turn in trained_turns(content, resolve_loss(content, loss_on))]
    return any(not answer.get("tool_calls") and not has_text(answer) for answer in answers)
