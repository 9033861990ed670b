"""Push a version of a dataset to a repository of the Hugging Face Hub, so that no reader there ever sees a part of it.

`upload_folder` commits the files first: no card names them yet. One commit follows, which has the card and the other
texts, and deletes what no longer belongs there. It succeeds only if nobody else has committed meanwhile. A push that
was killed is run again, and sends what is not there. The token is that of HF_TOKEN or of `hf auth login`: only the
client of the Hub reads and sends it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import yaml
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, RepoCard, constants, get_token
from huggingface_hub.hf_api import RepoFile
from rich.filesize import decimal

from transforms.base.errors import InputError, ParameterError, Unavailable, UserError, before_the_work
from transforms.base.phrases import counted
from transforms.dataset.derived import NAMED_VERSIONS, encode_manifest
from transforms.dataset.layout import find_increment_id
from transforms.dataset.reader import Dataset, reading
from transforms.dataset.versions import named_versions, read_version
from transforms.outputs import ShardEntry, datasets_files
from transforms.report.card import dataset_card
from transforms.report.page import make_report
from transforms.storage.files import exists, file_system, join, open_file, read_bytes
from transforms.storage.hub import RemoteChanged, ask_hub

_CARD, _MANIFEST, _REPORT = "README.md", "manifest.json", "report.html"
# Of a first push: until its last commit, `datasets` finds no files, and not a part of them.
_UNFINISHED = {"configs": [{"config_name": "default", "data_files": "chatmill-push-is-not-finished/*"}]}
_UNFINISHED_TEXT = "A push of this dataset has not ended. `chatmill push` with the same arguments finishes it."
# What of the header of a card describes the files of the dataset.
_FILES_IN_HEADER = ("configs", "dataset_info")
# About what temporary files take, if the dataset is not on this machine.
_BYTES_AT_ONCE = 1 << 30
_ATTEMPTS = 8


@before_the_work()
def push(
    dataset: Dataset,
    name: str,
    branch: str | None,
    private: bool,
    with_rejects: bool,
    overwrite: bool,
    progress: Callable[[str], None],
) -> str:
    """Push a version of a dataset, and return what was done, in a line for people.

    The same push can be run again at any time, and then does what is left.

    Args:
        dataset: the version.
        name: of the repository, ORG/NAME. It is made if it does not exist.
        branch: to push to; None for main.
        private: whether a new repository is private. An existing one must be, then.
        with_rejects: whether to push its exceptions, too.
        overwrite: whether to replace what is there, whatever it is.
        progress: called with a line for people.

    Raises:
        UserError: if no token may write there, or the repository has something else, or something newer.
        InputError: if a file is missing or damaged.
        Unavailable: if the store of the files or the Hub fails, or others commit to the repository all the time.
    """
    files = [*dataset.manifest["shards"], *(dataset.manifest["exceptions"] if with_rejects else ())]
    texts = _texts(dataset, name)
    wanted = {*texts, *(file["path"] for file in files)}
    repository = _Repository(name, branch or "main", f"Push version {dataset.version}")
    repository.open(private)
    sent: set[str] = set()
    for _ in range(_ATTEMPTS):
        repository.look()
        if not overwrite and (problem := _problem(repository, dataset)):
            raise UserError(f"{repository.url}: {problem} --overwrite replaces what is there.")
        missing = [file for file in files if not _is_there(file, repository.files.get(file["path"]))]
        for path in (file["path"] for file in missing if file["path"] in sent & repository.files.keys()):
            problem = "the file is damaged (its sha256 is not that of the dataset)"
            raise InputError(f"{join(dataset.url, path)}: {problem}. Copy it again, or build the dataset again.")
        texts[_CARD] = _with_header(texts[_CARD], repository.header)
        new = {path: text for path, text in texts.items() if repository.read(path) != text}
        deleted = [
            path for path in repository.files if path not in wanted and (find_increment_id(path) or path == _REPORT)
        ]
        with suppress(RemoteChanged):
            if missing:
                size = decimal(sum(file["bytes"] for file in missing))
                progress(f"uploading {counted(len(missing), 'file')}, {size}")
                repository.upload(dataset.url, missing)
                sent |= {file["path"] for file in missing}
                continue
            if new or deleted:
                repository.commit(new, deleted)
            sent |= new.keys()
            there = f"{repository.url} has version {dataset.version}"
            if not (sent or deleted):
                return f"{there} already."
            counts = f"{len(wanted - sent):,} there already, {len(deleted):,} deleted"
            return f"{there}: {counted(len(sent), 'file')} sent, {counts}."
    raise Unavailable(f"{repository.url}: others commit to it all the time. Run the same command again.")


def _texts(dataset: Dataset, name: str) -> dict[str, bytes]:
    """What is derived from a version: its manifest; its report, if the dataset has one; a card whose code loads it."""
    manifest, folder, version = dataset.manifest, dataset.folder, dataset.stored_version
    texts = {_MANIFEST: encode_manifest(manifest)}
    if exists(folder.report):
        with reading(folder.report):
            texts[_REPORT] = make_report(folder, manifest) if version else read_bytes(folder.report)
    shards = _identity(manifest["shards"])
    named = named_versions(folder, version, NAMED_VERSIONS) if version and version.number > 1 else ()
    # The card names the versions of which all shards are pushed, since this version has them, too.
    loadable = ((number, entries) for number, entries in named if _identity(entries) <= shards)
    where = {"folder": name} if shards and datasets_files(manifest["shards"]) else {}
    return texts | {_CARD: dataset_card(manifest, loadable, **where).encode()}


def _identity(shards: Sequence[ShardEntry]) -> set[tuple[str, str]]:
    """What makes a version the one that it is."""
    return {(shard["path"], shard["sha256"]) for shard in shards}


def _problem(repository: _Repository, dataset: Dataset) -> str | None:
    """Why what a repository has must not be replaced; None if it is nothing, or what an earlier push left there."""
    is_unfinished, manifest = repository.text == _UNFINISHED_TEXT, repository.read(_MANIFEST)
    if manifest is None or not _is_earlier(manifest, dataset):
        left = {".gitattributes", _CARD, *(filter(find_increment_id, repository.files) if is_unfinished else ())}
        if others := sorted(repository.files.keys() - left):
            problem = f"it has files that are not those of an earlier version of this dataset, such as {others[0]}"
            return f"{problem}. Push to a new or an empty repository, or to another branch."
    if is_unfinished or not repository.text or (manifest and repository.text == repository.pushed_text()):
        return None
    return (
        f"the text of its {_CARD} was written or edited there, and a push replaces it. Save it elsewhere. What the "
        "header of it has in addition, such as a license, is kept."
    )


def _is_earlier(manifest: bytes, dataset: Dataset) -> bool:
    """Whether a manifest is that of a version whose shards a dataset has, or of an earlier one that it knows."""
    with suppress(ValueError, LookupError, TypeError, RecursionError, UserError):  # no manifest, or it has expired
        content = json.loads(manifest)
        theirs, version = _identity(content["shards"]), content["version"]
        return theirs <= _identity(dataset.manifest["shards"]) or (
            version < dataset.version and theirs == _identity(read_version(dataset.folder, version).shards())
        )
    return False


def _is_there(file: ShardEntry, remote: RepoFile | None) -> bool:
    """Whether a repository has a file. Of one in Git, as small ones may be, the size says it: names are given once."""
    if remote is None or remote.size != file["bytes"]:
        return False
    return not remote.lfs or remote.lfs.sha256 == file["sha256"]


def _split_card(card: bytes) -> tuple[Mapping[str, Any], str]:
    """The header of a card, and the text after it. What is not a header of YAML belongs to the text."""
    text = card.decode("utf-8", "replace")
    with suppress(yaml.YAMLError, ValueError, TypeError):
        parsed = RepoCard(text)
        return parsed.data.to_dict(), parsed.text.strip()
    return {}, text.strip()


def _with_header(card: bytes, other: Mapping[str, Any]) -> bytes:
    """A card, with what another header has in addition."""
    header, text = _split_card(card)
    added = {name: value for name, value in other.items() if name not in (*header, *_FILES_IN_HEADER)}
    return _card({**header, **added}, text) if added else card


def _card(header: Mapping[str, Any], text: str) -> bytes:
    return f"---\n{yaml.safe_dump({**header}, sort_keys=False, allow_unicode=True)}---\n\n{text}\n".encode()


class _Repository:
    """A branch of a dataset repository: its files when it was looked at, by path; the header and text of its card."""

    def __init__(self, name: str, branch: str, title: str):
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UserError(f"{name}: it is not the name of a repository of the Hub. Give ORG/NAME.")
        self._name, self._branch, self._title = name, branch, title
        self.url = f"{constants.ENDPOINT}/datasets/{name}"

    def open(self, private: bool) -> None:
        """Make the repository and the branch, if they do not exist."""
        if get_token() is None:
            where = f"{constants.ENDPOINT}/settings/tokens, and set HF_TOKEN to it, or run `hf auth login`"
            raise UserError(f"{self.url}: there is no token of the Hub. Make one that may write, at {where}.")
        if not self._call("repo_exists"):
            self._call("create_repo", private=private or None, exist_ok=True)
        elif private and not self._call("repo_info").private:
            problem = f"{self.url} is public. Make it private in its settings, or leave this out."
            raise ParameterError("private", True, problem)
        if not self._call("revision_exists", revision=self._branch):
            self._call("create_branch", branch=self._branch, exist_ok=True)

    def look(self) -> None:
        """See what the branch has."""
        self._commit = str(self._call("repo_info", revision=self._branch).sha)
        listed = self._call("list_repo_tree", recursive=True, revision=self._commit)
        self.files: dict[str, RepoFile] = {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}
        self.header, self.text = _split_card(self.read(_CARD) or b"")

    def read(self, path: str, commit: str = "") -> bytes | None:
        """Return the content of a file, None if there is none. commit: that it is to be of, if it is another one."""
        with suppress(FileNotFoundError):  # there was none at the other commit
            if path in self.files:
                return Path(self._call("hf_hub_download", filename=path, revision=commit or self._commit)).read_bytes()
        return None

    def pushed_text(self) -> str:
        """The text of the card as the push wrote it that wrote the manifest: the two are in one commit."""
        (manifest,) = self._call("get_paths_info", paths=[_MANIFEST], expand=True, revision=self._commit)
        return _split_card(self.read(_CARD, manifest.last_commit.oid) or b"")[1]

    def upload(self, folder: str, files: Sequence[ShardEntry]) -> None:
        """Commit files that no card names: links to those of a disk, and copies of others, some at once."""
        if _MANIFEST not in self.files and self.text != _UNFINISHED_TEXT:
            self.commit({_CARD: _with_header(_card(_UNFINISHED, _UNFINISHED_TEXT), self.header)})
        is_local = isinstance(file_system(folder)[0], LocalFileSystem)
        ends = accumulate(0 if is_local else file["bytes"] for file in files)
        for _, group in groupby(zip(files, ends, strict=True), lambda each: each[1] // _BYTES_AT_ONCE):
            with tempfile.TemporaryDirectory() as temporary:
                for file, _ in group:
                    _place(join(folder, file["path"]), file["bytes"], Path(temporary, file["path"]), is_local)
                self._add("upload_folder", f"{self._title}: files", folder_path=temporary)

    def commit(self, texts: Mapping[str, bytes], deleted: Sequence[str] = ()) -> None:
        """Commit texts and deletions. Raises RemoteChanged if others came first."""
        added = [CommitOperationAdd(path, text) for path, text in texts.items()]
        self._add("create_commit", self._title, operations=[*added, *map(CommitOperationDelete, deleted)])

    def _add(self, function: str, message: str, **given: Any) -> None:
        """Add a commit to those that were looked at."""
        given |= {"commit_message": message, "revision": self._branch, "parent_commit": self._commit}
        self._commit = self._call(function, **given).oid

    def _call(self, function: str, **given: Any) -> Any:
        def request(api: Any) -> Any:
            answer = getattr(api, function)(repo_id=self._name, repo_type="dataset", **given)
            return [*answer] if isinstance(answer, Iterator) else answer

        return ask_hub(request, self.url, "pushed to")


def _place(url: str, size: int, path: Path, is_local: bool) -> None:
    """Put a file in a temporary folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with reading(url):
        if is_local:
            path.symlink_to(file_system(url)[1])
        else:
            with open_file(url) as content, path.open("wb") as copy:
                shutil.copyfileobj(content, copy)
        if (here := path.stat().st_size) != size:
            raise ValueError(f"it has {here:,} bytes, and the dataset says {size:,}")
