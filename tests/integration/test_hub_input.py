"""Datasets on the Hub as inputs: the same bytes as from a disk, whatever the Hub does, in few requests."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants, hf_hub_download

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import build_in_process, digests, name_in_increment, read_manifest
from support.faulty_proxy import each
from support.hub import Hub
from support.paths import TOKENIZER
from support.processes import start_and_wait_for_receipts

NAME = "org/chats"
CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train_sft, path: data/train_sft-*}
  - {split: test_sft, path: data/test_sft-*}
---
"""
OPTIONS = (f"--tokenizer={TOKENIZER}", "--report=none", "--split_bytes=9000")
WORKERS = ("--direct_num_workers=4", "--direct_running_mode=multi_processing")
ONE = "--direct_running_mode=in_memory"


def records(start: int, stop: int) -> list[dict]:
    return [{"messages": [user(f"Number {i}?"), assistant(f"It is {i}. " * 9)]} for i in range(start, stop)]


def as_parquet(found: list[dict], compression: str = "snappy") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(found), sink, row_group_size=100, compression=compression)
    return sink.getvalue().to_pybytes()


def as_lines(found: list[dict]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in found).encode()


TRAIN = {
    "data/train_sft-00000-of-00003.parquet": as_parquet(records(0, 500)),
    "data/train_sft-00001-of-00003.jsonl": as_lines(records(500, 750)),
    "data/train_sft-00002-of-00003.parquet": as_parquet(records(750, 1000)),
}
FILES = {"README.md": CARD.encode(), **TRAIN, "data/test_sft-00000-of-00001.parquet": as_parquet(records(0, 9))}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def home(tmp_path) -> Path:
    """The folder of a user's caches and login on the Hub, and of temporary files."""
    (tmp_path / "home" / "tmp").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> dict[str, str]:
    """The digests of the shards that are built from the same files on a disk."""
    folder = tmp_path_factory.mktemp("disk")
    for path, content in TRAIN.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    assert chatmill("build", f"--input={folder}/data", f"--output={folder}/out", *OPTIONS, ONE) == 0
    return list_shards(folder / "out")


def list_shards(output: Path) -> dict[str, str]:
    """The sha256 of each shard, by its name without the folder of its increment."""
    return {name_in_increment(path): digest for path, digest in digests(output / "data").items()}


def make_environment(hub: Hub, home: Path, token: str | None = None) -> dict[str, str]:
    return hub.environment(home, token) | {"TMPDIR": str(home / "tmp")}


@pytest.fixture
def run(hub, home, capfd) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process, with the Hub: its exit code, and what it printed."""

    def run(*command: object, token: str | None = None) -> tuple[int, str, str]:
        capfd.readouterr()
        with hub.in_process(home, token):
            return chatmill(*command), *capfd.readouterr()

    return run


def test_build_is_that_from_a_disk_though_requests_fail_and_somebody_pushes(hub, home, on_disk, tmp_path):
    repo, token = hub.add(NAME, FILES, gated="manual", granted={"me"}), hub.token_of("me")
    commit = repo.refs["refs/heads/main"]

    def push(number: int, request: str) -> None:
        if number == 5:
            repo.commit(dict.fromkeys(TRAIN, as_lines(records(7, 8))), deleted=["README.md"])

    hub.on_request = push
    hub.faults = each(3, "429", "reset", "truncated", "expired", "lost")
    options = [f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out", *WORKERS]
    ended = build_in_process("build", *OPTIONS, *options, env=os.environ | make_environment(hub, home, token))
    assert ended.returncode == 0, ended.stderr
    assert list_shards(tmp_path / "out") == on_disk and repo.refs["refs/heads/main"] != commit
    assert len(hub.injected) > 3 and not hub.authorizations
    assert sorted(path.name for path in home.glob("hub/*/snapshots/*/data/*")) == sorted(
        Path(path).name for path in TRAIN
    )
    assert not [*(home / "tmp").iterdir()]
    assert read_manifest(tmp_path / "out")["job"]["recipe"]["input"] == [f"hf://datasets/{NAME}@{commit}"]
    written = [path for path in [*tmp_path.rglob("*"), *home.rglob("*")] if path.is_file()]
    assert len(written) > 5 and not any(token.encode() in path.read_bytes() for path in written)
    assert token not in ended.stderr + ended.stdout


def test_requests_of_a_build_are_few(hub, home, tmp_path):
    hub.add(NAME, FILES)
    options = [f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out", *WORKERS]
    ended = build_in_process("build", *OPTIONS, *options, env=os.environ | make_environment(hub, home))
    assert ended.returncode == 0, ended.stderr
    # The commit, twice, and a page of files. Then the card, a look at each of three files, and at the first one for
    # its first records, in two ranges. Each file is downloaded by one of the four workers, though several may ask for
    # it. `datasets` asks for nothing.
    assert hub.count("/api/datasets/") == 3
    assert hub.count("GET /datasets/") == 1 + 3 + 2 + 1 and hub.count("HEAD ") <= 1 + 4 * 3
    assert hub.count("GET /cdn/") == 2 + 2 + 2
    assert hub.cdn_bytes < 2.5 * sum(map(len, TRAIN.values()))
    assert [line for line in ended.stderr.splitlines() if not line.startswith("chatmill: ")] == []


def test_masks_shows_the_first_records_of_a_split_without_downloading_its_files(hub, run):
    large = as_parquet(records(0, 20_000), "none")
    hub.add(NAME, FILES | {"data/train_sft-00000-of-00003.parquet": large})
    code, out, err = run("masks", f"--tokenizer={TOKENIZER}", f"--input={NAME}", "--split=train_sft")
    assert code == 0, err
    assert "train_sft-00000-of-00003.parquet, row 0, as messages\n" in out
    assert "5 of 5 conversations have trained parts" in out
    assert hub.cdn_bytes < len(large) / 2


def test_killed_build_goes_on_with_the_commit_that_it_was_planned_with(hub, home, run, on_disk, tmp_path):
    repo = hub.add(NAME, FILES)
    options = ["build", *OPTIONS, f"--input={NAME}", "--split=train_sft"]
    started = start_and_wait_for_receipts(options, tmp_path / "out", 2, **make_environment(hub, home))
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    assert not (tmp_path / "out/manifest.json").exists()
    repo.commit({"data/train_sft-00001-of-00003.jsonl": as_lines(records(5, 6))})
    code, _, err = run(*options, f"--output={tmp_path}/out", ONE)
    assert code == 0, err
    assert list_shards(tmp_path / "out") == on_disk


def test_append_takes_what_a_push_changed_and_nothing_twice(hub, run, tmp_path):
    repo, output, new = hub.add(NAME, FILES), tmp_path / "out", "data/train_sft-00003-of-00003.jsonl"
    append = ["build", "--append", *OPTIONS, ONE, f"--input={NAME}", "--split=train_sft", f"--output={output}"]
    assert run(*append)[0] == 0
    assert read_manifest(output)["records"]["read"] == 1000
    repo.commit({"README.md": CARD.encode() + b"new"})
    code, out, _ = run(*append)
    assert (code, "nothing is new" in out) == (0, True)
    repo.commit({new: as_lines(records(3000, 3100))})
    code, out, _ = run(*append)
    assert (code, "1 file with 100 records was added" in out) == (0, True)
    repo.commit({new: as_lines(records(3000, 3200))})
    code, _, err = run(*append)
    assert (code, "it changed since it was added" in err) == (2, True)
    assert run(*append, "--on_changed_file=append")[0] == 0
    assert read_manifest(output)["records"]["read"] == 1300
    code, _, err = run(*append, "--append=false", "--overwrite")
    assert (code, "no longer listed" in err) == (0, False)  # of another commit, but there


def test_sources_of_a_recipe_on_the_hub(hub, run, tmp_path):
    commit = hub.add(NAME, FILES).refs["refs/heads/main"]
    recipe = tmp_path / "mix.yaml"
    recipe.write_text(
        f"""
sources:
  - {{input: {NAME}:default, split: train_sft}}
  - {{name: tests, input: {NAME}, split: [test_sft]}}
"""
    )
    code, _, err = run("build", *OPTIONS, ONE, f"--recipe={recipe}", f"--output={tmp_path}/out")
    assert code == 0, err
    assert hub.count("?expand=sha") == 1  # a push in between would change nothing
    manifest = read_manifest(tmp_path / "out")
    assert [(each["name"], each["records"]["read"]) for each in manifest["sources"]] == [
        ("1-chats", 1000),
        ("tests", 9),
    ]
    assert manifest["job"]["recipe"]["sources"][1] == {
        "name": "tests",
        "input": [f"hf://datasets/{NAME}@{commit}"],
        "split": ["test_sft"],
    }


def test_many_files_are_listed_in_few_requests(hub, run, tmp_path):
    content = gzip.compress(as_lines(records(0, 2)))
    hub.add("org/many", {f"data/train-{i:05d}-of-05000.json.gz": content for i in range(5000)})
    code, _, err = run("build", "--append", *OPTIONS, "--input=org/many", f"--output={tmp_path}/out", "--dry_run=True")
    assert code == 0, err
    assert hub.count("/tree/") < 10 and len(hub.log) < 40, hub.log


@pytest.mark.parametrize(
    ("name", "token", "problem"),
    [
        ("org/nope", False, "there is no dataset org/nope on {hub}, or it is private: check the name; for a private "
         "one, log in with `hf auth login`, or set HF_TOKEN"),
        ("org/private", True, "there is no dataset org/private on {hub}, or it is private: check the name; your token "
         "has no access to it"),
        ("org/gated", False, "org/gated is gated: ask for access at {hub}/datasets/org/gated, then log in with `hf "
         "auth login`, or set HF_TOKEN"),
        ("org/gated", True, "org/gated is gated, and your token has no access to it: ask for it at "
         "{hub}/datasets/org/gated"),
        ("org/gated@v9", False, "org/gated has no revision v9"),
        ("org/gated", "hf_wrong", "the Hub does not accept your token: log in with `hf auth login`, or set HF_TOKEN"),
        ("org/gated", "offline", "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, or download the files and "
         "name their folder"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_in_one_line(hub, home, capfd, monkeypatch, name, token, problem):
    hub.add("org/private", {"train.jsonl": as_lines(records(0, 1))}, is_private=True)
    hub.add("org/gated", {"train.jsonl": as_lines(records(0, 1))}, gated="manual")
    with hub.in_process(home, hub.token_of("me") if token is True else token or None):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", token == "offline")
        assert chatmill("masks", f"--tokenizer={TOKENIZER}", f"--input={name}") == 2
        monkeypatch.undo()
    err = capfd.readouterr().err
    assert f"({problem.format(hub=hub.endpoint)})." in err and err.count("\n") == 1


def test_hub_that_cannot_be_reached_is_reported(hub, home, capfd, monkeypatch):
    with hub.in_process(home):
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        assert chatmill("masks", f"--tokenizer={TOKENIZER}", "--input=org/open") == 1
        monkeypatch.undo()
    err = capfd.readouterr().err
    assert "http://127.0.0.1:9 cannot be reached: " in err and err.count("\n") == 1


def test_what_the_hub_refuses_to_show_is_not_taken_for_missing(hub, run):
    hub.add("org/open", {"in@3/train.jsonl": as_lines(records(0, 1))})
    hub.refused = {"GET .*/tree/": "AccessDenied"}
    code, _, err = run("inspect", "hf://datasets/org/open/in@3")  # not version 3 of another folder
    assert code == 1 and "hf://datasets/org/open/in@3: it cannot be read (403 Forbidden" in err


def test_limit_of_requests_is_waited_for_as_long_as_the_hub_says(hub, run):
    hub.add("org/open", {"train.jsonl": as_lines(records(0, 1))})
    hub.limited = {"RateLimit": '"api";r=0;t=3'}

    def first_about_datasets() -> Iterator[str | None]:
        while "/api/datasets" not in hub.log[-1]:  # the client asks something else, once in each process
            yield None
        yield "429"

    hub.faults = first_about_datasets()
    arrived: list[float] = []
    hub.on_request = lambda number, request: arrived.append(time.time())
    assert run("masks", f"--tokenizer={TOKENIZER}", "--input=org/open")[0] == 0
    assert max(later - one for one, later in pairwise(arrived)) > 3.9 and len(arrived) > 4


def test_file_that_datasets_has_downloaded_is_read_where_it_is(hub, home, run, on_disk, tmp_path):
    commit = hub.add(NAME, FILES).refs["refs/heads/main"]
    with hub.in_process(home):
        for path in TRAIN:
            hf_hub_download(NAME, path, repo_type="dataset", revision=commit)
    hub.reset()
    options = [*OPTIONS, ONE, f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out"]
    code, _, err = run("build", *options)
    assert code == 0, err
    assert list_shards(tmp_path / "out") == on_disk
    assert not [request for request in hub.log if request.startswith("HEAD ") and "/data/" in request]
