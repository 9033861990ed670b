"""Shapes: a chat template, evaluated once for all conversations of a shape.

A shape is what a conversation is without what is said in it: the roles in their order, and the keys of each message.
What most templates do with a text is to print it, perhaps trimmed, perhaps after a look for a word such as </think>.
Such a template prints all conversations of a shape alike, with other texts in the same places. So each shape is
rendered once, by transformers' own Jinja environment, with texts that notice what is done to them (`Watched`). What
they noticed are the conditions under which another conversation of the shape is rendered as this one was; where one
does not hold, or the template did something to a text that is not followed (measured it, took a part of it), the
conversation is rendered by itself. This is partial evaluation with guards, as in a tracing compiler. The spans of a
shape are found once as well.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from transforms.errors import RecordError
from transforms.examples import Conversation, Span
from transforms.spans.trace import Trace
from transforms.spans.turns import TurnFinder
from transforms.templates import ChatTemplate, compiled

# Shapes that are kept, and messages that one may have; beyond, conversations are rendered by themselves.
_KEPT, _MESSAGES = 4096, 512
# The characters that a sentinel stands between. No template holds them; a text may, since it is put in afterwards.
_OPEN, _CLOSE = "\U0010f8f0", "\U0010f8f1"
_SENTINEL = re.compile(f"{_OPEN}([0-9]+)([rs]){_CLOSE}")


class NotFollowed(BaseException):
    """A template does something to a text of which the outcome for other texts is not known.

    No Exception, since Jinja takes some of those for an answer.
    """


@dataclass
class Conditions:
    """What holds for the texts of all conversations that are rendered alike.

    absent: strings that none of them holds. trimmed: none of them begins or ends with white space.
    """

    absent: set[str]
    trimmed: bool = False

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Whether they do for some texts, and the same without their outer white space."""
        if self.absent:
            joined = "\0".join(texts)
            if any(string in joined for string in self.absent):
                return False
        return not self.trimmed or trimmed == texts


def _not_followed(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotFollowed(f"{name} of a text")

    return method


class Watched(str):
    """A text that notes what a template does to it. alone: whether it is one message's text, with nothing added."""

    conditions: Conditions
    alone: bool

    def like(self, text: str, alone: bool) -> Watched:
        return watched(text, self.conditions, alone)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return str.__len__(self) > 0

    def __add__(self, other: str) -> str:
        return self if other == "" else self.like(str.__add__(self, other), False)

    def __radd__(self, other: str) -> str:
        return self if other == "" else self.like(str.__add__(other, self), False)

    def __contains__(self, string: object) -> bool:
        return self._lacks(string)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, str):
            return self is other
        return self._lacks(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _not_followed("hash")

    def startswith(self, prefix: Any, *places: Any) -> bool:  # type: ignore[override]
        return self._lacks(prefix, *places)

    def endswith(self, suffix: Any, *places: Any) -> bool:  # type: ignore[override]
        return self._lacks(suffix, *places)

    def split(self, separator: Any = None, *limit: Any) -> list[str]:  # type: ignore[override]
        self._lacks(separator)
        return [self]

    rsplit = split  # type: ignore[assignment]

    def partition(self, separator: str) -> tuple[str, str, str]:
        self._lacks(separator)
        return self, "", ""

    def rpartition(self, separator: str) -> tuple[str, str, str]:
        self._lacks(separator)
        return "", "", self

    def replace(self, old: str, *new: Any) -> str:  # type: ignore[override]
        self._lacks(old)
        return self

    def removeprefix(self, prefix: str) -> str:
        self._lacks(prefix)
        return self

    removesuffix = removeprefix

    def strip(self, characters: str | None = None) -> str:
        return self._stripped(str.strip, characters)

    def lstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.lstrip, characters)

    def rstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.rstrip, characters)

    def _stripped(self, how: Callable[..., str], characters: str | None) -> str:
        if characters is not None and characters.strip():
            raise NotFollowed("other characters than white space stripped off a text")
        if how is str.strip and characters is None and self.alone:
            return self.like(str.replace(self, f"r{_CLOSE}", f"s{_CLOSE}"), True)
        # White space that stands beside a text here would for another be followed by its own.
        self.conditions.trimmed = True
        return self.like(how(self, characters), self.alone)

    def _lacks(self, string: Any, *places: Any) -> bool:
        """False, for a string that no text of this shape may hold, or for each of several."""
        for one in string if isinstance(string, tuple) else (string,):
            if not self.alone or type(one) is not str or places:
                raise NotFollowed("a look into a text")
            if not one or str.__contains__(self, one):
                raise NotFollowed(f"a look for {one!r} in a text")
            self.conditions.absent.add(one)
        return False


_FOLLOWED = {*vars(Watched), "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__doc__"}
for _name in dir(str):
    if _name not in _FOLLOWED and callable(getattr(str, _name)):
        setattr(Watched, _name, _not_followed(_name))
Watched.__rmod__ = _not_followed("%")  # type: ignore[attr-defined]


def watched(text: str, conditions: Conditions, alone: bool) -> Watched:
    made = str.__new__(Watched, text)
    made.conditions, made.alone = conditions, alone
    return made


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
        return self.watch(conversation, messages, add_generation_prompt).replace(f"s{_CLOSE}", f"r{_CLOSE}")

    def watch(
        self,
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text, in which the sentinels of texts that the template trims say so. Raises RecordError, NotFollowed."""
        template = _watching(self._template.source(conversation))
        return _plain(self._template.render_with(template, conversation, messages, add_generation_prompt))

    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]:
        self.render(conversation)
        return self._template.render_with_markers(_plain_conversation(conversation))

    def trace(
        self,
        conversation: Conversation,
        text: str,
        messages: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        mark_contents: bool = False,
    ) -> Trace:
        messages = None if messages is None else _plain_messages(messages)
        conversation = _plain_conversation(conversation)
        return self._template.trace(conversation, text, messages, add_generation_prompt, mark_contents)


@functools.cache
def _watching(source: str) -> jinja2.Template:
    """The template, compiled so that what is made of a watched text is a watched text. Raises NotFollowed."""
    environment = compiled(source).environment.overlay()
    environment.filters = {name: _watching_filter(name, made) for name, made in environment.filters.items()}
    of_texts = {name: functools.partial(_test_of_text, environment.tests[name]) for name in ("sequence", "iterable")}
    environment.tests = {**environment.tests, **of_texts}
    environment.globals = {**environment.globals, _JOIN: lambda *parts: _concat(map(str, parts))}
    environment.concat = _concat  # type: ignore[method-assign]
    if _OPEN in source:
        raise NotFollowed("a template that holds a sentinel")
    tree = _JoinWatched().visit(environment.parse(source))
    code: Any = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


_JOIN = "chatmill_join"
# Filters that hand texts on as they are, or ask them by their methods.
_FILTERS = {"trim", "string", "length", "count", "list", "first", "last", "reverse", "items", "map", "attr", "replace"}
_FILTERS |= {"selectattr", "rejectattr", "select", "reject", "default", "d"}


class _JoinWatched(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name(_JOIN, "load"), node.nodes, [], None, None, lineno=node.lineno)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
            raise NotFollowed("% of a text")
        return node


def _concat(parts: Any) -> str:
    parts = [part for part in parts if str.__len__(part)]
    texts = [part for part in parts if isinstance(part, Watched)]
    if not all(isinstance(part, Watched) or _OPEN not in part for part in parts):
        raise NotFollowed("a text that was made another one unseen")
    if not texts:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else texts[0].like("".join(parts), False)


def _test_of_text(test: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, Watched) or test(value)


def _watching_filter(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
    if name in _FILTERS:
        return made

    @functools.wraps(made)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if any(_may_hold_text(value) for value in (*arguments, *keywords.values())):
            raise NotFollowed(f"the filter {name} of a text")
        return made(*arguments, **keywords)

    return checked


def _may_hold_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_may_hold_text, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_may_hold_text, value))
    known = (str, int, float, type(None), jinja2.Environment, jinja2.runtime.Context, nodes.EvalContext)
    return isinstance(value, Watched) or not isinstance(value, known)


def _plain(text: str) -> str:
    return str.__str__(text) if isinstance(text, Watched) else text


def _plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {key: _plain(value) if isinstance(value, str) else value for key, value in message.items()}
        for message in messages
    ]


def _plain_conversation(conversation: Conversation) -> Conversation:
    return replace(conversation, messages=_plain_messages(conversation.messages))


@dataclass(frozen=True)
class Shape:
    """How the conversations of a shape are rendered, and what of them is trained on.

    count: of the texts. gaps: what is printed between texts. texts: for each gap but the last, the number of the text
    behind it, and whether that is trimmed. spans: (part, place in it) of each start and stop; parts are gaps and texts
    in turn.
    starts: characters with none of which a text of the assistant begins. answers: the numbers of those texts.
    """

    count: int
    conditions: Conditions
    gaps: list[str]
    texts: list[tuple[int, bool]]
    spans: list[tuple[tuple[int, int], tuple[int, int]]]
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
        parts = self.gaps * 2
        parts[::2] = self.gaps
        if self._kind is None:
            parts[1::2] = [trimmed[number] if trims else texts[number] for number, trims in self.texts] + [""]
        else:
            parts[1::2] = [*(trimmed if self._kind else texts), ""]
        if not self.spans:
            return "".join(parts), []
        ends = [0, *accumulate(map(len, parts))]
        return "".join(parts), [(ends[a] + i, ends[b] + j) for (a, i), (b, j) in self.spans]


class Shapes:
    """Renders conversations by their shapes, under one chat template."""

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._evaluator = Evaluator(template)
        self._turns = TurnFinder(self._evaluator)
        self._shapes: dict[Any, Shape | None] = {}

    def render(
        self, conversation: Conversation, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """The text of messages of a conversation. Raises RecordError."""
        found = self._rendered(conversation, messages, "prompt" if add_generation_prompt else "text")
        if found is None:
            return self._template.render(conversation, messages, add_generation_prompt)
        return found[0]

    def masked(self, conversation: Conversation, loss_on: str) -> tuple[str, list[Span]] | None:
        """The text of a conversation and what of it is trained on; None where that is not known from its shape.

        loss_on: assistant, last_assistant, completion or all.
        """
        if loss_on != "all":
            return self._rendered(conversation, conversation.messages, loss_on)
        found = self._rendered(conversation, conversation.messages, "text")
        return found and (found[0], [(0, len(found[0]))])

    def _rendered(
        self, conversation: Conversation, messages: Sequence[Mapping[str, Any]], aim: str
    ) -> tuple[str, list[Span]] | None:
        if conversation.tools or conversation.template_kwargs or len(messages) > _MESSAGES:
            return None
        texts: list[str] = []
        likeness = _likeness(messages, texts)
        if likeness is None:
            return None
        trimmed = [*map(str.strip, texts)]
        key = (aim, conversation.completion_start if aim == "completion" else None, *likeness)
        if key not in self._shapes:
            if len(self._shapes) >= _KEPT:
                return None
            self._shapes[key] = self._evaluated(conversation, messages, aim)
        shape = self._shapes[key]
        return shape.render(texts, trimmed) if shape else None

    def _evaluated(self, conversation: Conversation, messages: Sequence[Mapping[str, Any]], aim: str) -> Shape | None:
        """The shape of messages; None where the template does not let it be known."""
        conditions = Conditions(set())
        watched_messages, owners = _watched_messages(messages, conditions)
        probe = replace(conversation, messages=watched_messages)
        try:
            spans = self._spans(probe, aim)
            text = self._evaluator.watch(probe, add_generation_prompt=aim == "prompt")
        except (RecordError, NotFollowed):
            return None
        pieces = _SENTINEL.split(text)
        gaps, texts = pieces[::3], [(int(n), kind == "s") for n, kind in zip(pieces[1::3], pieces[2::3], strict=True)]
        edges = _edges(text, spans)
        if edges is None or _OPEN in "".join(gaps):
            return None
        roles = [messages[owner]["role"] for owner in owners]
        answers = [number for number, role in enumerate(roles) if role == "assistant" or aim == "completion"]
        starts: set[str] = set()
        if spans:
            for gap, (number, _) in zip(gaps, texts, strict=False):
                if number in answers:
                    starts |= self._ambiguous_starts(probe, gap, {"user", *(m["role"] for m in messages)})
        return Shape(len(owners), conditions, gaps, texts, edges, frozenset(starts), answers)

    def _spans(self, probe: Conversation, aim: str) -> list[Span]:
        if aim in ("text", "prompt"):
            return []
        if aim == "completion":
            return self._turns.completion_span(probe)[1]
        return self._turns.assistant_spans(probe, last_only=aim == "last_assistant")[1]

    def _ambiguous_starts(self, probe: Conversation, gap: str, roles: set[str]) -> set[str]:
        """The characters with which a text behind a gap could be taken for a part of a generation prompt."""
        habits = self._turns.habits(probe)
        prompts = {habits.prompt_after(role) for role in roles}
        return {
            prompt[k]
            for prompt in prompts
            if prompt and not gap.endswith(prompt)
            for k in range(len(prompt))
            if gap.endswith(prompt[:k])
        }


def _likeness(messages: Sequence[Mapping[str, Any]], texts: list[str]) -> list[Any] | None:
    """What tells the shape of messages, whose texts are added to the list; None where they hold something else.

    A text of white space alone belongs to the shape, since templates treat it otherwise.
    """
    if set().union(*messages) == {"role", "content"}:
        contents: list[Any] = [message.get("content") for message in messages]
        if {*map(type, contents)} == {str} and not any(map(str.isspace, contents)) and "" not in contents:
            texts += contents
            return [message["role"] for message in messages]
    likeness: list[Any] = []
    for message in messages:
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
    return likeness


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
                fields[key] = watched(f"{_OPEN}{len(owners)}r{_CLOSE}", conditions, True)
                owners.append(number)
            else:
                fields[key] = value
        made.append(fields)
    return made, owners


def _edges(text: str, spans: Sequence[Span]) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
    """The spans by the number of the part and the place in it; None where one begins or ends inside a text."""
    starts = [0]
    for found in _SENTINEL.finditer(text):
        starts += [found.start(), found.end()]

    def edge(place: int) -> tuple[int, int] | None:
        part = bisect.bisect_right(starts, place) - 1
        offset = place - starts[part]
        return None if part % 2 and offset else (part, offset)

    edges = [(edge(start), edge(stop)) for start, stop in spans]
    return None if any(a is None or b is None for a, b in edges) else edges  # type: ignore[return-value]
