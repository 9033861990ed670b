"""Records under chat templates become the texts and masks of tests/data/renderings.jsonl, by both engines.

Each line is a case: the template (its name, or its source) and what it prints in the place of `message.content`; the
options; the records (a list of messages, of which "user: Hi" is one); each row that they become, with what is trained
on between ⟦ and ⟧, or why there is none; what is counted, the first record of a count, the
records and characters of what is not printed by name, and words of what is said.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.engines import read_outcomes
from support.paths import ROOT
from support.templates import CHATML, DROPS_REASONING, MARKED, OPENS_REASONING, odd_templates, trl_templates

DATA = ROOT / "tests" / "data"
CASES = [json.loads(line) for line in (DATA / "renderings.jsonl").read_text().splitlines()]
TEMPLATES = {"chatml": CHATML, "marked": MARKED, "drops_reasoning": DROPS_REASONING, "opens_reasoning": OPENS_REASONING}
TEMPLATES |= (
    {file.stem: file.read_text() for file in (DATA / "templates").glob("*.jinja")} | trl_templates() | odd_templates()
)


def make_record(given: Any) -> dict[str, Any]:
    """A record, whose messages may be written as "role: content"."""
    record = {"messages": given} if isinstance(given, list) else given
    return {name: [*map(message_of, value)] if isinstance(value, list) else value for name, value in record.items()}


def message_of(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    role, _, content = given.partition(": ")
    return {"role": role, "content": content}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_records_become_what_is_written(case: dict[str, Any]):
    source = case.get("template")
    template = source and TEMPLATES.get(source, source).replace(
        "message.content", case.get("content", "message.content")
    )
    options = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case.get("options", {}).items()
    }
    found = read_outcomes([*map(make_record, case["records"])], template, **options)
    assert found.becomes == case["becomes"]
    assert found.counts == case.get("counts", {})
    assert found.unread == case.get("unread", found.unread)
    assert case.get("first", {}).items() <= found.first.items()
    assert [words for words in case.get("says", ()) if words not in found.said] == []
