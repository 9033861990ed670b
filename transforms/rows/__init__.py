"""Rows of tokens in flat arrays: truncating them, packing them, and the columns they are written as."""

# The label of a token that is not trained on, as torch's cross entropy and transformers have it.
IGNORED = -100
