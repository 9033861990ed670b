"""Which records are for validation: a hash of what a record says decides, so that duplicates are in the same split."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transforms import parse

USER = {"role": "user", "content": "Where is order K-7? 😀"}
ASSISTANT = {"role": "assistant", "content": "On its way."}
CALLS = [{"type": "function", "function": {"name": "track", "arguments": {"order": "K-7", "n": [1, 2.5, None]}}}]


def held_back(record: dict[str, Any], fraction: float = 0.5, seed: int = 0) -> bool:
    return parse(json.dumps(record).encode(), validation_fraction=fraction, seed=seed)[0].validation


def test_which_records_are_for_validation_never_changes():
    # BLAKE2b of 8 bytes, keyed with the seed, of the content as compact JSON; computed without the code.
    # v: for validation with the seed of that number, 0 to 15.
    call = {"id": "call_1", "function": {"name": "track", "arguments": {"order": "é", "n": [1, 2.5, None]}}}
    called = [{"role": "user", "content": "Where is K-7?"}, {"role": "assistant", "tool_calls": [call]}]
    hello = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how can I help?"}]
    nihao = [{"role": "user", "content": "你好！😀"}, {"role": "assistant", "content": "您好"}]
    conversation = [{"from": "human", "value": "Where is it?"}, {"from": "gpt", "value": "Over there."}]
    known: dict[str, dict[str, Any]] = {
        "vvvvtttvtvvvtvtt": {"messages": hello},
        "vtvvtvtvttvttttv": {"messages": nihao},
        "tvvvvttttvttvttt": {"messages": called},
        "ttvvvtvvvtvtvtvv": {"instruction": "Add.", "input": "1 + 1", "output": "2"},
        "ttvttttvtvttttvv": {"conversations": conversation},
        "tvtvtttvvtvtttvt": {"prompt": "Q: 2 + 2?\nA:", "completion": " 4"},
        "ttttvvtvvtvvtttt": {"text": "Once upon a time, in a valley far away"},
        "vvttvtvtvtvtvvvt": {"text": '\u2028 "quoted" \\ \0 \x7f'},
        "vvvvvvtttvvvtttv": {"input_ids": [1, 15043, 2], "labels": [-100, 15043, 2]},
    }
    for sides, record in known.items():
        assert "".join("v" if held_back(record, seed=seed) else "t" for seed in range(16)) == sides, record


def asked(answer: Any, question: Any = "Question N", **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer, **more}]


def calling(function: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": asked("", tool_calls=[{"type": "function", "function": function, **more}])}


CALL = {"name": "track", "arguments": {"order": "N", "nested": {"a": 1, "b": 2}}}
SAME_CALL = {"arguments": {"nested": {"b": 2, "a": 1}, "order": "N"}, "name": "track"}
PARTS = [{"type": "text", "text": text} for text in ("Question", " N")]
DUPLICATES: dict[str, list[dict[str, Any]]] = {
    "a conversation under other schemas and names": [
        {"messages": asked("Answer N")},
        {"messages": asked("Answer N", PARTS)},
        {"messages": asked([{"type": "text", "text": "Answer N"}])},
        {"messages": asked("Answer N"), "id": 3, "tools": [{"name": "f"}], "source": "a"},
        {"messages": [dict(reversed(turn.items())) for turn in asked("Answer N", weight=1)], "id": "copy-N"},
        {"messages": asked("Answer N"), "chat_template_kwargs": {"enable_thinking": False}},
        {"conversations": [{"from": "human", "value": "Question N"}, {"value": "Answer N", "from": "gpt"}]},
        {"prompt": asked("")[:1], "completion": asked("Answer N")[1:]},
        {"instruction": "Question N", "input": "", "output": "Answer N", "history": []},
    ],
    "a call with other ids, orders of keys and schemas": [
        *(calling(call, id=id) for call in (CALL, SAME_CALL) for id in ("call_3fa9", "call_71c0")),
        *({"messages": asked(content, tool_calls=[CALL])} for content in ("", None, [])),
        {"conversations": [*asked("")[:1], {"from": "function_call", "value": json.dumps(SAME_CALL)}]},
    ],
    "a text": [
        {"text": "Question N Answer"},
        {"prompt": "Question N", "completion": " Answer"},
        {"prompt": "", "completion": "Question N Answer", "id": 3},
    ],
    "token ids": [{"input_ids": "[1, N]"}, {"input_ids": "[1, N]", "labels": "[-100, N]", "id": "copy"}],
}


@pytest.mark.parametrize("duplicates", DUPLICATES.values(), ids=DUPLICATES)
def test_duplicates_are_in_the_same_split(duplicates):
    records = [[json.loads(json.dumps(record).replace("N", str(n))) for record in duplicates] for n in range(40)]
    sides = [{held_back(record) for record in same} for same in records]
    assert all(len(side) == 1 for side in sides)
    assert {True, False} == set.union(*sides)


def test_another_role_answer_or_call_is_not_a_duplicate():
    messages = [
        [USER, ASSISTANT],
        [USER | {"role": "tool"}, ASSISTANT],
        [USER, ASSISTANT | {"content": "On its way!"}],
        [USER, ASSISTANT | {"tool_calls": CALLS}],
    ]
    assert len({tuple(held_back({"messages": each}, seed=seed) for seed in range(16)) for each in messages}) == 4


def test_about_the_given_fraction_is_for_validation_and_another_seed_chooses_other_records():
    records = [{"text": f"Record {i}"} for i in range(2000)]
    first, second = ({i for i, record in enumerate(records) if held_back(record, 0.1, seed)} for seed in (0, 1))
    for chosen in (first, second):
        assert abs(len(chosen) - 200) < 4 * (2000 * 0.1 * 0.9) ** 0.5
    assert abs(len(first & second) - 20) < 4 * 20**0.5
    assert not any(held_back(record, 0.0) for record in records[:100])
    assert all(held_back(record, 1.0) for record in records[:100])
