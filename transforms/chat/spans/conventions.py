"""Conventions: what a chat template does for any conversation, found by rendering messages of our own."""

from __future__ import annotations

import functools
from typing import Any, Protocol, TypeAlias

from transforms.chat.rendering.renderings import Rendering
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# A kind of turn: whether it calls tools, and the role of the message after it; None at the end of the text.
Ending: TypeAlias = tuple[bool, str | None]
# What a header or a marker ends with. A generation prompt that is longer than the header in history is cut after one.
_ENDS_OF_MARKERS = ">]:\n"


class Template(Protocol):
    """What finding spans needs of a chat template. `template.ChatTemplate` documents it."""

    def source(self, conversation: Conversation) -> str: ...
    def has_generation_blocks(self, conversation: Conversation) -> bool: ...
    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]: ...
    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str: ...
    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering: ...


class Conventions:
    """What a template does for any conversation, found by rendering messages of our own.

    Args:
        template: the chat template.
        conversation: it gives the template arguments, and whether there are tools, by which some tokenizers choose
            between templates. Its messages do not matter.
    """

    def __init__(self, template: Template, conversation: Conversation):
        self._template = template
        self._tools = [TOOL] if conversation.tools else None
        self._arguments = conversation.template_kwargs
        self._prompts: dict[str, str | None] = {}

    def prompt_after(self, role: str) -> str | None:
        """Return the generation prompt after a message of a role, None if it is unknown."""
        if role not in self._prompts:
            probe = PROBES.get(role)
            self._prompts[role] = None if probe is None else self._generation_prompt(probe)
        return self._prompts[role]

    @functools.cached_property
    def header(self) -> str:
        """What both the generation prompt and history print before an answer.

        It is empty if it is unknown, or white space alone: that may be before anything.
        """
        prompt = self.prompt_after("user")
        if not prompt or not self._answer:
            return ""
        answer, start, content = self._answer
        start = after(self.separator, answer.text, start)
        header = prompt[: common_prefix(prompt, answer.text[start:content])]
        return header if header.strip() else ""

    @functools.cached_property
    def ignores_prompt(self) -> bool:
        """Whether the generation prompt is empty although history prints a header before an answer."""
        if self.prompt_after("user") != "" or not self._answer:
            return False
        answer, start, content = self._answer
        return bool(answer.text[after(self.separator, answer.text, start) : content].strip())

    @functools.cached_property
    def separator(self) -> str:
        """What closes a turn only if another one follows, and is printed for that one."""
        prompt, context = self.prompt_after("user"), self._rendered(DIALOGUE[:2], True)
        if not prompt or not self._answer or not context:
            return ""
        answer = self._answer[0]
        stop = answer.pieces_of_messages()[1][-1][1]
        separator = context[stop:].removesuffix(prompt)
        closes = context.startswith(answer.text[:stop]) and context.endswith(prompt)
        return separator if closes and answer.text.startswith(separator, stop) else ""

    @functools.cached_property
    def call_separator(self) -> str:
        """What closes a turn that calls tools, if it is printed for the tool's answer once there is one."""
        messages = PROBES["tool"]
        alone, rendering = self._rendered(messages[:2]), self._rendering(messages)
        pieces = rendering.pieces_of_messages().get(1) if rendering else None
        if alone is None or rendering is None or not pieces:
            return ""
        answered, stop = rendering.text, pieces[0][1]
        closing = alone[stop:]
        return closing if alone.startswith(answered[:stop]) and answered.startswith(closing, stop) else ""

    @functools.cached_property
    def joins_answers(self) -> bool:
        """Whether two answers in a row are one turn: nothing is printed before the content of the second."""
        rendering = self._rendering([*DIALOGUE[:2], {"role": "assistant", "content": "How are you?"}])
        if rendering is None:
            return False
        pieces = rendering.pieces_of_messages().get(2)
        return pieces is not None and rendering.contents.get(2, (None, None))[0] == pieces[0][0]

    def _rendered(self, messages: list[dict[str, Any]], add_generation_prompt: bool = False) -> str | None:
        return rendered(self._template, self._probe(messages), add_generation_prompt)

    def _rendering(self, messages: list[dict[str, Any]], add_generation_prompt: bool = False) -> Rendering | None:
        return rendering_of(self._template, self._probe(messages), add_generation_prompt)

    def _probe(self, messages: list[dict[str, Any]]) -> Conversation:
        return Conversation(messages, self._tools, self._arguments)

    def _generation_prompt(self, messages: list[dict[str, Any]]) -> str | None:
        """What add_generation_prompt adds to the text of some messages."""
        without, with_prompt = self._rendered(messages), self._rendered(messages, True)
        if without is None or with_prompt is None:
            return None
        if with_prompt.startswith(without):
            return with_prompt[len(without) :]
        # It replaces something else that the template prints at the end of a conversation.
        tails = []
        for on in (False, True):
            if (rendering := self._rendering(messages, on)) is None:
                return None
            tails.append(rendering.text[rendering.end_of_messages :])
        return tails[1][common_prefix(tails[1], tails[0]) :]

    @functools.cached_property
    def _answer(self) -> tuple[Rendering, int, int] | None:
        """The rendering of a dialogue of three messages, and the offsets of the answer's turn and of its content."""
        rendering = self._rendering(DIALOGUE)
        if rendering is None:
            return None
        pieces = rendering.pieces_of_messages().get(1)
        content = rendering.contents.get(1, (None, None))[0]
        if not pieces or content is None or not pieces[0][0] <= content <= pieces[0][1]:
            return None
        return rendering, pieces[0][0], content


def rendered(template: Template, conversation: Conversation, add_generation_prompt: bool = False) -> str | None:
    """Render a conversation; None if the template refuses it."""
    try:
        return template.render(conversation, add_generation_prompt)
    except RecordError:
        return None


def rendering_of(
    template: Template, conversation: Conversation, add_generation_prompt: bool = False
) -> Rendering | None:
    """Render a conversation; None if the template refuses it, or it is not known for which message it prints what."""
    try:
        found = template.rendering(conversation, add_generation_prompt)
    except RecordError:
        return None
    return found if found.knows_pieces else None


# The messages that conventions are found with: a dialogue, and for each role a conversation that ends with it.
DIALOGUE: list[dict[str, Any]] = [
    {"role": "user", "content": "Good morning."},
    {"role": "assistant", "content": "Hello there."},
    {"role": "user", "content": "Thank you."},
]
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
CALL: dict[str, Any] = {"type": "function", "id": "call00000", "function": {"name": "look", "arguments": {"at": "it"}}}
PROBES: dict[str, list[dict[str, Any]]] = {
    "user": DIALOGUE[:1],
    "assistant": DIALOGUE[:2],
    "tool": [
        DIALOGUE[0],
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "seen"},
    ],
}

# A turn with two calls, whose arguments show where they end.
FIRST, SECOND = "harbour", "mountain"
TWO_CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {**CALL, "id": f"call0000{number}", "function": {**CALL["function"], "arguments": {"at": where}}}
        for number, where in enumerate((FIRST, SECOND))
    ],
}
_RESULTS = [
    {"role": "tool", "tool_call_id": call["id"], "name": "look", "content": "seen"} for call in TWO_CALLS["tool_calls"]
]


def followers(calls: bool = True) -> dict[str | None, list[dict[str, Any]]]:
    """Return what may follow a turn, by the role of its first message. calls: whether the turn has two calls.

    No model is given a question before the results of its calls, but records have that too.
    """
    tools = _RESULTS if calls else _RESULTS[:1]
    return {None: [], "user": DIALOGUE[2:], "assistant": DIALOGUE[1:2], "tool": tools}


def ending_of(conversation: Conversation, turn: int) -> Ending:
    """Return the kind of a turn. Before a role that is not one of `followers`, templates close it as before a user."""
    after = conversation.messages[turn + 1 : turn + 2]
    follower = after[0]["role"] if after else None
    return bool(conversation.messages[turn].get("tool_calls")), "user" if follower not in followers() else follower


def settings_of(conversation: Conversation) -> tuple[bool, str]:
    """Return what else a template reads of a conversation: it may print other text around the same messages."""
    arguments = conversation.template_kwargs
    return bool(conversation.tools), repr(sorted(arguments.items())) if arguments else ""


def common_prefix(prompt: str, text: str, at_least: int = 0) -> int:
    """The length of the longest prefix of a generation prompt that a text begins with, and that ends with a marker."""
    length = shared_start(prompt, text)
    while at_least < length < len(prompt) and prompt[length - 1] not in _ENDS_OF_MARKERS:
        length -= 1
    return length


def up_to_marker(prompt: str) -> str:
    """Return a piece of a generation prompt up to and with its first end of a marker."""
    end = next((number for number, character in enumerate(prompt) if character in _ENDS_OF_MARKERS), len(prompt))
    return prompt[: end + 1]


def shared_start(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def after(separator: str, text: str, start: int) -> int:
    """The offset after a separator, if the text has one at start; start otherwise."""
    return start + len(separator) if text.startswith(separator, start) else start
