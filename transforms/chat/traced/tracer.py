"""Traced texts: strings that record what a chat template does to them.

A traced text is a rope: literal characters, which are those of the template or of the signature, and texts of the
conversation between them. Each text is one sentinel, a character of the last plane for private use. Whatever is asked
of the rope is answered by its literals. What must hold for the texts so that the answer is right is recorded in guards.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

# How a text is printed: as it is, stripped, or (which is searched only) in lower case.
STRIPPED: Final = 1
LOWER: Final = 2
# Sentinels: for each form a block of this size. A template that has one itself is not traced. Texts may hold them, for
# they are inserted after tracing.
_FIRST, MOST_TEXTS = 0x100000, 0x2000
SENTINEL = re.compile("[\U00100000-\U00105fff]")
_TO_RAW = {_FIRST + STRIPPED * MOST_TEXTS + number: _FIRST + number for number in range(MOST_TEXTS)}
_TO_STRIPPED = {raw: stripped for stripped, raw in _TO_RAW.items()}
_TO_LOWER = {_FIRST + number: _FIRST + LOWER * MOST_TEXTS + number % MOST_TEXTS for number in range(2 * MOST_TEXTS)}


class NotTraceable(BaseException):
    """A template does something to a text whose result for other texts is unknown.

    It is not an Exception, since Jinja catches some of those and goes on: an undefined attribute would be the result.
    """


def sentinel(number: int, form: int = 0) -> str:
    """Return the character that stands for a text.

    Args:
        number: of the text, less than MOST_TEXTS.
        form: how it is printed: 0, STRIPPED or LOWER.
    """
    return chr(_FIRST + form * MOST_TEXTS + number)


def sentinel_number(character: str) -> int:
    """Return the number of the text that a sentinel stands for."""
    return (ord(character) - _FIRST) % MOST_TEXTS


def with_raw_texts(text: str) -> str:
    """Return a text with the same sentinels for stripped texts as for others."""
    return text.translate(_TO_RAW)


def print_form(character: str) -> int:
    """Return how the text of a sentinel is printed: 0, STRIPPED or LOWER."""
    return (ord(character) - _FIRST) // MOST_TEXTS


@dataclass
class Guards:
    """What must hold for the texts of a conversation.

    Texts are numbered in the order of the conversation. A template may print a text stripped, so that `edges` are
    checked with and without the white space around it.

    Attributes:
        absent: strings that no text contains.
        trimmed: whether no text begins or ends with white space.
        absent_in_lower: strings that no text contains in lower case.
        edges: for the number of a text and 0 (or -1), the strings with which it does not begin (or end); nor do they
            begin (or end) with the text.
        apart: pairs of numbers of texts neither of which begins with the other.
    """

    absent: set[str] = field(default_factory=set)
    trimmed: bool = False
    absent_in_lower: set[str] = field(default_factory=set)
    edges: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    apart: set[tuple[int, int]] = field(default_factory=set)

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Check the guards. None is added afterwards.

        Args:
            texts: the texts of a conversation.
            trimmed: the same texts without the white space around them.
        """
        if self.trimmed and trimmed != texts:
            return False
        if self.absent:
            joined = "\0".join(texts)
            for string in self.absent:
                if string in joined:
                    return False
        if self.absent_in_lower:
            joined = "\0".join(texts).lower()
            if any(string in joined for string in self.absent_in_lower):
                return False
        for number, edge, characters, strings in self._edges:
            text, bare = texts[number], trimmed[number]
            may_touch = text[edge] in characters or bare[edge] in characters
            if may_touch and any(_touch(form, string, edge) for form in (text, bare) for string in strings):
                return False
        return not self.apart or not any(_touch(trimmed[first], trimmed[second], 0) for first, second in self.apart)

    @functools.cached_property
    def _edges(self) -> list[tuple[int, int, str, set[str]]]:
        """The edges, each with the characters that its strings have there, which are compared first."""
        return [
            (number, edge, "".join({string[edge] for string in strings}), strings)
            for (number, edge), strings in self.edges.items()
        ]


def _touch(text: str, string: str, edge: int) -> bool:
    if edge == 0:
        return text.startswith(string) or string.startswith(text)
    return text.endswith(string) or string.endswith(text)


def _untraceable(action: str) -> Any:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotTraceable(f"the template {action}")

    return method


def _searching(search: Callable[..., Any]) -> Any:
    """A method of str that searches for a string, and returns the text, changed, or pieces of it."""

    def method(self: TracedText, string: Any = None, *others: Any) -> Any:
        constants = (_constant(other) if isinstance(other, str) else other for other in others)
        result = search(self, self.located(string), *constants)
        return self.derived(result) if isinstance(result, str) else type(result)(map(self.derived, result))

    return method


def _stripping(strip: Callable[..., str], *edges: int) -> Any:
    """A method of str that strips a text at some edges."""

    def method(self: TracedText, characters: str | None = None) -> str:
        if characters is not None and _constant(characters).strip():
            raise NotTraceable(f"the template strips {characters!r} off a text")
        left = strip(self, characters)
        reached = [left[edge] for edge in edges if SENTINEL.match(left[edge]) and print_form(left[edge]) != STRIPPED]
        if len(edges) == 2 and characters is None and len(left) == 1 and reached:
            return self.derived(left.translate(_TO_STRIPPED))
        # Stripping reaches the white space of a text itself only if the text has some at that edge.
        self.guards.trimmed |= bool(reached)
        return self.derived(left)

    return method


def _searching_edge(is_at: Callable[[str, str], bool], edge: int) -> Any:
    """A method of str that asks whether a text begins, or ends, with a string, or with one of several."""

    def method(self: TracedText, given: Any, *positions: Any) -> bool:
        if positions:
            raise NotTraceable("the template searches a part of a text")
        literal = self.literal_ends()[edge]
        for string in given if isinstance(given, tuple) else (given,):
            if is_at(literal, _constant(string)):
                return True
            # The literal decides unless the string is longer and begins, or ends, with all of it.
            if len(string) > len(literal) and is_at(string, literal):
                self.located(string)
        return False

    return method


class TracedText(str):
    """A text that records what a template does to it.

    It holds at least one sentinel, and the text of a sentinel is neither empty nor white space alone.

    Attributes:
        guards: where it records.
    """

    guards: Guards

    def derived(self, text: str) -> str:
        """Return a text that was made of this one."""
        return traced_text(text, self.guards)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: str) -> str:
        return self if other == "" else self.derived(str.__add__(self, known(other)))

    def __radd__(self, other: str) -> str:
        return self if other == "" else self.derived(str.__add__(known(other), self))

    def __contains__(self, string: object) -> bool:
        return str.__contains__(self, self.located(string))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str) or str.__eq__(self, other):
            return isinstance(other, str)
        given, (head, tail) = _constant(other), self.literal_ends()
        if given.startswith(head) and given.endswith(tail) and given[len(head) : len(given) - len(tail)].strip():
            raise NotTraceable("the template compares a text")
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _untraceable("uses a text as a key")

    def __getitem__(self, index: Any) -> str:  # type: ignore[override]
        head, tail = map(len, self.literal_ends())
        if isinstance(index, slice):
            # The characters up to the first text have the same offsets for any texts, and those after the last one.
            edges = [edge for edge in (index.start, index.stop) if edge is not None]
            is_known = index.step is None and all(type(edge) is int and -tail <= edge <= head for edge in edges)
        else:
            is_known = type(index) is int and -tail <= index < head
        if not is_known:
            raise NotTraceable("the template takes a part of a text")
        return self.derived(str.__getitem__(self, index))

    split, rsplit = _searching(str.split), _searching(str.rsplit)
    partition, rpartition = _searching(str.partition), _searching(str.rpartition)
    replace = _searching(str.replace)
    strip, lstrip, rstrip = _stripping(str.strip, 0, -1), _stripping(str.lstrip, 0), _stripping(str.rstrip, -1)
    startswith, endswith = _searching_edge(str.startswith, 0), _searching_edge(str.endswith, -1)

    def removeprefix(self, prefix: str) -> str:
        return self.derived(str.removeprefix(self, prefix)) if self.startswith(prefix) else self

    def removesuffix(self, suffix: str) -> str:
        return self.derived(str.removesuffix(self, suffix)) if self.endswith(suffix) else self

    def lower(self) -> str:
        return self.derived(str.lower(self).translate(_TO_LOWER))

    def literal_ends(self) -> tuple[str, str]:
        """Return the characters before the first text, and those after the last one."""
        literals = SENTINEL.split(str.__str__(self))
        return literals[0], literals[-1]

    def located(self, string: Any) -> str:
        """Record that a string is in the literals alone: in no text, and not partly in one.

        Args:
            string: the string.

        Returns:
            The string.

        Raises:
            NotTraceable: if it is not a constant, or is empty.
        """
        if not _constant(string):
            raise NotTraceable("the template searches a text for an empty string")
        literals, texts = SENTINEL.split(str.__str__(self)), SENTINEL.findall(self)
        halves = [(string[:cut], string[cut:]) for cut in range(1, len(string))]
        for at, text in enumerate(texts):
            is_lower = print_form(text) == LOWER
            (self.guards.absent_in_lower if is_lower else self.guards.absent).add(string)
            before, after, is_last = literals[at], literals[at + 1], at + 1 == len(texts)
            # It could begin in the literal before the text, or begin in the text and end after it.
            begun = {rest for begin, rest in halves if before.endswith(begin)}
            ended = {
                begin for begin, rest in halves if after.startswith(rest) or (not is_last and rest.startswith(after))
            }
            if is_lower and (begun or ended or not string.isascii()):
                raise NotTraceable("the template searches a text in lower case after adding to it")
            for edge, strings in ((0, begun), (-1, ended)):
                if strings:
                    self.guards.edges[sentinel_number(text), edge] |= strings
        return str(string)


_TRACED = {*vars(TracedText), "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__doc__"}
for _name in dir(str):
    if _name not in _TRACED and callable(getattr(str, _name)):
        setattr(TracedText, _name, _untraceable(f"calls {_name} of a text"))
TracedText.__rmod__ = _untraceable("formats a text with %")  # type: ignore[attr-defined]


class TracedLength:
    """The length of a traced text, which is at least some minimum."""

    def __init__(self, minimum: int):
        self.minimum = minimum

    __hash__: Any = _untraceable("uses the length of a text as a key")
    __str__ = __repr__ = _untraceable("prints the length of a text")


def _comparing(compare: Callable[[Any, Any], bool]) -> Any:
    def method(self: TracedLength, other: Any) -> bool:
        if type(other) is int:
            answers = {compare(length, other) for length in (self.minimum, max(self.minimum, other), math.inf)}
            if len(answers) == 1:  # it is that of all lengths
                return answers.pop()
        raise NotTraceable("the template reads the length of a text")

    return method


for _compare in (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le):
    setattr(TracedLength, f"__{_compare.__name__}__", _comparing(_compare))


def _constant(given: Any) -> str:
    if type(given) is not str or SENTINEL.search(given):
        raise NotTraceable("the template searches a text for something other than a constant string")
    return given


def known(given: Any) -> Any:
    """Return what is put together with a text. Raises NotTraceable if it is not known which texts it has."""
    if isinstance(given, str) and not isinstance(given, TracedText) and SENTINEL.search(given):
        raise NotTraceable(
            "the template changes a text in a way that the tracer does not see, or has a sentinel itself"
        )
    return given


def traced_text(text: str, guards: Guards) -> str:
    """Make a traced text, or a plain string if it holds no sentinel.

    Args:
        text: its characters.
        guards: where it records what a template does to it.
    """
    if not SENTINEL.search(text):
        return text
    traced = str.__new__(TracedText, text)
    traced.guards = guards
    return traced


def plain_text(text: str) -> str:
    """Return a text as an ordinary string."""
    return str.__str__(text) if isinstance(text, TracedText) else text
