"""Buckets: input, tokenizer and output on s3:// and gs://, against moto's server and fake-gcs-server.

s3fs and gcsfs are configured only by environment variables, as for a user. A proxy counts the requests and makes some
of them fail.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from support.datasets import build_in_process, digests, name_in_increment
from support.faulty_proxy import FAULTS, FaultyProxy, seeded
from support.paths import CHATS, ROOT, TOKENIZER
from support.stores import Store, gs, running, s3
from transforms import Dataset, UserError
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.steps.read import read_split
from transforms.storage.files import read_bytes
from transforms.storage.lock import check_exclusive_create
from transforms.storage.writing import write_atomically

OPTIONS = ("--max_reject_fraction=0.5", "--split_bytes=60000", "--packing=bfd", "--max_length=512", "--as_chat=true")


@pytest.fixture(scope="module", params=[s3, gs], ids=["s3", "gs"])
def store(request) -> Iterator[Store]:
    with running(request.param) as store:
        for bucket in ("corpus", "models", "out"):
            store.files.mkdir(bucket)
        store.files.put(str(CHATS), "corpus/chats", recursive=True)
        store.files.put(str(TOKENIZER), "models/tokenizer", recursive=True)
        yield store


@pytest.fixture
def proxy(store) -> Iterator[FaultyProxy]:
    """The proxy of the store. It forwards everything again after the test."""
    store.proxy.reset()
    yield store.proxy
    store.proxy.reset()


@pytest.fixture
def output() -> str:
    return f"out/{uuid.uuid4().hex}"


def options_of(store: Store, output: str, *more: str) -> list[str]:
    places = {"input": "corpus/chats", "tokenizer": "models/tokenizer", "output": output}
    return [*(f"--{name}={store.url(path)}" for name, path in places.items()), *OPTIONS, *more]


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> dict[str, str]:
    """The digests of the shards that the same job writes on a disk."""
    output = tmp_path_factory.mktemp("on_disk") / "out"
    done = build_in_process(f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={output}", *OPTIONS)
    assert done.returncode == 0, done.stderr
    return {name_in_increment(name): digest for name, digest in digests(output / "data").items()}


def shards_in(store: Store, output: str) -> dict[str, str]:
    """The digests of the shards in a bucket, by their names. The increment is another one, since its inputs are."""
    return {name_in_increment(name): digest for name, digest in store.digests_of_shards(output).items()}


def test_shards_in_a_bucket_are_the_same_as_on_a_disk(store, output, on_disk):
    done = build_in_process(*options_of(store, output, "--json"))
    assert done.returncode == 0, done.stderr
    assert shards_in(store, output) == on_disk
    assert store.files.exists(f"{output}/_SUCCESS")
    assert not store.names(f"{output}/_chatmill/increments")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["status"] == "done"
    for name in store.names(output):
        assert b"of-the-tests" not in store.files.cat(name), f"{name} holds a credential"
    inspected = build_in_process("inspect", store.url(output), "--sample=2")
    assert inspected.returncode == 0 and "⟦" in inspected.stdout, inspected.stderr
    compared = build_in_process("diff", store.url(output), store.url(output))
    assert compared.returncode == 0 and "equal: both have the same" in compared.stdout, compared.stderr
    # Already finished; then refused with other options; then overwritten.
    again = build_in_process(*options_of(store, output))
    assert again.returncode == 0
    assert "is finished already" in again.stderr
    refused = build_in_process(*options_of(store, output, "--seed=1"))
    assert refused.returncode == 2
    assert "--seed was 0 and is 1" in refused.stderr
    overwritten = build_in_process(*options_of(store, output, "--overwrite", "--packing=ffd"))
    assert overwritten.returncode == 0
    versions = [Dataset(f"{store.url(output)}@{version}").shards() for version in (1, 2)]
    sha256 = [[shard["sha256"] for shard in shards] for shards in versions]
    assert sha256[0] == [*on_disk.values()] and {*sha256[0]}.isdisjoint(sha256[1])


def test_a_shard_is_uploaded_once_and_never_copied(build, store, proxy, output):
    assert build(*options_of(store, output)).code == 0
    shards = [name for name in store.names(output) if "/data/" in name]
    assert len(shards) > 10
    if store.protocol == "s3":  # Google's clients send the name in the body
        uploads = [request for request in map(unquote, proxy.log) if re.match("(PUT|POST) .*/data/", request)]
        assert len(uploads) == len(shards)
    assert not [request for request in proxy.log if re.search("copy|rewriteTo|compose", request, re.IGNORECASE)]


NO_NEW_PROCESSES = """
import multiprocessing, sys
context = multiprocessing.get_context
multiprocessing.get_context = lambda method=None: None if method == "spawn" else context(method)
from pipeline import main
sys.exit(main(sys.argv[1:]))
"""


def test_workers_of_a_build_in_a_bucket_are_forks(store, output, on_disk):
    """The launcher itself cannot fork them, since the client of the store has threads."""
    command = [sys.executable, "-c", NO_NEW_PROCESSES, *options_of(store, output, "--direct_num_workers=2")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shards_in(store, output) == on_disk


def test_a_server_that_ignores_conditional_writes_is_refused(build, store, proxy, output):
    if store.protocol != "s3":
        pytest.skip("servers of Google's protocol are its own")
    proxy.ignored = {"if-none-match"}
    refused = build(*options_of(store, output))
    assert refused.code == 2 and "cannot create a file only if there is none" in refused.err, refused.err
    assert refused.err.count("\n") == 1 and not store.names(output)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_answer_is_not_taken_for_a_server_that_ignores_conditional_writes(store, proxy, output, fault):
    proxy.faults = iter([fault])
    check_exclusive_create(store.url(f"{output}/lock"), "out")
    assert not store.names(output)


def test_run_that_was_killed_is_resumed_in_a_bucket(store, output, on_disk):
    build = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *options_of(store, output, "--direct_num_workers=2")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    receipts: list[str] = []
    while len(receipts) < 5:
        assert build.poll() is None and time.monotonic() < deadline
        receipts = [name for name in store.names(f"{output}/_chatmill/increments") if "/receipts/" in name]
        time.sleep(0.01)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    # If one part of a file that is read in parts is missing, all of them are read again.
    whole = [name for name in receipts if name.endswith("-00000.json") and json.loads(store.files.cat(name))["last"]]
    paths = [shard["path"] for name in whole for shard in json.loads(store.files.cat(name))["shards"]]
    written = {path: store.files.modified(f"{output}/{path}") for path in paths}
    assert not store.files.exists(f"{output}/_SUCCESS")
    done = build_in_process(*options_of(store, output))
    assert done.returncode == 0, done.stderr
    assert shards_in(store, output) == on_disk
    store.files.invalidate_cache()
    assert {path: store.files.modified(f"{output}/{path}") for path in written} == written != {}


@pytest.mark.parametrize(
    ("option", "path", "problem"),
    [
        ("input", "corpus/none", "there is no such file or folder"),
        ("input", "nobody/chats", "there is no such file or folder"),
        ("tokenizer", "models/none", "there is no tokenizer there"),
        ("output", "nobody/out", "it cannot be written ("),
    ],
)
def test_missing_folder_or_bucket_is_reported_in_one_line(store, output, option, path, problem):
    done = build_in_process(*options_of(store, output, f"--{option}={store.url(path)}"))
    assert done.returncode == 2
    assert f"--{option} {store.url(path)}: {problem}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_store_that_cannot_be_reached_is_reported_in_one_line(store, output):
    done = build_in_process(*options_of(store, output), env=os.environ | store.unreachable)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("kinds", "rate"), [(("short",), 0.05), (FAULTS, 0.1)], ids=["short", "mix"])
def test_failed_requests_do_not_change_the_dataset(build, store, proxy, output, on_disk, kinds, rate):
    proxy.faults = seeded(kinds, rate, seed=1)
    ended = build(*options_of(store, output))
    injected = dict(proxy.injected)
    proxy.reset()
    assert ended.code == 0, ended.err
    assert injected.keys() == set(kinds), "a kind of fault never occurred"
    assert shards_in(store, output) == on_disk
    manifest = json.loads(store.files.cat(f"{output}/manifest.json"))
    assert {name_in_increment(shard["path"]): shard["sha256"] for shard in manifest["shards"]} == on_disk


def test_failed_requests_do_not_change_large_files(store, proxy, output):
    content = random.Random(0).randbytes(12_000_000)
    for number, fault in enumerate([None, *FAULTS]):
        url = store.url(f"{output}/{number}")
        proxy.faults = iter([fault])
        write_atomically(url, content)
        proxy.faults = iter([fault])
        assert read_bytes(url) == content
    assert proxy.injected.keys() == set(FAULTS)
    assert sum(proxy.requests.values()) < 100, "too many requests for files of this size"


@pytest.mark.parametrize(
    ("refused", "code", "message"),
    [
        ("(GET|HEAD) .*corpus", "AccessDenied", "--input {corpus}"),
        (".*", "ExpiredToken", "it cannot be reached ("),
        ("(PUT|POST) .*out", "AccessDenied", "--output {output}: it cannot be written ("),
    ],
    ids=["input", "expired", "output"],
)
def test_denied_access_is_reported_without_retries(build, store, proxy, output, refused, code, message):
    proxy.refused = {refused: code}
    ended = build(*options_of(store, output))
    assert ended.code == 2
    assert message.format(corpus=store.url("corpus/chats"), output=store.url(output)) in ended.err
    assert len(ended.err.splitlines()) == 1
    assert sum(proxy.requests.values()) < 60


def test_denied_access_during_the_run_is_reported_in_one_line(build, store, proxy, output):
    proxy.refused = {"(PUT|POST) .*/data/|(PUT|POST) .*data%2F": "AccessDenied"}
    ended = build(*options_of(store, output))
    assert ended.code == 1
    assert f"{output}/data/" in ended.err and "it cannot be written (" in ended.err and "AccessDenied" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("moment", ["before the first byte", "between two requests"])
def test_object_that_is_written_again_is_not_mixed_with_the_planned_one(store, proxy, moment):
    path, lines = f"corpus/{uuid.uuid4().hex}.jsonl", [b'{"text": "%07d"}\n' % number for number in range(500_000)]
    content = b"".join(lines)
    store.files.pipe_file(path, content)
    [split] = splits_of(list_inputs(store.url(path)), 1 << 30)
    proxy.reset()
    assert sum(len(part.records) for part in read_split(split, 1 << 20)) == len(lines)
    # After the client has asked for the object, one request for each range and no other.
    assert proxy.log[-3:] == [proxy.log[-1]] * 3 and proxy.log.count(proxy.log[-1]) == 3
    parts = read_split(split, 1 << 20)
    if moment == "between two requests":
        next(parts)
    store.files.pipe_file(path, content.replace(b"0", b"1"))
    with pytest.raises(UserError, match=f"{path}: the file has changed since the job was planned"):
        list(parts)


@pytest.fixture(scope="module")
def many(store) -> list[str]:
    """The urls of 10,000 small objects in a folder, in order."""
    paths = [f"corpus/many/{number % 100:02d}-{number:05d}.jsonl" for number in range(10_000)]
    line = b'{"text": "Once upon a time"}\n'
    store.files.pipe(dict.fromkeys(paths, line), batch_size=64)
    return sorted(store.url(path) for path in paths)


@pytest.mark.parametrize("name", ["corpus/many", "corpus/many/*.jsonl"], ids=["folder", "glob"])
def test_ten_thousand_objects_are_listed_in_order_with_few_requests(store, many, proxy, name):
    found = list_inputs([store.url(name)])
    assert [file.url for file in found] == many
    assert [piece.url for split in splits_of(found, 1 << 20) for piece in split.slices] == many
    assert sum(proxy.requests.values()) < 30


CREDENTIALS = ["X-Amz-Signature", "sig", "api_key", "apikey", "password", "auth", "private_token", "jwt", "hdnts"]
CREDENTIALS += ["x-oss-signature", "X-Amz-Security-Token", "key_of_a_service_that_nobody_knows"]


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hidden@host/corpus.jsonl",
        "https://hidden@host/corpus.jsonl",
        "simplecache::https://user:hidden@host/corpus.jsonl",
        "https://host/corpus.jsonl#access_token=hidden",
        *(f"https://host/corpus.jsonl?download=1&{name}=hidden" for name in CREDENTIALS),
    ],
)
def test_url_that_holds_a_credential_is_refused_without_showing_it(build, tmp_path, url):
    ended = build(f"--input={url}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out")
    assert ended.code == 2
    assert "https://host/corpus.jsonl: the url has " in ended.err
    assert "hidden" not in ended.err and not (tmp_path / "out").exists()
