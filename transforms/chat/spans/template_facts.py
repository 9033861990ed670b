"""Template facts: what a chat template does for any conversation, found by rendering dialogues of our own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from transforms.base.errors import RecordError
from transforms.chat.rendering import probes
from transforms.chat.rendering.arguments import ANY_TEXT
from transforms.chat.rendering.probes import Message
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.spans.loss import trained_turns
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.model.examples import Conversation, Span

if TYPE_CHECKING:
    from transforms.chat.spans.turn_search import Turn

T = TypeVar("T")
# A kind of turn: whether it calls tools, and the role of the message after it; None at the end of the text.
Ending: TypeAlias = tuple[bool, str | None]
# What follows a turn, by its role. No model is given a question before the results of its calls; records have that too.
_FOLLOWERS: Mapping[str | None, list[Message]] = {
    None: [],
    "user": [probes.SECOND_QUESTION],
    "assistant": [probes.ANSWER],
    "tool": probes.RESULTS,
}
# What a header or a marker ends with. A generation prompt that is longer than the header in history is cut after one.
_ENDS_OF_MARKERS = ">]:\n"
# What closes the arguments of a call, and the call.
_ENDS_OF_CALLS = re.compile(r"(?:[\s\\\"'}\])]|</[^>]*>)*")


class Template(Protocol):
    """What finding spans needs of a chat template. `template.ChatTemplate` documents it."""

    def source(self, conversation: Conversation) -> str: ...
    def has_generation_blocks(self, conversation: Conversation) -> bool: ...
    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]: ...
    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str: ...
    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering: ...


class TemplateFacts:
    """What a chat template does for any conversation. Each fact is found once, when it is asked for.

    Args:
        template: the chat template.
        conversation: it gives the template arguments, and whether there are tools, by which some tokenizers choose
            between templates. Its messages do not matter.
        turns: finds turns in a rendering; it may read all facts but `closings`.
        rules: what else is known about turns.
    """

    def __init__(
        self,
        template: Template,
        conversation: Conversation,
        turns: Callable[[Rendering, Sequence[int]], Mapping[int, Turn]],
        rules: TurnRules,
    ):
        self._template = template
        self._rules = rules
        self._tools = [probes.TOOL] if conversation.tools else None
        self._arguments = conversation.template_kwargs
        self._turns = turns
        self._prompts: dict[str, str | None] = {}

    def prompt_after(self, role: str) -> str | None:
        """Return the generation prompt after a message of a role, None if it is unknown."""
        if role not in self._prompts:
            messages = probes.UP_TO_ROLE.get(role)
            self._prompts[role] = None if messages is None else self._generation_prompt(messages)
        return self._prompts[role]

    @functools.cached_property
    def header(self) -> str:
        """What both the generation prompt and history print before an answer.

        It is empty if it is unknown, or white space alone: that may be before anything.
        """
        prompt = self.prompt_after("user")
        header = prompt[: common_prefix(prompt, self._opening)] if prompt else ""
        return header if header.strip() else ""

    @functools.cached_property
    def ignores_prompt(self) -> bool:
        """Whether the generation prompt is empty although history prints a header before an answer."""
        return self.prompt_after("user") == "" and bool(self._opening.strip())

    @functools.cached_property
    def separator(self) -> str:
        """What closes a turn only if another one follows, and is printed for that one."""
        prompt, context = self.prompt_after("user"), self._rendered(probes.DIALOGUE[:2], True)
        if not prompt or not self._answer or not context or not context.endswith(prompt):
            return ""
        answer = self._answer[0]
        return _late_closing(context, answer.text, answer.find_message_pieces()[1][-1][1], prompt)

    @functools.cached_property
    def call_separator(self) -> str:
        """What closes a turn that calls tools, if it is printed for the tool's answer once there is one."""
        messages = probes.UP_TO_ROLE["tool"]
        alone, answered = self._rendered(messages[:2]), self._rendering(messages)
        pieces = answered.find_message_pieces().get(1) if answered else None
        return _late_closing(alone, answered.text, pieces[0][1]) if alone and answered and pieces else ""

    @functools.cached_property
    def joins_answers(self) -> bool:
        """Whether two answers in a row are one turn: nothing is printed before the content of the second."""
        rendering = self._rendering([probes.QUESTION, probes.ANSWER, {**probes.ANSWER, "content": "How are you?"}])
        if rendering is None:
            return False
        pieces = rendering.find_message_pieces().get(2)
        return pieces is not None and rendering.contents.get(2, (None, None))[0] == pieces[0][0]

    @functools.cached_property
    def closings(self) -> Mapping[Ending, str | None]:
        """What closes each kind of turn, with the stop token, also an appended one; None if that is unknown."""
        return {
            (calls, follower): closing if closing is None or follower else closing + self.appended.get(calls, "")
            for (calls, follower), closing in self._printed_closings.items()
        }

    @functools.cached_property
    def appended(self) -> Mapping[bool, str]:
        """What is appended to a last turn without calls, and to one with calls, that the template does not close there.

        It is the one of `TurnRules.appended` that the template prints after such a turn for the next message; the first
        one if it prints none of them after any turn.
        """
        tokens, printed = self._rules.appended, dict[bool, str]()
        if not tokens:
            return {}
        for calls, follower in ((False, "user"), (True, "tool")):
            closing = (self._printed_closings[calls, follower] or "").rstrip()
            if closing.endswith(tokens):
                printed[calls] = closing
        ends = printed or dict.fromkeys((False, True), tokens[0])
        at_end = {calls: self._printed_closings[calls, None] for calls in ends}
        return {
            calls: ends[calls].removeprefix(own) for calls, own in at_end.items() if own is not None and not own.strip()
        }

    @functools.cached_property
    def _printed_closings(self) -> Mapping[Ending, str | None]:
        closings = {(False, follower): self._closing(following[:1]) for follower, following in _FOLLOWERS.items()}
        known = [closing for closing in closings.values() if closing and closing.strip()]
        with_calls = {
            (True, follower): self._closing_with_calls(following, known) for follower, following in _FOLLOWERS.items()
        }
        return {**closings, **with_calls}

    @functools.cached_property
    def open_endings(self) -> frozenset[Ending]:
        """The kinds of turns that white space alone closes, so that a model does not learn to stop there."""
        return frozenset(kind for kind, closing in self.closings.items() if closing is not None and not closing.strip())

    @functools.cached_property
    def is_sound(self) -> bool:
        """Whether something closes each turn, and the generation prompt is what history prints."""
        return not self.open_endings and not self.ignores_prompt

    @functools.cached_property
    def have_any_text(self) -> bool:
        """Whether ANY_TEXT is in one of the facts, so that they are others for each text in its place."""
        facts = map(self.prompt_after, probes.UP_TO_ROLE), self.closings.values(), (self.separator, self.call_separator)
        return any(ANY_TEXT in fact for fact in chain.from_iterable(facts) if fact)

    def count_open(self, conversation: Conversation, loss_on: str) -> int:
        """Return how many of the turns that are trained on close with nothing but white space.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto and all, or `completion_turns`.
        """
        final = len(conversation.messages) - 1
        turns = trained_turns(conversation, loss_on) if self.open_endings else []
        if loss_on == "completion":  # what follows its other turns is trained on too
            turns = [turn for turn in turns if turn == final]
        return sum(find_ending(conversation, turn) in self.open_endings for turn in turns)

    def between_contents(self) -> str:
        """Return what is printed after the contents of dialogues, each up to the next one."""
        further = [*probes.DIALOGUE, probes.SECOND_ANSWER, probes.SECOND_QUESTION]
        printed = ""
        for messages in ([probes.INSTRUCTION, *further], further):  # some templates refuse an instruction
            if rendering := self._rendering(messages):
                ends = [*sorted(rendering.contents.values()), (None, None)]
                printed += "".join(rendering.text[stop:start] for (_, stop), (start, _) in pairwise(ends))
        return printed

    def around_result(self) -> str:
        """Return what is printed for the answer of a tool, before and after its content."""
        rendering = self._rendering(probes.UP_TO_ROLE["tool"])
        if not rendering or not rendering.contents:
            return ""
        last, (start, stop) = max(rendering.contents.items())
        first = rendering.find_message_pieces().get(last, [(start, stop)])[0][0]
        return rendering.text[first:start] + rendering.text[stop:]

    @functools.cached_property
    def _answer(self) -> tuple[Rendering, int, int] | None:
        """The rendering of a dialogue, and the offsets of the answer's turn and of its content."""
        rendering = self._rendering(probes.DIALOGUE)
        pieces = rendering.find_message_pieces().get(1) if rendering else None
        content = rendering.contents.get(1, (None, None))[0] if rendering else None
        if not rendering or not pieces or content is None or not pieces[0][0] <= content <= pieces[0][1]:
            return None
        return rendering, pieces[0][0], content

    @functools.cached_property
    def _opening(self) -> str:
        """What history prints for an answer before its content; empty if that is unknown."""
        if not self._answer:
            return ""
        answer, start, content = self._answer
        return answer.text[after(self.separator, answer.text, start) : content]

    def _closing(self, following: list[Message]) -> str | None:
        """What is trained on at the end of a turn without calls; None if that is unknown."""
        _, content, end = self._last_span(probes.ANSWER, following).rpartition(probes.ANSWER["content"])
        return end if content else None

    def _closing_with_calls(self, following: list[Message], known: list[str]) -> str | None:
        """What is trained on at the end of a turn with calls; None if that is unknown.

        known: what closes turns without calls.
        """
        _, first, between = self._last_span(probes.TWO_CALLS, following[:2]).partition(probes.FIRST)
        _, second, end = between.partition(probes.SECOND)
        if first and second:
            # What follows both calls closes the call, and not the turn.
            return end[common_prefix(end, between) :]
        # Some templates print one call of a turn, or refuse two.
        _, first, end = self._last_span(probes.FIRST_CALL, following[:1]).partition(probes.FIRST)
        own = _ENDS_OF_CALLS.sub("", end, count=1)
        return max(filter(end.endswith, known), key=len, default=own) if first else None

    def _last_span(self, turn: Message, following: list[Message]) -> str:
        """What is trained on last of a turn; empty if that is unknown."""
        rendering = self._rendering([probes.QUESTION, turn, *following])
        turns = rendering and unless_refused(self._turns, rendering, [1])
        return rendering.text[slice(*turns[1].spans[-1])] if rendering and turns else ""

    def _generation_prompt(self, messages: list[Message]) -> str | None:
        """What add_generation_prompt adds to the text of some messages."""
        without, with_prompt = self._rendered(messages), self._rendered(messages, True)
        if without is None or with_prompt is None:
            return None
        if with_prompt.startswith(without):
            return with_prompt[len(without) :]
        # It replaces something else that the template prints at the end of a conversation.
        ended, prompted = self._rendering(messages), self._rendering(messages, True)
        if ended is None or prompted is None:
            return None
        end, prompt = (rendering.text[rendering.messages_end :] for rendering in (ended, prompted))
        return prompt[common_prefix(prompt, end) :]

    def _rendered(self, messages: list[Message], add_generation_prompt: bool = False) -> str | None:
        return unless_refused(self._template.render, self._probe(messages), add_generation_prompt)

    def _rendering(self, messages: list[Message], add_generation_prompt: bool = False) -> Rendering | None:
        return unless_refused(self._template.rendering, self._probe(messages), add_generation_prompt)

    def _probe(self, messages: list[Message]) -> Conversation:
        return Conversation(messages, self._tools, self._arguments)


def unless_refused(render: Callable[..., T], *given: Any) -> T | None:
    """Return what a method of a template renders; None if the template refuses it."""
    try:
        return render(*given)
    except RecordError:
        return None


def find_context(template: Template, conversation: Conversation, turn: int) -> str | None:
    """Return what a server would have rendered before a turn; None if the template refuses that."""
    return unless_refused(template.render, conversation.with_messages(conversation.messages[:turn]), True)


def find_ending(conversation: Conversation, turn: int) -> Ending:
    """Return the kind of a turn. Before a role that is none of a kind, templates close it as before a user."""
    after = conversation.messages[turn + 1 : turn + 2]
    follower = after[0]["role"] if after else None
    return bool(conversation.messages[turn].get("tool_calls")), follower if follower in _FOLLOWERS else "user"


def find_settings(conversation: Conversation) -> tuple[bool, str]:
    """Return what else a template reads of a conversation: it may print other text around the same messages."""
    arguments = conversation.template_kwargs
    return bool(conversation.tools), repr(sorted(arguments.items())) if arguments else ""


def _late_closing(alone: str, followed: str, stop: int, prompt: str = "") -> str:
    """What closes a turn, if it is printed for the message after it; empty if that is not so.

    alone: a text that ends with the turn, and with the generation prompt if one is given. followed: one in which a
    message follows; stop: where it has the end of what is printed for the turn itself.
    """
    closing = alone[stop:].removesuffix(prompt)
    return closing if alone.startswith(followed[:stop]) and followed.startswith(closing, stop) else ""


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
    while low < high:  # a loop over the characters of long turns would take longer than the rest of a comparison
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def after(separator: str, text: str, start: int) -> int:
    """The offset after a separator, if the text has one at start; start otherwise."""
    return start + len(separator) if text.startswith(separator, start) else start
