"""Buckets: input, tokenizer and output on s3:// and gs://, against moto's server and fake-gcs-server.

s3fs and gcsfs are configured only by environment variables, as for a user. A proxy counts the requests and makes some
of them fail.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import digests, name_in_increment
from support.faulty_proxy import FAULTS, FaultyProxy, each, seeded
from support.paths import CHATS, ROOT, TOKENIZER
from support.stores import Store, gs, running, s3
from transforms import Dataset, UserError, shards

ONE = "--direct_running_mode=in_memory"
OPTIONS = ("--max_reject_fraction=0.5", "--split_bytes=100000", "--packing=bfd", "--max_length=512", "--as_chat=true")
NOISE = "--keep_columns=noise"


def large(letter: str = "a", records: int = 120) -> bytes:
    """A hundred kilobytes for each record: some ranges, and one upload of more than a part."""
    noise = random.Random(0)
    lines = ({"text": f"{letter} {n}", "noise": noise.randbytes(50_000).hex()} for n in range(records))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


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


def make_options(store: Store, output: str, *more: str) -> list[str]:
    places = {"input": "corpus/chats", "tokenizer": "models/tokenizer", "output": output}
    return [*(f"--{name}={store.url(path)}" for name, path in places.items()), *OPTIONS, *more]


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> dict[str, str]:
    """The digests of the shards that the same job writes on a disk."""
    output = tmp_path_factory.mktemp("on_disk") / "out"
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={output}", *OPTIONS, ONE]
    assert chatmill("build", *options) == 0
    return {name_in_increment(name): digest for name, digest in digests(output / "data").items()}


def shards_in(store: Store, output: str) -> dict[str, str]:
    """The digests of the shards in a bucket, by their names. The increment is another one, since its inputs are."""
    return {name_in_increment(name): digest for name, digest in store.digests_of_shards(output).items()}


def test_shards_in_a_bucket_are_the_same_as_on_a_disk(build, store, proxy, output, on_disk, capfd):
    done = build(*make_options(store, output, ONE, "--json"))
    assert done.code == 0, done.err
    # A shard is uploaded once, and never copied. Google's clients send its name with it in the body.
    uploads = [size for request, size in proxy.uploads if re.match(f"(PUT|POST) .*{output[4:]}/data/", request)]
    assert len(uploads) == len(on_disk) > 3
    written = sum(shard["bytes"] for shard in Dataset(store.url(output)).shards())
    assert written <= sum(uploads) <= written + (len(uploads) * 1000 if store.protocol == "gs" else 0)
    assert not [request for request in proxy.log if re.search("copy|rewriteTo|compose", request, re.IGNORECASE)]
    assert shards_in(store, output) == on_disk
    assert store.files.exists(f"{output}/manifest.json")
    assert not store.names(f"{output}/_chatmill/building")
    assert json.loads(done.out.splitlines()[-1])["status"] == "done"
    for name in store.names(output):
        assert b"of-the-tests" not in store.files.cat(name), f"{name} holds a credential"
    assert chatmill("inspect", store.url(output), "--sample=2") == 0 and "⟦" in capfd.readouterr().out
    assert chatmill("diff", store.url(output), store.url(output)) == 0
    assert "equal: both have the same" in capfd.readouterr().out
    # Already finished; then refused with other options; then overwritten.
    again = build(*make_options(store, output, ONE))
    assert (again.code, "is finished already" in again.err) == (0, True)
    refused = build(*make_options(store, output, ONE, "--seed=1"))
    assert (refused.code, "--seed was 0 and is 1" in refused.err) == (2, True)
    refused = build(*make_options(store, output, ONE, "--overwrite", f"--input={store.url(output)}/data"))
    assert (refused.code, "it is part of the dataset in --output" in refused.err) == (2, True)
    assert build(*make_options(store, output, ONE, "--overwrite", "--packing=ffd")).code == 0
    versions = [Dataset(f"{store.url(output)}@{version}").shards() for version in (1, 2)]
    sha256 = [[shard["sha256"] for shard in shards] for shards in versions]
    assert sha256[0] == [*on_disk.values()] and {*sha256[0]}.isdisjoint(sha256[1])
    store.files.pipe_file(f"{output}/manifest.json", b"")
    assert Dataset(store.url(output)).version == 2


def test_a_server_that_ignores_conditional_writes_is_refused(build, store, proxy, output):
    if store.protocol != "s3":
        pytest.skip("servers of Google's protocol are its own")
    proxy.ignored = {"if-none-match"}
    refused = build(*make_options(store, output))
    assert refused.code == 2 and "cannot create a file only if there is none" in refused.err, refused.err
    assert refused.err.count("\n") == 1 and not store.names(output)


def test_a_lost_answer_is_not_taken_for_the_write_of_somebody_else(build, store, proxy, output, on_disk, hurried):
    lost = itertools.cycle([True, False])
    exclusive = r"(PUT|POST) .*(ifGenerationMatch=0|/_chatmill/lock|/_chatmill/versions/)"

    def lose(_: int, request: str) -> None:
        if re.match(exclusive, unquote(request)) and next(lost):
            proxy.faults = iter(["lost"])

    proxy.on_request = lose
    ended = build(*make_options(store, output, ONE))
    assert ended.code == 0, ended.err
    assert proxy.injected["lost"] > 1 and shards_in(store, output) == on_disk


@pytest.mark.parametrize(
    ("option", "path", "problem"),
    [
        ("input", "corpus/none", "there is no such file or folder"),
        ("input", "nobody/chats", "there is no such file or folder"),
        ("tokenizer", "models/none", "there is no tokenizer there"),
        ("output", "nobody/out", "it cannot be written ("),
    ],
)
def test_missing_folder_or_bucket_is_reported_in_one_line(build, store, output, option, path, problem):
    done = build(*make_options(store, output, f"--{option}={store.url(path)}"))
    assert done.code == 2
    assert f"--{option} {store.url(path)}: {problem}" in done.err
    assert len(done.err.splitlines()) == 1


def test_store_that_cannot_be_reached_is_reported_in_one_line(build, store, proxy, output, hurried):
    proxy.faults = itertools.repeat("reset")
    done = build(*make_options(store, output))
    assert (done.code, "cannot be reached" in done.err, done.err.count("\n")) == (1, True, 1), done.err


def test_failed_requests_change_neither_small_nor_large_files(build, store, proxy, output, tmp_path, hurried):
    folder = f"corpus/{uuid.uuid4().hex}"
    (tmp_path / "in").mkdir()
    for name, content in (("a.jsonl", large()), ("b.jsonl", (CHATS / "support.jsonl").read_bytes())):
        (tmp_path / "in" / name).write_bytes(content)
        store.files.pipe_file(f"{folder}/{name}", content)
    options = [f"--tokenizer={TOKENIZER}", "--split_bytes=20000000", NOISE, "--max_reject_fraction=0.5", ONE]
    assert build(f"--input={tmp_path}/in", *options, f"--output={tmp_path}/out").code == 0
    expected = {name_in_increment(name): digest for name, digest in digests(tmp_path / "out" / "data").items()}
    proxy.reset()
    proxy.faults = each(6, *FAULTS)
    ended = build(f"--input={store.url(folder)}", *options, f"--output={store.url(output)}")
    assert ended.code == 0, ended.err
    assert proxy.injected.keys() == {*FAULTS}, "a kind of fault never occurred"
    assert proxy.count("a.jsonl") < 25, "too many requests for a file of this size"
    proxy.reset()
    assert shards_in(store, output) == expected
    manifest = json.loads(store.files.cat(f"{output}/manifest.json"))
    assert {name_in_increment(shard["path"]): shard["sha256"] for shard in manifest["shards"]} == expected


@pytest.mark.parametrize(
    ("refused", "code", "message"),
    [
        ("(GET|HEAD) .*corpus", "AccessDenied", "--input {corpus}"),
        (".*", "ExpiredToken", "it cannot be reached ("),
        ("(PUT|POST) .*out", "AccessDenied", "--output {output}: it cannot be written ("),
        ("(PUT|POST) .*(/data/|data%2F)", "AccessDenied", "/data/"),
    ],
    ids=["input", "expired", "output", "during the run"],
)
def test_denied_access_is_reported_in_one_line_without_retries(build, store, proxy, output, refused, code, message):
    proxy.refused = {refused: code}
    ended = build(*make_options(store, output))
    assert message.format(corpus=store.url("corpus/chats"), output=store.url(output)) in ended.err
    assert len(ended.err.splitlines()) == 1
    if message == "/data/":
        assert ended.code == 1 and "it cannot be written (" in ended.err and code in ended.err
    else:
        assert ended.code == 2
        assert proxy.requests["PUT"] + proxy.requests["POST"] <= 1 and sum(proxy.requests.values()) < 120


CHANGES = """
import fsspec
def change(record):
    if record["text"] == "a {at}":
        fsspec.filesystem({protocol!r}).pipe_file({path!r}, open({content!r}, "rb").read())
    return record
"""


@pytest.mark.parametrize("at", [0, 60], ids=["before the first byte", "between two requests"])
def test_object_that_is_written_again_is_not_mixed_with_the_planned_one(build, store, output, tmp_path, at):
    """Of the first record, the launcher has a look."""
    path = f"corpus/{uuid.uuid4().hex}/a.jsonl"
    store.files.pipe_file(path, large(records=200))
    (tmp_path / "new").write_bytes(large("c", records=200))
    formatter = CHANGES.format(at=at, protocol=store.protocol, path=path, content=str(tmp_path / "new"))
    (tmp_path / "formatter.py").write_text(formatter)
    options = [f"--tokenizer={TOKENIZER}", f"--formatter={tmp_path}/formatter.py:change", "--split_bytes=30000000", ONE]
    ended = build(f"--input={store.url(path)}", *options, f"--output={store.url(output)}")
    assert ended.code == 2, ended.err
    assert f"{path}: the file has changed since the job was planned" in ended.err.splitlines()[-1]


def test_objects_of_several_pages_are_listed_in_order_with_few_requests(build, store, proxy, output, tmp_path):
    """moto's pages are of twenty objects (support/stores)."""
    names = [f"{number % 10:02d}-{number:05d}" for number in range(50)]
    folder = f"corpus/{uuid.uuid4().hex}"
    store.files.pipe({f"{folder}/{name}.jsonl": json.dumps({"text": "one", "id": name}).encode() for name in names})
    proxy.reset()
    options = [f"--tokenizer={TOKENIZER}", "--report=none", "--keep_columns=id", ONE]
    for inputs in (folder, f"{folder}/*.jsonl"):
        dry = build("--append", f"--input={store.url(inputs)}", *options, f"--output={tmp_path}/dry", "--dry_run=True")
        assert dry.code == 0, dry.err
    assert proxy.count(".jsonl") < 2.2 * len(names) and len(proxy.log) - proxy.count(".jsonl") < 25  # a look at each
    assert build(f"--input={store.url(folder)}", *options, f"--output={tmp_path}/out").code == 0
    [shard] = (tmp_path / "out" / "data").iterdir()
    assert pq.read_table(shard)["id"].to_pylist() == sorted(names)


# Datasets that grow in a bucket: appends that race, are refused or meet failed requests; expiry.


@pytest.fixture
def folder() -> str:
    """Has the folder `in`, in which files arrive, and the dataset `out`."""
    return f"out/{uuid.uuid4().hex}"


def make_growing(store: Store, folder: str) -> list[str]:
    places = [f"--input={store.url(folder)}/in/*.jsonl", f"--output={store.url(folder)}/out"]
    return [*places, f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=256"]


def arrive(store: Store, folder: str, day: int) -> None:
    """Let a file of forty records arrive."""
    records = [{"prompt": f"What is {day} plus {i}?", "completion": f"{day + i}"} for i in range(40)]
    content = "".join(f"{json.dumps(each)}\n" for each in records).encode()
    store.files.pipe_file(f"{folder}/in/day-{day}.jsonl", content)


def read_records(output: str) -> int:
    """The number of records of the newest version, which must be sound."""
    assert chatmill("verify", output) == 0
    return Dataset(output).manifest["records"]["kept"]


def read_examples(output: str) -> Counter[tuple[int, ...]]:
    """The ids of the examples of a dataset, in whichever rows they are."""
    found: Counter[tuple[int, ...]] = Counter()
    for *_, batch in Dataset(output).rows():
        for row in batch.to_pylist():
            ends = [0, *itertools.accumulate(row["seq_lengths"])]
            found.update(tuple(row["input_ids"][start:end]) for start, end in itertools.pairwise(ends))
    return found


@pytest.mark.slow
def test_dataset_grows_in_a_bucket_next_to_another_append_and_after_a_failed_commit(build, store, folder):
    options, output = make_growing(store, folder), store.url(f"{folder}/out")
    arrive(store, folder, 0)
    command = [sys.executable, "-m", "pipeline", "build", "--append", *options]
    racers = [subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    errors = [racer.communicate()[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], "\n".join(errors)
    assert read_records(output) == 40

    arrive(store, folder, 1)
    store.proxy.refused = {r"(PUT|POST) .*versions/00000002\.json": "AccessDenied"}
    failed = build("--append", *options)
    store.proxy.reset()
    assert failed.code == 1 and "AccessDenied" in failed.err and read_records(output) == 40, failed.err
    arrive(store, folder, 2)
    resumed = build("--append", *options)
    assert resumed.code == 0 and "resuming: 1 of 1 tasks" in resumed.err, resumed.err
    assert read_records(output) == 120
    assert not [name for name in store.names(f"{folder}/out/_chatmill") if "/building/" in name]


@pytest.mark.slow
def test_failed_requests_do_not_change_a_dataset_that_grows_is_built_again_and_expires(build, store, folder, hurried):
    options, output = [*make_growing(store, folder), "--direct_num_workers=1"], store.url(f"{folder}/out")
    for day in range(2):
        arrive(store, folder, day)
        store.proxy.faults = seeded(FAULTS, 0.05, seed=day)
        ended = build("--append", *options)
        store.proxy.reset()
        assert ended.code == 0, ended.err
        assert read_records(output) == 40 * (day + 1)
    before = read_examples(output)

    store.proxy.faults = seeded(FAULTS, 0.05, seed=2)
    ended = build("--overwrite", *options)
    store.proxy.reset()
    assert ended.code == 0, ended.err

    assert [len(shards(output, version)) for version in (1, 2, 3)] == [1, 2, 1]
    assert read_records(output) == 80 and read_examples(output) == before
    assert chatmill("expire", output, "--older_than=0s") == 0
    for version in (1, 2):
        with pytest.raises(UserError, match=f"there is no version {version}; it has version 3"):
            shards(output, version)
    assert len(store.digests_of_shards(f"{folder}/out")) == 1
    assert read_records(output) == 80 and read_examples(output) == before
