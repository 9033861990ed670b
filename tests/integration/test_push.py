"""chatmill push: a dataset is uploaded to the Hub, and `datasets` loads it from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pytest
import yaml

from support.command_line import chatmill
from support.datasets import read_manifest, read_rows, write_jsonl
from support.faulty_proxy import each
from support.hub import Blob, Hub
from support.paths import ROOT, TOKENIZER
from transforms import Dataset

OPTIONS = [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]
SEVERAL = ["--split_bytes=2000", "--validation_fraction=0.2"]
DERIVED = ["README.md", "manifest.json", "report.html"]
NOT_EARLIER = "it has files that are not those of an earlier version of this dataset"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A dataset of several shards, and the same one after an append."""
    folder = tmp_path_factory.mktemp("built")
    texts = [f"text {number}, which is {'long ' * 20}" for number in range(120)]
    write_jsonl(folder / "a.jsonl", [*({"text": text} for text in texts), {"text": 1}])
    write_jsonl(folder / "b.jsonl", [{"text": f"new text {number}"} for number in range(30)])
    build = ["build", *OPTIONS, *SEVERAL, f"--input={folder}/a.jsonl"]
    assert chatmill(*build, f"--output={folder}/one") == 0
    shutil.copytree(folder / "one", folder / "two")
    assert chatmill(*build, f"--input={folder}/b.jsonl", "--append", f"--output={folder}/two") == 0
    return [folder / "one", folder / "two"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long retries would have waited. The clock goes on by these seconds."""
    found: list[float] = []
    now = time.time
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(time, "time", lambda: now() + sum(found))
    return found


@pytest.fixture
def push(hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Push to me/mine in this process: the exit code, and what was printed."""
    token = hub.token_of("me")

    def run(output: object, *options: str, token: str | None = token, name: str = "me/mine") -> tuple[int, str]:
        capfd.readouterr()
        with hub.in_process(tmp_path / "home", token):
            code = chatmill("push", output, name, *options)
        printed = "".join(capfd.readouterr())
        assert not token or token not in printed
        assert hub.authorizations == []
        return code, printed

    return run


@pytest.fixture
def loaded(hub: Hub, tmp_path: Path) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Load me/mine with `datasets`: the rows of each split."""
    token = hub.token_of("me")

    def load(*name: str, **options: str) -> dict[str, list[dict[str, Any]]]:
        with hub.in_process(tmp_path / "reader", token):
            found = datasets.load_dataset("me/mine", *name, cache_dir=str(tmp_path / "cache"), **options)
            return {split: found[split].to_list() for split in found}

    return load


def shards_in(output: Path) -> list[str]:
    return [shard["path"] for shard in read_manifest(output)["shards"]]


def data_in(hub: Hub, name: str = "me/mine") -> list[str]:
    return sorted({*hub.repos[name].files()} - {*DERIVED, ".gitattributes"})


def assert_has(hub: Hub, output: Path) -> None:
    """Assert that the repository has a dataset, byte for byte but for the card, and nothing else."""
    files = hub.repos["me/mine"].files()
    derived = [name for name in DERIVED if (output / name).exists()]
    assert sorted(files) == sorted([".gitattributes", *derived, *shards_in(output)])
    for path in {*files} - {".gitattributes", "README.md"}:
        assert files[path] == (output / path).read_bytes(), path


def test_pushed_dataset_is_loaded_by_its_name(versions, hub, push, loaded, tmp_path):
    code, printed = push(versions[0], "--private")
    shards = shards_in(versions[0])
    assert (code, len(shards) > 2) == (0, True)
    sent = f"has version 1: {len(shards) + 3} files sent, 0 there already, 0 deleted."
    assert printed == f"{hub.endpoint}/datasets/me/mine {sent}\n"
    assert_has(hub, versions[0])
    assert hub.repos["me/mine"].is_private
    assert b'datasets.load_dataset("me/mine")' in hub.repos["me/mine"].files()["README.md"]
    assert loaded() == {split: read_rows(versions[0], split) for split in ("train", "validation")}
    with hub.in_process(tmp_path / "verified", hub.token_of("me")):
        assert chatmill("verify", "hf://datasets/me/mine") == 0
    assert push(versions[0], "--private") == (0, f"{hub.endpoint}/datasets/me/mine has version 1 already.\n")


def test_append_sends_its_own_shards_alone_and_the_earlier_version_has_its_name(versions, hub, push, loaded):
    push(versions[0])
    hub.reset()
    code, printed = push(versions[1])
    new = {*shards_in(versions[1])} - {*shards_in(versions[0])}
    assert code == 0
    there = len(shards_in(versions[0]))
    assert f"{len(new) + 3} files sent, {there} there already, 0 deleted" in printed
    assert hub.upload_bytes == sum((versions[1] / path).stat().st_size for path in new)
    assert_has(hub, versions[1])
    assert loaded()["train"] == read_rows(versions[1])
    assert loaded("v1")["train"] == read_rows(versions[0])


def test_only_what_is_not_there_or_is_damaged_is_sent_again_and_files_of_others_stay(versions, hub, push):
    push(versions[0])
    repo, (first, second, third, *_) = hub.repos["me/mine"], shards_in(versions[0])
    in_git = Blob((versions[0] / second).read_bytes(), is_lfs=False)
    damaged = (versions[0] / first).read_bytes()[:-9] + bytes(9)
    repo.commit({first: damaged, second: in_git, "LICENSE": b"mine", "eval/a.parquet": b"mine"}, deleted=[third])
    code, printed = push(versions[0])
    assert (code, "2 files sent" in printed and "0 deleted" in printed) == (0, True)
    files = repo.files()
    assert (files.pop("LICENSE"), files.pop("eval/a.parquet")) == (b"mine", b"mine")
    repo.commit({}, deleted=["LICENSE", "eval/a.parquet"])
    assert_has(hub, versions[0])


def test_version_is_pinned_while_another_one_is_committed(versions, hub, push, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(versions[0], output)

    def append(_: int, request: str) -> None:
        if "/preupload/main" in request:
            shutil.copytree(versions[1], output, dirs_exist_ok=True)

    hub.on_request = append
    code, _ = push(output)
    assert (code, Dataset(str(output)).version) == (0, 2)
    assert_has(hub, versions[0])


def test_old_version_is_pushed_to_a_branch_and_not_over_a_newer_one(versions, hub, push, loaded):
    push(versions[1])
    code, printed = push(f"{versions[1]}@1")
    assert code == 2
    assert f"{NOT_EARLIER}, such as data/train-" in printed
    assert printed.endswith(" --overwrite replaces what is there.\n")
    assert push(f"{versions[1]}@1", "--revision=first", "--overwrite")[0] == 0
    assert loaded(revision="first")["train"] == read_rows(versions[0])
    assert hub.repos["me/mine"].files("first")["report.html"] == (versions[0] / "report.html").read_bytes()
    assert_has(hub, versions[1])


def test_version_of_an_overwrite_replaces_the_others_and_its_card_names_no_version_whose_files_are_gone(
    versions, hub, push, loaded, tmp_path
):
    push(versions[1])
    output, copy = tmp_path / "out", tmp_path / "copy"
    shutil.copytree(versions[1], output)
    inputs = f"--input={versions[1].parent}/a.jsonl,{versions[1].parent}/b.jsonl"
    assert chatmill("build", "--overwrite", *OPTIONS, *SEVERAL, inputs, f"--output={output}") == 0
    shutil.copytree(output, copy, ignore=shutil.ignore_patterns("_chatmill"))  # which does not know the others
    code, printed = push(copy)
    assert (code, NOT_EARLIER in printed) == (2, True)
    code, printed = push(output)
    assert (code, f"{len(shards_in(versions[1]))} deleted" in printed) == (0, True)
    assert_has(hub, output)
    assert b"config_name: v2" in (output / "README.md").read_bytes()
    assert b"config_name: v2" not in hub.repos["me/mine"].files()["README.md"]
    assert loaded("v3") == loaded()


def test_rejects_and_exceptions_are_pushed_only_if_they_are_asked_for(versions, hub, push):
    push(versions[0])
    manifest = read_manifest(versions[0])
    asked = {file["path"] for file in manifest["exceptions"]}
    assert push(versions[0], "--with_rejects")[0] == 0
    assert {*data_in(hub)} == {*shards_in(versions[0])} | asked
    assert all(hub.repos["me/mine"].files()[path] == (versions[0] / path).read_bytes() for path in asked)
    code, printed = push(versions[0])
    assert (code, f"{len(asked)} deleted" in printed) == (0, True)
    assert_has(hub, versions[0])


def test_readers_see_the_last_commit_alone(versions, hub, push):
    assert push(versions[0], "--with_rejects")[0] == 0
    repo = hub.repos["me/mine"]
    _, files, hidden, _ = repo.history()
    assert (hidden.changed, files.changed) == ({"README.md"}, {*data_in(hub)})
    assert b"chatmill-push-is-not-finished/*" in files.files["README.md"].content
    # Readers of the first version keep it until the last commit of the next one.
    before = repo.files()
    assert push(versions[1], "--with_rejects")[0] == 0
    _, earlier, first, *_ = repo.history()
    assert {path: earlier.files[path].content for path in before} == before and len(earlier.files) > len(before)
    assert first.files["manifest.json"].content == before["manifest.json"]


@pytest.mark.slow
def test_killed_push_is_finished_by_the_same_command(versions, hub, tmp_path):
    command = [sys.executable, "-m", "pipeline", "push", str(versions[0]), "me/mine"]
    environment = os.environ | hub.environment(tmp_path / "home", hub.token_of("me"))

    def push_killed_at(part: str, number: int, fault: str | None = None) -> int:
        """Push, and kill it when it sends its n-th request with this part, which is processed unless it is reset."""
        hub.reset()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)

        def kill(_: int, request: str) -> None:
            if part in request and hub.count(part) == number:
                process.send_signal(signal.SIGKILL)
                hub.faults = iter([fault])

        hub.on_request = kill
        assert process.wait() == -signal.SIGKILL
        return hub.upload_bytes

    sent = push_killed_at("/commit/", 1)  # of the card that hides the files
    sent += push_killed_at("/upload/", 9, "reset")
    sent += push_killed_at("/commit/", 1, "reset")  # before the commit of the files
    sent += push_killed_at("/commit/", 1)  # after it, before its answer
    sent += push_killed_at("/commit/", 1, "reset")  # the last one
    hub.reset()
    assert subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0
    assert_has(hub, versions[0])
    # Only what was being sent when a process was killed is sent twice.
    sizes = [(versions[0] / path).stat().st_size for path in data_in(hub)]
    assert hub.upload_bytes == 0
    assert sum(sizes) <= sent <= sum(sizes) + 5 * max(sizes)


def test_rate_limits_and_failures_are_tried_again(versions, hub, push, waits):
    kinds = ("429", "500", "503", "reset", "lost", "truncated", "expired")
    hub.faults = each(5, *kinds)
    for output in versions:
        code, printed = push(output)
        assert code == 0, printed
        assert_has(hub, output)
    assert hub.injected.keys() == {*kinds}


def test_hub_that_does_not_answer_ends_the_push_with_one_line(versions, hub, push, waits):
    hub.faults = each(1, "503")
    code, printed = push(versions[0])
    assert code == 1
    assert printed.splitlines()[-1].startswith(
        f"chatmill: {hub.endpoint}/datasets/me/mine: it cannot be pushed to (the Hub answered 503"
    )


def commit_before(hub: Hub, number: int, files: dict[str, bytes], deleted: Sequence[str] = ()) -> None:
    """Let somebody commit before the n-th commit of a push."""

    def commit(_: int, request: str) -> None:
        if "/commit/main" in request and hub.count("/commit/main") == number:
            hub.repos["me/mine"].commit(files, deleted)

    hub.on_request = commit


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("edited", ["LICENSE", "README.md"])
def test_commit_of_somebody_else_in_between_is_not_lost(versions, hub, push, edited, number):
    push(versions[0])
    hub.reset()
    commit_before(hub, number, {edited: b"mine"})
    code, printed = push(versions[1])
    files = hub.repos["me/mine"].files()
    assert files[edited] == b"mine"
    if edited == "README.md":
        assert (code, "was written or edited there" in printed) == (2, True)
    else:
        assert (code, files["manifest.json"]) == (0, (versions[1] / "manifest.json").read_bytes())
    new = {*shards_in(versions[1])} - {*shards_in(versions[0])}
    assert hub.upload_bytes == sum((versions[1] / path).stat().st_size for path in new)


@pytest.mark.parametrize("number", [2, 3])
def test_push_that_comes_in_between_is_not_undone(versions, hub, push, number):
    comes = versions[1]
    commit_before(hub, number, {name: (comes / name).read_bytes() for name in [*DERIVED, *shards_in(comes)]})
    code, printed = push(f"{versions[1]}@1")
    assert (code, NOT_EARLIER in printed, len(printed.splitlines())) == (2, True, 1)
    assert_has(hub, comes)


def test_file_that_somebody_deletes_in_between_is_sent_again(versions, hub, push):
    commit_before(hub, 3, {}, deleted=shards_in(versions[0])[:1])
    assert push(versions[0])[0] == 0
    assert_has(hub, versions[0])


def header_of(card: bytes) -> dict[str, Any]:
    return yaml.safe_load(card.split(b"---\n")[1])


def test_header_that_was_added_on_the_hub_stays_and_an_edited_text_is_not_replaced(versions, hub, push):
    push(versions[0])
    repo = hub.repos["me/mine"]
    card = repo.files()["README.md"]
    repo.commit({"README.md": card.replace(b"---\n", "---\nlicense: mit\ntags: [é]\n".encode(), 1)})
    assert push(versions[1])[0] == 0
    pushed = repo.files()["README.md"]
    assert header_of(pushed).items() >= {"license": "mit", "tags": ["é"]}.items()
    repo.commit({"README.md": pushed + b"\nMy own words.\n"})
    code, printed = push(versions[1])
    assert (code, "the text of its README.md was written or edited there" in printed) == (2, True)
    assert push(versions[1], "--overwrite")[0] == 0
    assert repo.files()["README.md"] == pushed
    repo = hub.add("me/by-hand", {"manifest.json": (versions[0] / "manifest.json").read_bytes()})
    repo.commit({"README.md": b"My own words."})
    code, printed = push(versions[0], name="me/by-hand")
    assert (code, "the text of its README.md was written or edited there" in printed) == (2, True)


def test_header_of_a_card_that_has_nothing_else_adds_to_that_of_the_dataset(versions, hub, push):
    header = b"---\nlicense: mit\nconfigs:\n- config_name: old\ndataset_info: {}\n---\n"
    repo = hub.add("me/mine", {"README.md": header})
    assert push(versions[0])[0] == 0
    assert_has(hub, versions[0])
    pushed, own = repo.files()["README.md"], (versions[0] / "README.md").read_bytes()
    assert header_of(pushed) == header_of(own) | {"license": "mit"}


OTHER_SHARD = f"data/train-{'c' * 16}-000000-000.parquet"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("train.csv", b"a", "such as train.csv"),
        ("manifest.json", b'{"rows": 1}', "such as manifest.json"),
        ("manifest.json", b"[" * 10_000, "such as manifest.json"),
        (OTHER_SHARD, b"another", f"such as {OTHER_SHARD}"),
        ("README.md", b"# Mine\n", "the text of its README.md"),
        ("README.md", b"---\n: [\n---\n", "the text of its README.md"),
    ],
)
def test_what_somebody_else_has_put_there_is_not_replaced(versions, hub, push, path, content, says):
    repo = hub.add("me/mine", {path: content})
    before = repo.files()
    code, printed = push(versions[0])
    assert (code, says in printed, len(printed.splitlines())) == (2, True, 1)
    assert repo.files() == before


def test_token_that_is_missing_wrong_or_may_not_write_is_one_line(versions, hub, push):
    hub.add("org/mine")
    asked = {
        None: f"Make one that may write, at {hub.endpoint}/settings/tokens, and set HF_TOKEN to it",
        "hf_wrong": "the Hub does not accept your token: log in",
        hub.token_of("other"): f"; make a token that may do this at {hub.endpoint}/settings/tokens",
        hub.token_of("member", "org", may_write=False): "the Hub answered 403: ",
    }
    for token, message in asked.items():
        for name in ("org/mine", "org/new"):
            code, printed = push(versions[0], token=token, name=name)
            assert (code, message in printed, len(printed.splitlines())) == (2, True, 1), printed
    assert data_in(hub, "org/mine") == []
    assert hub.upload_bytes == 0


def test_private_dataset_is_not_pushed_to_a_public_repository(versions, hub, push):
    hub.add("me/mine")
    code, printed = push(versions[0], "--private")
    assert (code, printed.startswith("chatmill: --private true: http")) == (2, True)
    assert data_in(hub) == []


def test_what_is_not_a_dataset_and_a_damaged_shard_are_refused_before_readers_see_it(versions, hub, push, tmp_path):
    assert push(tmp_path)[0] == 2
    output = tmp_path / "out"
    shutil.copytree(versions[0], output)
    shard = output / shards_in(output)[-1]
    content = shard.read_bytes()
    for damaged, says in ((content[:-9], "damaged (it has"), (content[:-9] + bytes(9), "damaged (its sha256")):
        shard.write_bytes(damaged)
        code, printed = push(output)
        assert (code, f"{shard}: the file is {says}" in printed, len(printed.splitlines())) == (1, True, 1)
    assert b"chatmill-push-is-not-finished/*" in hub.repos["me/mine"].files()["README.md"]
    shard.unlink()
    code, printed = push(output, name="me/other")
    assert (code, f"{shard}: the file is missing" in printed, len(printed.splitlines())) == (1, True, 1)
    assert data_in(hub, "me/other") == []
    shard.write_bytes(content)
    assert push(output)[0] == 0
    assert_has(hub, versions[0])


def test_dataset_in_a_store_and_a_copy_without_its_log_are_pushed(versions, hub, push, tmp_path):
    store = fsspec.filesystem("memory")
    store.put(str(versions[0]), "/pushed", recursive=True)
    assert push("memory://pushed")[0] == 0
    assert_has(hub, versions[0])
    assert not [*tmp_path.glob("**/tmp*")]
    copy = tmp_path / "copy"
    shutil.copytree(versions[1], copy, ignore=shutil.ignore_patterns("_chatmill", "report.html"))
    code, printed = push(copy, "--with_rejects")
    assert (code, "1 deleted" in printed) == (0, True)
    manifest = read_manifest(versions[1])
    exceptions = [file["path"] for file in manifest["exceptions"]]
    assert {*data_in(hub)} == {*shards_in(versions[1]), *exceptions}
    assert "report.html" not in hub.repos["me/mine"].files()
