"""Several examples of one record, which a formatter or a map makes: each record still has exactly one outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.chats import assistant, examples_of, render_config, user
from support.datasets import manifest_of, rows_of, write_jsonl
from support.paths import TOKENIZER
from support.templates import CHATML, DROPS_REASONING
from transforms import Conversation, Examples, PlainText, RecordDropped, Slice, Split
from transforms import parse as read_record
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.custom import _Filter, _Map
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

FORMATTERS = """
def made(record):
    return record["made"]
"""
CHAT = {"messages": [user("a"), assistant("b")]}


@pytest.fixture
def formatter(tmp_path: Path) -> str:
    (tmp_path / "formatters.py").write_text(FORMATTERS)
    return f"{tmp_path}/formatters.py:made"


def parse(formatter: str, *made: Any, **options: Any) -> Examples:
    records = [Record(10 * number, json.dumps({"made": one}).encode()) for number, one in enumerate(made)]
    split = Split(0, (Slice("made.jsonl", "jsonl", None, 0, 1),))
    batch = Records(split=split, part=0, last=True, outcomes=Outcomes(read=len(records)), records=records)
    return Parser(formatter=formatter, **options)(batch)


def numbers(batch: Examples) -> list[tuple[int, int]]:
    return [(example.position, example.number) for example in batch.examples]


def outcomes_of(batch: Examples, template: str = CHATML, parity: str = "off", **packing: Any) -> Outcomes:
    """Return the outcomes of the examples at the end of all steps."""
    config = render_config(template)
    texts = ParityChecker(config, parity)(Renderer(config)(batch))
    outcomes = Packer(**packing)(build_labels(Encoder(str(TOKENIZER))(texts))).outcomes
    assert outcomes.unaccounted() == 0
    return outcomes


@pytest.mark.parametrize("nothing", [None, []])
def test_a_record_that_a_formatter_filters_is_dropped_and_not_rejected(formatter, nothing):
    batch = parse(formatter, nothing, "a text", 1)
    assert numbers(batch) == [(10, 0)]
    assert batch.outcomes.dropped == {"filtered": 1}
    assert [(reject.position, reject.reason) for reject in batch.outcomes.rejects] == [(20, "formatter")]


def test_a_list_of_a_formatter_is_several_examples(formatter):
    batch = parse(formatter, ["one", CHAT, "two"], [CHAT])
    assert [example.content for example in batch.examples] == [
        PlainText("one"),
        Conversation(CHAT["messages"]),
        PlainText("two"),
        Conversation(CHAT["messages"]),
    ]
    assert numbers(batch) == [(0, 0), (0, 1), (0, 2), (10, 0)]


@pytest.mark.parametrize(
    ("made", "reason", "detail"),
    [
        (["one", {"text": ""}], "empty", "example 2 of the formatter"),
        (["one", None], "formatter", "a list with NoneType"),
        ([["one"]], "formatter", "a list with list"),
    ],
)
def test_a_record_is_rejected_if_one_of_its_examples_is_malformed(formatter, made, reason, detail):
    batch = parse(formatter, "fine", made)
    assert numbers(batch) == [(0, 0)]
    [reject] = batch.outcomes.rejects
    assert (reject.position, reject.reason, detail in reject.detail) == (10, reason, True)
    assert json.loads(reject.record) == {"made": made}


@pytest.mark.parametrize(
    "made",
    [
        "{'messages': [{'role': 'user', 'content': 'a', 0: 1}]}",
        "{'text': 'a', 'images': np.array([])}",
        "{'messages': [{'role': 'user', 'content': 'a', 'weight': {(1, 2): 3}}]}",
        "['fine', {'text': 'a', 'images': np.array([1, 2])}]",
    ],
)
def test_a_value_that_json_does_not_have_costs_its_record_alone(tmp_path, made):
    (tmp_path / "odd.py").write_text(
        f"import numpy as np\ndef odd(record):\n    return {made} if record['made'] else 'fine'\n"
    )
    batch = parse(f"{tmp_path}/odd.py:odd", True, False)
    assert numbers(batch) == [(10, 0)]
    [reject] = batch.outcomes.rejects
    assert (reject.position, reject.reason) == (0, "formatter")
    assert "it returned a value that cannot be read: " in reject.detail


def test_examples_of_one_record_that_are_dropped_are_noted_unless_all_are(formatter):
    bad = {**CHAT, "label": False}
    batch = parse(formatter, [bad, CHAT], [bad, bad], bad)
    assert numbers(batch) == [(0, 0)]
    assert batch.outcomes.dropped == {"undesirable": 2}
    assert batch.outcomes.notes == {"formatter_examples_dropped": 1}
    with pytest.raises(RecordDropped):
        read_record(b'{"made": []}', formatter=formatter)[0]


def test_notes_count_records_and_not_examples(formatter):
    batch = parse(formatter, ["one", "two"], "three", keep_columns=["id"])
    assert batch.outcomes.notes == {"records_without_id": 2}


def test_examples_of_one_record_are_in_one_split(formatter):
    made = [[f"record {number}", *(f"example {number}.{i}" for i in range(5))] for number in range(20)]
    batch = parse(formatter, *made, validation_fraction=0.5)
    splits: dict[int, set[bool]] = {}
    for example in batch.examples:
        splits.setdefault(example.position, set()).add(example.validation)
    assert all(len(of_record) == 1 for of_record in splits.values())
    assert {next(iter(of_record)) for of_record in splits.values()} == {False, True}


def test_added_rows_are_counted_and_records_have_one_outcome(formatter):
    outcomes = outcomes_of(parse(formatter, ["one", "two", CHAT], "three", None))
    assert (outcomes.kept, outcomes.dropped) == (2, {"filtered": 1})
    assert outcomes.notes == {"formatter_rows_added": 2}


def test_rows_that_are_not_written_are_not_counted_as_added(formatter):
    long = "many words " * 50
    outcomes = outcomes_of(parse(formatter, ["one", long], [long, long]), max_length=20, truncation="drop")
    assert (outcomes.kept, outcomes.truncated, outcomes.dropped) == (0, 1, {"too_long": 1})
    assert outcomes.notes.get("formatter_rows_added", 0) == 0


def test_rows_of_contexts_and_rows_of_examples_are_counted_apart(formatter):
    turns = [user("a"), assistant("b", reasoning_content="why b"), user("c"), assistant("d", reasoning_content="why d")]
    chat = {"messages": turns}
    plain = outcomes_of(parse(formatter, chat), DROPS_REASONING, "expand").notes
    both = outcomes_of(parse(formatter, [chat, chat, "x"]), DROPS_REASONING, "expand").notes
    assert plain["parity_rows_added"] == 1
    assert (both["parity_rows_added"], both["formatter_rows_added"]) == (2, 2)


def test_a_record_is_rejected_once_if_a_later_step_rejects_some_of_its_examples(formatter):
    refuses = (
        CHATML + "{% for m in messages %}{% if m.content == 'x' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    )
    bad = {"messages": [user("x"), assistant("b")]}
    outcomes = outcomes_of(parse(formatter, [CHAT, bad, CHAT, bad], [CHAT, CHAT]), refuses)
    assert [(reject.position, reject.reason) for reject in outcomes.rejects] == [(0, "template")]
    assert (outcomes.kept, outcomes.notes) == (1, {"formatter_rows_added": 1})


def test_a_record_is_dropped_by_a_filter_only_with_its_last_example(formatter):
    batch = parse(formatter, ["a", "bb"], ["bb", "bb"], "a")
    kept = _Filter(lambda example: len(example.content.text) < 2, "long")(batch)
    assert numbers(kept) == [(0, 0), (20, 0)]
    assert kept.outcomes.dropped == {"long": 1}


def test_a_map_may_return_several_examples_or_none():
    batch = examples_of([user("a"), assistant("b")], [user("c"), assistant("d")], [user("e"), assistant("f")])

    def turns(example):
        if example.position == 0:
            return None
        return [msgspec.structs.replace(example, content=PlainText(m["content"])) for m in example.content.messages]

    mapped = _Map(turns)(batch)
    assert numbers(mapped) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert mapped.outcomes.dropped == {"filtered": 1}
    again = _Map(lambda example: [example, example] if example.number else [])(mapped)
    assert numbers(again) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert again.outcomes.dropped == {"filtered": 1}
    assert outcomes_of(again).notes["formatter_rows_added"] == 2


def test_a_build_with_several_examples_of_a_record_reconciles(build, tmp_path, formatter):
    chats = write_jsonl(tmp_path / "made.jsonl", [{"made": made} for made in (["one", CHAT], None, CHAT, "two")])
    options = "--input", chats, "--tokenizer", TOKENIZER, "--chat_template", CHATML, "--formatter", formatter
    ended = build(*options, "--provenance", "--output", tmp_path / "out")
    assert ended.code == 0, ended.err
    manifest = manifest_of(tmp_path / "out")
    assert manifest["records"] == {"read": 4, "kept": 3, "truncated": 0, "dropped": {"filtered": 1}, "rejected": {}}
    assert manifest["rows"] == 4
    assert manifest["notes"]["formatter_rows_added"] == 1
    positions = [row["source_position"] for row in rows_of(tmp_path / "out")]
    assert positions[0] == positions[1] == 0
    assert len({*positions}) == 3
