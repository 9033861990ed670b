"""Turns: from what was printed for an assistant's message to what of it the model itself would produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from transforms.errors import RecordError
from transforms.examples import Conversation, Span
from transforms.spans.trace import Trace

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


class TurnFinder:
    """Finds the spans of assistant turns under one chat template, and keeps what depends on the template alone."""

    def __init__(self, template: Template):
        self._template = template
        self._prompts: dict[tuple[str, str, str], str | None] = {}
        self._headers: dict[tuple[str, str, str], str] = {}
        self._separators: dict[tuple[str, str, str], str] = {}

    def assistant_spans(self, conversation: Conversation, last_only: bool = False) -> tuple[str, list[Span]]:
        """The text of a conversation, and the spans of its assistant turns, or of the last one.

        Turns with weight 0 have none. Raises RecordError where the spans cannot be established.
        """
        turns = [i for i, message in enumerate(conversation.messages) if message["role"] == "assistant"]
        wanted = [i for i in turns if conversation.messages[i].get("weight") != 0]
        if last_only:
            wanted = [i for i in wanted if i == turns[-1]]
        if not self._template.has_generation_markers(conversation):
            text = self._template.render(conversation)
            trace = self._checked_trace(conversation, text) if wanted else None
            return text, merged([self._turn(conversation, trace, turn) for turn in wanted] if trace else [])
        text, spans = self._template.render_with_markers(conversation)
        if wanted != turns:
            pieces = _pieces_of_messages(self._checked_trace(conversation, text))
            owners = [_message_of(pieces, span) for span in spans]
            if not all(owner in turns for owner in owners):
                raise _not_established("a generation block of the template belongs to no one turn")
            spans = [span for span, owner in zip(spans, owners, strict=True) if owner in wanted]
        return text, merged(spans)

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
        if conversation.messages[first]["role"] != "assistant":
            raise RecordError(
                "prompt_not_a_prefix",
                "the rendering of the prompt is no prefix of that of prompt and completion, and the completion does "
                "not begin with an assistant's message, so it is not known where it begins",
            )
        start, _ = self._turn(conversation, self._checked_trace(conversation, text), first)
        return text, [(start, len(text))], text[:start]

    def _checked_trace(self, conversation: Conversation, text: str) -> Trace:
        """A trace that leaves the text as it is, with the contents marked where the template lets them be."""
        trace = self._template.trace(conversation, text, mark_contents=True)
        if trace.text != text:
            # The template compares or splits contents: those that are marked are other ones to it.
            trace = self._template.trace(conversation, text)
        if trace.text != text:
            raise _not_established("the template treats the conversation otherwise when it is traced")
        return trace

    def _turn(self, conversation: Conversation, trace: Trace, turn: int) -> Span:
        """The span of one assistant turn; an empty one where the template prints nothing for it."""
        pieces = _pieces_of_messages(trace)
        if turn not in pieces:
            return 0, 0
        if len(pieces[turn]) > 1:
            raise _not_established(f"the template prints messages[{turn}] in {len(pieces[turn])} places")
        start, stop = pieces[turn][0]
        separator = self._separator(conversation)
        if turn:
            start = _behind(separator, trace.text, start)
        content = trace.contents.get(turn, (None, None))[0]
        answer = self._answer_start(conversation, trace.text, turn, start, content, stop)
        for message, places in trace.contents.items():
            for place in places:
                if place is not None and (start <= place <= stop if message == turn else answer < place < stop) != (
                    message == turn
                ):
                    raise _not_established(f"the template prints the content of messages[{message}] in another turn")
        if stop == _end_of_messages(trace):
            return answer, len(trace.text)
        return answer, _behind(separator, trace.text, stop)

    def _answer_start(
        self, conversation: Conversation, text: str, turn: int, start: int, content: int | None, stop: int
    ) -> int:
        """Where the header of a turn ends, which is where the generation prompt ends that the model is given.

        start, stop: what was printed for the turn. content: where its content begins, None where that is not known.
        """
        latest = stop if content is None else content
        before = conversation.messages[:turn]
        is_first = all(message["role"] in ("system", "developer") for message in before)
        usual = self._prompt_after(conversation, "user")
        prompt = usual if is_first else self._prompt_after(conversation, before[-1]["role"])
        for header in (prompt, usual):
            # After a tool's answer a template may open a turn in history that it does not open at inference: that is
            # still a header, which no model is meant to write.
            if turn and header and text.startswith(header, start, stop):
                return start + len(header)
        if turn and prompt == "" and content is not None and not text[start:content].strip():
            return start
        # What a server would have rendered for the messages before this turn.
        context = self._rendered(conversation, before, add_generation_prompt=True)
        if context is not None and start <= len(context) <= latest and text.startswith(context):
            return len(context)
        header = self._header(conversation)
        if header and prompt is not None:
            # In front of a first turn the template's own system message may stand.
            found = text.rfind(header, start, latest) if is_first else text.find(header, start, start + len(header))
            if found >= 0:
                return found + _common_prefix(prompt, text[found:stop], at_least=len(header))
        if content is not None and not text[start:content].strip():
            return start
        raise _not_established(f"the template shows no generation prompt in front of messages[{turn}]")

    def _prompt_after(self, conversation: Conversation, role: str) -> str | None:
        """The generation prompt after a message of a role, None where the template does not show it."""
        key = self._key(conversation, role)
        if key not in self._prompts:
            probe = _PROBES.get(role)
            self._prompts[key] = None if probe is None else self._generation_prompt(conversation, probe)
        return self._prompts[key]

    def _generation_prompt(self, conversation: Conversation, messages: list[dict[str, Any]]) -> str | None:
        """What add_generation_prompt adds to the rendering of some messages."""
        probe = Conversation(messages, template_kwargs=conversation.template_kwargs)
        without, with_prompt = (self._rendered(probe, messages, add_generation_prompt=on) for on in (False, True))
        if without is None or with_prompt is None:
            return None
        if with_prompt.startswith(without):
            return with_prompt[len(without) :]
        # It stands in the place of something else that the template ends a conversation with.
        traces = [
            self._template.trace(probe, text, add_generation_prompt=on)
            for on, text in ((False, without), (True, with_prompt))
        ]
        if [trace.text for trace in traces] != [without, with_prompt]:
            return None
        tail_without, tail = (trace.text[_end_of_messages(trace) :] for trace in traces)
        return tail[_common_prefix(tail, tail_without) :]

    def _header(self, conversation: Conversation) -> str:
        """What the generation prompt and history both print in front of an answer; empty where that is not known."""
        key = self._key(conversation, "header")
        if key not in self._headers:
            self._headers[key] = ""
            prompt, shown = self._prompt_after(conversation, "user"), self._shown(conversation)
            if prompt and shown:
                trace, start, content = shown
                start = _behind(self._separator(conversation), trace.text, start)
                self._headers[key] = prompt[: _common_prefix(prompt, trace.text[start:content])]
        return self._headers[key]

    def _separator(self, conversation: Conversation) -> str:
        """What closes a turn only where another follows, and is printed for that one."""
        key = self._key(conversation, "separator")
        if key not in self._separators:
            self._separators[key] = ""
            prompt, shown = self._prompt_after(conversation, "user"), self._shown(conversation)
            context = self._rendered(
                Conversation(_DIALOGUE, template_kwargs=conversation.template_kwargs), _DIALOGUE[:2], True
            )
            if prompt and shown and context:
                trace = shown[0]
                stop = _pieces_of_messages(trace)[1][-1][1]
                separator = context[stop:].removesuffix(prompt)
                if (
                    context.startswith(trace.text[:stop])
                    and context.endswith(prompt)
                    and trace.text.startswith(separator, stop)
                ):
                    self._separators[key] = separator
        return self._separators[key]

    def _shown(self, conversation: Conversation) -> tuple[Trace, int, int] | None:
        """The trace of a dialogue of three messages, and where in it the answer's turn and its content begin."""
        probe = Conversation(_DIALOGUE, template_kwargs=conversation.template_kwargs)
        text = self._rendered(probe, _DIALOGUE)
        if text is None:
            return None
        trace = self._template.trace(probe, text, mark_contents=True)
        pieces, content = _pieces_of_messages(trace).get(1), trace.contents.get(1, (None, None))[0]
        if trace.text != text or not pieces or content is None or not pieces[0][0] <= content <= pieces[0][1]:
            return None
        return trace, pieces[0][0], content

    def _rendered(
        self, conversation: Conversation, messages: Sequence[Any], add_generation_prompt: bool = False
    ) -> str | None:
        try:
            return self._template.render(conversation, messages, add_generation_prompt=add_generation_prompt)
        except RecordError:
            return None

    def _key(self, conversation: Conversation, what: str) -> tuple[str, str, str]:
        """What depends on the template alone is kept for each, and for what it is told besides messages and tools."""
        return self._template.source(conversation), repr(sorted(conversation.template_kwargs.items())), what


# What is asked of a template once: how it renders a dialogue, and its generation prompt after each role.
_DIALOGUE: list[dict[str, Any]] = [
    {"role": "user", "content": "Good morning."},
    {"role": "assistant", "content": "Hello there."},
    {"role": "user", "content": "Thank you."},
]
_CALL = {"type": "function", "id": "call00000", "function": {"name": "look", "arguments": {"at": "it"}}}
_PROBES: dict[str, list[dict[str, Any]]] = {
    "user": _DIALOGUE[:1],
    "assistant": _DIALOGUE[:2],
    "tool": [
        _DIALOGUE[0],
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "seen"},
    ],
}


def _pieces_of_messages(trace: Trace) -> dict[int, list[Span]]:
    pieces: dict[int, list[Span]] = {}
    for start, stop, message in trace.pieces:
        if message is not None:
            pieces.setdefault(message, []).append((start, stop))
    return pieces


def _end_of_messages(trace: Trace) -> int:
    return max((stop for _, stop, message in trace.pieces if message is not None), default=0)


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
