"""Links inside a dataset: nothing is written or removed through them, and no file that a job could not have written."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import TOKENIZER

OPTIONS = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--report=none", "--max_reject_fraction=0.5"]
COMMANDS = ("append", "overwrite", "resume", "expire")
LINKS = ("data", "rejects", "tfrecord", "_chatmill", *(f"_chatmill/{part}" for part in (
    "increments", "log", "tokenizers", "formatters"
)))  # fmt: skip
ID = "0123456789abcdef"
PUBLISHED = ("data/", "rejects/", "tfrecord/", "ledger/")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build and an append, next to the inputs of three days."""
    folder = tmp_path_factory.mktemp("grown")
    for day in range(3):
        write_jsonl(folder / f"day-{day}.jsonl", [{"text": f"{n} of day {day}"} for n in range(4)] + [{"text": 5}])
    for day, kind in enumerate(([], ["--append"])):
        assert chatmill("build", *OPTIONS, *kind, f"--input={folder}/day-{day}.jsonl", f"--output={folder}/out") == 0
    return folder / "out"


@pytest.fixture(scope="module")
def begun(grown: Path) -> Path:
    """A build of the third day that is not finished."""
    output = grown.with_name("begun")
    assert chatmill(*command_of("resume", output, grown.parent), "--max_reject_fraction=0") == 1
    return output


def command_of(name: str, output: Path, folder: Path) -> list[str]:
    build = ["build", *OPTIONS, f"--output={output}", f"--input={folder}/day-2.jsonl"]
    return {
        "append": [*build, "--append"],
        "overwrite": [*build, "--overwrite"],
        "resume": build,
        "expire": ["expire", str(output), "--older_than", "0s"],
    }[name]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_changed_through_a_link(grown, begun, tmp_path, capfd, link, command):
    output = Path(shutil.copytree(begun if command == "resume" else grown, tmp_path / "out"))
    elsewhere = tmp_path / "elsewhere"
    if (output / link).exists():
        (output / link).rename(elsewhere)
    for name in ("1.json", "train-000000-000.parquet", "notes.txt", f"{ID}/job.json", "alice/thesis.txt"):
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text("of somebody else")
    (output / link).symlink_to(elsewhere)
    before, here = contents(elsewhere), contents(output)

    code = chatmill(*command_of(command, output, grown.parent))

    assert contents(elsewhere) == before and contents(output) == here
    err = capfd.readouterr().err
    assert code in (1, 2) and "Traceback" not in err and str(output / link) in err


def test_dataset_that_is_itself_behind_a_link_grows(grown, tmp_path):
    shutil.copytree(grown, tmp_path / "there")
    (tmp_path / "out").symlink_to(tmp_path / "there")
    for command in ("append", "overwrite", "expire"):
        assert chatmill(*command_of(command, tmp_path / "out", grown.parent)) == 0
    assert chatmill("verify", tmp_path / "out") == 0


def test_shard_that_is_a_link_to_a_file_is_read_and_what_it_leads_to_stays(grown, tmp_path):
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    shard = next((output / "data").rglob("*.parquet"))
    shard.rename(tmp_path / "shard")
    shard.symlink_to(tmp_path / "shard")
    content = (tmp_path / "shard").read_bytes()
    for command in ("append", "overwrite", "expire"):
        assert chatmill(*command_of(command, output, grown.parent)) == 0
    assert chatmill("verify", output) == 0
    assert (tmp_path / "shard").read_bytes() == content


@pytest.mark.parametrize("id", ["alice", "..", "../../alice", "/home/alice", "0123456789ABCDEF"])
@pytest.mark.parametrize("command", ["append", "overwrite", "expire"])
def test_entry_with_an_id_that_no_job_makes_is_refused(grown, tmp_path, capfd, id, command):
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    entry = output / "_chatmill" / "log" / "00000002.json"
    content = json.loads(entry.read_bytes())
    content["add"]["id"] = id
    entry.write_text(json.dumps(content))
    (output / "_chatmill" / "increments" / "alice").mkdir(parents=True)
    (output / "_chatmill" / "increments" / "alice" / "thesis.txt").touch()
    check_is_refused(command, output, grown, capfd, repr(id))


@pytest.mark.parametrize("path", ["data/../../alice.parquet", "/etc/passwd", "alice/train-000000-000.parquet", 7])
@pytest.mark.parametrize("command", ["append", "overwrite", "expire"])
def test_entry_with_a_path_that_no_job_writes_is_refused(grown, tmp_path, capfd, path, command):
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    entry = output / "_chatmill" / "log" / "00000002.json"
    content = json.loads(entry.read_bytes())
    content["add"]["files"]["shards"][0]["path"] = path
    entry.write_text(json.dumps(content))
    check_is_refused(command, output, grown, capfd, "00000002.json")


def check_is_refused(command: str, output: Path, grown: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    before = contents(output)
    capfd.readouterr()
    assert chatmill(*command_of(command, output, grown.parent)) == 1
    err = capfd.readouterr().err
    assert "00000002.json: it is damaged" in err and name in err and err.count("\n") == 1
    assert contents(output) == before


def test_files_of_somebody_else_stay_where_a_job_writes_its_own(grown, tmp_path):
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    own = [output / "data" / "notes.txt", output / "_chatmill" / "notes.json"]
    own.append(output / "_chatmill" / "increments" / "alice" / "thesis.txt")
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of somebody else")
    for command in ("append", "overwrite", "expire"):
        assert chatmill(*command_of(command, output, grown.parent)) == 0
    assert [path.read_text() for path in own] == ["of somebody else"] * 3


def test_overwrite_removes_nothing_and_expire_only_what_builds_wrote(grown, tmp_path):
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    increment = next((output / "data").iterdir()).name.split("-")[1]
    shard = f"train-{ID}-000000-000.parquet"
    names = ["data/train.parquet", "data/train-0-1.parquet", "data/train-000000-000.parquet", f"data/mine/{shard}"]
    names += [f"data/{increment}", f"data/{shard}-of-00001", "data/train-00007-of-00009.parquet"]
    names += [f"rejects/{shard}", f"rejects/mine-{ID}-000000-000.parquet", "tfrecord/notes", "ledger/notes"]
    written = [f"data/{shard}", f"data/train-{increment}-000009-000r.parquet"]
    written += [f"ledger/ledger-{ID}-000000-000.parquet", f"tfrecord/validation-{ID}-000000-000.tfrecord.gz"]
    of_a_killed_process = f"data/{shard}.{ID}{ID}"
    for name in (*names, *written, of_a_killed_process):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("of somebody else")
    days = time.time() - 2 * 86_400
    os.utime(output / of_a_killed_process, (days, days))
    before = published(output)

    assert chatmill(*command_of("overwrite", output, grown.parent)) == 0

    del before[of_a_killed_process]
    assert before.items() < published(output).items()
    assert not (output / of_a_killed_process).exists()

    assert chatmill(*command_of("expire", output, grown.parent)) == 0

    manifest = json.loads((output / "manifest.json").read_bytes())
    named = {*(shard["path"] for shard in manifest["shards"]), *manifest["rejects"]}
    assert published(output).keys() == named | {file["path"] for file in manifest["ledger"]} | {*names}
    assert {(output / name).read_text() for name in names} == {"of somebody else"}


def published(output: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(output).items() if name.startswith(PUBLISHED)}
