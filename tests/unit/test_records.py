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

import numpy as np
import pytest

from support.records import CASES, SAMPLES, malformed, outcome, plain_records, read_lines
from transforms import parse


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
    for line in read_lines(case):
        check_forms([line], options, case, case.get("becomes"))
    for record in plain_records(case):
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


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["dataset"])
def test_a_sample_is_read_by_its_layout_and_each_marker_in_a_column_is_read_or_counted(sample):
    record = sample["record"]
    options = {"schema": "chosen"} if sample.get("layout") == "chosen" else {}
    found = outcome(record, **options)
    assert found["schema"].startswith(sample["layout"]) if "layout" in sample else sample["form"] in found["schema"]
    marker = "zqx planted xqz"
    assert outcome({**record, "planted": marker}, **options)["unread"]["planted"] == len(marker)
    for column, value in record.items():
        if isinstance(value, str):
            marked = outcome({**record, column: f"{value} {marker}"}, **options)
            is_read = marker in json.dumps(marked.get("becomes", marked), ensure_ascii=False)
            assert is_read or column in marked.get("unread", {}) or "rejected" in (*marked, column[:8]), column


def test_each_layout_and_form_of_turns_has_a_sample():
    names = {sample.get("layout", sample.get("form")) for sample in SAMPLES}
    schemas = {case["schema"] for cases in CASES.values() for case in cases if "schema" in case}
    used = {name for schema in schemas for name in re.split(r"[ (,)]+", schema) if name}
    assert used <= names and len(names) > 12


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["dataset"])
def test_each_malformed_sample_is_read_or_rejected_by_its_layout(sample):
    """Each value of another type, missing, null, or nested deeper: never an error that no layout knows of."""
    options = {"schema": "chosen"} if sample.get("layout") == "chosen" else {}
    for record in malformed(sample["record"]):
        found = outcome(json.dumps(record).encode(), **options)
        if isinstance(record, dict):
            assert as_json(outcome(record, **options)) == as_json(found)
        reason, detail = found.get("rejected", ("", ""))
        assert ".py, line" not in detail and (reason != "malformed" or detail.startswith("as ")), (record, detail)


def test_each_call_of_a_session_of_token_ids_is_a_row():
    session = {
        "prompt_token_ids": [[1], [1, 2, 3]],
        "completion_token_ids": [[2], [4, 5]],
        "logprobs": [[-1.0], [-1.0]],
    }
    for more, trained in (({}, [1, 1]), ({"completion_mask": [[1], [0, 1]]}, [0, 1])):
        for form in forms_of({**session, **more}):
            first, second = [example.content for example in parse(form)]
            assert (first.input_ids.tolist(), first.trained.tolist()) == ([1, 2], [False, True])
            assert second.input_ids.tolist() == [1, 2, 3, 4, 5]
            assert second.trained.tolist() == [False] * 3 + [bool(each) for each in trained]
    for other in ([[1]], [1, 2]):
        assert outcome({**session, "prompt_token_ids": other})["rejected"][0] == "bad_tokens"


def test_token_ids_may_be_arrays_as_a_formatter_returns_them():
    assert outcome({"input_ids": np.array([1, 2, 3]), "labels": np.array([-100, 2, 3]), "n": np.array([1, 2])})[
        "becomes"
    ] == {"input_ids": [1, 2, 3], "trained": [False, True, True]}


def test_a_text_of_many_spaces_before_a_bracket_is_read_at_once():
    question = " " * 1_000_000 + "["  # no JSON, which is compared with what Python writes
    expected = [{"role": "user", "content": question}, {"role": "assistant", "content": "4"}]
    assert outcome({"question": question, "answer": "4"})["becomes"]["messages"] == expected
