"""Contexts: what a server would have rendered before the model produced a turn, held against the training text.

A server renders the messages so far with the generation prompt, and the model answers, with its reasoning. A template
that drops earlier reasoning, or prints the last turn otherwise than those before it, gives in training another text in
front of a turn, or of its answer, than that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from transforms.chat.turns import CALL, DIALOGUE, TOOL, Template, TurnFinder, assistant_turns, beside_messages, merged
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# The order of roles in which templates are tried out; of a conversation that goes otherwise nothing is known before.
_USUAL = {
    ("", "system"),
    ("", "user"),
    ("system", "user"),
    ("user", "assistant"),
    ("assistant", "user"),
    ("assistant", "tool"),
    ("tool", "tool"),
    ("tool", "assistant"),
}
_SHOWN = 30


class Contexts:
    """Compares contexts under one chat template, and keeps what depends on the template alone.

    render: the template's own, or one that gives the same sooner.
    """

    def __init__(self, template: Template, turns: TurnFinder, render: Callable[..., str]):
        self._template = template
        self._render = render
        self._turns = turns
        self._kept: dict[Any, bool] = {}

    def differing(
        self, conversation: Conversation, text: str, spans: Sequence[Span], turns: Sequence[int]
    ) -> dict[int, str]:
        """The turns that are trained on in another context than that of their inference, each with how it differs.

        text, spans: what is trained on. turns: the messages that may be.
        """
        contexts = {turn: self._context(conversation, turn) for turn in turns}
        flaws = {turn: self._flaw(conversation, turn, contexts[turn], text, spans) for turn in turns}
        suspects = [turn for turn in turns if flaws[turn]]
        if suspects and conversation.completion_start is None:
            try:
                own = self._turns.spans_of_turns(conversation, suspects)[1]
            except RecordError:  # generation blocks of which it is not known whose they are
                own = {turn: list(spans) for turn in suspects}
            flaws = {turn: self._flaw(conversation, turn, contexts[turn], text, own[turn]) for turn in own}
        return {turn: flaw for turn, flaw in flaws.items() if flaw}

    def expanded(self, conversation: Conversation, turns: Sequence[int]) -> list[tuple[str, list[Span]]]:
        """Texts and spans in which each of the turns is trained on once, in the context of its inference.

        The whole conversation stands last, for the turns that are right in it; in front of it the conversation up to
        the last turn of those that are left, and so on. Raises RecordError where a turn cannot be so placed.
        """
        rows: list[tuple[str, list[Span]]] = []
        left, length = list(turns), len(conversation.messages)
        contexts = {turn: self._context(conversation, turn) for turn in turns}
        while left:
            part = conversation.with_messages(conversation.messages[:length])
            text, spans = self._turns.spans_of_turns(part, left)
            if not rows and length == len(conversation.messages):
                left = [turn for turn in left if turn in spans]  # the others are printed, or trained on, nowhere
            flaws = {turn: self._flaw(part, turn, contexts[turn], text, own) for turn, own in spans.items()}
            right = [turn for turn in left if turn in flaws and not flaws[turn]]
            if left and length == left[-1] + 1 and left[-1] not in right:
                flaw = flaws.get(left[-1]) or _difference(left[-1], text, contexts[left[-1]])
                raise RecordError("not_expandable", f"at the end of its text a turn has another context too: {flaw}")
            if right:
                rows.append((text, merged([span for turn in right for span in spans[turn]])))
            left = [turn for turn in left if turn not in right]
            length = left[-1] + 1 if left else 0
        return rows[::-1]

    def are_kept(self, conversation: Conversation) -> bool:
        """Whether the template gives messages of our own, that are like those of a conversation, their contexts."""
        like = _likeness(conversation)
        if like is None:
            return False
        key = beside_messages(conversation), like
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = self._keeps(_alike(like, conversation))
        return kept

    def _keeps(self, conversation: Conversation) -> bool:
        try:
            text = self._template.render(conversation)
        except RecordError:
            return False
        everything = [(0, len(text))]
        return not any(
            self._flaw(conversation, turn, self._context(conversation, turn), text, everything)
            for turn in assistant_turns(conversation)
        )

    def _flaw(
        self, conversation: Conversation, turn: int, context: str | None, text: str, spans: Sequence[Span]
    ) -> str | None:
        """How a turn is trained on otherwise than a server would have had it; None where it is not.

        context: that of the turn. text, spans: what is trained on, with the turn's own spans among them.
        """
        own = _spans_from(text, context, spans)
        if not own:
            return _difference(turn, text, context)
        missing = [thought for thought in _reasoning(conversation.messages[turn]) if thought not in _said(text, own)]
        if not missing:
            return None
        last = conversation.with_messages(conversation.messages[: turn + 1])
        try:
            text, spans_of_last = self._turns.spans_of_turns(last, [turn])
        except RecordError:
            return None
        if any(thought in _said(text, spans_of_last.get(turn, [])) for thought in missing):
            return f"messages[{turn}]: the training text leaves out the reasoning in front of the answer"
        return None

    def _context(self, conversation: Conversation, turn: int) -> str | None:
        """What a server would have rendered before a turn; None where the template refuses that."""
        try:
            return self._render(conversation, conversation.messages[:turn], add_generation_prompt=True)
        except RecordError:
            return None


def _spans_from(text: str, context: str | None, spans: Sequence[Span]) -> list[Span]:
    """The spans from the end of a context on; none where the text does not begin with it, or no span goes on there."""
    if context is None or not text.startswith(context):
        return []
    behind = [(max(start, len(context)), stop) for start, stop in spans if stop > len(context)]
    return behind if behind and behind[0][0] == len(context) else []


def _said(text: str, spans: Sequence[Span]) -> str:
    return "".join(text[start:stop] for start, stop in spans)


def _reasoning(message: Mapping[str, Any]) -> list[str]:
    """What an assistant's message says beside its answer: in keys of its own, or in front of </think>."""
    content = message.get("content")
    inline = content.rpartition("</think>")[0].rpartition("<think>")[2] if isinstance(content, str) else ""
    beside = [value for key, value in message.items() if key not in _KNOWN_KEYS and isinstance(value, str)]
    return [thought.strip() for thought in (inline, *beside) if thought.strip()]


def _difference(turn: int, text: str, context: str | None) -> str:
    if context is None:
        return f"messages[{turn}]: the template refuses the messages before it, so no server would have asked for it"
    if text.startswith(context):
        return f"messages[{turn}]: the answer that is trained on does not begin where the generation prompt ends"
    same = next((i for i, (a, b) in enumerate(zip(text, context, strict=False)) if a != b), len(text))
    training, inference = (
        f"{whole[max(same - _SHOWN, 0) : same]}⟪{whole[same : same + _SHOWN]}⟫" for whole in (text, context)
    )
    return f"messages[{turn}]: the training text has {training!r} where a server renders {inference!r}"


# What of a conversation a template may look at: whether it has a system message, the assistant's keys, and reasoning.
_Likeness = tuple[bool, frozenset[str], bool]


def _likeness(conversation: Conversation) -> _Likeness | None:
    """None for what is not tried out: another order of roles, keys that hold something else than text."""
    if plain := conversation.plain:
        roles, texts = plain
        if not _is_usual(roles):
            return None
        if "</think>" not in "".join(texts):
            return roles[0] == "system", frozenset(), False
    messages = conversation.messages
    roles = tuple([message["role"] for message in messages])
    if not _is_usual(roles):
        return None
    if not all(message.keys() <= _KNOWN_KEYS for message in messages if message["role"] != "assistant"):
        return None
    keys = set().union(*(message for message in messages if message["role"] == "assistant"))
    keys -= {"role", "content", "weight"}
    others = [message.get(key) for key in keys - {"tool_calls"} for message in messages]
    if not all(isinstance(other, str | None) for other in others):
        return None
    try:
        said = "".join([message.get("content") or "" for message in messages if message["role"] == "assistant"])
    except TypeError:  # text parts
        return None
    return roles[0] == "system", frozenset(keys), "</think>" in said


@functools.lru_cache(4096)
def _is_usual(roles: tuple[str, ...]) -> bool:
    return {*pairwise(["", *roles])} <= _USUAL


_KNOWN_KEYS = {"role", "content", "name", "tool_call_id", "weight"}


def _alike(like: _Likeness, conversation: Conversation) -> Conversation:
    """A conversation of three exchanges that has what another one has."""
    has_system, keys, reasons = like
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}] if has_system else []

    def answer(content: str, number: int) -> dict[str, Any]:
        thoughts = {key: f"The {key}, {number}." for key in sorted(keys) if key != "tool_calls"}
        inline = f"<think>\nThought {number}.\n</think>\n\n" if reasons else ""
        return {"role": "assistant", "content": inline + content, **thoughts}

    for number in range(3):
        messages.append(DIALOGUE[0])
        if "tool_calls" in keys:
            messages.append(answer("", number) | {"tool_calls": [CALL]})
            messages.append({"role": "tool", "tool_call_id": CALL["id"], "name": "look", "content": "seen"})
        messages.append(answer("Hello there.", 3 + number))
    messages.append(DIALOGUE[2])
    return Conversation(messages, [TOOL] if conversation.tools else None, conversation.template_kwargs)
