"""Writes the tables of docs/records.md and docs/checks.md: `.venv/bin/python docs/shapes.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from transforms.records import names  # noqa: E402
from transforms.steps.checks import CHECKS  # noqa: E402

RECORDS, CHECKS_PAGE = (_ROOT / "docs" / f"{name}.md" for name in ("records", "checks"))
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


def check_table() -> str:
    """Return the table of checks in Markdown."""
    rows = ["| group | check | finds a record with | by default |", "| --- | --- | --- | --- |"]
    for name, check in CHECKS.items():
        name = f"{name}:{check.value}" if check.value else name
        rows.append(f"| {check.group} | `{name}` | {check.find.__doc__} | {'off' if check.value else check.default} |")
    return "\n".join(rows)


def record_tables() -> str:
    """Return the tables of layouts and of forms of turns in Markdown."""
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


def with_tables(page: Path) -> str:
    """Return the text of a page of PAGES with the tables of today."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n\n{PAGES[page]()}\n\n{END}{after}"


PAGES = {RECORDS: record_tables, CHECKS_PAGE: check_table}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page), encoding="utf-8")
