"""Where a malformed JSON record ends among others, so that it costs only itself.

In valid JSON nothing of this applies: a bracket is closed by its own kind, an object is not a key, and a line does not
begin with an object after a value unless the object is another record. So each of these shows what is missing.
"""

from __future__ import annotations

import re
from collections import Counter

_SIGN = re.compile(rb'["\[\]{},]')
# A quote that ends a string is followed by one of these signs; another one is part of the string, and lacks its escape.
_STRING = re.compile(rb'"[^"\\]*(?:(?:\\.|"(?!\s*[,:\]}]))[^"\\]*)*"', re.DOTALL)
_STRICT_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BETWEEN_OBJECTS = re.compile(rb"\}\s*,\s*\{")
_NEXT_OBJECT = re.compile(rb"[^,\[:\s]\s*\n(?=\{)")
_OPENING = {b"}": ord("{"), b"]": ord("[")}


def end_of_malformed(content: bytes, start: int, closing: bytes) -> int | None:
    """Find where a malformed record ends.

    Args:
        content: part of a file.
        start: where the record begins in it.
        closing: the bracket that ends the array or object that it is an element of: then it ends before a comma or that
            bracket. If it is empty, the record ends where its brackets are closed, or before a line that begins with an
            object where none can follow.

    Returns:
        The index in the content; None if the record does not end in it.
    """
    open_brackets, counts = bytearray(), Counter[int]()  # a byte each: a hostile file has nothing else
    at, size = start, len(content)
    while found := _SIGN.search(content, at):
        sign, here, at = found[0], found.start(), found.end()
        before = _last_not_blank(content, start, here)
        follows = content[before : before + 1] if before >= start else b","
        if sign == b'"':
            if follows in (b"{", b"[", b",", b":"):
                string = _STRING.match(content, here)
                if string and _BETWEEN_OBJECTS.search(string[0]):
                    string = _STRICT_STRING.match(content, here)
                # A search in all of the content, for each record, would take the square of its length.
                next_object = None if closing else _NEXT_OBJECT.search(content, here, string.end() if string else size)
                if string is None or next_object:
                    return next_object.end() if next_object else None
                at = string.end()
        elif sign in (b"{", b"["):
            if sign == b"{" and not closing and content[here - 1 : here] == b"\n" and follows not in b",[:":
                return here
            if open_brackets[-1:] == b"{" and follows == b",":  # an object cannot be a key: one was not closed
                counts[open_brackets.pop()] -= 1
                if not open_brackets:
                    return before if closing else here
            open_brackets += sign
            counts[sign[0]] += 1
        elif not open_brackets:
            if closing and sign in (b",", closing):
                return here
        elif sign != b"," and counts[_OPENING[sign]]:
            is_closed = False
            while not is_closed:
                last = open_brackets.pop()
                counts[last] -= 1
                is_closed = last == _OPENING[sign]
            if not open_brackets and not closing:
                return at
    return None


def _last_not_blank(content: bytes, start: int, stop: int) -> int:
    """Find the last byte before stop that is not white space; start - 1 if there is none."""
    at = stop - 1
    while at >= start and content[at] in b" \t\r\n":
        at -= 1
    return at
