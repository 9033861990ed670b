"""Where a text may be cut before it is tokenized, for tokenizers of which this can be shown.

A text is cut before a space that follows a printable ASCII character and precedes an ASCII letter. The pieces have the
tokens of the text if the normalizer and the pre-tokenizers up to the one that always cuts there treat both sides alone.
What comes after that one, and the model, get the pre-tokens alone anyway.
"""

from __future__ import annotations

import re
import string
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from transforms.tokens.components import components_of

# Of one character, or of graphemes. A space begins one, if no combining character follows.
_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Precompiled", "Nmt", "BertNormalizer")
# They cut off characters that are neither spaces nor ASCII letters.
_NEUTRAL = ("Digits", "Punctuation")
# They cut at each space.
_AT_SPACES = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")

_CLASS = r"(?:\\p\{\w+\}|\\d|\[[^\[\]]*\])"
_QUANTIFIER = r"(?:\+|\*|\{\d+(?:,\d*)?\})?"
# Optional white space or another character, then classes: ` ?\p{L}+`, `[^\r\n\p{L}\p{N}]?\p{L}+`.
_WORDS = re.compile(rf"(?:( |\\s|{_CLASS})\?)?((?:{_CLASS}{_QUANTIFIER})+)")
# White space alone. What these see after it is one character.
_WHITE_SPACE = re.compile(r"\\s[+*](?:\[\\r\\n\][+*]?|\(\?!\\S\)|\$)?")
_CONTRACTIONS = re.compile(r"\(\?i?:'\w+(?:\|'\w+)*\)|'\(\?:\[\w+\](?:\|\w+)*\)|'\w+(?=\||$)")


def can_be_cut(tokenizer: Tokenizer) -> bool:
    """Return whether the tokens of a text are those of its pieces.

    Args:
        tokenizer: as tokenizers loads it.
    """
    for token in tokenizer.get_added_tokens_decoder().values():
        if " " in token.content or token.rstrip or (token.lstrip and token.content[:1] in string.ascii_letters):
            return False
    if not all(map(_normalizes_alone, components_of(tokenizer.normalizer))):
        return False
    if getattr(tokenizer.model, "dropout", None):
        return False
    for component in components_of(tokenizer.pre_tokenizer):
        if _always_cuts(component):
            return True
        if not _cuts_nothing_else(component):
            return False
    return False


def _normalizes_alone(component: dict[str, Any]) -> bool:
    if component["type"] == "Strip":
        return not component["strip_left"]  # no piece but the last one ends with a space
    if component["type"] == "Replace":
        pattern = component["pattern"]
        return len(pattern.get("String", "")) == 1 or pattern.get("Regex") == " {2,}"
    return component["type"] in _NORMALIZERS


def _always_cuts(component: dict[str, Any]) -> bool:
    kind = component["type"]
    if kind == "ByteLevel":  # GPT-2's pattern. A space would be added to each piece, if it has none.
        return component["use_regex"]
    if kind == "Metaspace":
        return component["split"]
    return kind in _AT_SPACES or (kind == "Split" and _is_apart(component, cuts=True))


def _cuts_nothing_else(component: dict[str, Any]) -> bool:
    return component["type"] in _NEUTRAL or (component["type"] == "Split" and _is_apart(component, cuts=False))


def _is_apart(split: dict[str, Any], cuts: bool) -> bool:
    """Whether no match of a `Split` goes over a cut, and if asked, whether one always begins there."""
    pattern = split["pattern"].get("Regex")
    if pattern is None or split["behavior"] != "Isolated":
        return False
    words = []
    for alternative in _CONTRACTIONS.sub("'", pattern).split("|"):
        found = _WORDS.fullmatch(alternative)
        if found:
            words.append(found)
            if any(_matches(one, " ") for one in re.findall(_CLASS, found[2])):
                return False
        elif alternative != "'" and not _WHITE_SPACE.fullmatch(alternative):
            return False
    return not cuts or any(
        found[1] and _matches(found[1], " ") and _matches(found[2], string.ascii_letters) for found in words
    )


def _matches(pattern: str, characters: str) -> bool:
    """Whether a pattern matches each of some characters, in the regular expressions of tokenizers."""
    cut = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str
    return not any(cut(character) for character in characters)
