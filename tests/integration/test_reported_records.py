"""Records of public bug reports, as a build trains on them; others are in tests/data/records/reported.jsonl."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, write_jsonl
from support.marked import marked_rows
from support.paths import TOKENIZER

BOS, EOS = "<|endoftext|>", "<|im_end|>"
USER = user("Prices?")


def as_text(arguments: dict[str, Any]) -> str:
    return f'<tool_call>\n{{"name": "lamp", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


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
COLOR = {"type": "string", "enum": ["red", None], "default": None}
CM = {"type": "object", "properties": {"cm": {"type": "integer"}}}
PADDED_CM = {"type": "object", "properties": {"cm": {"type": "integer"}, "guests": None}}
PADDED = {"color": {**COLOR, "items": None}, "size": PADDED_CM, "guests": None}
PARAMETERS = {"type": "object", "properties": {"color": COLOR, "size": CM}}
TOOLS = [{"type": "function", "function": {"name": "lamp", "parameters": PARAMETERS}}]
PADDED_PARAMETERS = {"type": "object", "properties": PADDED, "required": None}
PADDED_LAMP = {"name": "lamp", "description": None, "parameters": PADDED_PARAMETERS}
PADDED_TOOLS = [{"type": "function", "function": PADDED_LAMP}]
OPEN_TOOL = {"name": "lamp", "parameters": {"type": "object", "properties": {}, "additionalProperties": True}}


def lamp(id: str, tools: Any, **arguments: Any) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "lamp", "arguments": arguments}}
    messages = [USER, assistant("", tool_calls=[call]), {"role": "tool", "content": "ok"}]
    return {"id": id, "messages": messages, "tools": tools}


def test_nulls_that_arrow_puts_into_tools_and_calls_are_left_out_and_counted(tmp_path):
    size = {"cm": 3}
    records = [
        lamp("padded", PADDED_TOOLS, color=None, size=size | {"guests": None}, guests=None),
        lamp("right", TOOLS, color=None, size=size),
        lamp("unknown", None, color=None, guests=None),
        lamp("open", [OPEN_TOOL], guests=None),
    ]
    write_jsonl(tmp_path / "records.jsonl", records)
    # Of rows of structs, nobody knows which nulls the calls have had, under whatever name they have their arguments.
    arguments = {"color": None, "size": 3}
    forms: list[dict[str, Any]] = [{"function": {"name": "lamp", "arguments": arguments}}]
    forms += [{"name": "lamp", key: arguments} for key in ("args", "input")]
    chats = [[USER, assistant("", tool_calls=[call])] for call in forms]
    rows_of_tables = [{"id": f"row {number}", "messages": chat} for number, chat in enumerate(chats)]
    parts = {"role": "model", "parts": [{"functionCall": {"name": "lamp", "args": arguments}}]}
    rows_of_tables += [{"id": "row 3", "contents": [{"role": "user", "parts": [{"text": "Prices?"}]}, parts]}]
    other = {"id": "other row", "messages": lamp("", None, color="red", size=3)["messages"]}
    for number, row in enumerate(rows_of_tables):
        more = [other] if number == 0 else []
        pq.write_table(pa.Table.from_pylist([row, *more]), tmp_path / f"table-{number}.parquet")
    out = tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--keep_columns=id", "--direct_num_workers=1"]
    assert chatmill("build", "--input", tmp_path, "--output", out, *options) == 0
    rows = marked_rows(out)
    assert rows["padded"] == rows["right"]
    assert json.dumps(PARAMETERS) in rows["right"]
    assert as_text({"color": None, "size": size}) in rows["right"]
    assert as_text({"color": None, "guests": None}) in rows["unknown"]
    assert as_text({"guests": None}) in rows["open"]
    assert all(as_text({"size": 3}) in rows[f"row {number}"] for number in range(4))
    assert as_text({"color": "red", "size": 3}) in rows["other row"]
    manifest = read_manifest(out)
    assert manifest["notes"]["null_arguments_left_out"] == 5
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
    end = [user("r"), assistant("x")]
    records = [{"id": f"{i}", "messages": [user("q"), assistant(f"a {i}"), *end]} for i in range(40)]
    records.insert(0, {"id": "empty", "messages": [user("q"), assistant(""), *end]})
    corpus, out = write_jsonl(tmp_path / "records.jsonl", records), tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--chat_template", template, "--keep_columns=id", f"--parity={parity}"]
    arguments = ["--input", corpus, "--output", out, *options, "--direct_num_workers=1"]
    assert chatmill("build", *arguments) == 0
    assert marked_rows(out)["empty"].count("⟦") == 1 and "⟦x⟧" in marked_rows(out)["empty"]
    assert read_manifest(out)["notes"]["empty_answers"] == 1


@pytest.mark.parametrize(
    "parts", ["--write_columns=input_ids,labels,part_lengths,part_kinds,part_messages", "--train_parts=content,end"]
)
def test_parts_never_change_which_messages_of_a_completion_are_trained_on(tmp_path, parts):
    """With loss_on completion all of it is, also what a user says in it, which is no part of a turn."""
    prompt, answer = user("2+2?"), assistant("4")
    several = {"prompt": [prompt], "completion": [answer, prompt, answer]}
    corpus = write_jsonl(tmp_path / "records.jsonl", [{"prompt": [prompt], "completion": [answer]}, several])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=1", "--direct_num_workers=1"]
    for loss, rejected in (("completion", ["loss_not_applicable"]), ("auto", [])):
        assert chatmill("build", *options, f"--output={tmp_path / loss}", f"--loss_on={loss}", parts) == 0
        assert [reject["reason"] for reject in read_rejects(tmp_path / loss)] == rejected


def test_a_flag_that_is_not_known_is_named_with_the_option_that_reads_it(tmp_path, capfd):
    """verl-project/verl#5316: an answer that is not to be trained on."""
    messages = [USER, assistant("wrong", do_train=False), USER, assistant("right")]
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"messages": messages}])
    options = ["--input", corpus, "--tokenizer", TOKENIZER, "--unprinted=report", "--direct_num_workers=1"]
    assert chatmill("build", *options, "--output", tmp_path / "out") == 0
    warning = "with a key that looks as if it said what is trained on, and is not known: "
    warning += 'messages[1] has "do_train": false; with train_field do_train, false and 0 are not trained on'
    assert f"{warning} (--train_field, docs/records.md)" in capfd.readouterr().err
    assert chatmill("build", *options, "--output", tmp_path / "read", "--train_field=do_train") == 0
    assert "not known" not in capfd.readouterr().err


def test_a_flag_next_to_the_messages_is_named_with_a_formatter_which_can_read_it(tmp_path, capfd):
    """verl-project/verl#5316: --train_field names a key of messages."""
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"messages": [USER, assistant("right")], "loss_mask": [0, 1]}])
    options = ["--input", corpus, "--tokenizer", TOKENIZER, "--direct_num_workers=1"]
    assert chatmill("build", *options, "--output", tmp_path / "out") == 0
    warning = 'has "loss_mask": [0, 1]; a formatter can say it in the messages (--formatter, docs/records.md)'
    assert warning in capfd.readouterr().err
