"""Rows of tokens in flat arrays: cutting them and packing them."""
