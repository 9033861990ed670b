"""Text that is not read is counted by the name of its column.

tests/data/records/unread.jsonl has more columns; what templates do not print is in tests/data/renderings.jsonl.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.chats import assistant, user
from support.datasets import write_jsonl
from support.reading import make_batches
from transforms import ParseConversations, parse

CHAT = [user("What is 6*7?"), assistant("It is 42.")]
ONE_OF_EACH: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
    "prompt_completion": {"prompt": "One plus one", "completion": " is two"},
    "prompt_completion of messages": {"prompt": CHAT[:1], "completion": CHAT[1:]},
    "alpaca": {"instruction": "Sing.", "input": "Loudly", "output": "La la"},
    "text": {"text": "Once upon a time"},
    "question_answer": {"question": "Is tea hot?", "answer": "Mostly."},
    "tokenized": {"input_ids": [5, 6, 7]},
}
NAMES = st.text("abcdefghijklmnopqrstuvwxyzäß_ ", min_size=1, max_size=12).map(lambda name: f"zq{name}x")
TEXTS = st.text("abcdefgh XYZ7é漢\n", min_size=1, max_size=30).map(lambda text: f"planted {text} planted")


@given(schema=st.sampled_from([*ONE_OF_EACH]), name=NAMES, text=TEXTS, is_nested=st.booleans())
def test_a_planted_column_of_any_name_is_counted(schema, name, text, is_nested):
    record = {**ONE_OF_EACH[schema], name: [{"inner": text}] if is_nested else text}
    assert [parse(form)[0].unread for form in (json.dumps(record).encode(), record)] == [{name: len(text)}] * 2


def test_each_part_counts_schemas_and_names_that_are_others_in_each_record_together(tmp_path):
    few = [{"text": "a", "summary": "four"}, {"text": "b", "summary": "sixsix"}, *[{"messages": CHAT}] * 2]
    many = [{"text": "a", f"key {number}": "b!"} for number in range(120)] + [{"text": "a", "often": "c"}] * 2
    paths = [str(write_jsonl(tmp_path / f"{len(records)}.jsonl", records)) for records in (few, many)]
    sources = dict(zip(("few", "many"), paths, strict=True))
    first, second = (batch.outcomes.statistics for batch in make_batches(sources, ParseConversations()))
    assert (first.schemas, [*first.unread]) == ({"messages": 2, "text": 2}, ["summary"])
    assert (first.unread["summary"].records, first.unread["summary"].characters) == (2, 10)
    assert len(second.unread) == 101 and second.unread["often"].records == 2
    assert sum(one.characters for one in second.unread.values()) == 242
