"""The dataset card: whatever names and values are in it, its header, tables and code are the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from transforms.publish.card import dataset_card
from transforms.publish.markdown import as_code, as_text

SIGNS = "`|<>/\\*_[]()~&;#$!-=:'\"@{} \t\n\r\x1b\x00\u2028\u202exy1é"


def card_of(name: str, has_recipe: bool = False) -> str:
    """A card that has a name wherever names and values of users and of data are."""
    source = {"records": {"read": 1, "dropped": {}, "rejected": {}}, "rows": 1, "tokens": 2, "trained_tokens": 1}
    return dataset_card(
        {
            "records": {"read": 2, "kept": 2, "truncated": 0, "dropped": {name: 1}, "rejected": {name: 2}},
            "rows": 1,
            "tokens": 20,
            "trained_tokens": 10,
            "snapshot": {"version": 1},
            "shards": [
                {"path": "data/train-00000000000000ab-000000-000.parquet", "split": "train", "format": "parquet"}
            ],
            "sources": [{"name": name, **source}, {"name": "other", **source}],
            "statistics": {"unread": {name: {"records": 1, "characters": 2}}},
            "job": {
                "options": {"keep_columns": [name], "schema": name, "roles": {name: name}, "max_length": 8},
                "tokenizer_name": name,
                "versions": {"chatmill": "1.0.0"},
            }
            | ({"recipe": {"input": [name], "roles": {name: name}}} if has_recipe else {}),
        }
    )


def parse(markdown: str) -> list[Any]:
    library = pytest.importorskip("markdown_it")
    return library.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)


def markup_of(card: str) -> list[str]:
    """The kinds of all blocks and spans of a card, in order, and its code that is not of one line."""
    header, _, text = card.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(header)["configs"][0]["data_files"][0]["path"].startswith("data/train-0")
    kinds = list[str]()
    for block in parse(text):
        kinds += [block.type, block.content if block.type == "fence" else ""]
        kinds += [span.type for span in block.children or ()]
    return kinds


@given(st.text(SIGNS, min_size=1, max_size=12).map(lambda signs: f"x {signs}"))
@example("x\n---\n# Title\n<script>alert(1)</script>")
@example("x`|\x1b[31m|`` a")
@example("x | y \\| z")
@example("x <!-- ![a](https://example.com/a.png) &lt; $$1$$ __b__ ~~c~~")
def test_names_and_values_change_no_markup_of_the_card(name: str):
    card = card_of(name)
    assert markup_of(card) == markup_of(card_of("x y"))
    with_recipe = card_of(name, has_recipe=True)
    blocks = [block.type for block in parse(with_recipe.partition("\n---\n")[2])]
    assert blocks == [block.type for block in parse(card_of("x y", has_recipe=True).partition("\n---\n")[2])]
    assert not set("\x1b\x00\u2028\u202e\r\t") & set(card + with_recipe)


@given(st.text(SIGNS, min_size=1).filter(lambda name: name.strip()))
@example("`")
@example("``a`")
@example("\x1b[31m a\n\nb")
def test_names_are_shown_as_they_are_in_one_line(name: str):
    text, code = (
        "".join(span.content for span in parse(f"a {escaped} z")[1].children)
        for escaped in (as_text(name), as_code(name))
    )
    assert text == code
    if name.isprintable():
        assert text == " ".join(f"a {name} z".split())


def test_usual_names_are_readable_in_the_source_of_the_card():
    for name in (
        "input_ids, labels",
        "Qwen/Qwen3-8B",
        "convert.py:convert",
        "{'messages': 'dialog'}",
        "text (2 records)",
    ):
        assert as_text(name) == name and as_code(name) == f"`{name}`"


def test_a_recipe_names_a_tokenizer_only_if_it_can_stand_in_code():
    for name in ("Qwen/Qwen3-8B", "s3://bucket/tokenizers/qwen-3.5", "tokenizers/qwen3"):
        assert f'model="{name}"' in card_of(name)
    for name in ('a"; import os #', "a\nb", "a b", "a: b", "/a/b", "a`b"):
        assert 'model="YOUR MODEL"' in card_of(name)
