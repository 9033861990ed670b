"""Compaction: the same examples in fewer shards, as one commit, which a kill does not harm."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.program import main
from support.datasets import assert_statistics_add_up, manifest_of, write_jsonl
from support.increments import grow
from support.killed import changes_of, kill_before
from support.paths import TOKENIZER
from transforms import Dataset
from transforms.audit.comparison.differences import compare
from transforms.audit.verification.whole import verify
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.upkeep.compaction import rewriting
from transforms.upkeep.compaction.joining import Compaction, compact

DAYS = 3
COMMON = [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1", "--provenance"]
LAYOUTS = {
    "packed, all columns, both formats": [
        "--packing=bfd", "--max_length=48", "--shift_labels", "--ledger=all", "--validation_fraction=0.3",
        "--output_format=parquet,tfrecord", "--keep_columns=id",
        "--write_columns=input_ids,labels,attention_mask,position_ids,seq_lengths,loss_mask,loss_weights,"
        "part_lengths,part_kinds,part_messages",
    ],
    "windows": ["--truncation=windows", "--max_length=12", "--packing=bfd", "--ledger=all"],
    "split": ["--packing=bfd_split", "--max_length=12", "--ledger=all"],
    "wrapped": ["--packing=wrapped", "--max_length=24", "--shift_labels", "--ledger=exceptions"],
    "segments are not known": [
        "--packing=ffd", "--max_length=32", "--write_columns=input_ids,labels", "--ledger=all",
    ],
    "not packed": [
        "--keep_columns=id", "--ledger=all", "--max_length=16", "--validation_fraction=0.3",
        "--output_format=tfrecord.gz",
    ],
    "no ledger": ["--packing=bfd", "--max_length=32", "--ledger=none"],
}  # fmt: skip


def records_of(day: int) -> list[Any]:
    chats = [
        {
            "id": f"{day}-{number}",
            "messages": [
                {"role": "user", "content": f"How long is {number}?"},
                {"role": "assistant", "content": f"It is {'very ' * (number % 7)}long on day {day}."},
            ],
        }
        for number in range(9 + day)
    ]
    return [*chats, {"messages": [{"role": "narrator", "content": "x"}]}, {"text": ""}]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("corpora")
    return [write_jsonl(folder / f"day-{day}.jsonl", records_of(day)) for day in range(DAYS)]


def grown(folder: Path, corpora: Sequence[Path], options: Sequence[str]) -> Path:
    """Build a dataset of each corpus, and append all to the first."""
    built = []
    for corpus in corpora:
        built.append(folder / f"built-{corpus.stem}")
        assert main(["build", *COMMON, *options, f"--input={corpus}", f"--output={built[-1]}"]) == 0
    output = folder / "out"
    shutil.copytree(built[0], output)
    for day, of_day in enumerate(built[1:], 1):
        grow(output, of_day, f"{day:016x}")
    return output


@pytest.fixture(scope="module", params=LAYOUTS, ids=str)
def before(request: Any, corpora: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grown(tmp_path_factory.mktemp("grown"), corpora, LAYOUTS[request.param])


@pytest.fixture
def output(before: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(before, tmp_path / "out"))


def files_of(output: Path) -> dict[str, str]:
    """The sha256 of each file but those of the log, which have the times of commits."""
    return {
        str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in output.rglob("*")
        if path.is_file() and "log" not in path.parts
    }


def assert_only_rows_changed(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Assert that what does not depend on how rows are packed is the same."""
    was, now = json.loads(json.dumps(was)), json.loads(json.dumps(now))
    for manifest in (was, now):
        for key in ("shards", "ledger", "snapshot", "rows", "tokens"):
            manifest.pop(key)
        for source in manifest["sources"]:
            source.pop("rows"), source.pop("tokens")
        for name in ("row_tokens", "examples_per_row"):
            manifest["statistics"]["histograms"].pop(name)
    assert now == was


def test_examples_are_the_same_in_fewer_shards_and_the_dataset_is_sound(output: Path, tmp_path: Path):
    files, old = files_of(output), Dataset(str(output))

    found = compact(str(output))

    new = Dataset(str(output))
    assert found == Compaction(
        DAYS + 1, DAYS, (len(old.shards()), len(new.shards())), (old.manifest["rows"], new.manifest["rows"])
    )
    assert len(new.shards()) == len({(shard["split"], shard["format"]) for shard in old.shards()})
    assert new.manifest["rows"] <= old.manifest["rows"]
    assert_statistics_add_up(new.manifest)
    differences = compare(Dataset(f"{output}@{DAYS}"), new, 5)
    assert differences.examples[0] == differences.equal and not differences.counts

    assert verify(str(output)).faults == []
    # Versions before are there as they were.
    after = files_of(output)
    derived = {"README.md", "manifest.json", "report.html", "_SUCCESS"}
    assert {name: after[name] for name in files if name not in derived} == {
        name: sha256 for name, sha256 in files.items() if name not in derived
    }
    assert_only_rows_changed(Dataset(f"{output}@{DAYS}").manifest, manifest_of(output))


@pytest.mark.parametrize("before", ["packed, all columns, both formats", "not packed"], indirect=True)
def test_rows_that_are_read_in_several_steps_are_sound_and_the_ledger_finds_them(output: Path, monkeypatch: Any):
    monkeypatch.setattr(rewriting, "_TOKENS_AT_ONCE", 1)  # so that each shard is a step

    compact(str(output))

    assert verify(str(output)).faults == []
    differences = compare(Dataset(f"{output}@{DAYS}"), Dataset(str(output)), 5)
    assert differences.examples[0] == differences.equal and not differences.counts
    assert_statistics_add_up(manifest_of(output))


def test_compaction_of_what_is_compact_makes_no_commit_and_another_copy_becomes_the_same_bytes(
    output: Path, before: Path, tmp_path: Path
):
    compact(str(output))
    files = files_of(output)
    assert compact(str(output)) == Compaction(DAYS + 1)
    assert files_of(output) == files
    assert Log(Folder(str(output))).newest().version == DAYS + 1
    other = Path(shutil.copytree(before, tmp_path / "other"))
    compact(str(other))
    assert {name: sha for name, sha in files_of(other).items() if name != "report.html"} == {
        name: sha for name, sha in files.items() if name != "report.html"
    }


def readable(output: Path) -> int:
    """Read each version that is kept, of which all files must be there. Returns the newest."""
    for version in (versions := [entry.version for entry in Log(Folder(str(output))).versions()]):
        dataset = Dataset(f"{output}@{version}")
        rows = sum(len(batch) for split in ("train", "validation") for *_, batch in dataset.rows(split))
        assert rows == dataset.manifest["rows"]
        assert sum(map(len, dataset.ledger())) == sum(file["entries"] for file in dataset.manifest["ledger"])
    return versions[-1]


@pytest.mark.slow
@pytest.mark.parametrize("before", [next(iter(LAYOUTS))], indirect=True)
def test_killed_anywhere_it_leaves_all_versions_and_the_same_command_finishes(output: Path, tmp_path: Path):
    once = Path(shutil.copytree(output, tmp_path / "once"))
    changes = changes_of("compact", str(once))
    expected = {name: sha for name, sha in files_of(once).items() if name != "report.html"}
    newest = set()
    for change in {*range(1, changes, max(changes // 6, 1)), *range(changes - 12, changes, 3)}:
        copy = Path(shutil.copytree(output, tmp_path / f"killed-{change}"))
        kill_before(change, "compact", str(copy))
        newest.add(readable(copy))

        assert main(["compact", str(copy)]) == 0

        assert readable(copy) == DAYS + 1
        found = {name: sha for name, sha in files_of(copy).items() if name != "report.html"}
        attempts = {name for name in found if re.search(r"\.[0-9a-f]{32}$", name)}  # of a file that is written again
        assert {name: found[name] for name in found.keys() - attempts} == expected, change
    assert newest == {DAYS, DAYS + 1}


def test_dataset_of_one_build_is_compacted_and_its_inputs_are_not_taken_again(corpora, tmp_path, capfd):
    output = tmp_path / "out"
    command = ["build", *COMMON, f"--input={','.join(map(str, corpora))}", "--split_bytes=1000", f"--output={output}"]
    assert main(command) == 0
    before = Dataset(str(output))
    assert compact(str(output))[:2] == (2, 1)
    after = Dataset(str(output))
    assert len(after.shards()) < len(before.shards()) and after.manifest["records"] == before.manifest["records"]
    capfd.readouterr()
    assert main([*command, "--append"]) == 0 and "Version 2: nothing is new" in capfd.readouterr().out
    assert verify(str(output)).faults == []


def test_shards_of_different_sources_are_not_mixed_and_each_source_has_its_rows(tmp_path: Path):
    config, output = tmp_path / "sources.yaml", tmp_path / "out"
    options = ["--packing=bfd", "--max_length=96", "--ledger=all", "--append", f"--output={output}"]
    for day in range(2):
        for name in ("chats", "texts"):
            (tmp_path / name).mkdir(exist_ok=True)
        write_jsonl(tmp_path / "chats" / f"{day}.jsonl", records_of(day))
        write_jsonl(tmp_path / "texts" / f"{day}.jsonl", [{"text": f"text {number} of {day}"} for number in range(3)])
        config.write_text(
            "sources:\n"
            + "".join(f"- name: {name}\n  input: {tmp_path / name}/*.jsonl\n" for name in ("chats", "texts"))
        )
        assert main(["build", str(config), *COMMON, *options]) == 0
    before = Dataset(str(output)).manifest["sources"]

    assert compact(str(output))[:3] == (3, 2, (4, 2))

    dataset = Dataset(str(output))
    for source, was, shard in zip(dataset.manifest["sources"], before, dataset.shards(), strict=True):
        assert {what: source[what] for what in ("rows", "tokens", "trained_tokens")} == {
            what: shard[what] for what in ("rows", "tokens", "trained_tokens")
        }
        assert (source["name"], source["records"]) == (was["name"], was["records"])
    assert dataset.manifest["rows"] < sum(source["rows"] for source in before)
    assert verify(str(output)).faults == []
    differences = compare(Dataset(f"{output}@2"), dataset, 5)
    assert differences.examples[0] == differences.equal and not differences.counts


def test_ledger_of_a_source_without_rows_is_sound_after_a_compaction(tmp_path: Path):
    output, config = tmp_path / "out", tmp_path / "sources.yaml"
    config.write_text('sources: [{name: one, input: "one/*.jsonl"}, {name: none, input: "none/*.jsonl"}]')
    unanswered = {"messages": [{"role": "user", "content": "Hi"}]}
    for day in range(2):
        for name, records in (("one", records_of(day)), ("none", [unanswered])):
            (tmp_path / name).mkdir(exist_ok=True)
            write_jsonl(tmp_path / name / f"{day}.jsonl", records)
        assert main(["build", str(config), *COMMON, "--append", "--ledger=all", f"--output={output}"]) == 0
    assert main(["compact", str(output)]) == 0
    assert verify(str(output)).faults == []
