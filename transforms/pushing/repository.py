"""A dataset repository of the Hugging Face Hub, as a push uses it: through `huggingface_hub`, with retries and errors.

The token is that of the environment (HF_TOKEN) or of `hf auth login`. Only the client reads and sends it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetInfo, get_session, get_token
from huggingface_hub.errors import (
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from transforms.base.errors import ParameterError, StoreError, UserError
from transforms.pushing.contents import CARD, MANIFEST
from transforms.pushing.planning import Held, Stored
from transforms.storage.hub.client import RETRYING, cause_of, hub, may_pass
from transforms.storage.retries import http_status, reason_of

# A large commit takes the Hub some forty seconds.
_SECONDS_TO_ANSWER = 120
_KIND = "dataset"

_T = TypeVar("_T")


class Moved(Exception):
    """A commit that does not follow what is there: somebody else has committed, or it was made and its answer lost."""


class Repository:
    """A dataset repository.

    Args:
        name: ORG/NAME.
        branch: to push to; None for main.

    Attributes:
        url: of the repository, for people.

    Raises:
        UserError: if it is not such a name, or there is no token.
    """

    def __init__(self, name: str, branch: str | None = None):
        try:
            validate_repo_id(name)
            is_name = "/" in name
        except HFValidationError:
            is_name = False
        if not is_name:
            raise UserError(f"{name}: it is not the name of a repository of the Hub. Give ORG/NAME.")
        self._name, self._branch = name, branch or "main"
        self._api = hub()
        self._known: dict[str, Any] = {"repo_id": name, "repo_type": _KIND}
        self.url = f"{self._api.endpoint}/datasets/{name}"
        if get_token() is None:
            raise UserError(f"{self.url}: there is no token of the Hub. {self._how_to_get_a_token()}")

    def open(self, private: bool) -> None:
        """Make the repository and the branch, if they do not exist.

        Args:
            private: whether a new repository is private; an existing one must be, then.

        Raises:
            UserError: if the token may not do so, or the repository is public and must be private.
            StoreError: if the Hub fails.
        """
        info = self._info()
        if info is None:
            self._call(self._api.create_repo, **self._known, private=private or None, exist_ok=True)
        elif private and not info.private:
            problem = f"{self.url} is public. Make it private in its settings, or leave this out."
            raise ParameterError("private", True, problem)
        if self._info(revision=self._branch) is None:
            self._call(self._api.create_branch, **self._known, branch=self._branch, exist_ok=True)

    def held(self) -> Held:
        """Return what the branch has now.

        Raises:
            UserError: if the token may not read it.
            StoreError: if the Hub fails.
        """
        commit = str(self._call(self._api.dataset_info, self._name, revision=self._branch).sha)
        files = {
            entry.path: Stored(entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
            for entry in self._call(self._tree, commit)
            if isinstance(entry, RepoFile)
        }
        if CARD not in files and MANIFEST not in files:
            return Held(commit, files)
        manifest = self._content(MANIFEST, commit) if MANIFEST in files else None
        card = self._content(CARD, commit) if CARD in files else b""
        return Held(commit, files, manifest, _text(card), _text(self._pushed_card(files, commit, card)))

    def upload(self, additions: Sequence[CommitOperationAdd]) -> None:
        """Send files to large file storage, which no commit names yet. Those which are there are not sent again.

        Args:
            additions: the files. Contents that are sent are dropped; small texts, which are sent with the commit, not.

        Raises:
            UserError: if the token may not write.
            StoreError: if the Hub fails.
        """
        self._call(self._api.preupload_lfs_files, **self._known, additions=additions, revision=self._branch)

    def commit(self, additions: Iterable[CommitOperationAdd], deleted: Iterable[str], parent: str, title: str) -> str:
        """Commit files.

        Args:
            additions: the files, uploaded.
            deleted: the paths to delete.
            parent: the commit that it follows.
            title: of the commit.

        Returns:
            The id of the commit.

        Raises:
            Moved: if the branch is at another commit.
            UserError: if the token may not write.
            StoreError: if the Hub fails.
        """
        operations = [*additions, *(CommitOperationDelete(path, is_folder=False) for path in deleted)]
        given = {"operations": operations, "commit_message": title, "parent_commit": parent, "revision": self._branch}
        return self._call(self._api.create_commit, **self._known, **given).oid

    def _tree(self, commit: str) -> list[Any]:
        return [*self._api.list_repo_tree(**self._known, recursive=True, revision=commit)]

    def _content(self, path: str, commit: str) -> bytes:
        with tempfile.TemporaryDirectory() as cache:
            given = {"filename": path, "revision": commit, "cache_dir": cache}
            return Path(self._call(self._api.hf_hub_download, **self._known, **given)).read_bytes()

    def _pushed_card(self, files: dict[str, Stored], commit: str, card: bytes) -> bytes:
        """The card as the push wrote it that wrote the manifest: the two are in one commit."""
        paths = [path for path in (MANIFEST, CARD) if path in files]
        given = {"paths": paths, "expand": True, "revision": commit}
        found: list[Any] = self._call(self._api.get_paths_info, **self._known, **given)
        last: dict[str, str] = {each.path: each.last_commit.oid for each in found if each.last_commit}
        if MANIFEST not in last or CARD not in last:
            return b""
        return card if last[CARD] == last[MANIFEST] else self._content(CARD, last[MANIFEST])

    def _info(self, **revision: str) -> DatasetInfo | None:
        """What the Hub says of the repository, or of a revision of it; None if there is no such thing."""
        try:
            return self._tried(self._api.dataset_info, self._name, **revision)
        except (RepositoryNotFoundError, RevisionNotFoundError):
            return None
        except Exception as error:
            raise self._as_ours(error) from None

    def _call(self, function: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
        """Call a function of the client, again after transient errors, and raise errors that say what to do."""
        try:
            return self._tried(function, *arguments, **named)
        except Exception as error:  # of the client, of its HTTP library, and of its Xet client
            raise self._as_ours(error) from None

    @staticmethod
    def _tried(function: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
        """Call a function of the client, again after transient errors."""
        return RETRYING(_answered, function, *arguments, **named)

    def _as_ours(self, error: Exception) -> Exception:
        """The error to raise for one of the client's."""
        cause = cause_of(error)
        status, reason = http_status(cause), _reason(cause)
        if isinstance(cause, OfflineModeIsEnabled):
            return UserError(f"{self.url}: HF_HUB_OFFLINE is set, so nothing can be pushed. Unset it.")
        if status == 412:
            return Moved()
        if status == 401:
            return UserError(f"{self.url}: the Hub does not accept the token. {self._how_to_get_a_token()}")
        if status == 403 and not may_pass(cause):
            return UserError(f"{self.url}: the token may not write there ({reason}). {self._how_to_get_a_token()}")
        return StoreError(self.url, "pushed to", reason, may_pass(cause))

    def _how_to_get_a_token(self) -> str:
        owner = self._name.split("/")[0]
        return (
            f"Make one that may write to the repositories of {owner} at {self._api.endpoint}/settings/tokens, and set "
            "HF_TOKEN to it, or run `hf auth login`."
        )


def _answered(function: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
    """Call a function of the client, with time to answer. It may have made itself a new session since the last call."""
    get_session().timeout = _SECONDS_TO_ANSWER
    return function(*arguments, **named)


def _reason(error: Any) -> str:
    """What the Hub says, in one line. The client's own message has the url, which of a store has a signature."""
    status = http_status(error)
    if status is None:
        return reason_of(error)
    return " ".join(f"{status} {getattr(error, 'server_message', None) or ''}".split())[:300].rstrip(".")


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
