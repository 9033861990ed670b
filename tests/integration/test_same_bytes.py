"""Builds write the same bytes with any number of workers and after a kill, and the order of records changes no outcome.

For plain chats, and for conversations with tools under templates that change, compare or recognise texts.
"""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.chats import assistant, user
from support.datasets import build_in_process, digests, manifest_of, rejects_of, rows_of, work_in, write_jsonl
from support.generated import generate
from support.killed import start_and_wait_for_receipts
from support.paths import CHATS, TOKENIZER
from support.templates import models_and_odd

OWN = (TOKENIZER / "chat_template.jinja").read_text()
CONTINUES = "CONTINUE_FINAL_MESSAGE_TAG "


# Prints texts that it did not copy from where they are: a prefix, constants that it recognises, the question if the
# answer is the same.
RECOGNISES = OWN.replace(
    "{{- text(message.content) -}}",
    "{%- set shown = text(message.content) -%}"
    "{%- if message.role == 'tool' -%}{{- 'Final: ' ~ shown.removeprefix('Final: ') -}}"
    "{%- elif shown == 'yes' -%}yes"
    f"{{%- elif shown.endswith('{CONTINUES}') -%}}{{{{- shown[:-{len(CONTINUES)}] -}}}}{CONTINUES}"
    "{%- elif shown == messages[0].content -%}{{- messages[0].content -}}"
    "{%- else -%}{{- shown -}}{%- endif -%}",
)
TEMPLATES = {"recognises": RECOGNISES}
IS_SLOW = "TEST_SLOW" in os.environ
OF_ALL = models_and_odd()
TEMPLATES |= OF_ALL if IS_SLOW else {"qwen3_5_think": OF_ALL["qwen3_5_think"]}

CONTENTS = (
    "yes",
    "Final: 42",
    "42",
    "Final: yes",
    CONTINUES,
    f"So it is. {CONTINUES}",
    "<think>\n\n</think>",
    "a  b ",
    "",
)
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def records() -> list[dict[str, Any]]:
    """Conversations with texts that templates recognise, most of them with tools; and generated ones."""
    draw = random.Random(29)
    made = []
    for number in range(160):
        call = {"id": "call00000", "type": "function", "function": {"name": "look", "arguments": {"at": f"{number}"}}}
        question, said, seen, answer = draw.choices(CONTENTS, k=4)
        if draw.random() < 0.3:
            answer = question
        messages = [user(question), assistant(said, tool_calls=[call])]
        messages += [{"role": "tool", "tool_call_id": "call00000", "content": seen}, assistant(answer)]
        if draw.random() < 0.2:
            messages += [user(draw.choice(CONTENTS)), assistant(draw.choice(CONTENTS), reasoning_content="so")]
        made.append({"messages": messages, "tools": [TOOL]})
        made.append(generate(number).record if number % 2 else {"messages": [user(question), assistant(answer)]})
    return [{"id": f"{number}", **record} for number, record in enumerate(made)]


PLAIN = ["--as_chat=true", "--packing=bfd", "--max_length=1024", "--split_bytes=60000"]
WITH_TOOLS = ["--max_reject_fraction=1", "--keep_columns=id", "--split_bytes=16000", "--now=2026-11-20"]


@dataclass(frozen=True)
class Job:
    """The options of a build, and the folder of its dataset, made by one worker."""

    input: Path
    more: list[str]
    output: Path

    @property
    def options(self) -> list[str]:
        return [f"--input={self.input}", *self.more]


@pytest.fixture(scope="module", params=["plain", *TEMPLATES])
def job(request, tmp_path_factory) -> Job:
    folder = tmp_path_factory.mktemp(request.param)
    common = [f"--tokenizer={TOKENIZER}", "--validation_fraction=0.1", "--output_format=parquet,tfrecord"]
    made = Job(CHATS, [*common, *PLAIN], folder / "out")
    if request.param != "plain":
        (folder / "template.jinja").write_text(TEMPLATES[request.param])
        corpus = write_jsonl(folder / "corpus.jsonl", records())
        made = Job(corpus, [*common, *WITH_TOOLS, f"--chat_template={folder}/template.jinja"], folder / "out")
    done = build_in_process(*made.options, f"--output={made.output}", "--direct_num_workers=1")
    if "dropped or rejected: " in done.stderr and request.param in OF_ALL:
        pytest.skip("the template refuses all of these records")
    assert done.returncode == 0, done.stderr
    manifest = manifest_of(made.output)
    assert "compiled_template_differs" not in manifest["notes"] and len(manifest["shards"]) > 10
    return made


@pytest.mark.parametrize("workers", [2, 3, 16] if IS_SLOW else [3])
def test_any_number_of_workers_writes_the_same_bytes(workers, job, tmp_path):
    done = build_in_process(*job.options, f"--output={tmp_path}/out", f"--direct_num_workers={workers}")
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "out") == digests(job.output)


def test_a_run_that_was_killed_is_resumed_to_the_same_bytes(job, tmp_path):
    output = tmp_path / "out"
    build = start_and_wait_for_receipts(job.options, output, 3)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    work = work_in(output)
    receipts = [json.loads(path.read_bytes()) for path in (work / "receipts").glob("*.json")]
    # If some parts of a split are missing, it is built again from its start.
    done_splits = {receipt["split"] for receipt in receipts if receipt["last"]}
    finished = [shard["path"] for receipt in receipts if receipt["split"] in done_splits for shard in receipt["shards"]]
    written = {path: (output / path).stat().st_mtime_ns for path in finished}
    assert 0 < len(done_splits) < json.loads((work / "job.json").read_bytes())["splits"]
    assert not (output / "_SUCCESS").exists() and not (output / "_chatmill" / "log").exists()
    done = build_in_process(*job.options, f"--output={output}")
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    assert {path: (output / path).stat().st_mtime_ns for path in finished} == written
    assert digests(output) == digests(job.output)
    assert not work.parent.exists()


# What is counted in a sample, which the order changes.
SAMPLED = "parity_"


def outcomes_by_record(output: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """The row of each record that has one, why each other one is rejected, and what was counted of all."""
    rows = {row.pop("id"): row for split in ("train", "validation") for row in rows_of(output, split)}
    rejects = {json.loads(row["record"])["id"]: (row["reason"], row["detail"]) for row in rejects_of(output)}
    notes = manifest_of(output)["notes"]
    return rows, rejects, {name: count for name, count in notes.items() if not name.startswith(SAMPLED)}


@pytest.mark.parametrize("job", TEMPLATES, indirect=True)
def test_each_record_has_its_own_outcome_in_any_order(job, tmp_path):
    lines = job.input.read_text().splitlines(keepends=True)
    random.Random(2).shuffle(lines)
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    done = build_in_process(*job.more, f"--input={tmp_path}/corpus.jsonl", f"--output={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    rows, rejects, notes = outcomes_by_record(tmp_path / "out")
    assert rows and len(rows) + len(rejects) == len(lines)
    assert (rows, rejects, notes) == outcomes_by_record(job.output)
