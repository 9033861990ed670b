"""Builds of preference data: pairs, and answers with a label; what the rows have, and the commands that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli.program import main
from support.datasets import manifest_of, rejects_of, rows_of, write_jsonl
from support.paths import TOKENIZER

USER = {"role": "user", "content": "Hi"}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


PAIRS: list[dict[str, Any]] = [
    {"chosen": [USER, answer("Yes.")], "rejected": [USER, answer("No.")], "id": "a"},  # no prompt of its own
    {"prompt": "Hi", "chosen": [USER, answer("Yes.")], "rejected": [USER, answer("Yes.")], "id": "b"},  # equal
    {"prompt": [USER], "chosen": [answer("Yes.")], "rejected": [answer("No!")], "id": "c"},
    {"prompt": [USER], "chosen": [answer("Yes.")], "rejected": [{"role": "user", "content": "No"}], "id": "d"},
]
LABELLED: list[dict[str, Any]] = [
    {"prompt": [USER], "completion": [answer("Yes.")], "label": True},
    {"messages": [USER, answer("Yes."), USER, answer("No.")], "kto_tag": "False"},
    {"prompt": [USER], "completion": [answer("No.")]},
    PAIRS[0],
]


def build(folder: Path, records: list[Any], schema: str, *options: str) -> Path:
    corpus, output = write_jsonl(folder / "records.jsonl", records), folder / "out"
    arguments = ["build", f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={output}", f"--schema={schema}"]
    arguments += ["--direct_num_workers=1", "--max_reject_fraction=1", "--output_format=parquet,tfrecord"]
    assert main([*arguments, *options]) == 0
    return output


def decoded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the texts of their ids; -100 never is in them."""
    from transformers import AutoTokenizer

    decode = AutoTokenizer.from_pretrained(TOKENIZER).decode
    return [{name: decode(of) if name.endswith("_ids") else of for name, of in row.items()} for row in rows]


def assert_commands_read(output: Path, capsys: pytest.CaptureFixture[str], *texts: str) -> None:
    for command in (["verify"], ["stats"]):
        assert main([command[0], str(output), *command[1:]]) == 0, capsys.readouterr()
    assert main(["diff", str(output), str(output)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(output)]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in texts), shown


def test_a_row_has_both_answers_of_a_pair(tmp_path, capsys):
    output = build(tmp_path, PAIRS, "preference")
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    rows = decoded(rows_of(output))
    assert [{name: row[name] for name in row if name.endswith("_ids")} for row in rows] == [
        {"prompt_ids": prompt, "chosen_ids": "Yes.<|im_end|>\n", "rejected_ids": f"{other}<|im_end|>\n"}
        for other in ("No.", "No!")
    ]
    for row in rows_of(output):
        assert {*row["chosen_mask"], *row["rejected_mask"]} == {1}
        assert (len(row["chosen_mask"]), len(row["rejected_mask"])) == (
            len(row["chosen_ids"]),
            len(row["rejected_ids"]),
        )
    records = manifest_of(output)["records"]
    assert records == {
        "read": 4, "kept": 2, "truncated": 0, "dropped": {"equal_answers": 1}, "rejected": {"bad_preference": 1},
    }  # fmt: skip
    assert_commands_read(output, capsys, "⟦Yes.<|im_end|>", "⟦No.<|im_end|>")


def test_a_row_has_the_columns_of_its_pair_and_the_margin_as_a_number(tmp_path, capsys):
    margins = [0.5, "-1.25", 3, None, "large", 1e39, True]
    pairs = [{**PAIRS[0], "id": str(number), "margin": margin} for number, margin in enumerate(margins)]
    output = build(tmp_path, pairs, "preference", "--keep_columns=id,margin")
    rows = rows_of(output)
    assert [(row["id"], row["margin"]) for row in rows] == [("0", 0.5), ("1", -1.25), ("2", 3.0)]
    assert [reject["reason"] for reject in rejects_of(output)] == ["no_margin"] * 4
    assert [reject["detail"] for reject in rejects_of(output)] == [
        f"margin is {found}; expected a number" for found in ("missing", "large", "1e+39", "true")
    ]
    schema = pq.read_schema(next((output / "data").glob("*.parquet")))
    assert (schema.field("margin").type, schema.field("id").type) == (pa.float32(), pa.string())
    assert_commands_read(output, capsys, "⟦Yes.<|im_end|>")


def test_margin_that_rows_do_not_have_is_counted(tmp_path):
    output = build(tmp_path, [{**PAIRS[0], "margin": 0.5}], "preference")
    assert manifest_of(output)["notes"]["margin_not_kept"] == 1
    assert "margin" not in rows_of(output)[0]


def test_a_row_has_an_answer_and_its_label(tmp_path, capsys):
    output = build(tmp_path, LABELLED, "unpaired_preference")
    found = [(row["completion_ids"], row["label"]) for row in decoded(rows_of(output))]
    assert found == [
        ("Yes.<|im_end|>\n", True),
        ("No.<|im_end|>\n", False),  # the last answer
        ("Yes.<|im_end|>\n", True),
        ("No.<|im_end|>\n", False),
    ]
    assert [(reject["reason"], reject["position"] > 0) for reject in rejects_of(output)] == [("no_label", True)]
    assert manifest_of(output)["notes"]["pair_rows_added"] == 1
    assert_commands_read(output, capsys, "⟦Yes.<|im_end|>")
