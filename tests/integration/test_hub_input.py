"""Datasets on the Hub as inputs: the same bytes as from a disk, whatever the Hub does, in few requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.datasets import build_in_process, digests, manifest_of, name_in_increment
from support.faulty_proxy import seeded
from support.hub import Hub
from support.killed import start_and_wait_for_receipts
from support.paths import ROOT, TOKENIZER
from transforms import ParameterError, Unavailable
from transforms.inputs.listing import list_inputs
from transforms.storage.hub import downloads, limits
from transforms.storage.hub.urls import HubFile

NAME = "org/chats"
CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train_sft, path: data/train_sft-*}
  - {split: test_sft, path: data/test_sft-*}
---
"""
OPTIONS = (f"--tokenizer={TOKENIZER}", "--report=none", "--split_bytes=20000")
WORKERS = ("--direct_num_workers=4", "--direct_running_mode=multi_processing")


def records(start: int, stop: int) -> list[dict]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"Number {i}?"},
                {"role": "assistant", "content": f"It is {i}. " * 9},
            ]
        }
        for i in range(start, stop)
    ]


def as_parquet(found: list[dict], compression: str = "snappy") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(found), sink, row_group_size=200, compression=compression)
    return sink.getvalue().to_pybytes()


def as_lines(found: list[dict]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in found).encode()


TRAIN = {
    "data/train_sft-00000-of-00003.parquet": as_parquet(records(0, 1000)),
    "data/train_sft-00001-of-00003.jsonl": as_lines(records(1000, 1500)),
    "data/train_sft-00002-of-00003.parquet": as_parquet(records(1500, 2000)),
}
FILES = {"README.md": CARD.encode(), **TRAIN, "data/test_sft-00000-of-00001.parquet": as_parquet(records(0, 9))}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def home(tmp_path) -> Path:
    """The folder of a user's caches and login on the Hub."""
    return tmp_path / "home"


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> dict[str, str]:
    """The digests of the shards that are built from the same files on a disk."""
    folder = tmp_path_factory.mktemp("disk")
    for path, content in TRAIN.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    ended = build_in_process("build", f"--input={folder}/data", f"--output={folder}/out", *OPTIONS, *WORKERS)
    assert ended.returncode == 0, ended.stderr
    return shards_of(folder / "out")


def shards_of(output: Path) -> dict[str, str]:
    """The sha256 of each shard, by its name without the folder of its increment."""
    return {name_in_increment(path): digest for path, digest in digests(output / "data").items()}


def build(hub: Hub, home: Path, *options: object, token: str | None = None) -> subprocess.CompletedProcess[str]:
    """Build a dataset from the Hub. Its temporary files are below `home`."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    environment = os.environ | hub.environment(home, token) | {"TMPDIR": str(home / "tmp")}
    return build_in_process("build", *OPTIONS, *options, env=environment)


def test_build_from_the_hub_is_that_from_a_disk_though_requests_fail(hub, home, on_disk, tmp_path):
    hub.add(NAME, FILES, gated="manual", granted={"me"})
    token = hub.token_of("me")
    hub.faults = seeded(("429", "503", "reset", "truncated", "expired", "lost"), 0.2, seed=3)
    ended = build(hub, home, f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out", *WORKERS, token=token)
    assert ended.returncode == 0, ended.stderr
    assert shards_of(tmp_path / "out") == on_disk
    assert sum(hub.injected.values()) > 3 and not hub.authorizations
    # Each file is downloaded once, by one of the workers, and nothing of it is left.
    commit = hub.repos[NAME].refs["refs/heads/main"]
    assert not [*(home / "tmp").iterdir()]
    of_job = json.loads((tmp_path / "out/manifest.json").read_text())["job"]
    assert of_job["recipe"]["input"] == [f"hf://datasets/{NAME}@{commit}"]
    written = [path for path in [*tmp_path.rglob("*"), *home.rglob("*")] if path.is_file()]
    assert len(written) > 5 and not any(token.encode() in path.read_bytes() for path in written)
    assert token not in ended.stderr + ended.stdout


def test_requests_of_a_build_are_few(hub, home, tmp_path):
    hub.add(NAME, FILES)
    ended = build(hub, home, f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out", *WORKERS)
    assert ended.returncode == 0, ended.stderr
    # The commit, and a page of files. Then the card, a look at each of three files (at the first one also for its first
    # records, in two ranges), and for each download a HEAD and, without a signed url, a GET.
    of_data = [request for request in hub.log if "/api/datasets/" in request]
    assert len(of_data) == 2
    assert hub.calls["resolve"] == 1 + 3 + 2 + 3 + 1
    assert hub.cdn_bytes < 2.5 * sum(map(len, TRAIN.values()))
    logged = [line for line in ended.stderr.splitlines() if not line.startswith("chatmill: ")]
    assert logged == []


def test_masks_shows_the_first_records_of_a_split_without_downloading_its_files(hub, home):
    large = as_parquet(records(0, 20_000), "none")
    hub.add(NAME, FILES | {"data/train_sft-00000-of-00003.parquet": large})
    options = ("masks", f"--tokenizer={TOKENIZER}", f"--input={NAME}", "--split=train_sft")
    shown = build_in_process(*options, env=os.environ | hub.environment(home))
    assert shown.returncode == 0, shown.stderr
    assert "train_sft-00000-of-00003.parquet, row 0, as messages\n" in shown.stdout
    assert "5 of 5 conversations have trained parts" in shown.stdout
    assert hub.cdn_bytes < len(large) / 2


def test_push_in_the_middle_of_a_build_changes_nothing(hub, home, on_disk, tmp_path):
    repo = hub.add(NAME, FILES)

    def push(number: int, request: str) -> None:
        if number == 5:
            repo.commit(dict.fromkeys(TRAIN, as_lines(records(7, 8))), deleted=["README.md"])

    hub.on_request = push
    commit = repo.refs["refs/heads/main"]
    ended = build(hub, home, f"--input={NAME}", "--split=train_sft", f"--output={tmp_path}/out", *WORKERS)
    assert ended.returncode == 0, ended.stderr
    assert repo.refs["refs/heads/main"] != commit
    assert shards_of(tmp_path / "out") == on_disk


def test_killed_build_goes_on_with_the_commit_that_it_was_planned_with(hub, home, on_disk, tmp_path):
    repo = hub.add(NAME, FILES)
    options = (f"--input={NAME}", "--split=train_sft")
    (home / "tmp").mkdir(parents=True)
    environment = hub.environment(home) | {"TMPDIR": str(home / "tmp")}
    started = start_and_wait_for_receipts(["build", *OPTIONS, *options], tmp_path / "out", 2, **environment)
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    assert not (tmp_path / "out/_SUCCESS").exists()
    repo.commit({"data/train_sft-00001-of-00003.jsonl": as_lines(records(5, 6))})
    ended = build(hub, home, *options, f"--output={tmp_path}/out", *WORKERS)
    assert ended.returncode == 0, ended.stderr
    assert shards_of(tmp_path / "out") == on_disk


def test_append_takes_what_a_push_changed_and_nothing_twice(hub, home, tmp_path):
    repo = hub.add(NAME, FILES)
    output = tmp_path / "out"
    options = (f"--input={NAME}", "--split=train_sft", f"--output={output}", "--append", "--direct_num_workers=1")
    assert build(hub, home, *options).returncode == 0
    assert manifest_of(output)["records"]["read"] == 2000
    repo.commit({"README.md": CARD.encode() + b"new"})
    ended = build(hub, home, *options)
    assert ended.returncode == 0 and "nothing is new" in ended.stdout, ended.stderr
    repo.commit({"data/train_sft-00003-of-00003.jsonl": as_lines(records(3000, 3100))})
    ended = build(hub, home, *options)
    assert ended.returncode == 0 and "1 file with 100 records was added" in ended.stdout, ended.stderr
    repo.commit({"data/train_sft-00003-of-00003.jsonl": as_lines(records(3000, 3200))})
    ended = build(hub, home, *options)
    assert ended.returncode == 2 and "it changed since it was added" in ended.stderr
    ended = build(hub, home, *options, "--on_changed_file=append")
    assert ended.returncode == 0, ended.stderr
    assert manifest_of(output)["records"]["read"] == 2300


def test_sources_of_a_recipe_on_the_hub(hub, home, tmp_path):
    hub.add(NAME, FILES)
    recipe = tmp_path / "mix.yaml"
    recipe.write_text(
        f"""
sources:
  - {{hub: {NAME}, config: default, split: train_sft, revision: main}}
  - {{name: tests, hub: {NAME}, split: [test_sft]}}
"""
    )
    ended = build(hub, home, f"--recipe={recipe}", f"--output={tmp_path}/out", "--direct_num_workers=1")
    assert ended.returncode == 0, ended.stderr
    manifest = manifest_of(tmp_path / "out")
    assert [(each["name"], each["records"]["read"]) for each in manifest["sources"]] == [
        ("1-chats", 2000),
        ("tests", 9),
    ]
    commit = hub.repos[NAME].refs["refs/heads/main"]
    assert manifest["job"]["recipe"]["sources"][1] == {
        "name": "tests",
        "input": [f"hf://datasets/{NAME}@{commit}"],
        "split": ["test_sft"],
    }
    for entry, problem in {
        "{config: a}": "config: a dataset on the Hub is named by hub, in the place of input",
        "{hub: a/b, input: c}": "hub: a dataset on the Hub is named by hub, in the place of input",
        "{hub: b}": "hf://datasets/b: expected hf://datasets/ORG/NAME",
    }.items():
        recipe.write_text(f"sources: [{entry}]")
        ended = build(hub, home, f"--recipe={recipe}", f"--output={tmp_path}/other")
        assert ended.returncode == 2 and problem in ended.stderr and ended.stderr.count("\n") == 1


def test_dataset_of_5000_files_is_listed_in_few_requests(hub, home):
    paths = [f"data/train-{i:05d}-of-05000.json.gz" for i in range(5000)]
    import gzip

    content = gzip.compress(as_lines(records(0, 2)))
    hub.add("org/many", dict.fromkeys(paths, content))
    with hub.in_process(home):
        found = list_inputs("org/many")
    assert [(file.format, file.compression, file.bytes) for file in found] == [("jsonl", "gzip", len(content))] * 5000
    assert len({file.unpacked for file in found}) == 1
    assert hub.calls["api"] + hub.calls["resolve"] < 30


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
    ],
)  # fmt: skip
def test_what_is_missing_is_named(hub, home, name, token, problem):
    hub.add("org/private", {"train.jsonl": as_lines(records(0, 1))}, is_private=True)
    hub.add("org/gated", {"train.jsonl": as_lines(records(0, 1))}, gated="manual")
    with (
        hub.in_process(home, hub.token_of("me") if token else None),
        pytest.raises(ParameterError) as error,
    ):
        list_inputs(name)
    assert f"({problem.format(hub=hub.endpoint)})." in str(error.value)


def test_wrong_token_and_offline_mode_are_reported(hub, home, monkeypatch):
    hub.add("org/open", {"train.jsonl": as_lines(records(0, 1))})
    with (
        hub.in_process(home, "hf_wrong"),
        pytest.raises(ParameterError, match="the Hub does not accept your token: log"),
    ):
        list_inputs("org/open")
    with hub.in_process(home):
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ParameterError, match="HF_HUB_OFFLINE is set, so the Hub is not asked"):
            list_inputs("org/open")


def test_hub_that_cannot_be_reached_is_reported_after_two_attempts(hub, home, monkeypatch):
    attempts = []
    with hub.in_process(home):
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(limits, "wait", attempts.append)
        with pytest.raises(Unavailable, match=r"http://127.0.0.1:9 cannot be reached: .*refused"):
            list_inputs("org/open")
    assert len(attempts) == 2


def test_limit_that_one_process_is_told_of_holds_for_the_others(hub, home, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    hub.add("org/open", {"train.jsonl": as_lines(records(0, 1))})
    hub.limit_headers = {"RateLimit": '"api";r=0;t=3'}
    hub.faults = iter(["429"])
    arrived = []
    hub.on_request = lambda number, request: arrived.append(time.time())
    program = "from transforms.inputs.listing import list_inputs\nlist_inputs('org/open')"
    environment = os.environ | hub.environment(home) | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=ROOT)
    while not hub.injected:
        time.sleep(0.01)
    time.sleep(0.3)
    with hub.in_process(home):
        list_inputs("org/open")
    assert first.wait() == 0
    assert all(time_of - arrived[0] > 2.9 for time_of in arrived[1:]) and len(arrived) > 4


def test_last_process_that_uses_downloads_removes_them(hub, home, tmp_path):
    commit = hub.add(NAME, {"a.jsonl": b"content"}).refs["refs/heads/main"]
    program = f"""
import sys
from transforms.storage.hub.downloads import open_hub_file
from transforms.storage.hub.urls import HubFile

print(open_hub_file(HubFile({NAME!r}, {commit!r}, "a.jsonl"), 7, 7).read(), flush=True)
sys.stdin.read()
"""
    environment = os.environ | hub.environment(home) | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    users = [subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) for _ in range(2)]
    assert [user.stdout.readline() for user in users] == [b"b'content'\n"] * 2
    for user, left in zip(users, (1, 0), strict=True):
        user.communicate()
        assert len([*tmp_path.glob("chatmill-hub-*/*.file")]) == left
    assert hub.calls["resolve"] == 2  # HEAD and GET, of one of them
    assert not [*tmp_path.glob("chatmill-hub-*")]


class TestDownloads:
    """The files that are downloaded: bounded, and read while others take their place."""

    @pytest.fixture(autouse=True)
    def hub_in_process(self, hub, home, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with hub.in_process(home):
            yield

    def test_room_is_bounded_and_what_was_used_longest_ago_goes_first(self, hub, tmp_path, monkeypatch):
        contents = {f"{name}.jsonl": name.encode() * 1000 for name in "abcd"}
        repo = hub.add(NAME, contents)
        commit = repo.refs["refs/heads/main"]
        monkeypatch.setattr(downloads, "_MOST_OF_DISK", 1.0)

        class Usage:
            @property
            def free(self) -> int:  # a disk that has room for two and a half of the files
                return 2500 - sum(path.stat().st_size for path in tmp_path.glob("chatmill-hub-*/*.file"))

        monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: Usage())

        def read(name: str) -> bytes:
            with downloads.open_hub_file(HubFile(NAME, commit, f"{name}.jsonl"), 1000, 1000) as file:
                return file.read()

        first = downloads.open_hub_file(HubFile(NAME, commit, "a.jsonl"), 1000, 1000)
        for name in "bcdcb":
            assert read(name) == contents[f"{name}.jsonl"]
            assert len([*tmp_path.glob("chatmill-hub-*/*.file")]) <= 2
        assert first.read() == contents["a.jsonl"]  # it was removed meanwhile
        before = dict(hub.calls)
        assert read("c") == contents["c.jsonl"]
        assert hub.calls == before
        assert not [*tmp_path.glob("chatmill-hub-*/*.coming")]

    def test_part_of_a_large_file_is_read_by_ranges_and_a_look_downloads_nothing(self, hub, tmp_path, monkeypatch):
        content = bytes(range(256)) * 400
        repo = hub.add(NAME, {"a.parquet": content})
        file = HubFile(NAME, repo.refs["refs/heads/main"], "a.parquet")
        monkeypatch.setattr(downloads, "_ALWAYS_WHOLE", 1000)
        for reads in (0, len(content) // 2 - 1):
            with downloads.open_hub_file(file, len(content), reads) as opened:
                opened.seek(99)
                assert opened.read(1000) == content[99:1099]
        assert not [*tmp_path.glob("chatmill-hub-*/*.file")]
        with downloads.open_hub_file(file, len(content), len(content) // 2) as opened:
            assert opened.read() == content
        assert len([*tmp_path.glob("chatmill-hub-*/*.file")]) == 1

    def test_file_that_datasets_has_downloaded_is_read_where_it_is(self, hub):
        from huggingface_hub import hf_hub_download

        repo = hub.add(NAME, {"a.jsonl": b"content"})
        commit = repo.refs["refs/heads/main"]
        hf_hub_download(NAME, "a.jsonl", repo_type="dataset", revision=commit)
        hub.reset()
        with downloads.open_hub_file(HubFile(NAME, commit, "a.jsonl"), 7, 7) as opened:
            assert opened.read() == b"content"
        assert not hub.log
