"""Regular expressions for many strings at once, such as all special tokens of a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable


def longest_match_regex(strings: Iterable[str]) -> str:
    """Return a regular expression that matches the longest of some strings that a place begins with.

    The strings share their beginnings, as in a tree: an alternative for each would be tried one after the other.

    Args:
        strings: any number of them; with none, the expression matches nowhere.
    """
    given = sorted(set(strings))
    return _tree(given) if given else "(?!)"


def _tree(strings: Iterable[str]) -> str:
    rests: dict[str, list[str]] = {}
    for string in strings:
        rests.setdefault(string[:1], []).append(string[1:])
    branches = [re.escape(first) + _tree(rest) for first, rest in rests.items() if first]
    if "" in rests:
        return f"(?:{'|'.join(branches)})?" if branches else ""
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
