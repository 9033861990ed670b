"""Turns: from what was printed for an assistant's message to what of it the model itself would produce."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from typing import Any, Protocol

from transforms.chat.message_map import Trace
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# What a header or a marker ends with: a generation prompt that goes further than history does is cut behind one.
_ENDS_OF_MARKERS = ">]:\n"


class Template(Protocol):
    """What spans need of a chat template, see templates.ChatTemplate."""

    def source(self, conversation: Conversation) -> str: ...
    def has_generation_markers(self, conversation: Conversation) -> bool: ...
    def render(
        self, conversation: Conversation, messages: Sequence[Any] | None = None, add_generation_prompt: bool = False
    ) -> str: ...
    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]: ...
    def trace(
        self,
        conversation: Conversation,
        text: str,
        messages: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        mark_contents: bool = False,
    ) -> Trace: ...


def trained_turns(conversation: Conversation, last_only: bool = False) -> list[int]:
    """The numbers of the assistant's messages whose weight is not 0, or of the last one alone if it is among them."""
    messages = conversation.messages
    wanted = [i for i, message in enumerate(messages) if message["role"] == "assistant" and message.get("weight") != 0]
    return [turn for turn in wanted if turn == assistant_turns(conversation)[-1]] if last_only else wanted


def assistant_turns(conversation: Conversation) -> list[int]:
    """The numbers of the assistant's messages."""
    return [number for number, message in enumerate(conversation.messages) if message["role"] == "assistant"]


def beside_messages(conversation: Conversation) -> tuple[bool, str]:
    """What else a template is given of a conversation, by which it may print other things around the same messages."""
    arguments = conversation.template_kwargs
    return bool(conversation.tools), repr(sorted(arguments.items())) if arguments else ""


class TurnFinder:
    """Finds the spans of assistant turns under one chat template, and keeps what depends on the template alone."""

    def __init__(self, template: Template):
        self._template = template
        self._known: dict[Any, Habits] = {}

    def assistant_spans(self, conversation: Conversation, last_only: bool = False) -> tuple[str, list[Span]]:
        """The text of a conversation, and the spans of its assistant turns, or of the last one.

        Turns with weight 0 have none. Raises RecordError where the spans cannot be established.
        """
        wanted = trained_turns(conversation, last_only)
        if not self._template.has_generation_markers(conversation):
            text = self._template.render(conversation)
            return text, merged(list(self._turns(conversation, text, wanted).values()))
        text, spans = self._template.render_with_markers(conversation)
        if wanted != assistant_turns(conversation):
            spans = [span for owned in self._owned(conversation, text, spans, wanted).values() for span in owned]
        return text, merged(spans)

    def spans_of_turns(self, conversation: Conversation, turns: Sequence[int]) -> tuple[str, dict[int, list[Span]]]:
        """The text of a conversation, and the spans of each of the turns that has any. Raises RecordError."""
        if self._template.has_generation_markers(conversation):
            text, spans = self._template.render_with_markers(conversation)
            return text, self._owned(conversation, text, spans, turns)
        text = self._template.render(conversation)
        found = self._turns(conversation, text, turns)
        return text, {turn: [(start, stop)] for turn, (start, stop) in found.items() if start < stop}

    def _owned(
        self, conversation: Conversation, text: str, spans: Sequence[Span], turns: Sequence[int]
    ) -> dict[int, list[Span]]:
        """Of the spans of generation blocks, those of each of the turns."""
        pieces = self._trace(conversation, text).pieces_of_messages()
        owned: dict[int, list[Span]] = {}
        for span in spans:
            owner = _message_of(pieces, span)
            if owner is None or conversation.messages[owner]["role"] != "assistant":
                raise _not_established("a generation block of the template belongs to no one turn")
            if owner in turns and span[0] < span[1]:
                owned.setdefault(owner, []).append(span)
        return {turn: merged(spans_of_turn) for turn, spans_of_turn in owned.items()}

    def completion_span(self, conversation: Conversation) -> tuple[str, list[Span], str]:
        """The text of a prompt and completion, the span of the completion, and the text of the prompt.

        The prompt is rendered as at inference, with the generation prompt (as TRL's SFTTrainer does); all that follows
        it is the completion. Where the template prints the prompt otherwise in front of an answer, the completion
        begins as its first turn does. Raises RecordError where neither is established.
        """
        text = self._template.render(conversation)
        first = conversation.completion_start or 0
        prompt = self._template.render(conversation, conversation.messages[:first], add_generation_prompt=True)
        if text.startswith(prompt):
            return text, [(len(prompt), len(text))], prompt
        spans = self._turns(conversation, text, [first]) if conversation.messages[first]["role"] == "assistant" else {}
        if first not in spans:
            raise RecordError(
                "prompt_not_a_prefix",
                "the rendering of the prompt is no prefix of that of prompt and completion, and the completion does "
                "not begin with an assistant's message, so it is not known where it begins",
            )
        start = spans[first][0]
        return text, [(start, len(text))], text[:start]

    def _trace(self, conversation: Conversation, text: str) -> Trace:
        """A trace that leaves the text as it is, with the contents marked where the template lets them be."""
        trace = self._template.trace(conversation, text, mark_contents=True)
        if trace.text != text:
            # The template compares or splits contents: those that are marked are other ones to it.
            trace = self._template.trace(conversation, text)
        if trace.text != text:
            raise _not_established("the template treats the conversation otherwise when it is traced")
        return trace

    def _turns(self, conversation: Conversation, text: str, turns: Sequence[int]) -> dict[int, Span]:
        """The span of each of the turns; those are left out for which the template prints nothing."""
        if not turns:
            return {}
        trace = self._trace(conversation, text)
        pieces = trace.pieces_of_messages()
        habits = self.habits(conversation)
        end_of_messages = trace.end_of_messages()
        spans: dict[int, Span] = {}
        for turn in turns:
            if turn not in pieces:
                continue
            if len(pieces[turn]) > 1:
                raise _not_established(f"the template prints messages[{turn}] in {len(pieces[turn])} places")
            start, stop = pieces[turn][0]
            content = trace.contents.get(turn, (None, None))[0]
            if content is not None and not start <= content <= stop:
                raise _not_established(f"the template prints the content of messages[{turn}] in another turn")
            if turn:
                start = _behind(habits.separator, text, start)
            answer = self._answer_start(habits, conversation, text, turn, start, content, stop)
            spans[turn] = answer, len(text) if stop == end_of_messages else _behind(habits.separator, text, stop)
        _check_contents(trace, spans)
        return spans

    def _answer_start(
        self,
        habits: Habits,
        conversation: Conversation,
        text: str,
        turn: int,
        start: int,
        content: int | None,
        stop: int,
    ) -> int:
        """Where the header of a turn ends, which is where the generation prompt ends that the model is given.

        start, stop: what was printed for the turn. content: where its content begins, None where that is not known.
        """
        latest = stop if content is None else content
        before = conversation.messages[:turn]
        is_first = all(message["role"] in ("system", "developer") for message in before)
        usual = habits.prompt_after("user")
        prompt = usual if is_first else habits.prompt_after(before[-1]["role"])
        for header in (prompt, usual):
            # After a tool's answer a template may open a turn in history that it does not open at inference: that is
            # still a header, which no model is meant to write.
            if turn and header and text.startswith(header, start, stop):
                return start + len(header)
        if turn and prompt == "" and content is not None and not text[start:content].strip():
            return start
        # What a server would have rendered for the messages before this turn.
        context = habits.rendered(before, True, conversation)
        if context is not None and start <= len(context) <= latest and text.startswith(context):
            return len(context)
        header = habits.header
        if header and prompt is not None:
            # In front of a first turn the template's own system message may stand.
            found = text.rfind(header, start, latest) if is_first else text.find(header, start, start + len(header))
            if found >= 0:
                return found + _common_prefix(prompt, text[found:stop], at_least=len(header))
        if content is not None and not text[start:content].strip():
            return start
        raise _not_established(f"the template shows no generation prompt in front of messages[{turn}]")

    def habits(self, conversation: Conversation) -> Habits:
        key = self._template.source(conversation), beside_messages(conversation)
        if key not in self._known:
            self._known[key] = Habits(self._template, conversation)
        return self._known[key]


class Habits:
    """What a template does whatever the conversation says, asked of it once with messages of our own.

    conversation: one of those that are rendered, for what it tells the template and whether it has tools, by which some
        tokenizers choose between templates; what it says does not matter.
    """

    def __init__(self, template: Template, conversation: Conversation):
        self._template = template
        self._tools = [TOOL] if conversation.tools else None
        self._arguments = conversation.template_kwargs
        self._prompts: dict[str, str | None] = {}

    def prompt_after(self, role: str) -> str | None:
        """The generation prompt after a message of a role, None where the template does not show it."""
        if role not in self._prompts:
            probe = _PROBES.get(role)
            self._prompts[role] = None if probe is None else self._generation_prompt(probe)
        return self._prompts[role]

    @functools.cached_property
    def header(self) -> str:
        """What the generation prompt and history both print in front of an answer; empty where that is not known."""
        prompt = self.prompt_after("user")
        if not prompt or not self._shown:
            return ""
        trace, start, content = self._shown
        start = _behind(self.separator, trace.text, start)
        return prompt[: _common_prefix(prompt, trace.text[start:content])]

    @functools.cached_property
    def separator(self) -> str:
        """What closes a turn only where another follows, and is printed for that one."""
        prompt, context = self.prompt_after("user"), self.rendered(DIALOGUE[:2], True)
        if not prompt or not self._shown or not context:
            return ""
        trace = self._shown[0]
        stop = trace.pieces_of_messages()[1][-1][1]
        separator = context[stop:].removesuffix(prompt)
        closes = context.startswith(trace.text[:stop]) and context.endswith(prompt)
        return separator if closes and trace.text.startswith(separator, stop) else ""

    def rendered(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool = False,
        conversation: Conversation | None = None,
    ) -> str | None:
        """The text of messages of ours, or of a conversation's, None where the template refuses them."""
        whole = conversation or self._probe(messages)
        try:
            return self._template.render(whole, messages, add_generation_prompt=add_generation_prompt)
        except RecordError:
            return None

    def _probe(self, messages: list[dict[str, Any]]) -> Conversation:
        return Conversation(messages, self._tools, self._arguments)

    def _generation_prompt(self, messages: list[dict[str, Any]]) -> str | None:
        """What add_generation_prompt adds to the rendering of some messages."""
        without, with_prompt = self.rendered(messages), self.rendered(messages, True)
        if without is None or with_prompt is None:
            return None
        if with_prompt.startswith(without):
            return with_prompt[len(without) :]
        # It stands in the place of something else that the template ends a conversation with.
        tails = []
        for text, on in ((without, False), (with_prompt, True)):
            trace = self._template.trace(self._probe(messages), text, add_generation_prompt=on)
            if trace.text != text:
                return None
            tails.append(text[trace.end_of_messages() :])
        return tails[1][_common_prefix(tails[1], tails[0]) :]

    @functools.cached_property
    def _shown(self) -> tuple[Trace, int, int] | None:
        """The trace of a dialogue of three messages, and where in it the answer's turn and its content begin."""
        text = self.rendered(DIALOGUE)
        if text is None:
            return None
        trace = self._template.trace(self._probe(DIALOGUE), text, mark_contents=True)
        places, content = trace.pieces_of_messages().get(1), trace.contents.get(1, (None, None))[0]
        if trace.text != text or not places or content is None or not places[0][0] <= content <= places[0][1]:
            return None
        return trace, places[0][0], content


# What is asked of a template once: how it renders a dialogue, and its generation prompt after each role.
DIALOGUE: list[dict[str, Any]] = [
    {"role": "user", "content": "Good morning."},
    {"role": "assistant", "content": "Hello there."},
    {"role": "user", "content": "Thank you."},
]
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
CALL = {"type": "function", "id": "call00000", "function": {"name": "look", "arguments": {"at": "it"}}}
_PROBES: dict[str, list[dict[str, Any]]] = {
    "user": DIALOGUE[:1],
    "assistant": DIALOGUE[:2],
    "tool": [
        DIALOGUE[0],
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "seen"},
    ],
}


def _check_contents(trace: Trace, spans: dict[int, Span]) -> None:
    """Raise RecordError where the content of one message was printed inside the answer to another."""
    ordered = sorted((start, stop, turn) for turn, (start, stop) in spans.items())
    starts = [start for start, _, _ in ordered]
    for message, places in trace.contents.items():
        for place in places:
            at = bisect.bisect_left(starts, place) - 1 if place is not None else -1
            if at >= 0 and place is not None and place < ordered[at][1] and ordered[at][2] != message:
                raise _not_established(f"the template prints the content of messages[{message}] in another turn")


def _common_prefix(prompt: str, text: str, at_least: int = 0) -> int:
    """The length of the longest prefix of a generation prompt that a text begins with, and that ends with a marker."""
    length = next(
        (i for i, (a, b) in enumerate(zip(prompt, text, strict=False)) if a != b), min(len(prompt), len(text))
    )
    while at_least < length < len(prompt) and prompt[length - 1] not in _ENDS_OF_MARKERS:
        length -= 1
    return length


def _behind(separator: str, text: str, start: int) -> int:
    """The place behind a separator, where one stands at a place of the text."""
    return start + len(separator) if text.startswith(separator, start) else start


def _message_of(pieces: dict[int, list[Span]], span: Span) -> int | None:
    """The message that a span was printed for, None where it was printed for none or for several."""
    return next((m for m, ends in pieces.items() if any(a <= span[0] and span[1] <= b for a, b in ends)), None)


def _not_established(why: str) -> RecordError:
    return RecordError("spans_not_established", f"{why}, so it is not known what of the text is trained on")


def merged(spans: Sequence[Span]) -> list[Span]:
    """The spans in ascending order, without empty ones, those that touch or overlap (nested markers) made one."""
    result: list[Span] = []
    for start, stop in sorted(spans):
        if start == stop:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
