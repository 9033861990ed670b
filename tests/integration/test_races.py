"""Races: of whole builds that begin at the same moment on one output one builds it, and the dataset is not mixed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

from support.datasets import manifest_of, write_jsonl
from support.paths import ROOT, TOKENIZER

RACES, BUILDS = (50 if "TEST_SLOW" in os.environ else 1), 20
# All is imported before the fork, so that the builds reach the claim together.
RACE = """
import json, os, sys
from multiprocessing import get_context
from pipeline.cli.program import main
import pipeline.job.launch, pipeline.job.prepare, pipeline.job.run, pipeline.local.worker_processes
from apache_beam.runners.portability.fn_api_runner import fn_runner

fork = get_context("fork")
folder, builds, *options = sys.argv[1:]
start = fork.Barrier(int(builds))

def build(number):
    with open(f"{folder}/{number}.err", "w") as err:
        os.dup2(err.fileno(), 1)
        os.dup2(err.fileno(), 2)
    start.wait()
    code = main(["build", *options, f"--seed={number}", "--validation_fraction=0.3"])
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
    assert (
        manifest["records"]["read"] == manifest["records"]["kept"] == sum(s["rows"] for s in manifest["shards"]) == 300
    )
    files = {str(path.relative_to(output)) for path in (output / "data").rglob("*") if path.is_file()}
    assert files == {shard["path"] for shard in manifest["shards"]}
    for shard in manifest["shards"]:
        assert hashlib.sha256((output / shard["path"]).read_bytes()).hexdigest() == shard["sha256"]
    assert not (output / "_chatmill" / "claims").exists() and not (output / "_chatmill" / "increments").exists()
