"""Provenance by identity: which texts of a record a template prints, known by the objects that it prints.

A template is given copies of the record's texts, which are objects that nothing else in the process holds. What it
prints of them is such an object, or was made of some by an operation that is followed here. What is done to a text in
any other way is refused (`NotFollowed`), so that all that is known is what `provenance` finds, with strings that carry
their sources, in ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from jinja2.runtime import Undefined
from markupsafe import Markup

from transforms.chat.rendering.renderings import PrintedText
from transforms.chat.rendering.texts import KEY, Key
from transforms.model.examples import REASONING_KEYS

# Of an object: itself, and the key of the text of the record that it is a copy of, and where that begins and ends.
# Instead of the key _JOINED, and the texts that it was joined of; or _MADE, and the sources of what it was made of.
Source: TypeAlias = tuple[str, Any, Any, int]
_JOINED, _MADE = "joined", "made"
# Of all texts of a rendering that are followed: each is kept until its end.
_MOST_CHARACTERS = 64 << 20
_SIMPLE = frozenset((int, float, bool, type(None)))
_NAMES_OF_TEXTS = frozenset(("content", "text", *REASONING_KEYS))
_join = "".join
_new: Any = tuple.__new__  # in half the time that a NamedTuple takes


class NotFollowed(Exception):
    """What a template does with a conversation is left to the reference; the text of the exception says why."""


class _Empty(str):
    """A text without characters. Of `str` there is but one, so that it has no identity of its own."""


class Sources:
    """Where the texts of one rendering came from.

    Args:
        known: the sources of texts that were given to other renderings too.

    Attributes:
        table: the source of each object, by its identity.
        copied: the identities of the copies, and 0 if one is white space, which may be printed unseen.
    """

    def __init__(self, known: Mapping[int, Source] | None = None):
        self.table = dict(known or {})
        self.copied: set[int] = set()
        self._left = _MOST_CHARACTERS
        self._has_blank = False

    def copy(self, text: str, key: Key) -> str:
        """Return a copy of a text of the record, whose source is known. `texts.with_sources` calls this."""
        if text:
            copy: str = _join((text, ""))  # a new object, of one character too
        elif key[1] in ("content", "reasoning"):
            self._has_blank = True
            return text
        else:
            copy = _Empty()
        self.table[id(copy)] = copy, key, 0, len(copy)
        self.copied.add(0 if copy.isspace() else id(copy))
        return copy

    def _add(self, text: str, key: Any, start: Any, stop: int) -> str:
        """Note the source of a new object."""
        self._left -= len(text)
        if self._left < 0:
            raise NotFollowed("the template makes too many texts of those of the record")
        if id(text) in self.table:
            raise NotFollowed("the template makes a text that is not a new object")
        self.table[id(text)] = text, key, start, stop
        return text

    def _part(self, text: str, part: str, start: int) -> str:
        """Return a part of a text, or a copy with an identity of its own, whose source is noted if the text has one."""
        if not part or part is text or id(text) not in self.table:
            return part
        _, key, first, _ = self.table[id(text)]
        if len(part) == 1:
            part = _join((part, ""))
        if key is _MADE:
            if len(first) == 1 and part.strip() != text.strip():
                raise NotFollowed("the template cuts a text that was made of another one")
            return self._add(part, _MADE, first, 0)
        if key is not _JOINED:
            return self._add(part, key, first + start, first + start + len(part))
        parts, at, stop = [], 0, start + len(part)
        for one in first:
            begin, end = max(start - at, 0), min(stop - at, len(one))
            if begin < end:
                parts.append(self._part(one, one[begin:end], begin))
            at += len(one)
        return parts[0] if len(parts) == 1 else self._add(part, _JOINED, parts, 0)

    def strip(self, text: str, *characters: Any) -> str:
        part = text.strip(*characters)
        if part is text or id(text) not in self.table:
            return part
        return self._part(text, part, len(text) - len(text.lstrip(*characters)))

    def lstrip(self, text: str, *characters: Any) -> str:
        part = text.lstrip(*characters)
        return self._part(text, part, len(text) - len(part))

    def rstrip(self, text: str, *characters: Any) -> str:
        return self._part(text, text.rstrip(*characters), 0)

    def removeprefix(self, text: str, prefix: str) -> str:
        part = text.removeprefix(prefix)
        return self._part(text, part, len(text) - len(part))

    def removesuffix(self, text: str, suffix: str) -> str:
        return self._part(text, text.removesuffix(suffix), 0)

    def split(self, text: str, separator: str | None = None, most: int = -1) -> list[str]:
        return self._pieces(text, text.split(separator, most), separator)

    def rsplit(self, text: str, separator: str | None = None, most: int = -1) -> list[str]:
        return self._pieces(text, text.rsplit(separator, most), separator)

    def _pieces(self, text: str, pieces: list[str], separator: str | None) -> list[str]:
        if id(text) not in self.table or pieces[:1] == [text]:
            return pieces
        if separator is None:
            raise NotFollowed("the template splits a text at its white space")
        starts = accumulate((len(piece) + len(separator) for piece in pieces), initial=0)
        return [self._part(text, piece, start) for piece, start in zip(pieces, starts, strict=False)]

    def sliced(self, value: Any, part: slice) -> Any:
        """Return a slice of a text, or of a list."""
        found = value[part]
        if type(value) is not str or id(value) not in self.table or not found:
            return found
        positions = range(len(value))[part]
        if positions.step != 1:
            raise NotFollowed("the template takes some characters of a text")
        return self._part(value, found, positions.start)

    def add(self, *values: Any) -> Any:
        """Return the sum of two values or more."""
        if all(type(value) is str for value in values):
            return self.join(values)
        first, *others = values
        for other in others:
            self._refuse((first, other), (str, Markup))
            first = first + other
        return first

    def concatenate(self, *values: Any) -> str:
        """Return what the operator ~ makes of values."""
        return self.join([value if type(value) is str else self.text_of(value) for value in values])

    def join(self, parts: Iterable[str]) -> str:
        """Return the text that a template prints in parts."""
        parts = [part for part in parts if part]
        if len(parts) < 2:
            return parts[0] if parts else ""
        text = _join(parts)
        if self.table.keys().isdisjoint(map(id, parts)):
            if len(text) > self._left:
                raise NotFollowed("the template makes a long text")
            return text
        return self._add(text, _JOINED, parts, 0)

    def text_of(self, value: Any) -> str:
        """Return a value as it is printed."""
        if type(value) in _SIMPLE:
            return str(value)
        if type(value) is Markup and id(value) in self.table:
            _, key, start, stop = self.table[id(value)]
            return self._add(_join((value, "")), key, start, stop)
        if not isinstance(value, str) or type(value) is Markup:
            self.refuse(value)
        return str(value)

    def marked_up(self, value: Any) -> Markup:
        """Return what the filter safe makes of a value."""
        if type(value) is str and id(value) in self.table:
            _, key, start, stop = self.table[id(value)]
            markup: Any = self._add(Markup(value), key, start, stop)
            return markup
        self.refuse(value)
        return Markup(value)

    def made(self, text: str, value: Any) -> str:
        """Return a text that was made of all texts in a value, such as in JSON."""
        sources = {id(source[0]): source for source in self._copies(value)}
        return self._add(text, _MADE, [*sources.values()], 0) if sources else text

    def item(self, value: Any, found: Any) -> Any:
        """Return an item of a value that was found by its number. That of a text is a character."""
        if type(value) is str and type(found) is str and id(value) in self.table:
            raise NotFollowed("the template takes a character of a text")
        return found

    def each(self, value: Any) -> Any:
        """Return what a template loops over, or unpacks. The items of a text are characters."""
        return self.item(value, value)

    def refuse(self, *values: Any) -> None:
        """Raise NotFollowed if a value is or holds a text whose source is known, or may hold one."""
        if self.table and self._found(values, True):
            raise NotFollowed("the template does more than print a text")

    def _refuse(self, values: Iterable[Any], types: tuple[type, ...]) -> None:
        """Raise NotFollowed if one of the values of some types has a source."""
        if any(isinstance(value, types) and id(value) in self.table for value in values):
            raise NotFollowed("the template does more than print a text")

    def _found(self, value: Any, is_strict: bool = False) -> list[Source]:
        """The sources of the texts in a value. is_strict: raise NotFollowed if that has values of unknown types."""
        found, table, left = [], self.table, [value]
        while left:
            one = left.pop()
            if isinstance(one, str):
                if (source := table.get(id(one))) is not None:
                    found.append(source)
                elif not one and self._has_blank and (is_strict or one is value):
                    raise NotFollowed("the template does more than print a text without characters")
            elif isinstance(one, dict):
                if (
                    self._has_blank
                    and not _NAMES_OF_TEXTS.isdisjoint(one)
                    and any(one.get(name) == "" for name in _NAMES_OF_TEXTS)
                ):
                    raise NotFollowed("the template does more than print a text without characters")
                left += one
                left += one.values()
            elif isinstance(one, (list, tuple)):
                left += one
            elif is_strict and type(one) not in _SIMPLE and not isinstance(one, Undefined):
                raise NotFollowed("the template does more than print a text")
        return found

    def _copies(self, value: Any) -> list[Source]:
        """The sources of the copies of texts of the record in a value, or that it was made of."""
        copies: list[Source] = []
        for source in self._found(value):
            _, key, first, _ = source
            if key is _MADE:
                copies += first
            elif key is _JOINED:
                copies += self._copies(first)
            else:
                copies.append(source)
        return copies

    def _runs(self, text: str, at: int) -> Iterator[tuple[int, str, Source]]:
        """The offsets of the parts of a text that have sources, the parts, and their sources."""
        left = [text]
        while left:
            source = self.table.get(id(text := left.pop()))
            if source is not None and source[1] is _JOINED:
                left += reversed(source[2])
                continue
            if source is not None:
                yield at, text, source
            at += len(text)

    def lasting(self, text: str) -> dict[int, Source]:
        """Return the sources of a text, and of what it was joined of, for other renderings."""
        parts, at = [], 0
        for start, part, _ in self._runs(text, 0):
            parts += [text[at:start], part]
            at = start + len(part)
        found = {id(part): self.table[id(part)] for part in parts[1::2]}
        return found if id(text) in found or not found else {**found, id(text): (text, _JOINED, [*parts, text[at:]], 0)}

    def texts_in(self, parts: Sequence[str], offsets: Sequence[int]) -> tuple[list[PrintedText], frozenset[Key], bool]:
        """Find where a text has texts of the record.

        Args:
            parts: the parts in which it was printed.
            offsets: where each of them begins.

        Returns:
            The texts; the keys of further ones, as `Rendering` has both; and whether all that were copied are certainly
            printed, each as a whole in one place.
        """
        texts: list[PrintedText] = []
        keys: list[Key] = []
        whole: list[int] = []
        table = self.table
        for number, at in zip(map(id, parts), offsets, strict=False):
            if number not in table:  # as most
                continue
            part, key, first, last = table[number]
            if key is not _JOINED and key is not _MADE:
                if key[1] == KEY:
                    keys.append(key)
                else:
                    texts.append(_new(PrintedText, (at, at + len(part), key, first, last, True)))
                whole.append(number)
                continue
            for start, run, one in self._runs(part, at):
                is_copy = one[1] is not _MADE
                stop = start + len(run)
                for copy, key, first, last in (one,) if is_copy else one[2]:
                    if key[1] == KEY:
                        keys.append(key)
                    else:
                        texts.append(_new(PrintedText, (start, stop, key, first, last, is_copy)))
                    whole.append(id(copy))
        return texts, frozenset(keys), self.copied.issubset(whole)
