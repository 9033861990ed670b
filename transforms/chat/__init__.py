"""Spans: the characters of a rendered conversation that the model itself would produce.

{% generation %} markers decide where a template has them. Where it has none, the template itself tells: it is compiled
with a mark at the beginning of each turn of each loop, so that its text shows what was printed for which message
(`trace`). What is printed for an assistant's message is its header, its answer and what closes the turn; the header is
what the template prints as generation prompt (`turns`). What is found is checked, and a record is refused where it does
not hold. docs/masks.md shows it on three templates.
"""
