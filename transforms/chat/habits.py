"""Habits: what a chat template does at the start and the end of answers, so that a model learns to stop or does not."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from transforms.chat.conventions import CALL, DIALOGUE, TOOL, shared_start
from transforms.chat.turns import TurnFinder, settings_of, trained_turns
from transforms.errors import RecordError
from transforms.model.examples import Conversation

# A kind of turn: whether it calls tools, and the role of the message after it; None at the end of the text.
Ending: TypeAlias = tuple[bool, str | None]


@dataclass(frozen=True)
class Habits:
    """What a template does at the start and the end of answers, found with dialogues of our own.

    Attributes:
        closings: what closes a turn, with the stop token, for each kind of turn; None if that is unknown.
        ignores_prompt: whether the generation prompt is empty although history prints a header before an answer.
    """

    closings: Mapping[Ending, str | None]
    ignores_prompt: bool

    @functools.cached_property
    def open(self) -> frozenset[Ending]:
        """The kinds of turns that white space alone closes, so that a model does not learn to stop there."""
        return frozenset(kind for kind, closing in self.closings.items() if closing is not None and not closing.strip())

    @property
    def are_sound(self) -> bool:
        """Whether something closes each turn, and the generation prompt is what history prints."""
        return not self.open and not self.ignores_prompt

    def count_open(self, conversation: Conversation, loss_on: str) -> int:
        """Return how many of the turns that are trained on close with nothing but white space.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto and all, or `completion_turns`.
        """
        final = len(conversation.messages) - 1
        turns = trained_turns(conversation, loss_on) if self.open else []
        if loss_on == "completion":  # what follows its other turns is trained on too
            turns = [turn for turn in turns if turn == final]
        return sum(_ending(conversation, turn) in self.open for turn in turns)


def _ending(conversation: Conversation, turn: int) -> Ending:
    """The kind of a turn. Templates that read other roles than these close turns before them as before a user's."""
    after = conversation.messages[turn + 1 : turn + 2]
    follower = after[0]["role"] if after else None
    return bool(conversation.messages[turn].get("tool_calls")), "user" if follower not in _FOLLOWERS else follower


class HabitFinder:
    """Finds the habits of chat templates.

    Args:
        turns: finds the spans of turns under the template. What depends on the template alone is found once.
    """

    def __init__(self, turns: TurnFinder):
        self._turns = turns
        self._found: dict[Any, Habits] = {}

    def habits(self, conversation: Conversation) -> Habits:
        """Return what the template that renders a conversation does at the start and the end of answers."""
        key = settings_of(conversation)
        if key not in self._found:
            own = Conversation(DIALOGUE, [TOOL] if conversation.tools else None, conversation.template_kwargs)
            closings = {
                (calls, follower): self._closing(own.with_messages([DIALOGUE[0], turn, *after]), calls)
                for calls, turn in ((False, DIALOGUE[1]), (True, _CALLS))
                for follower, after in (_FOLLOWERS | {"tool": _RESULTS if calls else _RESULTS[:1]}).items()
            }
            ignores = not self._turns.follows_markers(own) and self._turns.conventions(own).ignores_prompt
            self._found[key] = Habits(closings, ignores)
        return self._found[key]

    def _closing(self, conversation: Conversation, calls: bool) -> str | None:
        """What is trained on at the end of the second message; None if that is unknown."""
        try:
            text, by_turn = self._turns.spans_of_turns(conversation, [1])
        except RecordError:
            return None
        last = text[slice(*by_turn[1][-1])] if 1 in by_turn else ""
        if not calls:
            content = DIALOGUE[1]["content"]
            return last.rpartition(content)[2] if content in last else None
        _, first, between = last.partition(_FIRST)
        _, second, end = between.partition(_SECOND)
        # What follows both calls closes the call, and not the turn.
        return end[shared_start(end, between) :] if first and second else None


_FIRST, _SECOND = "harbour", "mountain"
_CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {**CALL, "id": f"call0000{number}", "function": {**CALL["function"], "arguments": {"at": where}}}
        for number, where in enumerate((_FIRST, _SECOND))
    ],
}
_RESULTS = [
    {"role": "tool", "tool_call_id": call["id"], "name": "look", "content": "seen"} for call in _CALLS["tool_calls"]
]
# The messages after a turn, by the role of the first. No model is given a question before the results of its calls, but
# records have that too.
_FOLLOWERS: dict[str | None, list[dict[str, Any]]] = {
    None: [],
    "user": DIALOGUE[2:],
    "assistant": DIALOGUE[1:2],
    "tool": _RESULTS,
}
