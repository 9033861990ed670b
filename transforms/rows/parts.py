"""Parts of turns as numbers: one for each token, and runs of them for the columns of rows.

A token of a part has the code 8 * message + kind, any other token has the code 0. The kind is the number of the part in
KINDS; message is the number of the message in its conversation.
"""

from __future__ import annotations

import numpy as np

# What the model writes in a turn, see docs/masks.md.
PARTS = ("reasoning", "content", "tool_calls", "template", "end", "after_end")
# By their numbers: 0 is what is in no turn that is trained on.
KINDS = ("none", *PARTS)
PART_COLUMNS = ("part_lengths", "part_kinds", "part_messages")
_BITS = 3


def part_code(part: str, message: int) -> int:
    """Return the code of a part of a message. part: one of PARTS."""
    return message << _BITS | KINDS.index(part)


def code_kinds(codes: np.ndarray) -> np.ndarray:
    """Return the kind of each code: int8, shape (codes,)."""
    return (codes & (1 << _BITS) - 1).astype(np.int8)


def code_messages(codes: np.ndarray) -> np.ndarray:
    """Return the message of each code, -1 if it is of no part: int32, shape (codes,)."""
    return np.where(codes == 0, -1, codes >> _BITS).astype(np.int32)


def run_starts(codes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Find where runs of equal codes begin.

    Args:
        codes: int32, shape (tokens,).
        starts: int64, shape (any,): where a run begins in any case, such as the first tokens of examples.

    Returns:
        int64, shape (runs,), ascending.
    """
    return np.union1d(np.flatnonzero(np.diff(codes)) + 1, starts)


def count_parts(codes: np.ndarray) -> dict[str, int]:
    """Count tokens by their kinds, in the order of KINDS. codes: int32, shape (tokens,)."""
    counts = np.bincount(code_kinds(codes), minlength=len(KINDS)).tolist()
    return {kind: count for kind, count in zip(KINDS, counts, strict=True) if count}
