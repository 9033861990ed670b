"""Chat templates: what they print for a conversation, and which characters of it the model itself would write.

`template` renders as transformers does. `turns` finds the spans: `{% generation %}` markers decide if a template has
them; if it has none, `message_map` shows what was printed for each message, and what follows the generation prompt in
an assistant's message is the answer. `contexts` compares each turn, and the text before it, with those at inference.
`provenance` follows where printed characters came from, and `omissions` finds what is not printed. `tracer`,
`compiled`, `trace_cache` and `comparisons` do the same faster, `fast_template` and `identity` for conversations with
tools. docs/engines.md has the words, docs/masks.md the spans under three templates.
"""
