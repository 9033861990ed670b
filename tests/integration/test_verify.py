"""chatmill verify: nothing is wrong in a sound dataset, and how much it shows; test_damage.py has what it finds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.kinds import KINDS, build_dataset
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset

pytestmark = pytest.mark.slow


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Callable[[object], dict[str, Any]]:
    def verified(url: object) -> dict[str, Any]:
        capsys.readouterr()
        code = chatmill("verify", url, "--json")
        found = json.loads(capsys.readouterr().out)
        assert found["ok"] == (code == 0) == (not found["faults"])
        return found

    return verified


def sha256sum(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_a_sound_dataset(verified, kind):
    folder = build_dataset(kind)
    found, manifest = verified(folder), read_manifest(folder)
    assert (found["faults"], found["notes"], broken_laws(folder)) == ([], [], [])
    assert found["files"] == len(manifest["shards"]) + len(manifest["exceptions"])
    checked = sha256sum(folder).stdout
    assert checked.count(": OK\n") == found["files"] == checked.count("\n")


def test_checksums_are_those_of_the_newest_version_after_a_build_an_append_and_an_overwrite(verified, tmp_path):
    output = tmp_path / "out"
    options = [f"--input={tmp_path}/*.jsonl", f"--output={output}", f"--tokenizer={TOKENIZER}"]
    options += ["--max_reject_fraction=0.5", "--output_format=parquet,tfrecord"]
    files = []
    for day, kind in enumerate(("--append", "--append", "--overwrite")):
        write_jsonl(tmp_path / f"{day}.jsonl", [{"text": f"text {number} of day {day}"} for number in range(9)] + [{}])
        assert chatmill("build", kind, *options) == 0
        checked = sha256sum(output)
        assert checked.returncode == 0 and verified(output)["faults"] == []
        files.append({line.removesuffix(": OK") for line in checked.stdout.splitlines()})
    assert files[0] < files[1] and not files[1] & files[2]
    assert {path.partition("/")[0] for path in files[2]} == {"data", "tfrecord", "records"}
    (output / next(iter(files[0]))).unlink()
    assert [len(verified(f"{output}@{version}")["faults"]) for version in (1, 2, 3)] == [1, 1, 0]
    (output / "README.md").unlink()  # which is of the newest version
    assert [len(verified(f"{output}@{version}")["faults"]) for version in (1, 2, 3)] == [1, 1, 1]
    assert Dataset(f"{output}@2").version == 2


def test_faults_have_exit_code_1_and_many_are_counted(verified, tmp_path, capsys):
    folder = Path(shutil.copytree(build_dataset("packed"), tmp_path / "dataset"))
    assert chatmill("verify", folder) == 0
    assert re.fullmatch(r".*: OK \([1-9]\d* files, [0-9,]+ bytes\)\n", capsys.readouterr().out)
    for number in range(60):
        (folder / "data" / f"train-{number}.parquet").touch()
    assert chatmill("verify", folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "and 10 more, which --json lists"
    assert re.search(r": 60 faults \(", lines[-1]) and len(lines) == 52
    assert len(verified(folder)["faults"]) == 60


def test_copy_without_work_files_and_rejects_is_checked_as_far_as_possible(verified, tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(build_dataset("packed"), folder, ignore=shutil.ignore_patterns("_chatmill", "records"))
    (folder / ".gitattributes").touch()
    (folder / "notes.txt").touch()
    found = verified(folder)
    assert found["faults"] == []
    assert found["notes"] == [
        "records/ is not in this copy",
        "notes.txt is not a part of the dataset",
        "_chatmill/ is not in this copy: the tokenizer and the versions were not checked",
    ]
    shutil.copytree(build_dataset("packed") / "records", folder / "records")
    path = read_manifest(folder)["exceptions"][0]["path"]
    (folder / path).write_bytes((folder / path).read_bytes()[:-1] + b"x")
    [fault] = verified(folder)["faults"]
    assert fault["path"] == path and "its sha256 is" in fault["problem"]
    shutil.rmtree(folder / "records")
    shutil.copytree(build_dataset("packed") / "_chatmill", folder / "_chatmill")  # which is no such copy
    missing = {file["path"] for file in read_manifest(folder)["exceptions"]}
    assert missing and {fault["path"] for fault in verified(folder)["faults"]} == missing


def test_dataset_in_a_store_is_checked_as_on_a_disk(verified):
    packed = build_dataset("packed")
    fsspec.filesystem("memory").put(str(packed), "/verified", recursive=True)
    found, on_disk = (verified(url) for url in ("memory://verified", packed))
    assert {**found, "url": ""} == {**on_disk, "url": ""}
    path = read_manifest(packed)["shards"][0]["path"]
    fsspec.filesystem("memory").pipe(f"/verified/{path}", b"PAR1")
    assert [fault["path"] for fault in verified("memory://verified")["faults"]] == [path]
