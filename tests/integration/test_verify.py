"""chatmill verify: names each file that is not as it was written, and nothing in a sound dataset; so does sha256sum."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from support.command_line import chatmill
from support.datasets import manifest_of, write_jsonl
from support.harms import edit_log, edit_manifest, flip
from support.kinds import KINDS, dataset_of
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset
from transforms.audit.verification import verify

pytestmark = pytest.mark.slow
FIRST = "data/train-[0-9a-f]{16}-000000-000.parquet"


def sha256sum(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_a_sound_dataset(kind):
    folder = dataset_of(kind)
    found, manifest = verify(str(folder)), manifest_of(folder)
    assert (found.faults, found.notes, broken_laws(folder)) == ([], [], [])
    assert found.files == len(manifest["shards"]) + len(manifest["rejects"]) + len(manifest["ledger"])
    assert sha256sum(folder).stdout.count(": OK\n") == found.files


def shards_of(folder: Path, format: str = "parquet") -> list[str]:
    return [shard["path"] for shard in manifest_of(folder)["shards"] if shard["format"] == format]


def stored_tokenizer(folder: Path) -> Path:
    (tokenizer,) = (folder / "_chatmill" / "tokenizers").iterdir()
    return tokenizer


# Each harm changes a copy of a dataset, and names a part of what has to be found.
HARMS: dict[str, tuple[str, Callable[[Path], Any], str]] = {}
# Those that `sha256sum -c SHA256SUMS` finds, too.
OF_DATA: set[str] = set()


def harm(found: str, kind: str = "packed", is_of_data: bool = False) -> Callable[[Callable[[Path], Any]], Any]:
    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        HARMS[function.__name__] = (kind, function, found)
        if is_of_data:
            OF_DATA.add(function.__name__)
        return function

    return register


@harm(f"{FIRST}: it was changed or damaged: its sha256 is", is_of_data=True)
def bit_of_a_data_page(folder):
    flip(folder / shards_of(folder)[0], 0.4)


@harm(f"{FIRST}: it was changed or damaged", is_of_data=True)
def bit_of_a_footer(folder):
    flip(folder / shards_of(folder)[0], 0.999)


@harm("tfrecord/train-.*-000000-000.tfrecord: it was changed or damaged", is_of_data=True)
def bit_of_a_tfrecord(folder):
    flip(folder / shards_of(folder, "tfrecord")[0], 0.5)


@harm(f"{FIRST}: it was changed or damaged|{FIRST}: it has .* bytes; .* were written", is_of_data=True)
def swapped_shards(folder):
    first, second = (folder / path for path in shards_of(folder)[:2])
    first.rename(folder / "other")
    second.rename(first)
    (folder / "other").rename(second)


@harm(f"{FIRST}: the file is missing", is_of_data=True)
def missing_shard(folder):
    (folder / shards_of(folder)[0]).unlink()


@harm(f"{FIRST}: it has 0 bytes; .* were written", is_of_data=True)
def shard_that_is_a_link_to_nothing(folder):
    path = folder / shards_of(folder)[0]
    path.unlink()
    path.symlink_to(folder / "nowhere")


@harm(f"{FIRST}: it has 3,000 bytes; .* were written", is_of_data=True)
def shard_cut_short(folder):
    os.truncate(folder / shards_of(folder)[0], 3000)


@harm("data/train-99999.parquet: the manifest does not name this file")
def additional_file_of_rows(folder):
    shutil.copy(folder / shards_of(folder)[0], folder / "data" / "train-99999.parquet")


@harm("data/train-[0-9a-f]{16}-099999-000.parquet: the manifest does not name this file")
def additional_shard(folder):
    path = folder / shards_of(folder)[0]
    shutil.copy(path, path.with_name(path.name.replace("000000-000", "099999-000")))


@harm("rejects/.*: it was changed or damaged", is_of_data=True)
def bit_of_the_rejects(folder):
    flip(folder / manifest_of(folder)["rejects"][0], 0.5)


@harm("rejects/.*: the file is missing", is_of_data=True)
def missing_rejects(folder):
    (folder / manifest_of(folder)["rejects"][0]).unlink()


@harm("ledger/ledger-.*-000000-000.*: it was changed or damaged", is_of_data=True)
def bit_of_a_ledger(folder):
    flip(folder / manifest_of(folder)["ledger"][0]["path"], 0.3)


@harm("ledger/ledger-.*-000000-000.*: the file is missing", is_of_data=True)
def missing_ledger(folder):
    (folder / manifest_of(folder)["ledger"][0]["path"]).unlink()


@harm("_chatmill/tokenizers/[0-9a-f]{16}: its files have the fingerprint")
def edited_tokenizer(folder):
    path = stored_tokenizer(folder) / "tokenizer_config.json"
    path.write_text(path.read_text().replace("<|im_end|>", "<|pad|>"))


@harm("_chatmill/tokenizers/[0-9a-f]{16}: there is no tokenizer")
def missing_tokenizer(folder):
    shutil.rmtree(stored_tokenizer(folder))


@harm("_chatmill/formatters/[0-9a-f]{16}.py: its sha256 is", "formatter")
def edited_formatter(folder):
    (path,) = (folder / "_chatmill" / "formatters").iterdir()
    path.write_text(path.read_text().replace("return None", "return []"))


@harm("manifest.json: it is not that of version 1; the next build or append writes it again")
def edited_manifest(folder):
    edit_manifest(folder, lambda manifest: manifest.update(rows=manifest["rows"] + 1))


@harm("manifest.json: it is missing")
def missing_manifest(folder):
    (folder / "manifest.json").unlink()


@harm("_SUCCESS: it is missing")
def missing_success(folder):
    (folder / "_SUCCESS").unlink()


@harm("README.md: it is missing")
def missing_card(folder):
    (folder / "README.md").unlink()


@harm("README.md: it is not that of version 1")
def train_and_validation_exchanged_in_the_card(folder):
    card = folder / "README.md"
    exchanged = {"train": "validation", "validation": "train"}
    card.write_text(re.sub(r"\b(train|validation)\b", lambda word: exchanged[word[0]], card.read_text()))


@harm("SHA256SUMS: it is not that of version 1")
def edited_checksums(folder):
    flip(folder / "SHA256SUMS", 0.01)


@harm("data/.*: the manifest does not name this file")
def log_without_a_shard(folder):
    edit_log(folder, lambda entry: entry["add"]["files"]["shards"].pop(1))


@harm("_chatmill/log: it is missing")
def log_lost(folder):
    shutil.rmtree(folder / "_chatmill" / "log")


@pytest.mark.parametrize("name", HARMS)
def test_each_harm_is_found(name, tmp_path):
    kind, function, expected = HARMS[name]
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of(kind), folder)
    function(folder)
    lines = [f"{fault.path}: {fault.problem}" for fault in verify(str(folder)).faults]
    assert any(re.search(expected, line) for line in lines), lines
    if name in OF_DATA:
        assert sha256sum(folder).returncode == 1


def test_checksums_are_those_of_the_newest_version_after_a_build_an_append_and_an_overwrite(tmp_path):
    output = tmp_path / "out"
    options = [f"--input={tmp_path}/*.jsonl", f"--output={output}", f"--tokenizer={TOKENIZER}"]
    options += ["--max_reject_fraction=0.5", "--output_format=parquet,tfrecord"]
    files = []
    for day, kind in enumerate(("--append", "--append", "--overwrite")):
        write_jsonl(tmp_path / f"{day}.jsonl", [{"text": f"text {number} of day {day}"} for number in range(9)] + [{}])
        assert chatmill("build", kind, *options) == 0
        checked = sha256sum(output)
        assert checked.returncode == 0 and verify(str(output)).faults == broken_laws(output) == []
        files.append({line.removesuffix(": OK") for line in checked.stdout.splitlines()})
    assert files[0] < files[1] and not files[1] & files[2]
    assert {path.partition("/")[0] for path in files[2]} == {"data", "tfrecord", "rejects", "ledger"}
    (output / next(iter(files[0]))).unlink()
    assert [len(verify(f"{output}@{version}").faults) for version in (1, 2, 3)] == [1, 1, 0]
    assert Dataset(f"{output}@2").version == 2


def test_sound_dataset_is_ok_with_its_figures(capsys):
    folder = dataset_of("packed")
    files = sum(1 for _ in Dataset(str(folder)).snapshot.data_files())
    capsys.readouterr()
    assert chatmill("verify", folder) == 0
    assert re.fullmatch(rf".*packed: OK \({files} files, [0-9,]+ bytes\)\n", capsys.readouterr().out)
    assert chatmill("verify", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_faults_have_exit_code_1_and_many_are_counted(tmp_path, capsys):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("packed"), folder)
    for number in range(60):
        (folder / "data" / f"train-{number}.parquet").touch()
    capsys.readouterr()
    assert chatmill("verify", folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "and 10 more, which --json lists"
    assert re.search(r": 60 faults \(", lines[-1]) and len(lines) == 52
    assert chatmill("verify", folder, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["faults"]) == 60 and not found["ok"] and found["faults"][0].keys() == {"path", "problem"}


def test_copy_without_work_files_and_rejects_is_checked_as_far_as_possible(tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("packed"), folder, ignore=shutil.ignore_patterns("_chatmill", "rejects"))
    (folder / ".gitattributes").touch()
    (folder / "notes.txt").touch()
    found = verify(str(folder))
    assert found.faults == []
    assert found.notes == [
        "rejects/ is not in this copy",
        "notes.txt is not a part of the dataset",
        "_chatmill/ is not in this copy: the tokenizer and the log were not checked",
    ]


def test_folder_without_a_dataset_is_a_user_error(tmp_path, capsys):
    assert chatmill("verify", tmp_path) == 2
    assert ": there is no dataset. Give the folder that a build wrote" in capsys.readouterr().err
    for wrong in ([], ["a", "b"], ["a", "--jsno"], ["a", "--replay=1"]):
        assert chatmill("verify", *wrong) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_dataset_in_a_store_is_checked_as_on_a_disk():
    fsspec.filesystem("memory").put(str(dataset_of("packed")), "/verified", recursive=True)
    found, on_disk = (verify(url) for url in ("memory://verified", str(dataset_of("packed"))))
    assert (found.faults, found.notes, found.files, found.bytes) == ([], [], on_disk.files, on_disk.bytes)
    path = shards_of(dataset_of("packed"))[0]
    fsspec.filesystem("memory").pipe(f"/verified/{path}", b"PAR1")
    assert {fault.path for fault in verify("memory://verified").faults} == {path}
