"""Budgets: a run that exceeds one fails before its commit, and is finished by the same command with a larger one."""

from __future__ import annotations

import pytest

from support.chats import assistant, user
from support.datasets import name_in_increment, read_exceptions, read_manifest, work_in, write_jsonl
from support.paths import TOKENIZER
from support.templates import DROPS_REASONING

BUDGETS = ["max_reject_fraction", "max_lost_fraction", "max_parity_fraction", "max_unprinted_fraction"]
# It prints no system message.
TEMPLATE = DROPS_REASONING.replace("for message in messages", "for message in messages if message.role != 'system'")


@pytest.fixture
def job(tmp_path) -> list[str]:
    """A small job, of which one record in ten has each fault."""
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    plain = [user("Hi"), assistant("Hello.")]
    faulty = [
        [user("Hi"), assistant("a b c d " * 30)],
        [*(2 * [user("Hi"), assistant("Hello.", reasoning_content="because")])],
        [{"role": "system", "content": "Be kind."}, *plain],
        "Hi",
    ]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": one} for one in (*faulty, *(36 * [plain]))])
    return [
        f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--chat_template={tmp_path}/template.jinja",
        f"--output={tmp_path}/out", "--unprinted=report", "--max_length=60",
    ]  # fmt: skip


def test_a_run_over_its_budgets_fails_with_one_message_and_is_finished_with_larger_ones(build, job, tmp_path):
    output = tmp_path / "out"
    ended = build(*job, *(f"--{budget}=0" for budget in BUDGETS))
    assert ended.code == 1 and "Traceback" not in ended.err
    corpus = tmp_path / "corpus.jsonl"
    for line in (
        "1 of 40 records were rejected, more than max_reject_fraction 0.0",
        "tokens to train on are in no row because of max_length, more than max_lost_fraction 0.0. "
        "Build with a larger max_length, or allow a larger fraction and run again. "
        f"The first is {corpus}, byte 0: ",
        f"{output}/records/records-{work_in(output).name}-* lists all of them.",
        "1 of 40 trained turns that were compared differ from inference (reasoning dropped 1), more than "
        "max_parity_fraction 0.0",
        "1 of 40 records have a content, a tool call or tools that the chat template does not print, more than "
        "max_unprinted_fraction 0.0",
    ):
        assert line in ended.err
    assert not (output / "manifest.json").exists() and not (output / "_chatmill" / "versions").exists()
    written = {path: path.stat().st_mtime_ns for path in output.glob("*/*.parquet")}
    assert sorted(name_in_increment(path.name) for path in written) == [
        "records-000000-000.parquet",
        "train-000000-000.parquet",
    ]

    ended = build(*job, *(f"--{budget}=0.1" for budget in BUDGETS[:1]), "--max_lost_fraction=0.9")
    assert ended.code == 0, ended.err
    assert {path: path.stat().st_mtime_ns for path in output.glob("*/*.parquet")} == written
    assert [(line["outcome"], line["origin_position"] == 0) for line in read_exceptions(output)] == [
        ("truncated", True),
        ("rejected", False),
    ]
    assert read_manifest(output)["records"]["kept"] == 38
