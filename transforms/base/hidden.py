"""The characters of a text that nobody would see, or that change how others are shown."""

from __future__ import annotations

import re

# Control characters without line break and tab; what is invisible or turns the direction of a text, but not the joiners
# that emoji and some scripts need; line separators, surrogates, private use; the marks of what is trained on.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u27e6\u27e7\ud800-\udfff\ue000-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)


def visible(text: str) -> str:
    """Return a text with an escape for each hidden character, such as \\u202e, and for a byte that is not UTF-8."""
    return HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    byte = ord(match[0]) - 0xDC00  # of a lone surrogate, as Python decodes it
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else match[0].encode("unicode_escape").decode()
