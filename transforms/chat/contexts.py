"""Contexts: compare the text before each turn with what a server would have rendered before the model wrote the turn.

A server renders the messages so far with the generation prompt, and the model answers, with its reasoning. A template
that drops earlier reasoning, or prints the last turn differently from those before it, puts another text before a turn,
or before its answer, in training than at inference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from transforms.chat.conventions import CALL, DIALOGUE, TOOL, Template
from transforms.chat.turns import TurnFinder, assistant_turns, merged, settings_of
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# The pairs of roles in a conversation for which a template is probed. Any other order of roles is compared itself.
_PAIRS = {
    ("", "system"),
    ("", "user"),
    ("system", "user"),
    ("user", "assistant"),
    ("assistant", "user"),
    ("assistant", "tool"),
    ("tool", "tool"),
    ("tool", "assistant"),
}
# Characters that a message shows on each side of the first difference.
_SHOWN = 30


class Contexts:
    """Compares contexts under one chat template.

    Args:
        template: the chat template. What depends on the template alone is computed once.
        turns: finds spans under it.
        render: renders as `template.render` does; a `TraceCache.render` is faster.
    """

    def __init__(self, template: Template, turns: TurnFinder, render: Callable[..., str]):
        self._template = template
        self._render = render
        self._turns = turns
        self._kept: dict[Any, bool] = {}

    def differing(
        self, conversation: Conversation, text: str, spans: Sequence[Span], turns: Sequence[int]
    ) -> dict[int, str]:
        """Find the turns that are trained on in another context than that of their inference.

        Args:
            conversation: the conversation.
            text: its training text.
            spans: what of the text is trained on.
            turns: the numbers of the messages to compare.

        Returns:
            For each turn that differs, how.
        """
        contexts = {turn: self._context(conversation, turn) for turn in turns}
        differences = {turn: self._difference(conversation, turn, contexts[turn], text, spans) for turn in turns}
        suspects = [turn for turn in turns if differences[turn]]
        if suspects and conversation.completion_start is None:
            try:
                own = self._turns.spans_of_turns(conversation, suspects)[1]
            except RecordError:  # generation blocks that belong to no turn, or to several
                own = {turn: list(spans) for turn in suspects}
            differences = {turn: self._difference(conversation, turn, contexts[turn], text, own[turn]) for turn in own}
        return {turn: difference for turn, difference in differences.items() if difference}

    def expanded(self, conversation: Conversation, turns: Sequence[int]) -> list[tuple[str, list[Span]]]:
        """Make texts in which each of the turns is trained on once, in the context of its inference.

        Args:
            conversation: the conversation.
            turns: the numbers of the messages that are trained on.

        Returns:
            Texts and their spans. The last is that of the whole conversation, for the turns whose context is right in
            it. Before it comes the conversation up to the last of the other turns, and so on.

        Raises:
            RecordError: if a turn has no such text.
        """
        rows: list[tuple[str, list[Span]]] = []
        left, length = list(turns), len(conversation.messages)
        contexts = {turn: self._context(conversation, turn) for turn in turns}
        while left:
            part = conversation.with_messages(conversation.messages[:length])
            text, spans = self._turns.spans_of_turns(part, left)
            if not rows and length == len(conversation.messages):
                left = [turn for turn in left if turn in spans]  # the others are not printed, or not trained on
            differences = {turn: self._difference(part, turn, contexts[turn], text, own) for turn, own in spans.items()}
            right = [turn for turn in left if turn in differences and not differences[turn]]
            if left and length == left[-1] + 1 and left[-1] not in right:
                difference = differences.get(left[-1]) or _first_difference(left[-1], text, contexts[left[-1]])
                detail = f"a turn has another context even at the end of its text: {difference}"
                raise RecordError("not_expandable", detail)
            if right:
                rows.append((text, merged([span for turn in right for span in spans[turn]])))
            left = [turn for turn in left if turn not in right]
            length = left[-1] + 1 if left else 0
        return rows[::-1]

    def are_kept(self, conversation: Conversation) -> bool:
        """Return whether the template keeps the contexts of messages of our own that resemble a conversation."""
        profile = _profile(conversation)
        if profile is None:
            return False
        key = settings_of(conversation), profile
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = self._keeps(_probe(profile, conversation))
        return kept

    def _keeps(self, conversation: Conversation) -> bool:
        try:
            text = self._template.render(conversation)
        except RecordError:
            return False
        everything = [(0, len(text))]
        return not any(
            self._difference(conversation, turn, self._context(conversation, turn), text, everything)
            for turn in assistant_turns(conversation)
        )

    def _difference(
        self, conversation: Conversation, turn: int, context: str | None, text: str, spans: Sequence[Span]
    ) -> str | None:
        """How the training of a turn differs from its inference; None if it does not.

        context: that of the turn. text, spans: what is trained on, with the turn's own spans among them.
        """
        own = _spans_from(text, context, spans)
        if not own:
            return _first_difference(turn, text, context)
        reasoning = _reasoning(conversation.messages[turn])
        missing = [thought for thought in reasoning if thought not in _text_of(text, own)]
        if not missing:
            return None
        last = conversation.with_messages(conversation.messages[: turn + 1])
        try:
            text, spans_of_last = self._turns.spans_of_turns(last, [turn])
        except RecordError:
            return None
        if any(thought in _text_of(text, spans_of_last.get(turn, [])) for thought in missing):
            return f"messages[{turn}]: the training text leaves out the reasoning before the answer"
        return None

    def _context(self, conversation: Conversation, turn: int) -> str | None:
        """What a server would have rendered before a turn; None if the template refuses that."""
        try:
            return self._render(conversation, conversation.messages[:turn], add_generation_prompt=True)
        except RecordError:
            return None


def _spans_from(text: str, context: str | None, spans: Sequence[Span]) -> list[Span]:
    """The spans after a context; none if the text does not begin with it, or no span continues there."""
    if context is None or not text.startswith(context):
        return []
    after = [(max(start, len(context)), stop) for start, stop in spans if stop > len(context)]
    return after if after and after[0][0] == len(context) else []


def _text_of(text: str, spans: Sequence[Span]) -> str:
    return "".join(text[start:stop] for start, stop in spans)


def _reasoning(message: Mapping[str, Any]) -> list[str]:
    """What a message of the assistant holds besides its answer: in keys of its own, or before </think>."""
    content = message.get("content")
    inline = content.rpartition("</think>")[0].rpartition("<think>")[2] if isinstance(content, str) else ""
    others = [value for key, value in message.items() if key not in _KNOWN_KEYS and isinstance(value, str)]
    return [thought.strip() for thought in (inline, *others) if thought.strip()]


def _first_difference(turn: int, text: str, context: str | None) -> str:
    if context is None:
        return f"messages[{turn}]: the template refuses the messages before it, so no server would render them"
    if text.startswith(context):
        return f"messages[{turn}]: the answer that is trained on does not begin where the generation prompt ends"
    same = next((i for i, (a, b) in enumerate(zip(text, context, strict=False)) if a != b), len(text))
    training, inference = (
        f"{whole[max(same - _SHOWN, 0) : same]}⟪{whole[same : same + _SHOWN]}⟫" for whole in (text, context)
    )
    return f"messages[{turn}]: the training text has {training!r} where a server renders {inference!r}"


# What a template may distinguish in a conversation besides its texts: whether it has a system message, the keys of the
# assistant's messages, and whether these hold reasoning.
_Profile = tuple[bool, frozenset[str], bool]


def _profile(conversation: Conversation) -> _Profile | None:
    """None for conversations that are not probed: those with another order of roles, or keys that do not hold text."""
    if plain := conversation.plain:
        roles, texts = plain
        if not _is_probed(roles):
            return None
        if "</think>" not in "".join(texts):
            return roles[0] == "system", frozenset(), False
    messages = conversation.messages
    roles = tuple([message["role"] for message in messages])
    if not _is_probed(roles):
        return None
    if not all(message.keys() <= _KNOWN_KEYS for message in messages if message["role"] != "assistant"):
        return None
    keys = set().union(*(message for message in messages if message["role"] == "assistant"))
    keys -= {"role", "content", "weight"}
    others = [message.get(key) for key in keys - {"tool_calls"} for message in messages]
    if not all(isinstance(other, str | None) for other in others):
        return None
    try:
        answers = "".join([message.get("content") or "" for message in messages if message["role"] == "assistant"])
    except TypeError:  # text parts
        return None
    return roles[0] == "system", frozenset(keys), "</think>" in answers


@functools.lru_cache(4096)
def _is_probed(roles: tuple[str, ...]) -> bool:
    return {*pairwise(["", *roles])} <= _PAIRS


_KNOWN_KEYS = {"role", "content", "name", "tool_call_id", "weight"}


def _probe(profile: _Profile, conversation: Conversation) -> Conversation:
    """A conversation of three exchanges that has a profile, and the tools and template arguments of another one."""
    has_system, keys, has_reasoning = profile
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}] if has_system else []

    def answer(content: str, number: int) -> dict[str, Any]:
        thoughts = {key: f"The {key}, {number}." for key in sorted(keys) if key != "tool_calls"}
        inline = f"<think>\nThought {number}.\n</think>\n\n" if has_reasoning else ""
        return {"role": "assistant", "content": inline + content, **thoughts}

    for number in range(3):
        messages.append(DIALOGUE[0])
        if "tool_calls" in keys:
            messages.append(answer("", number) | {"tool_calls": [CALL]})
            messages.append({"role": "tool", "tool_call_id": CALL["id"], "name": "look", "content": "seen"})
        messages.append(answer("Hello there.", 3 + number))
    messages.append(DIALOGUE[2])
    return Conversation(messages, [TOOL] if conversation.tools else None, conversation.template_kwargs)
