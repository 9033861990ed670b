"""Writes the tables of shapes and of forms of turns into docs/records.md: `.venv/bin/python docs/shapes.py`."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from transforms.records.names import ANSWERS, DIALOGS, QUESTIONS, REASONINGS, REFERENCES, SYSTEMS, TOOLS  # noqa: E402
from transforms.records.shapes import Shape, shapes  # noqa: E402
from transforms.records.turns import TurnForm, turn_forms  # noqa: E402

RECORDS = _ROOT / "docs" / "records.md"
START, END = (
    "<!-- The tables up to the next comment are written by docs/shapes.py. -->",
    "<!-- The end of these tables. -->",
)
_NAMES = {
    "a dialog": DIALOGS,
    "a question": QUESTIONS,
    "an answer": ANSWERS,
    "reasoning": REASONINGS,
    "a system message": SYSTEMS,
    "tools": TOOLS,
    "what an answer is compared with or made from, which is counted": REFERENCES,
}


def tables() -> str:
    """Return the tables in Markdown."""
    of_shapes = [_shape(shape) for shape in shapes()]
    of_turns = [_form(form) for form in turn_forms()]
    of_names = [f"| {what} | {', '.join(f'`{name}`' for name in names)} |" for what, names in _NAMES.items()]
    head = ["| shape | columns | result | seen in |", "| --- | --- | --- | --- |"]
    turns = ["| form | the turns have | they become | seen in |", "| --- | --- | --- | --- |"]
    names = ["| a column with | has one of the names |", "| --- | --- |"]
    return "\n".join([*head, *of_shapes, "", *names, *of_names, "", *turns, *of_turns])


def _shape(shape: Shape) -> str:
    made = f"{shape.makes}; with `--schema chosen`" if shape.schema == "chosen" else shape.makes
    return _row(shape.name, shape.described, made, _seen(shape))


def _form(form: TurnForm) -> str:
    return _row(form.name, form.turns, form.makes, _seen(form))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _seen(entry: Shape | TurnForm) -> str:
    return f"[{entry.sample.dataset}]({entry.sample.url})"


def with_tables(text: str) -> str:
    """Return the text of docs/records.md with the tables of today."""
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    RECORDS.write_text(with_tables(RECORDS.read_text()))
