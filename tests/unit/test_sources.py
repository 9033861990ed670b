"""Sources: records that steps treat by other options, and of which the manifest has the sums."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.chats import SPLIT, examples_of, render_config, user
from support.chats import assistant as answer
from transforms import ApplyChatTemplate, CheckParity, ParseConversations
from transforms.dataset.description import Description, NamedSource
from transforms.dataset.manifest import sums_of_receipts
from transforms.inputs.listing import InputFile, files_of_sources, shared_files
from transforms.inputs.plan_file import decode_plan, encode_plan
from transforms.inputs.splits import splits_of
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import File, Receipt
from transforms.steps.base import Step


def file_of(url: str, size: int = 10) -> InputFile:
    return InputFile(url, "jsonl", None, size, "")


def step_function(step: Step) -> Any:
    """The function that a step runs on a worker."""
    return pickle.loads(pickle.dumps(step._make))()


def from_source(batch: Any, number: int) -> Any:
    return dataclasses.replace(batch, split=dataclasses.replace(SPLIT, source=number))


def test_splits_and_the_plan_file_know_the_source_of_each_file():
    files = files_of_sources([[file_of("/a"), file_of("/b", 25)], [file_of("/c")], [file_of("/d")]])
    assert decode_plan(encode_plan(files)) == files
    splits = splits_of(decode_plan(encode_plan(files)), 10)
    assert [([piece.url for piece in split.slices], split.source) for split in splits] == [
        (["/a"], 0), (["/b"], 0), (["/b"], 0), (["/b"], 0), (["/c"], 1), (["/d"], 2),
    ]  # fmt: skip


def test_plan_without_sources_is_as_before():
    assert b"source" not in encode_plan([file_of("/a")])


def test_file_of_two_sources_is_found():
    files = files_of_sources([[file_of("/a"), file_of("/b")], [file_of("/c"), file_of("/b")]])
    assert list(shared_files(files)) == [(files[1], files[3])]


def test_records_are_parsed_by_the_options_of_their_source():
    parse = step_function(ParseConversations(columns={"text": "body"}, sources=[{}, {"columns": {"text": "title"}}]))
    records = Records(SPLIT, 0, True, Outcomes(read=1), [Record(0, b'{"body": "B", "title": "T"}')])
    assert [parse(from_source(records, number)).examples[0].content.text for number in (0, 1)] == ["B", "T"]


def test_each_source_has_its_own_formatter_file(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            "import dataclasses, typing\n"
            "@dataclasses.dataclass\nclass Record:\n    text: 'Name'\n"
            f"class Name(str):\n    file = '{name}'\n"
            "def f(record):\n    return typing.get_type_hints(Record)['text'].file\n"
        )
    parse = step_function(
        ParseConversations(sources=[{"formatter": f"{tmp_path}/{name}.py:f"} for name in ("one", "two")])
    )
    records = Records(SPLIT, 0, True, Outcomes(read=1), [Record(0, b"{}")])
    found = [parse(from_source(records, number)).examples[0].content.text for number in (0, 1, 0)]
    assert found == ["one", "two", "one"]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_texts_have_the_template_kwargs_and_the_loss_of_their_source(engine: str):
    template = (
        "{% for m in messages %}[{{ m.role }}{{ style }}]{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant{{ style }}]{% endif %}"
    )
    config = render_config(template, engine=engine, chat_template_kwargs={"style": "?"})
    render = step_function(
        ApplyChatTemplate(config, sources=[{}, {"chat_template_kwargs": {"style": "!"}, "loss_on": "last_assistant"}])
    )
    examples = examples_of(*[[user("a"), answer("b"), user("c"), answer("d")]] * 3)
    trained = []
    for number in (0, 1):
        text = render(from_source(examples, number)).texts[0]
        trained.append((text.text[:9], [text.text[start:stop] for start, stop in text.spans]))
    assert trained == [("[user?]a;", ["b;", "d;"]), ("[user!]a;", ["d;"])]


def test_parity_is_compared_with_the_template_kwargs_of_the_source():
    """With `short`, the template prints only what comes last, so that a turn has another context at inference."""
    template = (
        "{% for m in messages %}[{{ m.role }}]"
        "{% if m.role == 'assistant' or not short or loop.last %}{{ m.content }}{% endif %};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    sources: list[dict[str, Any]] = [{}, {"chat_template_kwargs": {"short": True}}]
    config = render_config(template, engine="reference", unprinted="report")
    render = step_function(ApplyChatTemplate(config, sources=sources))
    check = step_function(CheckParity(config, sources=sources))
    examples = examples_of([user("a"), answer("b"), user("c"), answer("d"), user("e"), answer("f")])
    differing = [
        check(render(from_source(examples, number))).outcomes.notes.get("parity_turns_differing", 0)
        for number in (0, 1)
    ]
    assert differing[0] == 0 < differing[1]


def test_sources_with_the_same_options_share_a_function():
    step = step_function(ParseConversations(sources=[{}, {"schema": "text"}, {"schema": "auto"}]))
    for number in (0, 1, 2):
        step(from_source(Records(SPLIT, 0, True, Outcomes(), []), number))
    assert sorted(step._functions) == [0, 1]


def receipt_of(split: int, source: int, read: int, rows: int, rejected: int = 0) -> Receipt:
    shard = File(f"data/train-a-{split}.parquet", 1, "", "parquet", "train", rows, rows * 10, rows * 4)
    dropped, rejects = {"too_long": read - rows - rejected}, {"empty": rejected} if rejected else {}
    return Receipt(
        split=split, part=0, last=True, read=read, kept=rows, truncated=0, dropped=dropped, rejected=rejects,
        shards=[shard] if rows else [], rejects=None, first_rejects={}, first_examples={}, source=source,
    )  # fmt: skip


def description_of(*names: str) -> Description:
    return Description({}, 3, "t", {}, tuple(map(NamedSource, names)))


def test_sums_have_the_outcomes_and_tokens_of_each_source():
    receipts = [receipt_of(0, 0, 9, 7), receipt_of(1, 1, 5, 2, rejected=3), receipt_of(2, 0, 4, 4)]
    names = ("math", "tools", "none")
    assert sums_of_receipts(description_of(*names), receipts).as_json(names)["sources"] == [
        {
            "name": "math",
            "records": {"read": 13, "kept": 11, "truncated": 0, "dropped": {"too_long": 2}, "rejected": {}},
            "rows": 11,
            "tokens": 110,
            "trained_tokens": 44,
        },
        {
            "name": "tools",
            "records": {"read": 5, "kept": 2, "truncated": 0, "dropped": {"too_long": 0}, "rejected": {"empty": 3}},
            "rows": 2,
            "tokens": 20,
            "trained_tokens": 8,
        },
        {
            "name": "none",
            "records": {"read": 0, "kept": 0, "truncated": 0, "dropped": {}, "rejected": {}},
            "rows": 0,
            "tokens": 0,
            "trained_tokens": 0,
        },
    ]


def test_sums_of_a_dataset_without_sources_have_one():
    described = msgspec.json.decode(
        b'{"options": {}, "splits": 1, "tokenizer_name": "t", "versions": {}}', type=Description
    )
    sums = sums_of_receipts(described, [receipt_of(0, 0, 3, 3)])
    assert [source.name for source in described.sources] == ["input"] and [each.rows for each in sums.sources] == [3]


@pytest.mark.parametrize("rows", [0, 2])
def test_records_of_no_source_are_an_error(rows: int):
    with pytest.raises(ValueError, match=r"the sources have Totals\(.*read=3, .*; the dataset has Totals\(.*read=7, "):
        sums_of_receipts(description_of("math"), [receipt_of(0, 0, 3, 3), receipt_of(1, 1, 4, rows)])
