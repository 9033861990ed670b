"""Turn endings: what a chat template prints at the end of answers, so that a model learns to stop or does not."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.chat.spans.conventions import Ending, ending_of, settings_of
from transforms.chat.spans.loss import trained_turns
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Conversation


@dataclass(frozen=True)
class TurnEndings:
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
        return sum(ending_of(conversation, turn) in self.open for turn in turns)


class TurnEndingFinder:
    """Finds what a chat template does at the start and the end of answers.

    Args:
        turns: finds the spans of turns under the template. What depends on the template alone is found once.
    """

    def __init__(self, turns: TurnFinder):
        self._turns = turns
        self._found: dict[Any, TurnEndings] = {}

    def find(self, conversation: Conversation) -> TurnEndings:
        """Return what the template that renders a conversation does at the start and the end of answers."""
        key = settings_of(conversation)
        if key not in self._found:
            ignores = (
                not self._turns.follows_blocks(conversation) and self._turns.conventions(conversation).ignores_prompt
            )
            self._found[key] = TurnEndings(self._turns.closings(conversation), ignores)
        return self._found[key]
