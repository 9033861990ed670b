"""The steps as functions: parse, tokenize and pack of `transforms`, beside what a build does."""

from __future__ import annotations

import json
import random

import pytest
from transformers import AutoTokenizer

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, read_rows, write_jsonl
from support.paths import TOKENIZER
from transforms import Conversation, ParameterError, RecordDropped, RecordError, pack, parse, tokenize

MESSAGES = [user("Hi"), assistant("Hello")]
CONTENT = Conversation(MESSAGES)


@pytest.mark.parametrize(
    ("record", "options", "expected"),
    [
        ({"messages": MESSAGES}, {}, [CONTENT]),
        (json.dumps({"messages": MESSAGES}).encode(), {}, [CONTENT]),
        ({"chat": MESSAGES}, {"columns": {"messages": "chat"}}, [CONTENT]),
        ({"prompt": 1, "messages": [{"role": "user"}]}, {}, "bad_"),
        (b"{", {}, "invalid_json"),
    ],
)
def test_parse_reads_a_record_as_a_build(record, options, expected):
    if isinstance(expected, list):
        assert [example.content for example in parse(record, **options)] == expected
        return
    with pytest.raises(RecordError) as raised:
        parse(record, **options)
    assert raised.value.reason.startswith(expected)


def test_parse_notes_what_a_build_notes():
    [example] = parse(b'{"text": "a", "id": 1, "id": 2}', keep_columns=["topic"])
    found = "the record has 'id' twice in an object; the last one counts"
    assert example.notes == (("duplicate_json_keys", found), ("records_without_topic", None))


def test_parse_gives_all_examples_of_a_formatter_and_says_what_it_drops(tmp_path):
    formatter = tmp_path / "formatter.py"
    formatter.write_text("def texts(record):\n    return [{'text': text} for text in record['texts']] or None\n")
    options = {"formatter": f"{formatter}:texts"}
    assert [example.content.text for example in parse({"texts": ["one", "two"]}, **options)] == ["one", "two"]
    with pytest.raises(RecordDropped, match="filtered"):
        parse({"texts": []}, **options)
    with pytest.raises(RecordError, match="formatter"):
        parse({}, **options)
    with pytest.raises(ParameterError, match="schema"):
        parse({}, schema="none")


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_tokenize_gives_the_ids_of_transformers(engine):
    texts = ["", "Hello", "naïve 你好 🙂\n\n  end ", "a" * 5000]
    found = tokenize(texts, str(TOKENIZER), engine=engine)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    assert [ids.tolist() for ids in found] == tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert tokenize([], str(TOKENIZER), engine=engine) == []
    with pytest.raises(ParameterError, match="engine"):
        tokenize(texts, str(TOKENIZER), engine="slow")


@pytest.mark.parametrize("options", [{}, {"packing": "bfd"}, {"packing": "wrapped"}, {"truncation": "drop"}])
def test_pack_makes_the_rows_of_a_build(options, tmp_path):
    draw = random.Random(4)
    ids = [[draw.randrange(100) for _ in range(draw.randrange(1, 30))] for _ in range(50)]
    examples = [{"input_ids": row, "labels": [-100, *row[1:]]} for row in ids]
    given = [f"--{name}={value}" for name, value in {**options, "max_length": 20}.items()]
    corpus = write_jsonl(tmp_path / "rows.jsonl", examples)
    output = tmp_path / "out"
    columns = "--write_columns=input_ids,labels,seq_lengths"
    assert (
        chatmill("build", f"--input={corpus}", f"--tokenizer={TOKENIZER}", *given, columns, f"--output={output}") == 0
    )
    assert pack(examples, 20, **options) == read_rows(output)
    assert read_manifest(output)["rows"] and not read_rejects(output)


def test_pack_says_which_example_is_wrong():
    with pytest.raises(ParameterError, match="examples=1: 1 labels of 2 input_ids"):
        pack([{"input_ids": [1], "labels": [1]}, {"input_ids": [1, 2], "labels": [1]}], None)
