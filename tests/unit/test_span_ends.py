"""What spans of trained tokens end with: the last token before white space, counted within each segment."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from transforms.tokens.decoding import TokenDecoder
from transforms.tokens.span_ends import SpanEnds

END, CALL, BREAK, SPACES, TEXT, OTHER = range(6)
NOT = -100


def decoder() -> TokenDecoder:
    """Of a byte-level vocabulary, in which "  " is an added token, and the last token is a part of a character."""
    vocabulary = ["<|end|>", "<|call|>", "\u010a", "  ", "text", "\u00ff"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(vocabulary)}, unk_token="text"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|call|>"])
    tokenizer.add_tokens(["  "])
    return TokenDecoder(tokenizer)


@pytest.mark.parametrize(
    ("labels", "starts", "expected"),
    [
        ([NOT, TEXT, END, BREAK, NOT], [0], {"<|end|>": 1}),
        ([NOT, TEXT, END, NOT, TEXT, CALL], [0], {"<|end|>": 1, "<|call|>": 1}),
        # A span ends where the next segment begins, also if that one is trained on from its first token.
        ([TEXT, END, BREAK, TEXT, TEXT], [0, 3], {"<|end|>": 1, "others": 1}),
        ([TEXT, END, BREAK, TEXT, TEXT], [0], {"others": 1}),
        ([END, TEXT, TEXT, END], [0, 1, 3], {"<|end|>": 2, "others": 1}),
        # White space, whether it is an added token or not, and a part of a character.
        ([TEXT, END, SPACES, BREAK, SPACES], [0], {"<|end|>": 1}),
        ([TEXT, OTHER, BREAK], [0], {"others": 1}),
        ([NOT, BREAK, SPACES, NOT, END], [0], {"others": 1, "<|end|>": 1}),
        ([END, *[BREAK] * 8], [0], {"<|end|>": 1}),
        ([END, *[BREAK] * 9], [0], {"others": 1}),
        ([END, NOT, BREAK], [0, 2], {"<|end|>": 1, "others": 1}),
        ([TEXT, 70_000], [0], {"others": 1}),
        ([NOT], [0], {}),
        ([], [], {}),
    ],
)
def test_last_token_of_each_span_is_counted(labels: list[int], starts: list[int], expected: dict[str, int]):
    ends = SpanEnds(decoder())
    for _ in range(2):  # names are known the second time
        assert ends.count(np.array(labels, np.int32), np.array(starts, np.int64)) == expected
