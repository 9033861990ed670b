"""Records of public bug reports, as a build trains on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import manifest_of, rejects_of, write_jsonl
from support.marked import marked_rows
from support.paths import TOKENIZER

BOS, EOS = "<|endoftext|>", "<|im_end|>"
USER = {"role": "user", "content": "Prices?"}
CALLS = [{"name": "stock", "arguments": {"of": of}} for of in ("AA", "BB")]
FIRST, SECOND = ({"role": "tool_call", "content": json.dumps(call)} for call in CALLS)
ANSWERS = [{"role": "tool_response", "content": "12"}, {"role": "tool_response", "content": "15"}]
LAST = {"role": "assistant", "content": "12, 15."}
TOOL = {"name": "stock", "description": "A price.", "parameters": {"type": "object", "properties": {"of": {}}}}

THINKS_NOT = {"enable_thinking": False}


def as_text(*calls: dict[str, Any]) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def answer(text: str) -> str:
    return f"<|im_start|>assistant\n⟦{text}<|im_end|>\n⟧"


def chat(**turns: list[dict[str, Any]]) -> dict[str, Any]:
    ((id, messages),) = turns.items()
    return {"id": id, "tools": [TOOL], "messages": messages}


RECORDS = [
    # modelscope/ms-swift#9234, hiyouga/LLaMA-Factory#10530: a text and the call after it are one answer.
    chat(text_call=[USER, {"role": "assistant", "content": "I look."}, FIRST, ANSWERS[0], LAST]),
    chat(thought_call=[USER, {"role": "assistant", "content": "<think>\nI must.\n</think>"}, FIRST, ANSWERS[0], LAST]),
    # modelscope/ms-swift#9263: parallel calls are one answer, whatever other keys they have.
    chat(plain=[USER, FIRST, SECOND, *ANSWERS, LAST]),
    chat(ids=[USER, *({**turn, "id": "abab"[i]} for i, turn in enumerate([FIRST, SECOND, *ANSWERS])), LAST]),
    chat(times=[turn | {"ts": number} for number, turn in enumerate([USER, FIRST, SECOND, *ANSWERS, LAST])]),
    chat(one_masked=[USER, FIRST | {"loss": True}, SECOND | {"loss": False}, *ANSWERS, LAST]),
    chat(both_masked=[USER, FIRST | {"loss": False}, SECOND | {"loss": False}, *ANSWERS, LAST]),
    # verl-project/verl#5316, axolotl-ai-cloud/axolotl#2658: flags next to the messages.
    {"id": "mask", "messages": [USER, LAST], "loss_mask": [0, 1], "trained_by": 3, "trained_at": None},
    {"id": "think", "messages": [USER, LAST], "enable_thinking": False},
    {"id": "both", "messages": [USER, LAST], "enable_thinking": True, "chat_template_kwargs": THINKS_NOT},
    {"id": "shape", "dialog": [USER, LAST], "enable_thinking": False},
    {"id": "answered", "problem": "2+2?", "solution": "4", "enable_thinking": False},
    {"id": "gpt", "conversations": [{"from": of, "value": "a"} for of in ("human", "gpt")], **THINKS_NOT},
]  # fmt: skip


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reported")
    corpus = write_jsonl(folder / "records.jsonl", RECORDS)
    template = (TOKENIZER / "chat_template.jinja").read_text() + "{%- if enable_thinking is false %}[quick]{% endif %}"
    options = ["--tokenizer", TOKENIZER, "--chat_template", template, "--keep_columns=id", "--max_reject_fraction=1"]
    arguments = ["--input", corpus, "--output", folder / "out", *options, "--direct_num_workers=1"]
    assert chatmill("build", *arguments) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def rows(output) -> dict[str, str]:
    return marked_rows(output)


@pytest.fixture(scope="module")
def rejects(output) -> dict[str, str]:
    return {json.loads(reject["record"])["id"]: reject["reason"] for reject in rejects_of(output)}


def test_text_or_reasoning_and_the_call_after_it_are_one_answer(rows):
    for id, text in (("text_call", "I look."), ("thought_call", "<think>\nI must.\n</think>")):
        assert answer(f"{text}\n{as_text(CALLS[0])}") in rows[id]
        assert rows[id].count("<|im_start|>assistant") == 2


def test_parallel_calls_are_one_answer_whatever_other_keys_they_have(rows, rejects):
    assert answer(as_text(*CALLS)) in rows["plain"]
    assert rows["ids"] == rows["times"] == rows["plain"]
    assert answer(as_text(*CALLS)).replace("⟦", "").replace("⟧", "") in rows["both_masked"]
    assert rows["both_masked"].replace("⟦", "").replace("⟧", "") == rows["plain"].replace("⟦", "").replace("⟧", "")
    assert rejects["one_masked"] == "bad_weight"


def test_flags_next_to_messages_are_read_or_named(rows, output):
    quick = {id for id, row in rows.items() if row.endswith("[quick]")}
    assert quick == {"think", "both", "shape", "answered", "gpt"}
    manifest = manifest_of(output)
    assert manifest["notes"]["train_flags_not_understood"] == 1
    first = manifest["first_examples"]["train_flags_not_understood"]["detail"]
    assert first == 'the record has "loss_mask": [0, 1]'


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_text_that_begins_with_a_bos_gets_no_other_one(tmp_path, engine):
    """NVIDIA-NeMo/RL#855, unslothai/unsloth#10312: texts that a template rendered, and a tokenizer that adds BOS."""
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(TOKENIZER, tokenizer)
    path = tokenizer / "tokenizer.json"
    content = json.loads(path.read_text())
    (bos,) = (token for token in content["added_tokens"] if token["content"] == BOS)
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {BOS: {"id": BOS, "ids": [bos["id"]], "tokens": [BOS]}},
    }
    path.write_text(json.dumps(content))
    config = tokenizer / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "bos_token": BOS}))
    records = [
        {"id": "rendered", "text": f"{BOS}Hi."},
        {"id": "bare", "text": "Hi."},
        {"id": "two of its own", "text": f"{BOS}{BOS}Hi."},
        {"id": "empty", "text": BOS},
        {"id": "prompt", "prompt": f"{BOS}Hi", "completion": " you."},
    ]
    corpus, out = write_jsonl(tmp_path / "records.jsonl", records), tmp_path / "out"
    options = ["--tokenizer", tokenizer, "--keep_columns=id", "--max_reject_fraction=1", f"--engine={engine}"]
    options += ["--special_tokens_in_content=allow", "--direct_num_workers=1"]
    assert chatmill("build", "--input", corpus, "--output", out, *options) == 0
    assert marked_rows(out, tokenizer=tokenizer) == {
        "rendered": f"⟦{BOS}Hi.{EOS}⟧",
        "bare": f"⟦{BOS}Hi.{EOS}⟧",
        "two of its own": f"⟦{BOS}{BOS}Hi.{EOS}⟧",
        "empty": f"⟦{BOS}{EOS}⟧",
        "prompt": f"{BOS}Hi⟦ you.{EOS}⟧",
    }


# modelscope/ms-swift#6467, #10125: what Arrow puts into tools and calls of other tools, as JSON lines.
PADDED_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lamp",
            "description": None,
            "parameters": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "enum": ["red", None], "default": None, "items": None},
                    "size": {"type": "object", "properties": {"cm": {"type": "integer"}, "guests": None}},
                    "guests": None,
                },
                "required": None,
            },
        },
    }
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lamp",
            "parameters": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "enum": ["red", None], "default": None},
                    "size": {"type": "object", "properties": {"cm": {"type": "integer"}}},
                },
            },
        },
    }
]

OPEN_TOOL = {"name": "lamp", "parameters": {"type": "object", "properties": {}, "additionalProperties": True}}


def lamp(id: str, tools: Any, **arguments: Any) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "lamp", "arguments": arguments}}
    return {
        "id": id,
        "messages": [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "ok"},
        ],
        "tools": tools,
    }


def test_nulls_that_arrow_puts_into_tools_and_calls_are_left_out_and_counted(tmp_path):
    size = {"cm": 3}
    records = [
        lamp("padded", PADDED_TOOLS, color=None, size=size | {"guests": None}, guests=None),
        lamp("right", TOOLS, color=None, size=size),
        lamp("unknown", None, color=None, guests=None),
        lamp("open", [OPEN_TOOL], guests=None),
    ]
    write_jsonl(tmp_path / "records.jsonl", records)
    # Of rows of structs, nobody knows which nulls the calls have had.
    nulls = [lamp("row", None, color=None, size=3), lamp("other row", None, color="red", size=3)]
    for record in nulls:
        del record["tools"]
    pq.write_table(pa.Table.from_pylist(nulls), tmp_path / "records.parquet")
    out = tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--keep_columns=id", "--direct_num_workers=1"]
    assert chatmill("build", "--input", tmp_path, "--output", out, *options) == 0
    rows = marked_rows(out)
    assert rows["padded"] == rows["right"]
    assert json.dumps(TOOLS[0]["function"]["parameters"]) in rows["right"]
    assert as_text({"name": "lamp", "arguments": {"color": None, "size": size}}) in rows["right"]
    assert as_text({"name": "lamp", "arguments": {"color": None, "guests": None}}) in rows["unknown"]
    assert as_text({"name": "lamp", "arguments": {"guests": None}}) in rows["open"]
    assert as_text({"name": "lamp", "arguments": {"size": 3}}) in rows["row"]
    manifest = manifest_of(out)
    assert manifest["notes"]["null_arguments_left_out"] == 2
    assert "guests of a call" in manifest["first_examples"]["null_arguments_left_out"]["detail"]


@pytest.mark.parametrize("parity", ["report", "expand"])
@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}{% endgeneration %}"
        "<|im_end|>{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ '<|user|>' + m.content }}{% endif %}{% endfor %}",
    ],
)
def test_empty_answer_under_generation_blocks_is_kept(tmp_path, template, parity):
    """huggingface/transformers#47325: of such an answer nothing is trained on."""
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]
    turns += [{"role": "user", "content": "r"}, {"role": "assistant", "content": "x"}]
    records = [{"id": "empty", "messages": turns}]
    records += [
        {"id": f"{i}", "messages": [*turns[:1], {**turns[3], "content": f"a {i}"}, *turns[2:]]} for i in range(40)
    ]
    corpus, out = write_jsonl(tmp_path / "records.jsonl", records), tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--chat_template", template, "--keep_columns=id", f"--parity={parity}"]
    arguments = ["--input", corpus, "--output", out, *options, "--direct_num_workers=1"]
    assert chatmill("build", *arguments) == 0
    assert marked_rows(out)["empty"].count("⟦") == 1 and "⟦x⟧" in marked_rows(out)["empty"]
    assert manifest_of(out)["notes"]["empty_answers"] == 1


@pytest.mark.parametrize(
    "parts", ["--write_columns=input_ids,labels,part_lengths,part_kinds,part_messages", "--train_parts=content,end"]
)
def test_parts_never_change_which_messages_of_a_completion_are_trained_on(tmp_path, parts):
    """With loss_on completion all of it is, also what a user says in it, which is no part of a turn."""
    prompt, answer = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
    several = {"prompt": [prompt], "completion": [answer, prompt, answer]}
    corpus = write_jsonl(tmp_path / "records.jsonl", [{"prompt": [prompt], "completion": [answer]}, several])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=1", "--direct_num_workers=1"]
    for loss, rejected in (("completion", ["loss_not_applicable"]), ("auto", [])):
        assert chatmill("build", *options, f"--output={tmp_path / loss}", f"--loss_on={loss}", parts) == 0
        assert [reject["reason"] for reject in rejects_of(tmp_path / loss)] == rejected
