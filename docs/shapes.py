"""Writes the tables of layouts and of forms of turns into docs/records.md: `.venv/bin/python docs/shapes.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from transforms.records import names  # noqa: E402

RECORDS = _ROOT / "docs" / "records.md"
SAMPLES = _ROOT / "tests" / "data" / "samples.jsonl"
START, END = (
    "<!-- The tables up to the next comment are written by docs/shapes.py. -->",
    "<!-- The end of these tables. -->",
)
_NAMES = {
    "a dialog": names.DIALOGS,
    "a history": names.HISTORIES,
    "a question": names.QUESTIONS,
    "an answer": names.ANSWERS,
    "calls": names.CALLS,
    "reasoning": names.REASONINGS,
    "a system message": names.SYSTEMS,
    "tools": names.TOOLS,
    "token ids of a prompt": names.PROMPT_IDS,
    "token ids of a completion": names.COMPLETION_IDS,
    "their mask": names.SAMPLED_MASKS,
    "a chosen answer": names.CHOSEN,
    "a rejected answer": names.REJECTED,
}


def tables() -> str:
    """Return the tables in Markdown."""
    samples = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    layouts = _rows([(f"`{one['layout']}`", one["columns"], one) for one in samples if "layout" in one])
    columns = [f"| {what} | {', '.join(f'`{name}`' for name in of)} |" for what, of in _NAMES.items()]
    turns = _rows([(one["form"], one["turns"], one) for one in samples if "form" in one])
    return "\n".join(
        [
            *("| layout | the record has | as in |", "| --- | --- | --- |", *layouts, ""),
            *("| | is a column named |", "| --- | --- |", *columns, ""),
            *("Turns are messages with `role` and `content`, or have another form:", ""),
            *("| form | the turns have | as in |", "| --- | --- | --- |", *turns),
        ]
    )


def _rows(cells: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """Return the rows of a table. Samples with the same cells share a row. cells: the first two, and the sample."""
    links: dict[tuple[str, str], list[str]] = {}
    for name, columns, sample in cells:
        links.setdefault((name, columns), []).append(f"[{sample['dataset']}]({sample['url']})")
    rows = [(*key, ", ".join(seen)) for key, seen in links.items()]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def with_tables(text: str) -> str:
    """Return the text of docs/records.md with the tables of today."""
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    RECORDS.write_text(with_tables(RECORDS.read_text()))
