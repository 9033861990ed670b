"""What a push uploads, replaces, deletes and refuses, for what a repository has; and the header of its card."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from support.hub_repos import Blob
from transforms.pushing.card_header import split_card, with_header_of
from transforms.pushing.contents import Contents, DataFile, shards_of
from transforms.pushing.planning import UNFINISHED, Held, NotReplaceable, Stored, check_replaceable, plan

A, B, C = (f"data/train-{id * 16}-000000-000.parquet" for id in "abc")
CARD = "---\nconfigs:\n- config_name: default\n---\n\n# Token shards\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def manifest(version: int, *paths: str, **changed: str) -> bytes:
    """A manifest of shards, each of which has its path as its content, unless it has another one."""
    shards = [{"path": path, "sha256": sha256(changed.get("content", path))} for path in paths]
    return json.dumps({"rows": 7, "snapshot": {"version": version}, "shards": shards}).encode()


def contents(version: int, *paths: str, folder: Path = Path("absent")) -> Contents:
    data = tuple(DataFile(path, str(folder / path), sha256(path), len(path)) for path in paths)
    derived = {"manifest.json": manifest(version, *paths), "_SUCCESS": b"", "report.html": b"<html>"}
    return Contents(data, derived, CARD, frozenset((path, sha256(path)) for path in paths))


def held(*shards: str, manifest: bytes | None = None, card: str = "", pushed: str = "", **others: str) -> Held:
    """A repository with shards, each of which has its path as its content, and other files."""
    texts = {"README.md": card, "manifest.json": (manifest or b"").decode(), **others}
    files = {path: Blob(text.encode(), False) for path, text in texts.items() if text}
    files |= {path: Blob(path.encode(), True) for path in shards}
    stored = {p: Stored(len(b.content), b.sha256 if b.is_lfs else None, b.oid) for p, b in files.items()}
    return Held("0" * 40, stored, manifest, card, pushed)


def check(repository: Held, pushed: Contents, version: int, earlier: dict[int, Contents] | None = None) -> None:
    check_replaceable(
        repository, pushed, version, lambda wanted: earlier[wanted].shards if wanted in (earlier or {}) else None
    )


def test_empty_repository_gets_all_files():
    found = plan(contents(1, A, B), CARD, held())
    assert [file.path for file in found.data] == [A, B]
    assert list(found.derived) == ["README.md", "manifest.json", "_SUCCESS", "report.html"]
    assert (found.deleted, found.there) == ([], 0)


def test_what_is_there_is_not_sent_again():
    pushed = contents(1, A, B)
    texts = {path: content.decode() for path, content in pushed.derived.items() if path != "manifest.json"}
    repository = held(A, B, manifest=manifest(1, A, B), card=CARD, **texts)
    empty = Blob(b"", False)
    repository = replace(repository, files={**repository.files, "_SUCCESS": Stored(0, None, empty.oid)})
    found = plan(pushed, CARD, repository)
    assert (found.data, dict(found.derived), found.deleted, found.there) == ([], {}, [], 6)


def test_append_sends_the_new_shard_and_what_is_derived():
    found = plan(contents(2, A, B), CARD, held(A, manifest=manifest(1, A), card="another"))
    assert [file.path for file in found.data] == [B]
    assert {"README.md", "manifest.json"} <= found.derived.keys()


def test_file_with_another_content_is_sent_again():
    damaged = replace(held(A), files={A: Stored(len(A), sha256("damaged"), "")})
    shorter = replace(held(A), files={A: Stored(1, sha256(A), "")})
    assert [[file.path for file in plan(contents(1, A), CARD, each).data] for each in (damaged, shorter)] == [[A], [A]]


def test_file_outside_of_large_file_storage_is_compared_by_its_git_id(tmp_path):
    (tmp_path / A).parent.mkdir(parents=True)
    (tmp_path / A).write_text(A)
    of_git = Stored(len(A), None, Blob(A.encode(), False).oid)
    other = Stored(len(A), None, Blob(b"other", False).oid)
    found = [plan(contents(1, A, folder=tmp_path), CARD, Held("", {A: each})).data for each in (of_git, other)]
    assert [[file.path for file in data] for data in found] == [[], [A]]


def test_files_that_the_version_no_longer_has_are_deleted_and_those_of_others_stay():
    rejects = f"rejects/rejects-{'a' * 16}-000000-000.parquet"
    repository = held(A, rejects, "eval/a.parquet", "data/mine.parquet", LICENSE="mine")
    assert plan(contents(2, B), CARD, repository).deleted == [A, rejects]


@pytest.mark.parametrize(
    "repository",
    [
        held(),
        held(**{".gitattributes": "*.parquet filter=lfs"}),
        held(card="---\nlicense: mit\n---\n"),
        held(A, manifest=manifest(1, A), card=CARD, pushed=CARD),
        held(A, manifest=manifest(1, A), card="---\nlicense: mit\n---\n\n# Token shards\n", pushed=CARD),
        held(A, B, manifest=manifest(3, A, B), card=CARD, pushed=CARD, LICENSE="mine"),
        held(C, card=UNFINISHED),
        held(C, card=with_header_of(UNFINISHED, "---\nlicense: mit\n---\n")),
        held(A),
    ],
    ids=["new", "attributes", "license", "append", "header", "same", "unfinished", "unfinished-header", "no-card"],
)
def test_nothing_an_unfinished_push_and_an_earlier_version_are_replaced(repository):
    check(repository, contents(3, A, B), 3)


def test_version_that_was_overwritten_is_replaced_if_the_log_has_it():
    repository = held(A, B, manifest=manifest(2, A, B), card=CARD, pushed=CARD)
    check(repository, contents(3, C), 3, {2: contents(2, A, B)})
    for earlier in (None, {2: contents(2, A)}):
        with pytest.raises(NotReplaceable, match=r"it has another dataset, or a version that .* \(version 2, 7 rows\)"):
            check(repository, contents(3, C), 3, earlier)


def test_newer_version_is_not_replaced():
    repository = held(A, B, manifest=manifest(2, A, B), card=CARD, pushed=CARD)
    with pytest.raises(NotReplaceable, match="it has version 2 of this dataset, which is newer than version 1"):
        check(repository, contents(1, A), 1, {2: contents(2, A, B)})


@pytest.mark.parametrize(
    ("repository", "message"),
    [
        (held(**{"train.csv": "a"}), "such as train.csv"),
        (held(**{"manifest.json": '{"rows": 1}'}), "such as manifest.json"),
        (held(C), "such as data/train-cccc"),
        (held(manifest=manifest(1, A, content="other"), card=CARD, pushed=CARD), "it has another dataset"),
        (held(card="# Mine\n"), "the text of its README.md"),
        (held(A, manifest=manifest(1, A), card=CARD + "mine", pushed=CARD), "the text of its README.md"),
    ],
    ids=["csv", "other-manifest", "other-shard", "same-name", "card", "edited"],
)
def test_what_somebody_else_has_put_there_is_not_replaced(repository, message):
    with pytest.raises(NotReplaceable, match=message):
        check(repository, contents(1, A), 1)


def test_header_keeps_what_was_added_on_the_hub():
    theirs = "---\nlicense: mit\nconfigs:\n- config_name: old\ndataset_info: {}\ntags: [é, chat]\n---\nold text"
    card = with_header_of(CARD, theirs)
    header, text = split_card(card)
    assert header == {"configs": [{"config_name": "default"}], "license": "mit", "tags": ["é", "chat"]}
    assert text == split_card(CARD)[1]
    assert with_header_of(CARD, card) == card
    assert yaml.safe_load(card.split("---")[1]) == header


@pytest.mark.parametrize("theirs", ["", "no header", "---\n: [\n---\n", "---\n- a\n---\n", "---\nlicense: mit", CARD])
def test_card_without_a_header_of_its_own_adds_nothing(theirs):
    assert with_header_of(CARD, theirs) == CARD


def test_shards_of_a_manifest_are_their_paths_and_hashes():
    assert shards_of(json.loads(manifest(1, A))["shards"]) == {(A, sha256(A))}
