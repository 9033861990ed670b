"""Consumers: what is refused or warned of for each trainer, the columns that it gets, and the card of a dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from pipeline.cli.options import parse_options
from support.paths import ROOT, TOKENIZER
from transforms.dataset.consumers import CONSUMERS, RowLayout, problems, recipe, warnings
from transforms.publish.card import dataset_card

REQUIRED = ["--input=chats/", "--tokenizer=Qwen/Qwen3-8B", "--output=out/mine"]
PACKED = ["--packing=bfd", "--max_length=4096"]
UNPACKED_ROWS = RowLayout(("input_ids", "labels"), ("parquet",), max_length=4096)
PACKED_ROWS = RowLayout(("input_ids", "labels", "seq_lengths"), ("parquet",), "bfd", 4096)


def test_rows_have_the_columns_that_are_kept():
    kept = {"keep_columns": ["id"], "max_length": 8}
    assert RowLayout.of(kept).columns == ("input_ids", "labels", "id")
    assert RowLayout.of({**kept, "packing": "bfd"}).columns == ("input_ids", "labels", "seq_lengths", "id")


def options_of(*arguments: str) -> Any:
    return parse_options([*REQUIRED, *arguments])[0]


def manifest_of(options: dict[str, Any], tokenizer: str = "Qwen/Qwen3-8B") -> dict[str, Any]:
    return {
        "records": {"read": 2, "kept": 2, "truncated": 0, "dropped": {}, "rejected": {}},
        "rows": 1,
        "tokens": 20,
        "trained_tokens": 10,
        "snapshot": {"version": 1},
        "shards": [{"path": "data/train-00000000000000ab-000000-000.parquet", "split": "train", "format": "parquet"}],
        "sources": [{}],
        "job": {"options": options, "tokenizer_name": tokenizer, "versions": {"chatmill": "1.0.0"}},
    }


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        (["--for=trl"], ("input_ids", "labels")),
        (["--for=trl", *PACKED], ("input_ids", "labels", "seq_lengths")),
        (["--for=trainer"], ("input_ids", "labels")),
        (["--for=axolotl", "--max_length=4096"], ("input_ids", "attention_mask", "labels")),
        (["--for=skyrl"], ("input_ids", "loss_mask")),
        (PACKED, None),
    ],
)
def test_a_trainer_gets_the_columns_that_it_reads(arguments, columns):
    assert options_of(*arguments).write_columns == columns


def test_collator_of_the_trainer_pads_the_attention_mask_and_no_position_ids():
    columns = ("input_ids", "labels", "attention_mask", "position_ids")
    rows = [{name: [1] * length for name in columns} for length in (2, 3)]
    batch = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(TOKENIZER), return_tensors="np")(rows)
    assert {name: values.shape for name, values in batch.items() if name != "position_ids"} == {
        "input_ids": (2, 3), "labels": (2, 3), "attention_mask": (2, 3),
    }  # fmt: skip
    assert [len(row) for row in batch["position_ids"]] == [2, 3]
    assert problems("trainer", dataclasses.replace(UNPACKED_ROWS, columns=columns[:3])) == []
    assert len(problems("trainer", dataclasses.replace(UNPACKED_ROWS, columns=columns))) == 1


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, []),
        ({"columns": ("input_ids", "labels")}, ["write_columns"]),
        ({"columns": ("input_ids", "labels", "seq_lengths", "attention_mask")}, ["write_columns"]),
        ({"shift_labels": True}, ["shift_labels"]),
        ({"formats": ("tfrecord",)}, ["output_format"]),
        ({"formats": ("parquet", "tfrecord")}, []),
        ({"packing": "none", "columns": ("input_ids", "attention_mask", "labels")}, []),
    ],
)
def test_traps_are_warned_of_if_the_trainer_is_not_known(changes, options):
    assert [option for option, _ in warnings(dataclasses.replace(PACKED_ROWS, **changes))] == options


def test_recipes_of_the_guide_are_those_that_are_run_with_the_trainers():
    guide = (ROOT / "docs/guide/trainers.md").read_text()
    layouts = {
        "trl": PACKED_ROWS,
        "trainer": UNPACKED_ROWS,
        "axolotl": dataclasses.replace(UNPACKED_ROWS, columns=("input_ids", "attention_mask", "labels")),
        "skyrl": dataclasses.replace(UNPACKED_ROWS, columns=("input_ids", "loss_mask")),
    }
    for consumer, layout in layouts.items():
        assert problems(consumer, layout) == []
        assert recipe(consumer, "out/mine", "Qwen/Qwen3-8B", layout) in guide


def test_card_has_the_recipe_of_the_chosen_trainer_alone():
    layout = {"packing": "bfd", "max_length": 4096, "write_columns": ["input_ids", "labels", "seq_lengths"]}
    card = dataset_card(manifest_of(layout | {"consumer": "trl"}))
    assert recipe("trl", "PATH OF THIS FOLDER", "Qwen/Qwen3-8B", PACKED_ROWS) in card
    assert "| for | trl |" in card
    assert "packed with `bfd`, of at most 4,096 tokens" in card
    assert "Axolotl" not in card and "Not for" not in card


def test_card_says_which_trainers_the_rows_are_not_for():
    card = dataset_card(manifest_of({"packing": "bfd", "max_length": 4096}))
    assert "TRL:\n\n```python" in card
    assert "Not for Axolotl: " in card and "Not for transformers' Trainer: " in card
    shifted = dataset_card(manifest_of({"shift_labels": True}))
    assert all(f"Not for {title}: " in shifted for title in ("TRL", "Axolotl", "transformers' Trainer"))
    assert "`labels` are shifted" in shifted and "**Careful**: " in shifted


def test_card_has_no_path_of_the_machine():
    options = {
        "formatter": "/home/me/secret/convert.py:convert",
        "columns": {"messages": "/home/me/secret/dialog"},
        "keep_columns": ["/home/me/secret/id"],
        "chat_template": "/home/me/secret/template.jinja",
        "chat_template_kwargs": {"suffix": "/no_think"},
    }
    card = dataset_card(manifest_of(options, tokenizer="/home/me/secret/qwen3/"))
    assert "secret" not in card and "me/" not in card
    assert 'model="YOUR MODEL"' in card and 'model="qwen3"' not in card  # a folder's name cannot be loaded
    assert "with the tokenizer `qwen3`" in card and "| formatter | convert.py:convert |" in card
    assert "/no_think" in card
    assert "`Qwen/Qwen3-8B`" in dataset_card(manifest_of({}))


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_recipe_is_given_only_where_there_is_no_problem(consumer):
    options = {"packing": "bfd", "max_length": 8, "shift_labels": True, "consumer": consumer}
    card = dataset_card(manifest_of(options))
    layout = RowLayout.of(options)
    assert ("Not for" in card) == bool(problems(consumer, layout))
    assert (recipe(consumer, "PATH OF THIS FOLDER", "Qwen/Qwen3-8B", layout) in card) == ("Not for" not in card)
