"""Shapes: a chat template, evaluated once for all conversations of a shape.

A shape is what a conversation is without what is said in it: the roles in their order, and the keys of each message.
What most templates do with a text is to print it, perhaps trimmed, perhaps after a look for a word such as </think>.
Such a template prints all conversations of a shape alike, with other texts in the same places. So each shape is
rendered once, by transformers' own Jinja environment, with texts that notice what is done to them (`watched`). What
they noticed are the conditions under which another conversation of the shape is rendered as this one was; where one
does not hold, or the template did something to a text that is not followed (measured it, took a part of it), the
conversation is rendered by itself. This is partial evaluation with guards, as in a tracing compiler. The spans of a
shape are found once as well.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from transforms.chat.message_map import Trace
from transforms.chat.template import ChatTemplate
from transforms.chat.tracer import CLOSE, OPEN, SENTINEL, Conditions, NotFollowed, unwatched, watched, watching
from transforms.chat.turns import TurnFinder
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# Shapes that are kept, and messages that one may have; beyond, conversations are rendered by themselves.
_KEPT, _MESSAGES = 4096, 512


class Evaluator:
    """Renders conversations of watched texts under one chat template, as the template itself would."""

    def __init__(self, template: ChatTemplate):
        self._template = template

    def source(self, conversation: Conversation) -> str:
        return self._template.source(conversation)

    def has_generation_markers(self, conversation: Conversation) -> bool:
        return self._template.has_generation_markers(conversation)

    def render(
        self,
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text, as of plain texts."""
        return self.watch(conversation, messages, add_generation_prompt).replace(f"s{CLOSE}", f"r{CLOSE}")

    def watch(
        self,
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text, in which the sentinels of texts that the template trims say so. Raises RecordError, NotFollowed."""
        return unwatched(self._template.render_with(watching, conversation, messages, add_generation_prompt))

    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]:
        self.render(conversation)
        return self._template.render_with_markers(_unwatched_conversation(conversation))

    def trace(
        self,
        conversation: Conversation,
        text: str,
        messages: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        mark_contents: bool = False,
    ) -> Trace:
        messages = None if messages is None else _unwatched_messages(messages)
        conversation = _unwatched_conversation(conversation)
        return self._template.trace(conversation, text, messages, add_generation_prompt, mark_contents)


def _unwatched_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: unwatched(value) if isinstance(value, str) else value for key, value in message.items()}
        for message in messages
    ]


def _unwatched_conversation(conversation: Conversation) -> Conversation:
    return conversation.with_messages(_unwatched_messages(conversation.messages))


@dataclass(frozen=True)
class Shape:
    """How the conversations of a shape are rendered, and what of them is trained on.

    count: of the texts. gaps: what is printed between texts. texts: for each gap but the last, the number of the text
    behind it, and whether that is trimmed. spans: of each start and stop, how many texts are printed before it, and how
    many characters of gaps.
    starts: characters with none of which a text of the assistant begins. answers: the numbers of those texts.
    """

    count: int
    conditions: Conditions
    gaps: list[str]
    texts: list[tuple[int, bool]]
    spans: list[tuple[int, int, int, int]]
    starts: frozenset[str]
    answers: list[int]

    @functools.cached_property
    def _kind(self) -> bool | None:
        """Whether all texts are trimmed, or none is, where they stand in their order, each once; None where not."""
        kinds = {trims for _, trims in self.texts}
        in_order = [number for number, _ in self.texts] == list(range(self.count))
        return kinds.pop() if in_order and len(kinds) == 1 else None

    def render(self, texts: list[str], trimmed: list[str]) -> tuple[str, list[Span]] | None:
        """The text and spans of a conversation of this shape, that says these texts; None where its conditions fail."""
        if not self.conditions.hold(texts, trimmed):
            return None
        if self.starts and not self.starts.isdisjoint(
            text[number][0] for text in (texts, trimmed) for number in self.answers
        ):
            return None
        if self._kind is None:
            printed = [trimmed[number] if trims else texts[number] for number, trims in self.texts]
        else:
            printed = trimmed if self._kind else texts
        parts = self.gaps * 2
        parts[::2], parts[1::2] = self.gaps, [*printed, ""]
        if not self.spans:
            return "".join(parts), []
        said = [0, *accumulate(map(len, printed))]
        return "".join(parts), [(said[a] + i, said[b] + j) for a, i, b, j in self.spans]


class Shapes:
    """Renders conversations by their shapes, under one chat template."""

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._evaluator = Evaluator(template)
        self._turns = TurnFinder(self._evaluator)
        self._shapes: dict[Any, Shape | None] = {}

    def render(
        self, conversation: Conversation, messages: Sequence[dict[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """The text of messages of a conversation. Raises RecordError."""
        part = conversation.with_messages([*messages])
        found = self._rendered(part, "prompt" if add_generation_prompt else "text")
        if found is None:
            return self._template.render(conversation, messages, add_generation_prompt)
        return found[0]

    def masked(self, conversation: Conversation, loss_on: str) -> tuple[str, list[Span]] | None:
        """The text of a conversation and what of it is trained on; None where that is not known from its shape.

        loss_on: assistant, last_assistant, completion or all.
        """
        if loss_on != "all":
            return self._rendered(conversation, loss_on)
        found = self._rendered(conversation, "text")
        return found and (found[0], [(0, len(found[0]))])

    def _rendered(self, conversation: Conversation, aim: str) -> tuple[str, list[Span]] | None:
        if conversation.tools or conversation.template_kwargs:
            return None
        found = _likeness(conversation)
        if found is None:
            return None
        likeness, texts, trimmed = found
        key = aim, conversation.completion_start if aim == "completion" else None, likeness
        if key not in self._shapes:
            if len(self._shapes) >= _KEPT:
                return None
            self._shapes[key] = self._evaluated(conversation, aim)
        shape = self._shapes[key]
        return shape.render(texts, trimmed) if shape else None

    def _evaluated(self, conversation: Conversation, aim: str) -> Shape | None:
        """The shape of a conversation; None where the template does not let it be known."""
        conditions = Conditions(set())
        watched_messages, owners = _watched_messages(conversation.messages, conditions)
        probe = conversation.with_messages(watched_messages)
        try:
            spans = self._spans(probe, aim)
            text = self._evaluator.watch(probe, add_generation_prompt=aim == "prompt")
            turned = probe.with_messages([dict(reversed(message.items())) for message in watched_messages])
            if self._evaluator.watch(turned, add_generation_prompt=aim == "prompt") != text:
                return None  # it goes through the keys of a message, whose order a shape does not tell
        except (RecordError, NotFollowed):
            return None
        pieces = SENTINEL.split(text)
        gaps, texts = pieces[::3], [(int(n), kind == "s") for n, kind in zip(pieces[1::3], pieces[2::3], strict=True)]
        edges = _edges(text, spans)
        if edges is None or OPEN in "".join(gaps):
            return None
        roles = [conversation.messages[owner]["role"] for owner in owners]
        answers = [number for number, role in enumerate(roles) if role == "assistant" or aim == "completion"]
        in_front = [gap for gap, (number, _) in zip(gaps, texts, strict=False) if number in answers]
        starts = self._ambiguous_starts(probe, in_front) if spans else set()
        return Shape(len(owners), conditions, gaps, texts, edges, frozenset(starts), answers)

    def _spans(self, probe: Conversation, aim: str) -> list[Span]:
        if aim in ("text", "prompt"):
            return []
        if aim == "completion":
            return self._turns.completion_span(probe)[1]
        return self._turns.assistant_spans(probe, last_only=aim == "last_assistant")[1]

    def _ambiguous_starts(self, probe: Conversation, gaps: list[str]) -> set[str]:
        """The characters with which a text behind one of the gaps could be taken for a part of a generation prompt."""
        habits = self._turns.habits(probe)
        prompts = {habits.prompt_after(role) for role in {"user", *(message["role"] for message in probe.messages)}}
        return {
            prompt[k]
            for gap in gaps
            for prompt in prompts
            if prompt and not gap.endswith(prompt)
            for k in range(len(prompt))
            if gap.endswith(prompt[:k])
        }


def _likeness(conversation: Conversation) -> tuple[tuple[Any, ...], list[str], list[str]] | None:
    """What tells the shape of a conversation, its texts, and these trimmed; None where it holds something else.

    A text of white space alone belongs to the shape, since templates treat it otherwise.
    """
    if plain := conversation.plain:
        roles, texts = plain
        trimmed = [*map(str.strip, texts)]
        if "" not in trimmed:
            return (roles, texts, trimmed) if len(roles) <= _MESSAGES else None
    if len(conversation.messages) > _MESSAGES:
        return None
    likeness: list[Any] = []
    texts = []
    for message in conversation.messages:
        for key, value in message.items():
            if value is None:
                continue
            if key == "role" or key == "weight":
                likeness.append((key, value))
            elif type(value) is not str:
                return None
            elif value and not value.isspace():
                likeness.append((key,))
                texts.append(value)
            else:
                likeness.append((key, value))
        likeness.append(None)
    return tuple(likeness), texts, [*map(str.strip, texts)]


def _watched_messages(
    messages: Sequence[Mapping[str, Any]], conditions: Conditions
) -> tuple[list[dict[str, Any]], list[int]]:
    """The messages with sentinels for their texts, and for each text the number of its message."""
    made: list[dict[str, Any]] = []
    owners: list[int] = []
    for number, message in enumerate(messages):
        fields = {}
        for key, value in message.items():
            if key != "role" and type(value) is str and value and not value.isspace():
                fields[key] = watched(f"{OPEN}{len(owners)}r{CLOSE}", conditions, True)
                owners.append(number)
            else:
                fields[key] = value
        made.append(fields)
    return made, owners


def _edges(text: str, spans: Sequence[Span]) -> list[tuple[int, int, int, int]] | None:
    """The spans as a Shape has them; None where one begins or ends inside a text."""
    sentinels = [found.span() for found in SENTINEL.finditer(text)]
    stops = [stop for _, stop in sentinels]
    lengths = [0, *accumulate(stop - start for start, stop in sentinels)]

    def edge(place: int) -> tuple[int, int] | None:
        before = bisect.bisect_right(stops, place)
        inside = before < len(sentinels) and sentinels[before][0] < place
        return None if inside else (before, place - lengths[before])

    edges = [(edge(start), edge(stop)) for start, stop in spans]
    return [(*start, *stop) for start, stop in edges if start and stop] if all(map(all, edges)) else None
