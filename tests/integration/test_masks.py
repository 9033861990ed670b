"""chatmill masks shows what is trained on under a chat template: the cases of tests/data/masks.jsonl, one in each line.

A case has what it is given: a `template`, `records`, which are the input, other `files`, and `options`; and what holds:
the exit `code`, words that standard output has (`says`) and does not have, and the standard error, if it is named.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import ROOT, TOKENIZER
from support.templates import CHATML

CASES = [json.loads(line) for line in (ROOT / "tests/data/masks.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_trained_on_is_shown(tmp_path, capfd, monkeypatch, case: dict[str, Any]):
    options = [f"--tokenizer={TOKENIZER}", *case.get("options", ())]
    if "records" in case:
        options.append(f"--input={write_jsonl(tmp_path / 'corpus.jsonl', case['records'])}")
    if "template" in case:
        options.append(f"--chat_template={case['template'].replace('chatml', CHATML)}")
    for name, content in case.get("files", {}).items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    code = chatmill("masks", *options)
    out, err = capfd.readouterr()
    assert (code, err) == (case.get("code", 0), case.get("err", err))
    assert [words for words in case["says"] if words not in out] == [], out
    assert [words for words in case.get("says_not", ()) if words in out] == [], out
