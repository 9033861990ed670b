"""Chat templates: what they print for a conversation, and which characters of it the model itself would write.

`rendering` renders as transformers does, and says which message and which text of the record each piece of the text is.
`spans` finds what is trained on in a rendering. `traced` makes the same renderings faster for conversations that differ
in their texts alone. `parity` compares turns with those at inference, `special_tokens` finds what users typed.
docs/engines.md has the words and follows a conversation through the functions, docs/masks.md shows the spans under
three templates.
"""
