"""Characters that gigatoken knows and tokenizers does not.

gigatoken has Unicode 17. tokenizers cuts words by the classes of Unicode 16, and its NFC is older than Unicode 11.
Tests compare all other characters, which both treat alike.
"""

from __future__ import annotations

# Those that Unicode 17 added (DerivedAge.txt), each range by its first and last one: gigatoken has classes for them.
_ADDED = """
088F 0C5C 0CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE 10940-10959
10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6
187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8
1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD 1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479
"""
# Those that Unicode 14 to 16 added and NFC moves or composes. Python's own NFC shows which texts change, but the
# Unicode of Python 3.10 is 13.
_COMPOSED = """
0897-089F 08CA-08D2 0C3C 1715 1AC1-1ACE 1DFA 105D2 105DA 10D69-10D6D 10EFD-10EFF 10F82-10F85 11070 113BB 113C2 113C9
113CE-113D0 11F41-11F42 1611E-16121 16129 1612F 16D67 16D69 1E08F 1E2AE 1E4EC-1E4EF 1E5EE-1E5EF
"""
NEWER = frozenset(
    chr(code)
    for first, _, last in (found.partition("-") for found in (_ADDED + _COMPOSED).split())
    for code in range(int(first, 16), int(last or first, 16) + 1)
)
# Without its last byte, each is one of a few hundred.
_BEGINNINGS = frozenset(
    beginning[:size] for beginning in {character.encode()[:-1] for character in NEWER} for size in (1, 2, 3)
)
_NO_FIRST_BYTES = bytes({*range(256)} - {beginning[0] for beginning in _BEGINNINGS})


def may_be_of_newer(token: bytes) -> bool:
    """Return whether a token may occur in a text with a character of NEWER: it has one, or ends within one.

    So most texts are known by their tokens to have none: looking at their characters would cost ten times as much.
    """
    if not token.translate(None, _NO_FIRST_BYTES):
        return False
    ends_within = token[-1:] in _BEGINNINGS or token[-2:] in _BEGINNINGS or token[-3:] in _BEGINNINGS
    return ends_within or has_newer(token.decode(errors="ignore"))


def has_newer(text: str) -> bool:
    """Return whether a text has a character of NEWER."""
    return not NEWER.isdisjoint(text)
