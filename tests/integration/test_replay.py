"""chatmill verify --replay: records processed again give the rows of a sound dataset, not those of a changed one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli.program import main
from pipeline.commands.verify import line_of
from pipeline.viewing.replayed_records import replay
from support.chats import assistant, user
from support.datasets import manifest_of, write_jsonl
from support.harms import edit_log, rewrite, rewrite_ledger, with_values
from support.kinds import KINDS, dataset_of
from support.paths import TOKENIZER
from transforms import Dataset, UserError
from transforms.audit.verification.whole import verify

pytestmark = pytest.mark.slow

WITHOUT_LABELS = "without_labels"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != WITHOUT_LABELS])
def test_records_of_a_sound_dataset_give_its_rows_again(kind):
    found = replay(Dataset(str(dataset_of(kind))), 0.3, trust_formatter=True)
    assert (found.faults, found.notes) == ([], [])
    read = manifest_of(dataset_of(kind))["records"]["read"]
    most = 1 if kind == "wrapped" else 0.7  # of which whole parts are replayed
    assert 0.15 * read < found.records <= most * read and found.examples > 5


def test_every_record_is_replayed_on_request():
    manifest = manifest_of(dataset_of("sources"))
    found = replay(Dataset(str(dataset_of("sources"))), 1, trust_formatter=True)
    rejected = sum(manifest["records"]["rejected"].values())
    assert (found.records, found.examples, found.rejects) == (manifest["records"]["read"], manifest["rows"], rejected)
    assert found.faults == []


@pytest.fixture
def folder(tmp_path) -> Path:
    copy = tmp_path / "dataset"
    shutil.copytree(dataset_of("sources"), copy)
    return copy


def first_shard(folder: Path) -> str:
    return manifest_of(folder)["shards"][0]["path"]


def faults_of(folder: Path) -> list[str]:
    return [line_of(fault) for fault in replay(Dataset(str(folder)), 1, trust_formatter=True).faults]


def test_mask_that_was_moved_and_signed_is_found_by_replay_alone(folder):
    """Such a dataset agrees with itself: labels are those of their tokens, as many as before; spans end as they did."""
    ids = pq.read_table(folder / first_shard(folder))["input_ids"][3].as_py()

    def move(labels: list[int]) -> None:
        trained = [label != -100 for label in labels]
        first, second, *_ = (at for at in range(1, len(labels)) if trained[at] and not trained[at - 1])
        labels[first - 1], labels[second] = ids[first - 1], -100

    rewrite(folder, first_shard(folder), with_values("labels", move))
    assert verify(str(folder)).faults == []
    (line,) = faults_of(folder)
    expected = r"data/train-.*-.*, row 3: replayed, token \d+ of the example of .*:\d+ has the label -100, not \d+"
    assert re.fullmatch(expected, line)
    assert main(["verify", str(folder), "--replay", "1", "--trust_formatter"]) == 1


def test_text_that_was_changed_and_signed_is_found(folder):
    def change(ids: list[int]) -> None:
        ids[1] = 300

    rewrite(folder, first_shard(folder), with_values("input_ids", change))
    assert verify(str(folder)).faults == []
    (line,) = faults_of(folder)
    assert re.fullmatch(r"data: replayed, .*:\d+ gives \d+ tokens that are not in train", line)


def test_record_that_was_replaced_by_another_one_is_found(folder):
    def change(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table.slice(0, 4), table.slice(2, 1), table.slice(5)]).combine_chunks()

    rewrite(folder, first_shard(folder), change)
    assert any("tokens that are not in train" in line for line in faults_of(folder))


def test_rejects_that_were_changed_are_found(folder):
    path = folder / manifest_of(folder)["rejects"][0]
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    assert re.fullmatch(r"rejects: replayed, .*:\d+ is rejected as \w+", faults_of(folder)[0])
    first = table["reason"].to_pylist()[0]
    reasons = pa.array([f"not_{first}", *table["reason"].to_pylist()[1:]])
    pq.write_table(table.set_column(2, "reason", reasons), path)
    assert re.fullmatch(rf"rejects: replayed, .*:\d+ is rejected as {first}, not as not_{first}", faults_of(folder)[0])


def test_ledger_that_says_something_else_is_found(tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("ffd"), folder)
    rewrite_ledger(folder, with_values("outcome", lambda outcome: "kept" if outcome == "truncated" else "truncated"))
    (line,) = faults_of(folder)
    assert re.fullmatch(r"ledger: replayed, .*:\d+ is (\w+).*, not (kept|truncated).*", line)
    rewrite_ledger(folder, lambda lines: lines.slice(4))
    assert any(line.endswith("; it is not in the ledger") for line in faults_of(folder))


def test_what_cannot_be_replayed_is_a_user_error_in_one_line(folder, tmp_path, capfd):
    with pytest.raises(UserError, match="no input_ids or no labels"):
        replay(Dataset(str(dataset_of(WITHOUT_LABELS))), 0.5)
    for fraction in ("0", "2", "x"):
        assert main(["verify", str(folder), "--replay", fraction]) == 2
    edit_log(folder, lambda entry: entry["job"].update(steps=[]))
    with pytest.raises(UserError, match="a custom pipeline"):
        replay(Dataset(str(folder)), 0.5)
    edit_log(folder, lambda entry: entry["job"].pop("steps"))

    def rewritten(entry: dict[str, Any]) -> None:
        for file in entry["add"]["inputs"]:
            file["version"] = f"9{file['version']}"

    edit_log(folder, rewritten)
    capfd.readouterr()
    assert main(["verify", str(folder), "--replay", "0.5", "--trust_formatter"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("chatmill: ") and err.count("\n") == 1


def test_another_version_of_a_library_is_named(folder):
    edit_log(folder, lambda entry: entry["job"]["versions"].update(tokenizers="0.1"))
    (note,) = replay(Dataset(str(folder)), 0.01, trust_formatter=True).notes
    assert note.startswith("the dataset was built with tokenizers 0.1, and replayed with ")


def test_records_that_two_sources_read_in_different_ways_are_replayed_for_each(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"messages": [user(f"{n}?"), assistant("Yes.")]} for n in range(5)])
    for order in ("one", "two"):
        sources = ["{name: one, input: a.jsonl, schema: sharegpt}", "{name: two, input: a.jsonl, may_repeat: true}"]
        sources = (
            sources
            if order == "one"
            else [sources[1].replace(", may_repeat: true", ""), sources[0][:-1] + ", may_repeat: true}"]
        )
        (tmp_path / "sources.yaml").write_text(f"sources: [{', '.join(sources)}]")
        options = [
            f"--recipe={tmp_path / 'sources.yaml'}",
            f"--tokenizer={TOKENIZER}",
            "--max_reject_fraction=1",
        ]
        assert main([*options, f"--output={tmp_path / order}", "--direct_num_workers=1"]) == 0
        found = replay(Dataset(str(tmp_path / order)), 1)
        assert (found.records, found.examples, found.rejects, found.faults) == (10, 5, 5, [])
