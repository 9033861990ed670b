"""`render` gives the ids and labels that a build of the same record writes, or the reason for which it rejects it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from support.cases import framed
from support.chats import assistant, user
from support.datasets import read_rejects, read_rows, write_jsonl
from support.paths import ROOT, TOKENIZER
from support.records import CASES, malformed
from support.templates import CHATML, DROPS_REASONING, MARKED, model_templates
from transforms import RecordError, render

COLUMNS = {"messages", "tools", "chat_template_kwargs"}
ODD = [json.loads(line) for line in (ROOT / "tests/data/odd_conversations.jsonl").read_text("utf-8").splitlines()]


def records() -> list[dict[str, Any]]:
    """Odd records, generated ones, those of the forms that have messages, and these with each value changed."""
    forms = [case["record"] for case in CASES["forms"]]
    forms = [form for form in forms if isinstance(form, dict) and form.keys() <= COLUMNS and "messages" in form]
    mutated = [record for form in forms for record in malformed(form)]
    mutated = [record for record in mutated if record.keys() <= COLUMNS and "messages" in record]
    return [*ODD, *forms, *(framed(seed).record for seed in range(80)), *mutated]


def rendered(record: dict[str, Any], template: str, **options: Any) -> tuple[Any, ...]:
    """The reason why `render` refuses a record; or its ids and labels."""
    try:
        made = render(**record, tokenizer=str(TOKENIZER), chat_template=template, **options)
    except RecordError as error:
        return ("rejected", error.reason)
    return ("dropped",) if {*made.labels} <= {-100} else (made.input_ids, made.labels)


@pytest.mark.parametrize(
    ("template", "options"),
    [
        (CHATML, {}),
        (DROPS_REASONING, {"special_tokens_in_content": "plain", "loss_on": "last_assistant"}),
        (MARKED, {"unprinted": "report", "after_end": "mask"}),
        (model_templates()["qwen3"], {"loss_on": "all"}),
    ],
)
def test_each_record_gives_what_a_build_writes_or_the_reason_of_its_reject(
    build, tmp_path, template: str, options: dict[str, str]
):
    given = records()
    numbered = [{"id": str(number), **record} for number, record in enumerate(given)]
    path, out = write_jsonl(tmp_path / "records.jsonl", numbered), tmp_path / "out"
    flags = [f"--{name}={value}" for name, value in options.items()]
    result = build("--input", path, "--output", out, "--tokenizer", TOKENIZER, "--chat_template", template,
                   "--keep_columns=id", "--max_reject_fraction=1", "--direct_num_workers=1", *flags)  # fmt: skip
    assert result.code == 0, result.err
    built: dict[int, tuple[Any, ...]] = dict.fromkeys(range(len(given)), ("dropped",))
    built |= {int(row["id"]): (row["input_ids"], row["labels"]) for row in read_rows(out)}
    built |= {int(json.loads(row["record"])["id"]): ("rejected", row["reason"]) for row in read_rejects(out)}
    found = {number: rendered(given[number], template, **options) for number in built}
    assert [(given[number], found[number], built[number]) for number in built if found[number] != built[number]] == []
    kinds = Counter(one[0] if isinstance(one[0], str) else "row" for one in built.values())
    assert kinds["row"] > 100 and kinds["rejected"] > 100


def test_text_that_is_not_unicode_is_refused():
    for messages in ([user("4\ud800"), assistant("4")], [user("2+2?"), assistant("4\udfff")]):
        assert rendered({"messages": messages}, CHATML) == ("rejected", "invalid_unicode")
