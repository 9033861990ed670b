"""Names and values of users and of data in Markdown: each in one line, and shown as it is, with any signs."""

from __future__ import annotations

import re
from typing import Any

from transforms.base.hidden import escaped

# Signs that begin something within a line. An underscore between letters or digits begins nothing.
_SIGNS = re.compile(r"[\\`*<>\[\]|&~$]|(?<![^\W_])_|_(?![^\W_])")


def as_text(value: Any) -> str:
    """Return a value as a part of a paragraph, or as a cell of a table: without markup, links and HTML."""
    return _SIGNS.sub(r"\\\g<0>", _in_one_line(str(value)))


def as_code(value: Any) -> str:
    """Return a value as a span of code, for a paragraph: the cells of tables end at a `|` in code, too."""
    text = _in_one_line(str(value))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _in_one_line(text: str) -> str:
    return escaped(" ".join(re.split("[\t\n\r ]+", text.strip("\t\n\r "))))
