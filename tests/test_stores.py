"""Buckets: input, tokenizer and output on s3://, against the server of moto, through s3fs as a user has it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest
import s3fs
from conftest import CHATS, ROOT, TOKENIZER, build_apart, digests

OPTIONS = ("--max_reject_fraction=0.5", "--split_bytes=60000", "--packing=bfd", "--max_length=512")


@pytest.fixture(scope="module")
def store() -> Iterator[s3fs.S3FileSystem]:
    """A store with the corpus and the tokenizer in it, which processes find by their environment as they find AWS."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "import sys; from moto.server import main; sys.exit(main())", f"-p{port}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key-of-the-tests",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        for bucket in ("corpus", "models", "out"):
            files.mkdir(bucket)
        files.put(str(CHATS), "corpus/chats", recursive=True)
        files.put(str(TOKENIZER), "models/tokenizer", recursive=True)
        yield files
    finally:
        server.kill()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def output() -> str:
    return f"out/{uuid.uuid4().hex}"


def options_of(output: str, *more: str) -> list[str]:
    return [
        "--input=s3://corpus/chats",
        "--tokenizer=s3://models/tokenizer",
        f"--output=s3://{output}",
        *OPTIONS,
        *more,
    ]


def digests_of_shards(store: s3fs.S3FileSystem, output: str) -> dict[str, str]:
    store.invalidate_cache()
    names = [name for name in store.find(output) if "/data/" in name]
    return {name.removeprefix(f"{output}/"): hashlib.sha256(store.cat(name)).hexdigest() for name in names}


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> dict[str, str]:
    """The digests of the shards that the same job writes on a disk."""
    output = tmp_path_factory.mktemp("on_disk") / "out"
    done = build_apart(f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={output}", *OPTIONS)
    assert done.returncode == 0, done.stderr
    return {name: digest for name, digest in digests(output).items() if name.startswith("data")}


def test_shards_in_a_bucket_are_those_on_a_disk(store, output, on_disk):
    done = build_apart(*options_of(output, f"--summary_json=s3://{output}.json"))
    assert done.returncode == 0, done.stderr
    assert digests_of_shards(store, output) == on_disk
    assert store.exists(f"{output}/_SUCCESS")
    assert not store.find(f"{output}/_chatmill/shards")
    summary = json.loads(store.cat(f"{output}.json"))
    assert summary["status"] == "done"
    for name in store.find(output):
        assert b"of-the-tests" not in store.cat(name), f"{name} holds a credential"
    # Done already; then refused with other options, and made anew.
    again = build_apart(*options_of(output))
    assert again.returncode == 0
    assert "is finished already" in again.stderr
    refused = build_apart(*options_of(output, "--seed=1"))
    assert refused.returncode == 2
    assert "--seed was 0 and is 1" in refused.stderr
    anew = build_apart(*options_of(output, "--overwrite", "--packing=ffd"))
    assert anew.returncode == 0
    assert digests_of_shards(store, output) != on_disk


def test_run_that_was_killed_is_resumed_in_a_bucket(store, output, on_disk):
    build = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *options_of(output, "--direct_num_workers=2")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    receipts: list[str] = []
    while len(receipts) < 3:
        assert build.poll() is None and time.monotonic() < deadline
        store.invalidate_cache()
        receipts = store.find(f"{output}/_chatmill/receipts")
        time.sleep(0.01)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    written = {name: store.info(name)["LastModified"] for name in receipts}
    assert not store.exists(f"{output}/_SUCCESS")
    done = build_apart(*options_of(output))
    assert done.returncode == 0, done.stderr
    assert digests_of_shards(store, output) == on_disk
    store.invalidate_cache()
    assert {name: store.info(name)["LastModified"] for name in written} == written


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("--input=s3://corpus/none", "--input s3://corpus/none: there is no such file or folder"),
        ("--input=s3://nobody/chats", "--input s3://nobody/chats: there is no such file or folder"),
        ("--tokenizer=s3://models/none", "--tokenizer s3://models/none: there is no tokenizer there"),
        (
            "--output=s3://nobody/out",
            "--output s3://nobody/out: it cannot be written (The specified bucket does not exist",
        ),
    ],
)
def test_what_is_not_there_is_told_in_one_line(store, output, changed, said):
    done = build_apart(*options_of(output, changed))
    assert done.returncode == 2
    assert done.stderr.startswith(f"chatmill: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_store_that_cannot_be_reached_is_told_in_one_line(store, output):
    done = build_apart(*options_of(output), env=os.environ | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert len(done.stderr.splitlines()) == 1
