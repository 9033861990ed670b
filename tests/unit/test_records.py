"""Records, and what becomes of each: the cases of tests/data/records, one in each line.

A case has the `name` of what holds; a `record`, `records`, or a `line` or `lines` that may not be JSON (bytes that are
not UTF-8 as lone surrogates), and the `options` by which it is read; `with`: further columns, one of which each record
has in turn. And what becomes of it:

- `becomes`: its messages, tools, template_kwargs and completion_start, its text, its prompt and completion, or its ids;
  "as it is" if this is the record itself, "as without" if it is what the record becomes without the further columns;
- or `rejected`: the reason and some words of the detail; or `dropped`: the reason;
- `notes`, with some words of each, `unread`, with the characters of each column, and `columns`, those that are kept: of
  these there are no others; `schema`: by which it is read.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.paths import ROOT
from support.records import CASES, lines_of, outcome, plain_records_of


def forms_of(record: Any) -> list[Any]:
    """A record as the line of a file, with and without escapes and spaces, and as the row of a table."""
    lines = [json.dumps(record), json.dumps(record, ensure_ascii=False, separators=(",", ":"))]
    lines += [json.dumps(record, ensure_ascii=False, indent=1)]
    return [*(line.encode() for line in lines), *([record] if isinstance(record, dict) else [])]


def as_json(value: Any) -> str:
    """A value with the order of its keys and the types of its numbers, which a template prints."""
    return json.dumps(value)


def check(found: dict[str, Any], expected: dict[str, Any], becomes: Any) -> None:
    """Check what became of a record against what the table says. becomes: the content, without words for it."""
    if "rejected" in expected:
        reason, words = expected["rejected"]
        assert (found.get("rejected", [found])[0], words in found["rejected"][1]) == (reason, True), found
        assert "\n" not in found["rejected"][1] and len(found["rejected"][1]) < 500
        return
    if "dropped" in expected:
        assert found == {"dropped": expected["dropped"]}
        return
    assert as_json(found.get("becomes", found)) == as_json(becomes)
    notes = expected.get("notes", {})
    assert found["notes"].keys() == notes.keys()
    for name, words in notes.items():
        assert words is found["notes"][name] or words in found["notes"][name]
    for name in ("unread", "columns"):
        assert found[name] == expected.get(name, {})
    assert found["schema"] == expected.get("schema", found["schema"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for cases in CASES.values() for case in cases])
def test_what_becomes_of_a_record(case):
    options = case.get("options", {})
    for line in lines_of(case):
        check_forms([line], options, case, case.get("becomes"))
    for record in plain_records_of(case):
        for more in case.get("with", [{}]):
            becomes = case.get("becomes")
            if isinstance(becomes, str):
                becomes = {"as it is": record, "as without": outcome(record, **options).get("becomes")}[becomes]
            check_forms(forms_of({**record, **more} if more else record), options, case, becomes)


def check_forms(forms: list[Any], options: dict[str, Any], case: dict[str, Any], becomes: Any) -> None:
    """Check what becomes of a record: the same in all forms, also with what was learned of its columns."""
    found = outcome(forms[0], **options)
    check(found, case, becomes)
    for form in forms:
        assert as_json(outcome(form, **options)) == as_json(found)
    assert as_json(outcome(forms[0], **options, engine="reference")) == as_json(found)


def test_each_shape_and_form_of_turns_that_is_documented_has_a_case():
    tables = (ROOT / "docs" / "records.md").read_text().partition("written by docs/shapes.py")[2].partition("<!--")[0]
    names = re.findall(r"^\| ([^|]*[^ |]) \|.*\]\(http", tables, re.MULTILINE)
    schemas = {case.get("schema", "") for cases in CASES.values() for case in cases}
    assert len(names) > 20
    assert [name for name in names if not any(name in (of, of.rpartition("(")[2][:-1]) for of in schemas)] == []
