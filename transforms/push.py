"""Push files to a dataset repository of the Hugging Face Hub, so that no reader there ever sees a part of them.

`upload_folder` commits the files first: no card names them yet. One commit follows, which has the card and the other
texts, and deletes what no longer belongs there. It succeeds only if nobody else has committed meanwhile. A push that
was killed is run again, and sends what is not there. The token is that of HF_TOKEN or of `hf auth login`: only the
client of the Hub reads and sends it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, get_session, get_token
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from rich.filesize import decimal

from transforms.base.errors import InputError, ParameterError, StoreError, Unavailable, UserError
from transforms.base.phrases import counted
from transforms.dataset.layout import increment_of
from transforms.dataset.reader import reading
from transforms.storage.files import file_system, open_file, read_bytes
from transforms.storage.hub import RETRYING, cause_of, hub, may_pass
from transforms.storage.retries import http_status, reason_of

CARD, MANIFEST, REPORT = "README.md", "manifest.json", "report.html"
# Of a first push: until its last commit, `datasets` finds no files, and not a part of them.
UNFINISHED = """---
configs:
- config_name: default
  data_files: chatmill-push-is-not-finished/*
---

A push of this dataset has not ended. `chatmill push` with the same arguments finishes it.
"""
OTHER_FILES = (
    "it has files that are not those of a dataset of Chatmill, such as {}. Push to a new or an empty repository."
)
_HEADER = re.compile(r"---[ \t]*\r?\n(.*?)\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
# What of the header of a card describes the files of the dataset.
_FILES_IN_HEADER = {"configs", "dataset_info"}
# What temporary files take, if the dataset is not on this machine.
_BYTES_AT_ONCE = 1 << 30
_ATTEMPTS = 8
# A large commit takes the Hub some forty seconds.
_SECONDS_TO_ANSWER = 120


class DataFile(NamedTuple):
    """A file to push: its path in the repository, its url, the bytes and the sha256 of its content."""

    path: str
    url: str
    size: int
    sha256: str


class Pushed(NamedTuple):
    """The url of the repository; how many files were sent, how many it had already, and how many were deleted."""

    url: str
    sent: int
    there: int
    deleted: int


class NotReplaceable(UserError):
    """A repository has something that a push does not replace unless it is asked to."""


class _RemoteChanged(Exception):
    """A commit that does not follow what is there: somebody else has committed, or its answer was lost."""


class _RemoteState(NamedTuple):
    """What a branch has at a commit: the files by path; the header of the card, and the text after it."""

    commit: str
    files: Mapping[str, RepoFile]
    header: Mapping[str, Any]
    text: str

    @property
    def is_unfinished(self) -> bool:
        return self.text == _split_card(UNFINISHED)[1]


def push(
    name: str,
    files: Sequence[DataFile],
    texts: Mapping[str, bytes],
    problem_with: Callable[[str], str | None],
    title: str,
    branch: str | None = None,
    private: bool = False,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Pushed:
    """Push files. The same push can be run again at any time, and then does what is left.

    Args:
        name: of the repository, ORG/NAME. It is made if it does not exist.
        files: of the dataset, which the texts name.
        texts: the contents of the card, of manifest.json and others, by path. What the header of the card that is there
            has in addition, such as a license, is kept.
        problem_with: returns why a manifest.json that is there must not be replaced; None if it may be.
        title: of the commits.
        branch: to push to; None for main.
        private: whether a new repository is private. An existing one must be, then.
        overwrite: whether to replace what is there, whatever it is.
        progress: called with a line for people.

    Raises:
        UserError: if there is no token, or none that may write.
        NotReplaceable: if the repository has something else, or something newer.
        InputError: if a file is missing or damaged.
        StoreError: if the store of the files or the Hub fails.
        Unavailable: if others commit to the repository all the time.
    """
    repository = _Repository(name, branch or "main", title)
    repository.open(private)
    wanted = {*texts, *(file.path for file in files)}
    sent: set[str] = set()
    for _ in range(_ATTEMPTS):
        state = repository.state()
        if not overwrite:
            repository.check_replaceable(state, problem_with)
        missing = [file for file in files if not _is_there(file, state.files.get(file.path))]
        for file in missing:
            if file.path in sent and file.path in state.files:
                raise InputError(
                    f"{file.url}: the file is damaged (its sha256 is not that of the dataset). Copy it again, or build "
                    "the dataset again."
                )
        texts = {**texts, CARD: _with_header(texts[CARD].decode(), state.header)}
        new = {path: text for path, text in texts.items() if not _has(state.files.get(path), text)}
        deleted = [path for path in state.files if path not in wanted and (increment_of(path) or path == REPORT)]
        try:
            if missing:
                size = decimal(sum(file.size for file in missing))
                progress(f"uploading {counted(len(missing), 'file')}, {size}")
                repository.upload(missing, state)
                sent |= {file.path for file in missing}
                continue
            if new or deleted:
                repository.commit(new, deleted, state.commit)
        except _RemoteChanged:
            continue
        sent |= {*new}
        return Pushed(repository.url, len(sent), len(wanted) - len(sent), len(deleted))
    raise Unavailable(f"{repository.url}: others commit to it all the time. Run the same command again.")


def _is_there(file: DataFile, remote: RepoFile | None) -> bool:
    if remote is None or remote.size != file.size:
        return False
    if remote.lfs:
        return bool(remote.lfs.sha256 == file.sha256)
    content = read_bytes(file.url)  # a small one, which Git has
    return hashlib.sha256(content).hexdigest() == file.sha256 and _has(remote, content)


def _has(remote: RepoFile | None, content: bytes) -> bool:
    if remote is None:
        return False
    if remote.lfs:
        return bool(remote.lfs.sha256 == hashlib.sha256(content).hexdigest())
    return bool(remote.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


def _split_card(text: str) -> tuple[Mapping[str, Any], str]:
    """The header of a card, and the text after it. What is not a header of YAML belongs to the text."""
    found = _HEADER.match(text)
    try:
        header = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        header = None
    return (header, text[found.end() :].strip()) if found and isinstance(header, dict) else ({}, text.strip())


def _with_header(card: str, other: Mapping[str, Any]) -> bytes:
    """A card, with what another header has in addition."""
    header, text = _split_card(card)
    added = {name: value for name, value in other.items() if name not in {*header, *_FILES_IN_HEADER}}
    if added:
        card = f"---\n{yaml.safe_dump({**header, **added}, sort_keys=False, allow_unicode=True)}---\n\n{text}\n"
    return card.encode()


class _Repository:
    """A branch of a dataset repository, through `huggingface_hub`, with retries and errors that say what to do."""

    def __init__(self, name: str, branch: str, title: str):
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UserError(f"{name}: it is not the name of a repository of the Hub. Give ORG/NAME.")
        self._name, self._branch, self._title = name, branch, title
        self._api = hub()
        self.url = f"{self._api.endpoint}/datasets/{name}"
        self._how_to_get_a_token = (
            f"Make one that may write to the repositories of {name.split('/')[0]} at "
            f"{self._api.endpoint}/settings/tokens, and set HF_TOKEN to it, or run `hf auth login`."
        )
        if get_token() is None:
            raise UserError(f"{self.url}: there is no token of the Hub. {self._how_to_get_a_token}")

    def open(self, private: bool) -> None:
        """Make the repository and the branch, if they do not exist."""
        if not self._call(self._api.repo_exists):
            self._call(self._api.create_repo, private=private or None, exist_ok=True)
        elif private and not self._call(self._api.repo_info).private:
            problem = f"{self.url} is public. Make it private in its settings, or leave this out."
            raise ParameterError("private", True, problem)
        if not self._call(self._api.revision_exists, revision=self._branch):
            self._call(self._api.create_branch, branch=self._branch, exist_ok=True)

    def state(self) -> _RemoteState:
        commit = str(self._call(self._api.repo_info, revision=self._branch).sha)
        entries = self._call(lambda **given: [*self._api.list_repo_tree(**given)], recursive=True, revision=commit)
        files = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
        return _RemoteState(commit, files, *_split_card(self._read(CARD, commit) if CARD in files else ""))

    def check_replaceable(self, state: _RemoteState, problem_with: Callable[[str], str | None]) -> None:
        """Raise NotReplaceable unless a branch is empty, or has what an earlier push left there."""
        left = {".gitattributes", CARD, *(filter(increment_of, state.files) if state.is_unfinished else ())}
        if MANIFEST in state.files:
            problem = problem_with(self._read(MANIFEST, state.commit))
        else:
            problem = next((OTHER_FILES.format(path) for path in state.files if path not in left), None)
        if not problem and state.text and not state.is_unfinished and state.text != self._pushed_text(state):
            problem = (
                f"the text of its {CARD} was written or edited there, and a push replaces it. Save it elsewhere. What "
                "the header of it has in addition, such as a license, is kept."
            )
        if problem:
            raise NotReplaceable(f"{self.url}: {problem}")

    def _pushed_text(self, state: _RemoteState) -> str | None:
        """The text of the card as the push wrote it that wrote the manifest: the two are in one commit."""
        if MANIFEST not in state.files:
            return None
        found = self._call(self._api.get_paths_info, paths=[MANIFEST, CARD], expand=True, revision=state.commit)
        last = {each.path: each.last_commit.oid for each in found}
        return state.text if last[CARD] == last[MANIFEST] else _split_card(self._read(CARD, last[MANIFEST]))[1]

    def upload(self, files: Sequence[DataFile], state: _RemoteState) -> None:
        """Commit files that no card names."""
        parent = state.commit
        if MANIFEST not in state.files and not state.is_unfinished:
            parent = self.commit({CARD: _with_header(UNFINISHED, state.header)}, [], parent)
        for some in _batches(files):
            with tempfile.TemporaryDirectory() as folder:
                for file in some:
                    _place(file, Path(folder, file.path))
                given = {"folder_path": folder, "parent_commit": parent, "revision": self._branch}
                parent = self._call(self._api.upload_folder, commit_message=f"{self._title}: files", **given).oid

    def commit(self, texts: Mapping[str, bytes], deleted: Sequence[str], parent: str) -> str:
        """Commit texts and deletions, and return the id of the commit. Raises _RemoteChanged if others came first."""
        operations = [
            *(CommitOperationAdd(path, text) for path, text in texts.items()),
            *(CommitOperationDelete(path, is_folder=False) for path in deleted),
        ]
        given = {"operations": operations, "parent_commit": parent, "revision": self._branch}
        return str(self._call(self._api.create_commit, commit_message=self._title, **given).oid)

    def _read(self, path: str, commit: str) -> str:
        file = self._call(self._api.hf_hub_download, filename=path, revision=commit)
        return Path(file).read_text("utf-8", "replace")

    def _call(self, function: Callable[..., Any], **given: Any) -> Any:
        """Call a function of the client, again after transient errors, and raise errors that say what to do."""

        def call() -> Any:
            get_session().timeout = _SECONDS_TO_ANSWER  # it may have made itself a new one since the last call
            return function(repo_id=self._name, repo_type="dataset", **given)

        try:
            return RETRYING(call)
        except Exception as error:  # of the client, of its HTTP library, and of its Xet client
            raise self._as_ours(cause_of(error)) from None

    def _as_ours(self, error: Any) -> Exception:
        status = http_status(error)
        # The client's own message has the url, which of a store has a signature.
        answer = f"{status} {getattr(error, 'server_message', None) or ''}" if status else reason_of(error)
        reason = " ".join(answer.split())[:300].rstrip(".")
        if isinstance(error, OfflineModeIsEnabled):
            return UserError(f"{self.url}: HF_HUB_OFFLINE is set, so nothing can be pushed. Unset it.")
        if status == 412:
            return _RemoteChanged()
        if status == 401:
            return UserError(f"{self.url}: the Hub does not accept the token. {self._how_to_get_a_token}")
        if status == 403 and not may_pass(error):
            return UserError(f"{self.url}: the token may not write there ({reason}). {self._how_to_get_a_token}")
        return StoreError(self.url, "pushed to", reason, may_pass(error))


def _batches(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Put files together that are uploaded at once: all of this machine, and others as far as there is room."""
    batch: list[DataFile] = []
    room = _BYTES_AT_ONCE
    for file in files:
        size = 0 if isinstance(file_system(file.url)[0], LocalFileSystem) else file.size
        if batch and size > room:
            yield batch
            batch, room = [], _BYTES_AT_ONCE
        batch.append(file)
        room -= size
    yield batch


def _place(file: DataFile, path: Path) -> None:
    """Put a file in a temporary folder: a link to that on this disk, or a copy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    system, source = file_system(file.url)
    with reading(file.url):
        if isinstance(system, LocalFileSystem):
            path.symlink_to(source)
        else:
            with open_file(file.url) as content, path.open("wb") as copy:
                shutil.copyfileobj(content, copy)
        if (size := path.stat().st_size) != file.size:
            raise ValueError(f"it has {size:,} bytes, and the dataset says {file.size:,}")
