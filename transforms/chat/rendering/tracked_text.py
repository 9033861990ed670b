"""Tracked texts: strings that carry where their characters came from, and marks of no width.

A template is rendered with them. They compare, split and print as the strings they stand for, so the text is what it is
without them, whatever the template does to its values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import GeneratorType
from typing import Any, NamedTuple, TypeAlias

from markupsafe import Markup


class Mark(NamedTuple):
    """A place in a text, between two of its characters. `instrument` says what the numbers are."""

    kind: int
    loop: int
    message: int


# A part of a text of the record: the key of the text, the offsets of the part.
Source: TypeAlias = tuple[Any, int, int]
# A number of adjacent characters, and where they came from. They are a copy of their source if that is one, and as
# long as they are. Otherwise they were made of their sources in some way. Or no character, and a mark.
Run: TypeAlias = tuple[int, Any]

_OTHER_CASE = ("capitalize", "casefold", "lower", "swapcase", "title", "upper")
_LAZY = (GeneratorType, map, filter, zip, reversed)
_GROUPS: Any = (list, tuple, type({}.keys()), type({}.values()), type({}.items()))


class SourcedText(str):
    """A string that carries where its characters came from.

    Attributes:
        runs: of its characters, in their order.
        separator: if this is a piece of a text that was split, the sources of the separator after it. What joins the
            pieces again stands for the separator, as in an escaped text.
    """

    runs: Sequence[Run] = ()
    separator: tuple[Source, ...] = ()

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        return joined([self, other]) if _is_plain(other) else NotImplemented

    def __radd__(self, other: str) -> str:
        return joined([other, self]) if _is_plain(other) else NotImplemented

    def __iter__(self) -> Iterator[str]:
        return (self._part(at, at + 1, is_character=True) for at in range(len(self)))

    def __getitem__(self, index: Any) -> str:
        positions = range(len(self))[index]
        if isinstance(positions, int):
            return self._part(positions, positions + 1)
        if positions.step == 1:
            return self._part(positions.start, max(positions.start, positions.stop))
        return joined([self._part(at, at + 1) for at in positions])

    def strip(self, characters: str | None = None) -> str:
        start = len(self) - len(str.lstrip(self, characters))
        return self._part(start, start + len(str.strip(self, characters)))

    def lstrip(self, characters: str | None = None) -> str:
        return self._part(len(self) - len(str.lstrip(self, characters)), len(self))

    def rstrip(self, characters: str | None = None) -> str:
        return self._part(0, len(str.rstrip(self, characters)))

    def split(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:  # type: ignore[override]
        return self._parts(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:  # type: ignore[override]
        return self._parts(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:  # type: ignore[override]
        lines, at = [], 0
        for line, whole in zip(str.splitlines(self, keepends), str.splitlines(self, True), strict=True):
            lines.append(self._part(at, at + len(line)))
            at += len(whole)
        return lines

    def partition(self, sep: str) -> tuple[str, str, str]:
        return self._three(str.partition(self, sep))

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        return self._three(str.rpartition(self, sep))

    def replace(self, old: str, new: str, count: int = -1) -> str:  # type: ignore[override]
        if not old:
            return derived(str.replace(self, old, new, count), (self, new))
        return interleaved(new, self.split(old, count))

    def removeprefix(self, prefix: str) -> str:
        return self._part(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str) -> str:
        return self._part(0, len(str.removesuffix(self, suffix)))

    def join(self, parts: Iterable[str]) -> str:
        return interleaved(self, [*parts])

    def _part(self, start: int, stop: int, is_character: bool = False) -> str:
        """The characters from start to stop, and all marks. is_character: of a loop, which has all in the end."""
        if start == 0 and stop == len(self):
            return self
        runs: list[Run] = []
        at = 0
        for length, sources in self.runs:
            if type(sources) is Mark:
                runs.append((0, sources))
                continue
            first, last = max(start - at, 0), min(stop - at, length)
            if first < last:
                run = str.__getitem__(self, slice(at, at + length))
                runs.append((last - first, _cut(run, sources, first, last, is_character)))
            at += length
        return tracked(str.__getitem__(self, slice(start, stop)), runs)

    def _parts(self, parts: list[str], separator: str | None) -> list[str]:
        """The parts that a split gave."""
        pieces, at = [], 0
        for part in parts:
            start = at if separator is not None else str.index(self, part, at)
            at = start + len(part)
            piece: Any = self._part(start, at)
            pieces.append(piece)
            if separator is not None and len(pieces) < len(parts):
                at += len(separator)
                piece.separator = tuple(_sources(self._part(at - len(separator), at)))
        return pieces

    def _three(self, parts: tuple[str, str, str]) -> tuple[str, str, str]:
        before, separator, _ = map(len, parts)
        end = before + separator
        return self._part(0, before), self._part(before, end), self._part(end, len(self))


class _SourcedMarkup(Markup):
    """What the filter safe makes of a SourcedText: Jinja's markup, which escapes what is added to it."""

    runs: Sequence[Run] = ()
    separator: tuple[Source, ...] = ()

    def __str__(self) -> str:
        return tracked(str.__str__(self), list_runs(self), self.separator)

    def __repr__(self) -> str:
        return repr(Markup(str.__str__(self)))

    def __iter__(self) -> Iterator[str]:
        return iter(str(self))

    def replace(self, old: str, new: str, count: Any = -1) -> Any:  # type: ignore[override]
        return as_markup(str(self).replace(old, str(self.escape(new)), count))


_SOURCED = (SourcedText, _SourcedMarkup)


def _deriving(kind: type[str], name: str) -> Callable[..., Any]:
    """A method of a kind of strings. Its result is made of all that it is given."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def deriving(self: str, *arguments: Any, **keywords: Any) -> Any:
        arguments = tuple(map(listed, arguments))
        result = method(kind(str.__str__(self)), *arguments, **keywords)
        if kind is str and name in _OTHER_CASE and len(result) == len(self):
            return tracked(result, list_runs(self))
        return derived(result, (self, arguments, keywords)) if isinstance(result, str) else result

    return deriving


def _cutting_markup(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Markup, name))
    def cut(self: _SourcedMarkup, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(str(self), name)(*arguments, **keywords)
        return as_markup(result) if isinstance(result, str) else type(result)(map(as_markup, result))

    return cut


def as_markup(text: str) -> Any:
    return tracked(Markup(str.__str__(text)), list_runs(text), getattr(text, "separator", ()))


_MADE = ("__mod__", "__mul__", "__rmul__", "center", "expandtabs", "ljust", "rjust", "translate", "zfill", *_OTHER_CASE)
_MADE_OF_MARKUP = (*_MADE, "__add__", "__radd__", "join", "unescape", "striptags", "format", "format_map")
_CUT = ("strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "partition", "rpartition", "__getitem__")
for _kind, _class, _names in ((str, SourcedText, _MADE), (Markup, _SourcedMarkup, _MADE_OF_MARKUP)):
    for _name in _names:
        setattr(_class, _name, _deriving(_kind, _name))
for _name in (*_CUT, "removeprefix", "removesuffix"):
    setattr(_SourcedMarkup, _name, _cutting_markup(_name))


def sourced(text: str, key: Any) -> str:
    """Make a string that carries where its characters came from.

    Args:
        text: its characters.
        key: names the text.
    """
    copy: Any = str.__new__(SourcedText, text)
    copy.runs = [(len(text), ((key, 0, len(text)),))]
    return copy


def list_runs(text: str) -> Sequence[Run]:
    """Return the runs of a string; those of an ordinary one have no source."""
    return (isinstance(text, (SourcedText, _SourcedMarkup)) and text.runs) or [(len(text), ())]


def listed(value: Any) -> Any:
    """The value, or a list of what it would yield, so that the sources are known after it is used."""
    return [*value] if isinstance(value, _LAZY) else value


def derived(text: str, values: Any) -> str:
    """A text that was made of some values in a way that is not followed."""
    sources = tuple(dict.fromkeys(_sources(values)))
    return tracked(text, [(len(text), _not_copied(len(text), sources))]) if sources and text else text


def have_sources(arguments: Iterable[Any]) -> bool:
    """Whether arguments of a method of a string have sources. An empty piece of a text has its separator alone."""
    given = [item for value in arguments for item in (value if isinstance(value, list) else [value])]
    return any(isinstance(item, _SOURCED) for item in given) or bool(_sources(arguments))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Markup)


def _sources(values: Any) -> list[Source]:
    """The sources of all texts in some values, in their order."""
    all_sources: list[Source] = []
    left = [values]
    while left:
        value = left.pop()
        kind = type(value)
        if kind is str:
            continue
        if kind is SourcedText or kind is _SourcedMarkup:
            for _, sources in value.runs:
                if type(sources) is not Mark:
                    all_sources += sources
        elif isinstance(value, dict):
            left += [one for item in reversed(value.items()) for one in reversed(item)]
        elif isinstance(value, _GROUPS):
            left += [*value][::-1]
    return all_sources


def interleaved(separator: str, parts: list[str]) -> str:
    """The parts with a separator between them."""
    pieces = parts[:1]
    for before, part in pairwise(parts):
        pieces += [_standing_for(getattr(before, "separator", ()), separator), part]
    return joined(pieces)


def _standing_for(replaced: tuple[Source, ...], text: str) -> str:
    """A text in place of another one that has some sources."""
    if not replaced:
        return text
    runs = [(length, _not_copied(length, (*sources, *replaced))) for length, sources in list_runs(text) if length]
    return tracked(str.__str__(text), runs)


def joined(parts: Iterable[str]) -> str:
    """Strings one after another. What Jinja itself joins is joined here, too."""
    parts = [*parts]
    runs: list[Run] = []
    without = 0  # characters without sources before the next run
    for part in parts:
        kind = type(part)
        if (kind is not SourcedText and kind is not _SourcedMarkup) or not part.runs:  # type: ignore[attr-defined]
            without += len(part)
            continue
        if without:
            runs.append((without, ()))
            without = 0
        own = part.runs  # type: ignore[attr-defined]
        runs += own if part else [run for run in own if type(run[1]) is Mark]
    text = "".join(parts)
    if not runs:
        return text
    if without:
        runs.append((without, ()))
    return tracked(text, runs)


def _cut(text: str, sources: tuple[Source, ...], first: int, last: int, is_character: bool) -> tuple[Source, ...]:
    """The sources of the characters from first to last of a run.

    Of what is not a copy, each character is taken to be made of as large a part of the source as any other, and of the
    character before and after that. White space around it may be padding, and is made of nothing.

    text: of the run. is_character: of a loop, which in the end has all of them.
    """
    key, start, stop = sources[0] if sources else (None, 0, 0)
    if is_copy(len(text), sources):
        return ((key, start + first, start + last),)
    inner = text.strip()
    if len(set(sources)) == 1 and not is_character and inner != text[first:last].strip():
        size, before = stop - start, len(text) - len(text.lstrip())
        begin, end = (first - before) * size // len(inner) - 1, -((before - last) * size // len(inner)) + 1
        sources = ((key, start + min(max(begin, 0), size), start + min(max(end, 0), size)),)
    return _not_copied(last - first, sources)


def _not_copied(length: int, sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """The sources of characters that are not a copy of them, although they may be as many by chance."""
    return sources * 2 if is_copy(length, sources) else sources


def is_copy(length: int, sources: tuple[Source, ...]) -> bool:
    """Return whether the characters of a run are a copy of its source."""
    return len(sources) == 1 and sources[0][2] - sources[0][1] == length


def tracked(text: str, runs: Sequence[Run], separator: tuple[Source, ...] = ()) -> str:
    """Return a string with the same characters, which carries where they came from."""
    copy: Any = str.__new__(_SourcedMarkup if isinstance(text, Markup) else SourcedText, text)
    copy.runs = runs
    if separator:
        copy.separator = separator
    return copy
