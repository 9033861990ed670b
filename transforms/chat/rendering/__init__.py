"""Rendering by transformers: the text of a conversation, and what of it each piece is."""
