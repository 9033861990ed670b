"""Labels: the id of a token of which a character is trained on, and -100 for any other."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from support.chats import assistant, user
from support.datasets import read_manifest, read_rows, write_jsonl
from support.paths import TOKENIZER
from support.tokenizers import LARGE
from transforms import render

# It prints contents and nothing else, so that tokens begin in one of them and end in another.
CONTENTS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
PIECES = ["a", "the", " the", "wheel", " ", "  ", "\n", "1", "23", "é", "水", "水車", "\U0001f409", "\u200d"]
PIECES += ["e\u0301", "q\u0301\u0323", "\u0301\u0327"]


def conversations(seed: int, count: int) -> list[list[dict[str, Any]]]:
    draw = random.Random(seed)
    contents = [["".join(draw.choices(PIECES, k=draw.randint(1, 4))) for _ in range(6)] for _ in range(count)]
    # The first and the last character are not white space, which a template may strip.
    return [[each(f"{text}") for each, text in zip((user, assistant) * 3, ["Q", *own[1:5], "end"], strict=True)]
            for own in contents]  # fmt: skip


def expected_of(messages: list[dict[str, Any]], tokenizer: Any) -> dict[str, list[int]]:
    """The ids and labels of the contents, by the characters of each token."""
    edges = [*pairwise(accumulate((len(message["content"]) for message in messages), initial=0))]
    trained = {at for start, stop in edges[1::2] for at in range(start, stop)}
    text = "".join(message["content"] for message in messages)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = [
        id if trained & {*range(start, max(stop, start + 1))} else -100
        for id, (start, stop) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]
    return {"input_ids": encoded["input_ids"], "labels": labels}


@pytest.mark.parametrize("folder", [TOKENIZER, *LARGE], ids=lambda folder: folder.name)
def test_token_is_trained_on_if_one_of_its_characters_is(build: Any, tmp_path: Path, folder: Path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chats = conversations(5, 300)
    expected = [expected_of(messages, tokenizer) for messages in chats]
    for messages, row in zip(chats[:30], expected, strict=False):
        made = render(messages, tokenizer=str(folder), chat_template=CONTENTS)
        assert {"input_ids": made.input_ids, "labels": made.labels} == row
    corpus = write_jsonl(tmp_path / "chats.jsonl", [{"messages": messages} for messages in chats])
    options = [f"--input={corpus}", f"--tokenizer={folder}", f"--chat_template={CONTENTS}", "--parity=off"]
    for engine in ("auto", "reference"):
        ended = build(*options, f"--output={tmp_path / engine}", f"--engine={engine}")
        assert ended.code == 0, ended.err
        assert read_rows(tmp_path / engine) == expected


def test_record_of_several_rows_is_dropped_only_if_no_row_has_a_label(build: Any, tmp_path: Path):
    (tmp_path / "rows.py").write_text("def rows(record):\n    return record['rows']\n")
    whole, none = ({"input_ids": [5, 6], "labels": labels} for labels in ([-100, 6], [-100, -100]))
    corpus = write_jsonl(
        tmp_path / "rows.jsonl", [{"rows": rows} for rows in ([none, whole, none], [none] * 2, [whole])]
    )
    options = [f"--formatter={tmp_path}/rows.py:rows", f"--input={corpus}", f"--tokenizer={TOKENIZER}"]
    ended = build(*options, f"--output={tmp_path / 'out'}")
    assert ended.code == 0, ended.err
    assert read_rows(tmp_path / "out") == [whole] * 2
    records = read_manifest(tmp_path / "out")["records"]
    assert (records["read"], records["kept"], records["dropped"]) == (3, 2, {"no_trained_tokens": 1})


@pytest.mark.parametrize(
    ("parts", "labels", "lengths", "kinds"),
    [
        ("content,end", [800, 2070], [7, 2], [0, 2]),
        ("content", [800, 2070], [7, 2], [0, 2]),
        ("end", [-100, 2070], [7, 1, 1], [0, 2, 5]),
    ],
)
def test_token_of_two_parts_is_of_the_first_one_that_is_trained_on(build, tmp_path, parts, labels, lengths, kinds):
    """The content ends, and the end of the turn begins, within the token of ` wheel`."""
    template = CONTENTS.replace("{% generation %}", "<{{ m.role }}>").replace("{% endgeneration %}", "heel")
    template += "{% if add_generation_prompt %}<assistant>{% endif %}"
    corpus = write_jsonl(tmp_path / "chats.jsonl", [{"messages": [user("<user>Q"), assistant("the w")]}])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}", "--parity=off"]
    options += [f"--chat_template={template}", "--eot_tokens=heel", f"--train_parts={parts}"]
    ended = build(*options, "--write_columns=labels,part_lengths,part_kinds,part_messages")
    assert ended.code == 0, ended.err
    (row,) = read_rows(tmp_path / "out")
    messages = [-1, *[1] * (len(kinds) - 1)]
    parts = {"part_lengths": lengths, "part_kinds": kinds, "part_messages": messages}
    assert row == {"labels": [-100] * 7 + labels} | parts
