"""Races: of whole builds that begin at the same moment on one output one builds it, and the dataset is not mixed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from support.datasets import build_in_process, manifest_of, write_jsonl
from support.laws import broken_laws
from support.paths import ROOT, TOKENIZER

RACES, BUILDS = (50 if "TEST_SLOW" in os.environ else 1), 20
# All is imported before the fork, so that the builds reach the lock together.
RACE = """
import json, os, pkgutil, sys
from multiprocessing import get_context
import pipeline
from apache_beam.runners.portability.fn_api_runner import fn_runner

for module in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
    if not module.name.endswith("__main__"):
        __import__(module.name)

fork = get_context("fork")
folder, builds, *options = sys.argv[1:]
start = fork.Barrier(int(builds))

def build(number):
    with open(f"{folder}/{number}.err", "w") as err:
        os.dup2(err.fileno(), 1)
        os.dup2(err.fileno(), 2)
    start.wait()
    code = pipeline.main(["build", *options, f"--seed={number}", "--validation_fraction=0.3"])
    sys.stderr.flush()
    os._exit(code)

processes = [fork.Process(target=build, args=(number,)) for number in range(int(builds))]
for process in processes:
    process.start()
for process in processes:
    process.join()
print(json.dumps([process.exitcode for process in processes]))
"""
REFUSED = (
    "another run is writing to it: process ",
    "holds an unfinished dataset that was begun with other options",
    "holds a finished dataset that was built with other options",
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(RACES))
def test_of_twenty_builds_with_other_options_one_writes_the_dataset(number, tmp_path):
    texts = [{"text": f"text {number} of a corpus"} for number in range(300)]
    corpus, output = write_jsonl(tmp_path / "corpus.jsonl", texts), tmp_path / "out"
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={output}", "--split_bytes=2000"]
    done = subprocess.run(
        [sys.executable, "-c", RACE, tmp_path, str(BUILDS), *options],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    codes = json.loads(done.stdout)
    printed = [(tmp_path / f"{number}.err").read_text() for number in range(BUILDS)]
    assert codes.count(0) == 1, printed
    for code, text in zip(codes, printed, strict=True):
        if code:
            just_finished = "another build has just finished it" in text
            assert code == (1 if just_finished else 2) and text.count("\n") == 1, text
            assert just_finished or any(why in text for why in REFUSED), text
    manifest = manifest_of(output)
    assert manifest["job"]["options"]["seed"] == codes.index(0)
    assert manifest["rows"] == manifest["records"]["read"] == manifest["records"]["kept"] == 300
    files = {str(path.relative_to(output)) for path in (output / "data").rglob("*") if path.is_file()}
    assert files == {shard["path"] for shard in manifest["shards"]}
    assert broken_laws(output) == []
    assert not (output / "_chatmill" / "lock").exists() and not (output / "_chatmill" / "increments").exists()


# On a disk without locks. It waits before its commit until there is the file `go`.
WITHOUT_LOCKS = """
import errno, fcntl, os, sys, time
from pathlib import Path
from pipeline import main

def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")

def wait(source, path, **options):
    if "/_chatmill/log/" in path:
        (folder / "reached").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
    return link(source, path, **options)

folder, link, fcntl.flock, os.link = Path(sys.argv[1]), os.link, refuse, wait
sys.exit(main(["build", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--overwrite", "--append"])
def test_on_a_disk_without_locks_who_commits_second_fails_with_3_and_its_work_stays(how, tmp_path):
    corpus, output = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    for name in ("a", "b", "c"):
        write_jsonl(corpus / f"{name}.jsonl", [{"text": f"text {number} of {name}"} for number in range(9)])

    def options(name: str) -> list[str]:
        lengths = [f"--max_length={ord(name)}"] * (how == "--overwrite")
        return [f"--input={corpus}/{name}.jsonl", f"--tokenizer={TOKENIZER}", f"--output={output}", *lengths]

    assert build_in_process(*options("a")).returncode == 0
    command = [*options("b"), how, "--direct_num_workers=1"]
    second = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_LOCKS, tmp_path, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "reached").exists():
        assert second.poll() is None
        time.sleep(0.1)
    done = build_in_process(*options("c"), how)
    assert done.returncode == 0, done.stderr
    (tmp_path / "go").touch()
    _, shown = second.communicate(timeout=60)
    assert second.returncode == 3, shown
    assert shown.splitlines()[-1] == (
        f"chatmill: {output}: version 2 was committed meanwhile. What this run has built stays: run the same command "
        "again."
    )
    assert manifest_of(output)["snapshot"]["version"] == 2

    again = build_in_process(*command)
    assert again.returncode == 0 and "resuming: 1 of 1 splits" in again.stderr, again.stderr
    manifest = manifest_of(output)
    assert manifest["snapshot"]["version"] == 3
    assert manifest["rows"] == (27 if how == "--append" else 9)
