"""Places on a disk: a file is found in them by whichever path it is reached."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.paths import ROOT
from transforms.storage.same_files import Places

_MOUNT = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2" "$1"'


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out/data").mkdir(parents=True)
    (tmp_path / "out/data/a.jsonl").write_text("a")
    (tmp_path / "out/manifest.json").write_text("{}")
    (tmp_path / "out/mine.jsonl").write_text("b")
    return tmp_path / "out"


def places(out) -> Places:
    return Places([f"{out}/data", f"{out}/manifest.json", f"{out}/none"])


def test_a_file_is_found_by_its_path_and_through_links(out, tmp_path):
    (tmp_path / "linked").symlink_to(out)
    (tmp_path / "file.jsonl").symlink_to(out / "data/a.jsonl")
    os.link(out / "data/a.jsonl", tmp_path / "hard.jsonl")
    inside = ["out/data/a.jsonl", "out/manifest.json", "linked/data/a.jsonl", "file.jsonl", "hard.jsonl"]
    assert [name for name in inside if not places(out).have(f"{tmp_path}/{name}")] == []


def test_other_files_are_not_found(out, tmp_path):
    (tmp_path / "out2/data").mkdir(parents=True)
    (tmp_path / "out2/data/a.jsonl").write_text("a")
    (out / "data/broken").symlink_to(tmp_path / "none")
    (out / "data/link").symlink_to(tmp_path / "out2/data/a.jsonl")  # removing it leaves the file
    outside = ["out/mine.jsonl", "out2/data/a.jsonl"]
    assert [name for name in outside if places(out).have(f"{tmp_path}/{name}")] == []


@pytest.mark.parametrize("mounted", ["out", "out/data", "."])
def test_a_file_is_found_through_a_mount(out, tmp_path, mounted):
    source, target = tmp_path / mounted, tmp_path.parent / f"{tmp_path.name}-{mounted.replace('/', '-')}"
    target.mkdir()
    path = target / (out / "data/a.jsonl").relative_to(source)
    program = (
        f"from transforms.storage.same_files import Places; print(Places([{f'{out}/data'!r}]).have({str(path)!r}))"
    )
    command = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", source, target, sys.executable, program]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"needs mounts of its own, which are not allowed here ({done.stderr.strip()})")
    assert done.stdout == "True\n", done.stderr


def test_an_object_of_a_store_is_found_by_its_url():
    in_store = Places(["s3://bucket/out/data", "s3://bucket/out/manifest.json"])
    names = ("out/data/a.jsonl", "out/manifest.json", "out/mine.jsonl", "out/data2/a.jsonl")
    assert [in_store.have(f"s3://bucket/{name}") for name in names] == [True, True, False, False]
