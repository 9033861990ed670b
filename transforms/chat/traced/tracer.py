"""Traced texts: strings that record what a chat template does to them.

A traced text is a rope: literal characters, which are those of the template or of the signature, and texts of the
conversation between them. Each text is one sentinel, a character of the last plane for private use. Whatever is asked
of the rope is answered by its literals. What must hold for the texts so that the answer is right is recorded in guards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from transforms.chat.traced.guards import Guards

# How a text is printed: as it is, stripped, or (which is searched only) in lower case.
STRIPPED: Final = 1
_LOWER: Final = 2
# Sentinels: for each form a block of this size, with the numbers of two alphabets. The same conversation is traced with
# both, which shows whether a character is a text or a character that happens to be a sentinel. Texts may hold
# sentinels, since they are inserted after tracing.
_FIRST, _SIZE, MOST_TEXTS = 0x100000, 0x4000, 0x2000
SENTINEL = re.compile("[\U00100000-\U0010bfff]")
_TO_OTHER_ALPHABET = {code: code ^ MOST_TEXTS for code in range(_FIRST, _FIRST + 3 * _SIZE)}
_TO_RAW = {_FIRST + STRIPPED * _SIZE + number: _FIRST + number for number in range(_SIZE)}
_TO_STRIPPED = {raw: stripped for stripped, raw in _TO_RAW.items()}
_TO_LOWER = {_FIRST + number: _FIRST + _LOWER * _SIZE + number % _SIZE for number in range(_LOWER * _SIZE)}
UNSEEN = "the template changes a text in a way that the tracer does not see"


class NotTraceable(BaseException):
    """A template does something to a text whose result for other texts is unknown.

    It is not an Exception, since Jinja catches some of those and goes on: an undefined attribute would be the result.
    """


def sentinel(number: int, alphabet: int = 0) -> str:
    """Return the character that stands for a text.

    Args:
        number: of the text, less than MOST_TEXTS.
        alphabet: 0 or 1.
    """
    return chr(_FIRST + alphabet * MOST_TEXTS + number)


def number_of(character: str) -> int:
    """Return the number of the text that a sentinel stands for."""
    return (ord(character) - _FIRST) % MOST_TEXTS


def in_other_alphabet(text: str) -> str:
    """Return a text with the sentinels of the other alphabet."""
    return text.translate(_TO_OTHER_ALPHABET)


def with_raw_texts(text: str) -> str:
    """Return a text with the same sentinels for stripped texts as for others."""
    return text.translate(_TO_RAW)


def _print_form(character: str) -> int:
    return (ord(character) - _FIRST) // _SIZE


def _untraceable(action: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotTraceable(f"the template {action}")

    return method


class TracedText(str):
    """A text that records what a template does to it.

    It holds at least one sentinel, and the text of a sentinel is neither empty nor white space alone.

    Attributes:
        guards: where it records.
    """

    guards: Guards

    def _derive(self, text: str) -> str:
        return traced_text(text, self.guards)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: str) -> str:
        return self if other == "" else self._derive(str.__add__(self, other))

    def __radd__(self, other: str) -> str:
        return self if other == "" else self._derive(str.__add__(other, self))

    def __contains__(self, string: object) -> bool:
        return str.__contains__(self, self.located(string))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str) or str.__eq__(self, other):
            return isinstance(other, str)
        if isinstance(other, TracedText):
            raise NotTraceable("the template compares two texts")
        head, tail = self._literal_ends()
        given = _constant(other)
        text = given[len(head) : len(given) - len(tail)]
        if given.startswith(head) and given.endswith(tail) and len(given) >= len(head) + len(tail) and text.strip():
            literals = len(head) + len(tail)
            if _print_form(str.__getitem__(self, len(head))) == _LOWER and not literals:
                self.located(given)
            elif str.__len__(self) == literals + 1:
                self.guards.unequal.add(text)
            else:
                raise NotTraceable("the template compares texts that it has put together")
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _untraceable("uses a text as a key")

    def __getitem__(self, index: Any) -> str:  # type: ignore[override]
        head, tail = map(len, self._literal_ends())
        edges = (index.start, index.stop, index.step) if isinstance(index, slice) else (index,)
        if isinstance(index, slice):
            # The characters up to the first text have the same offsets for any texts, and those after the last one.
            is_known = index.step is None and all(
                edge is None or (type(edge) is int and -tail <= edge <= head) for edge in edges
            )
        else:
            is_known = type(index) is int and -tail <= index < head
        if not is_known:
            raise NotTraceable("the template takes a part of a text")
        return self._derive(str.__getitem__(self, index))

    def startswith(self, prefix: Any, *positions: Any) -> bool:  # type: ignore[override]
        return self._is_at_edge(str.startswith, self._literal_ends()[0], prefix, positions)

    def endswith(self, suffix: Any, *positions: Any) -> bool:  # type: ignore[override]
        return self._is_at_edge(str.endswith, self._literal_ends()[1], suffix, positions)

    def _is_at_edge(self, is_at: Callable[[str, str], bool], literal: str, given: Any, positions: Any) -> bool:
        if positions:
            raise NotTraceable("the template searches a part of a text")
        for one in given if isinstance(given, tuple) else (given,):
            # The literal decides unless the string is longer and begins, or ends, with all of it.
            if is_at(literal, _constant(one)) or (len(one) > len(literal) and is_at(one, literal) and self._has(one)):
                return True
        return False

    def _has(self, string: str) -> bool:
        """Record that a string which is longer than the literal at an edge is not there. Returns False."""
        self.located(string)
        return False

    def split(self, separator: Any = None, *limit: Any) -> list[str]:  # type: ignore[override]
        return [*map(self._derive, str.split(self, self.located(separator), *limit))]

    def rsplit(self, separator: Any = None, *limit: Any) -> list[str]:  # type: ignore[override]
        return [*map(self._derive, str.rsplit(self, self.located(separator), *limit))]

    def partition(self, separator: str) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(map(self._derive, str.partition(self, self.located(separator))))

    def rpartition(self, separator: str) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(map(self._derive, str.rpartition(self, self.located(separator))))

    def replace(self, old: str, new: str, *limit: Any) -> str:  # type: ignore[override]
        return self._derive(str.replace(self, self.located(old), _constant(new), *limit))

    def removeprefix(self, prefix: str) -> str:
        return self._derive(str.removeprefix(self, prefix)) if self.startswith(prefix) else self

    def removesuffix(self, suffix: str) -> str:
        return self._derive(str.removesuffix(self, suffix)) if self.endswith(suffix) else self

    def strip(self, characters: str | None = None) -> str:
        return self._stripped(str.strip, characters, (0, -1))

    def lstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.lstrip, characters, (0,))

    def rstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.rstrip, characters, (-1,))

    def _stripped(self, strip: Callable[..., str], characters: str | None, edges: tuple[int, ...]) -> str:
        if characters is not None and _constant(characters).strip():
            raise NotTraceable(f"the template strips {characters!r} off a text")
        left = strip(self, characters)
        reached = [left[edge] for edge in edges if SENTINEL.match(left[edge]) and _print_form(left[edge]) != STRIPPED]
        if strip is str.strip and characters is None and len(left) == 1 and reached:
            return self._derive(left.translate(_TO_STRIPPED))
        # Stripping reaches the white space of a text itself only if the text has some at that edge.
        self.guards.trimmed |= bool(reached)
        return self._derive(left)

    def lower(self) -> str:
        return self._derive(str.lower(self).translate(_TO_LOWER))

    def minimum_length(self) -> int:
        """Return the length that it has at least."""
        return str.__len__(self)

    def _literal_ends(self) -> tuple[str, str]:
        """The characters before the first text, and those after the last one."""
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
            is_lower = _print_form(text) == _LOWER
            (self.guards.absent_in_lower if is_lower else self.guards.absent).add(string)
            before, after, is_last = literals[at], literals[at + 1], at + 1 == len(texts)
            # It could begin in the literal before the text, or begin in the text and end after it.
            begun = {rest for begin, rest in halves if before.endswith(begin)}
            ended = {
                begin for begin, rest in halves if after.startswith(rest) or (not is_last and rest.startswith(after))
            }
            if is_lower and (begun or ended or not string.isascii()):
                raise NotTraceable("the template searches a text in lower case after adding to it")
            for guards, strings in ((self.guards.starts, begun), (self.guards.ends, ended)):
                if strings:
                    guards.setdefault(number_of(text), set()).update(strings)
        return str(string)


_TRACED = {*vars(TracedText), "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__doc__"}
for _name in dir(str):
    if _name not in _TRACED and callable(getattr(str, _name)):
        setattr(TracedText, _name, _untraceable(f"calls {_name} of a text"))
TracedText.__rmod__ = _untraceable("formats a text with %")  # type: ignore[attr-defined]


class TracedLength:
    """The length of a traced text; only its least value is known."""

    def __init__(self, minimum: int):
        self._minimum = minimum

    def _is_more(self, other: Any, result: bool, at_least: bool = False) -> bool:
        """Return the result if the length is certainly more than a number, or at least that."""
        if type(other) is not int or other >= self._minimum + at_least:
            raise NotTraceable("the template reads the length of a text")
        return result

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self._is_more(other, False)

    def __ne__(self, other: object) -> bool:
        return self._is_more(other, True)

    def __gt__(self, other: Any) -> bool:
        return self._is_more(other, True)

    def __le__(self, other: Any) -> bool:
        return self._is_more(other, False)

    def __ge__(self, other: Any) -> bool:
        return self._is_more(other, True, at_least=True)

    def __lt__(self, other: Any) -> bool:
        return self._is_more(other, False, at_least=True)

    __hash__: Any = _untraceable("uses the length of a text as a key")
    __str__ = __repr__ = _untraceable("prints the length of a text")


def _constant(given: Any) -> str:
    if type(given) is not str or SENTINEL.search(given):
        raise NotTraceable("the template searches a text for something other than a constant string")
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


def split_at_texts(traced: str) -> tuple[list[str], list[tuple[int, bool]]]:
    """Split what a template printed for traced texts.

    Args:
        traced: what it printed.

    Returns:
        The literals before, between and after texts; and for each text between them its number, and whether it is
        stripped.

    Raises:
        NotTraceable: if a text is printed in lower case.
    """
    texts = SENTINEL.findall(traced)
    if any(_print_form(text) == _LOWER for text in texts):
        raise NotTraceable("the template prints a text in lower case")
    return SENTINEL.split(traced), [(number_of(text), _print_form(text) == STRIPPED) for text in texts]


def joined_with_texts(literals: list[str], texts: list[str]) -> str:
    """Return the literals with a text between each two of them; the reverse of `split_at_texts`."""
    parts = literals * 2
    parts[::2] = literals
    parts[1:-1:2] = texts
    parts[-1] = ""
    return "".join(parts)


def plain_text(text: str) -> str:
    """Return a text as an ordinary string."""
    return str.__str__(text) if isinstance(text, TracedText) else text
