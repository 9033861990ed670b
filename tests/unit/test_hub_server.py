"""The tests' Hub, against the real client: what `huggingface_hub` lists, downloads, is refused and commits."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, HfFileSystem, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import _http

from support.hub import Hub, each
from support.hub_repos import Blob

SHARD = bytes(range(256)) * 40
FILES = {"README.md": b"---\nlicense: mit\n---\nA card.\n", "data/train-0.parquet": SHARD, "data/a/b.jsonl": b"{}\n"}


@pytest.fixture
def hub():
    with Hub() as hub:
        yield hub


@pytest.fixture
def client(hub, tmp_path):
    """The client without a token; `client(token)` is one with it."""
    with hub.in_process(tmp_path):
        yield lambda token=None: HfApi(token=token or False)


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """How long the client would have waited before each retry."""
    found: list[float] = []
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=found.append))
    return found


def test_blob_has_the_id_that_git_gives_it():
    assert Blob(b"hello\n", False).oid == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_information_and_tree_name_commit_sizes_and_hashes(hub, client):
    repo = hub.add("org/name", FILES)
    info = client().dataset_info("org/name", files_metadata=True)
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings}
    assert info.sha == repo.resolve("main").sha
    assert sizes == {path: len(content) for path, content in repo.files().items()}
    assert info.card_data.license == "mit"
    tree = list(client().list_repo_tree("org/name", recursive=True, repo_type="dataset"))
    assert [entry.path for entry in tree] == [
        ".gitattributes", "README.md", "data", "data/a", "data/a/b.jsonl", "data/train-0.parquet",
    ]  # fmt: skip
    assert (tree[-1].lfs.sha256, tree[-1].blob_id) == (Blob(SHARD, True).sha256, Blob(SHARD, True).oid)
    one_level = client().list_repo_tree("org/name", "data", repo_type="dataset")
    assert [entry.path for entry in one_level] == ["data/a", "data/train-0.parquet"]


def test_tree_is_listed_in_pages_by_the_links_of_its_answers(hub, client):
    hub.add("org/name", {f"f{number:04}.txt": b"." for number in range(2500)})
    paths = [entry.path for entry in client().list_repo_tree("org/name", repo_type="dataset")]
    assert (len(paths), len(set(paths)), hub.calls["api"]) == (2501, 2501, 3)


def test_expanded_tree_names_the_commit_that_changed_a_file(hub, client):
    repo = hub.add("org/name", FILES)
    repo.commit({"README.md": b"new"}, title="the card")
    paths = ["README.md", "data", "absent", "data/a/b.jsonl"]
    [card, folder, data] = client().get_paths_info("org/name", paths, expand=True, repo_type="dataset")
    assert (card.last_commit.title, folder.path, data.last_commit.title) == ("the card", "data", "a push")


def test_revisions_are_branches_tags_commits_and_the_converted_ref(hub, client):
    repo = hub.add("org/name", FILES)
    first = repo.resolve("main").sha
    repo.refs["refs/tags/v1"] = first
    repo.commit({"README.md": b"new"})
    repo.commit({"default/train/0000.parquet": SHARD}, revision="refs/convert/parquet")
    revisions = ("main", "v1", first, "refs/convert/parquet")
    found = {name: client().dataset_info("org/name", revision=name).sha for name in revisions}
    assert found["v1"] == found[first] == first != found["main"] != found["refs/convert/parquet"]
    refs = client().list_repo_refs("org/name", repo_type="dataset")
    assert [ref.ref for ref in (*refs.branches, *refs.tags, *refs.converts)] == [
        "refs/heads/main", "refs/tags/v1", "refs/convert/parquet",
    ]  # fmt: skip
    with pytest.raises(RevisionNotFoundError):
        client().dataset_info("org/name", revision="absent")


@pytest.mark.parametrize("path", ["data/train-0.parquet", "README.md"], ids=["lfs", "regular"])
def test_file_is_downloaded_and_read_by_ranges(hub, client, tmp_path, path):
    hub.add("org/name", FILES)
    assert Path(hf_hub_download("org/name", path, repo_type="dataset")).read_bytes() == FILES[path]
    files = HfFileSystem()
    with files.open(f"datasets/org/name/{path}", block_size=8) as file:
        file.seek(5)
        assert file.read(9) == FILES[path][5:14]
    assert files.cat_file(f"datasets/org/name@main/{path}", start=-4) == FILES[path][-4:]
    assert (hub.cdn_bytes > len(SHARD)) == path.endswith("parquet")


def test_token_is_not_sent_to_a_signed_url(hub, client):
    hub.add("org/name", FILES, is_private=True)
    token = hub.token_of("someone", "org")
    hf_hub_download("org/name", "data/train-0.parquet", repo_type="dataset", token=token)
    assert hub.calls["cdn"] == 1
    assert not hub.authorizations


def test_missing_private_and_gated_repositories_are_refused(hub, client):
    hub.add("org/private", FILES, is_private=True)
    hub.add("org/gated", FILES, gated="auto", granted={"guest"})
    member, guest, other = hub.token_of("someone", "org"), hub.token_of("guest"), hub.token_of("other")
    for token in (None, other):
        for name in ("org/private", "org/missing"):
            with pytest.raises(RepositoryNotFoundError):
                client(token).dataset_info(name)
        with pytest.raises(GatedRepoError):
            client(token).hf_hub_download("org/gated", "README.md", repo_type="dataset")
    assert client(member).dataset_info("org/private").private
    assert client(guest).dataset_info("org/gated").gated == "auto"
    client(guest).hf_hub_download("org/gated", "README.md", repo_type="dataset")
    with pytest.raises(EntryNotFoundError):
        client(guest).hf_hub_download("org/gated", "absent", repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        client("hf_wrong").dataset_info("org/private")


def test_commit_adds_replaces_and_deletes_and_sends_nothing_twice(hub, client):
    api = client(hub.token_of("someone", "org"))
    assert api.whoami()["orgs"][0]["name"] == "org"
    for _ in range(2):
        api.create_repo("org/new", repo_type="dataset", private=True, exist_ok=True)
    repo = hub.repos["org/new"]
    assert repo.is_private
    added = [CommitOperationAdd(path, content) for path, content in FILES.items()]
    commit = api.create_commit("org/new", added, commit_message="first", repo_type="dataset")
    assert {path: content for path, content in repo.files().items() if path != ".gitattributes"} == FILES
    assert (commit.oid, hub.upload_bytes) == (repo.resolve("main").sha, len(SHARD))
    again = [CommitOperationAdd("data/copy.parquet", SHARD), CommitOperationDelete("data/a/", is_folder=True)]
    api.create_commit("org/new", again, commit_message="second", repo_type="dataset", parent_commit=commit.oid)
    assert hub.upload_bytes == len(SHARD)
    assert sorted(repo.files()) == [".gitattributes", "README.md", "data/copy.parquet", "data/train-0.parquet"]
    with pytest.raises(HfHubHTTPError, match="A commit has happened since"):
        late = [CommitOperationAdd("late.txt", b"late")]
        api.create_commit("org/new", late, commit_message="late", repo_type="dataset", parent_commit=commit.oid)
    assert "late.txt" not in repo.files()


def test_commit_is_refused_without_the_right_to_write(hub, client):
    hub.add("org/name", FILES)
    added = [CommitOperationAdd("a.txt", b"a")]
    refused = {"hf_wrong": 401, hub.token_of("other"): 403, hub.token_of("someone", "org", role="read"): 403}
    for token, status in refused.items():
        with pytest.raises(HfHubHTTPError) as error:
            client(token).create_commit("org/name", added, commit_message="no", repo_type="dataset")
        assert error.value.response.status_code == status
        with pytest.raises(HfHubHTTPError):
            client(token).create_repo("org/other", repo_type="dataset", exist_ok=True)
    assert sorted(hub.repos) == ["org/name"]


def test_client_waits_as_long_as_the_rate_limit_says(hub, client, waits):
    hub.add("org/name", {f"f{number:03}.txt": b"." for number in range(40)})
    hub.page = 10
    hub.limit_headers = {"RateLimit": '"api";r=0;t=5'}
    hub.faults = each(4, "429")
    assert len(list(client().list_repo_tree("org/name", repo_type="dataset"))) == 41
    assert hub.injected == {"429": 1}
    assert waits == [6.0]


def test_read_survives_an_error_a_reset_and_a_truncated_body(hub, client, waits):
    hub.add("org/name", FILES)
    files = HfFileSystem()
    files.info("datasets/org/name/data/train-0.parquet")
    hub.faulty = ("resolve", "cdn")
    hub.faults = iter(["503", "reset", None, "truncated"])
    assert files.cat_file("datasets/org/name/data/train-0.parquet", start=0, end=99) == SHARD[:99]
    assert hub.injected == {"503": 1, "reset": 1, "truncated": 1}
    assert waits == [1, 2, 4]


def test_lost_answer_of_a_commit_leaves_the_commit(hub, client):
    repo = hub.add("org/name")
    api = client(hub.token_of("org"))
    hub.on_request = lambda _, request: setattr(hub, "faults", iter(["lost"] if "/commit/" in request else []))
    with pytest.raises(httpx2.RemoteProtocolError):
        api.create_commit("org/name", [CommitOperationAdd("a.txt", b"a")], commit_message="a", repo_type="dataset")
    assert repo.files()["a.txt"] == b"a"


@pytest.mark.parametrize("how", ["by its time", "by a fault"])
def test_signed_url_expires(hub, client, how):
    hub.add("org/name", FILES)
    if how == "by its time":
        hub.link_seconds = -1
    hub.faulty, hub.faults = ("cdn",), iter(["expired"] if how == "by a fault" else [])
    with pytest.raises(HfHubHTTPError, match="403"):
        hf_hub_download("org/name", "data/train-0.parquet", repo_type="dataset")


def test_push_in_mid_run_changes_what_main_is_but_no_commit(hub, client):
    repo = hub.add("org/name", FILES)
    pinned = repo.resolve("main").sha
    hub.on_request = lambda number, _: repo.commit({"README.md": b"new"}) if number == 1 else None
    contents = [
        Path(client().hf_hub_download("org/name", "README.md", repo_type="dataset", revision=revision)).read_bytes()
        for revision in ("main", pinned)
    ]
    assert contents == [b"new", FILES["README.md"]]


def test_environment_is_that_of_another_process(hub, tmp_path):
    variables = hub.environment(tmp_path, "hf_x")
    assert variables["HF_ENDPOINT"] == hub.endpoint
    assert variables["HF_TOKEN"] == "hf_x" != os.environ.get("HF_TOKEN")
