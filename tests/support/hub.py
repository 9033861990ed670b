"""A server that speaks the Hugging Face Hub's API for datasets: what the real client asks for in a build and a push.

It runs in a thread of the test process, and clients in this and other processes find it by HF_ENDPOINT. Its answers are
those that `huggingface_hub` reads and that its own tests record. Two differences are meant:

- It has no Xet storage, whose protocol is that of a closed server and a binary client. The client does not ask whether
  a Hub has it, so `environment` and `in_process` set HF_HUB_DISABLE_XET: uploads then go through LFS.
- A missing repository is 401 or 404 with X-Error-Code: RepoNotFound. The real 401 has no code, and the client knows it
  by a URL with https://.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import unquote, urlsplit

from aiohttp import web

from support.faulty_proxy import Answer, FaultyServer

# Of these, and of what has more than ten megabytes, a repository has pointers to files in LFS.
_LFS_SUFFIXES = (".parquet", ".arrow", ".gz", ".zip", ".zst")
_REGULAR_BYTES = 10 << 20
_START = ".gitattributes", "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in _LFS_SUFFIXES)


class User(NamedTuple):
    """Who a token belongs to: the name of a user, the organizations, and whether the token may write."""

    name: str
    orgs: tuple[str, ...]
    may_write: bool

    def owns(self, repo_name: str) -> bool:
        return repo_name.split("/")[0] in (self.name, *self.orgs)


@dataclass(frozen=True)
class Blob:
    """The content of a file, and whether it is in LFS: then Git has a pointer."""

    content: bytes
    is_lfs: bool

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def oid(self) -> str:
        """The id of the blob in Git, as `git hash-object` prints it."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        stored = pointer.encode() if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.oid

    def described(self, path: str) -> dict[str, Any]:
        """The file as `tree` and `paths-info` describe it."""
        entry = {"type": "file", "oid": self.oid, "size": len(self.content), "path": path}
        lfs = {"oid": self.sha256, "size": len(self.content), "pointerSize": 130}
        return {**entry, "lfs": lfs} if self.is_lfs else entry


class Commit(NamedTuple):
    """A version of a repository: its files by path, and the paths that it changed."""

    sha: str
    files: Mapping[str, Blob]
    parent: Commit | None
    changed: set[str]


@dataclass
class Repo:
    """A dataset repository.

    Attributes:
        name: ORG/NAME.
        is_private: other users get the answer of a repository that does not exist.
        gated: None, or "manual": files can be read only by members of its namespace and users in `granted`.
        granted: names of users whom a gated repository admits.
        commits: by id.
        refs: the id of a commit by full name: refs/heads/main, refs/convert/parquet.
        stored: the contents in LFS by sha256, also those that no commit names yet.
    """

    name: str
    is_private: bool = False
    gated: str | None = None
    granted: set[str] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit({_START[0]: _START[1].encode()})

    def commit(self, files: Mapping[str, bytes | Blob], deleted: Iterable[str] = (), revision: str = "main") -> str:
        """Commit files, as a user's push does, to a branch or a ref such as refs/convert/parquet. Returns its id."""
        ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        before, blobs, gone = self.find(ref), dict[str, Blob](), {*deleted}
        for path, content in files.items():
            blobs[path] = content if isinstance(content, Blob) else Blob(content, is_lfs(path, len(content)))
            self.stored[blobs[path].sha256] = blobs[path].content
        kept = {path: blob for path, blob in (before.files if before else {}).items() if path not in gone}
        tree = dict(sorted({**kept, **blobs}.items()))
        text = f"{self.name} {len(self.commits)} {[(path, blob.oid) for path, blob in tree.items()]}"
        sha = self.refs[ref] = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = Commit(sha, tree, before, {*blobs} | gone)
        return sha

    def find(self, revision: str) -> Commit | None:
        """The commit of a branch, of a ref, or with this id; None if there is none."""
        sha = self.refs.get(revision) or self.refs.get(f"refs/heads/{revision}") or revision
        return self.commits.get(sha)

    def history(self, revision: str = "main") -> list[Commit]:
        """The commits of a branch, the newest first."""
        found, commit = list[Commit](), self.find(revision)
        while commit is not None:
            found.append(commit)
            commit = commit.parent
        return found

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """The content of each file of a branch."""
        return {path: blob.content for path, blob in self.history(revision)[0].files.items()}


def is_lfs(path: str, size: int) -> bool:
    """Whether the Hub wants a file in LFS."""
    return size > 0 and (path.endswith(_LFS_SUFFIXES) or size > _REGULAR_BYTES)


class Refused(Exception):
    """The request has this answer, which is an error."""

    def __init__(self, status: int, message: str, code: str | None = None):
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.answer = as_json({"error": message}, status, headers)


class Hub(FaultyServer):
    """The server. Use it as a context manager. A fault more: `expired`, a signed URL of LFS that is no longer valid.

    Attributes:
        repos: by name, ORG/NAME.
        users: by token.
        limited: the client waits one second more than `t`.
        page: entries of a page of `tree`.
        cdn_bytes, upload_bytes: bytes of LFS files that were read and sent.
        authorizations: the Authorization headers that a signed URL got: the client must not send its token there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repos: dict[str, Repo] = {}
        self.users: dict[str, User] = {}
        self.limited = {"RateLimit": '"api";r=0;t=0', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
        self.page = 1000

    def reset(self) -> None:
        super().reset()
        self.cdn_bytes = self.upload_bytes = 0
        self.authorizations: list[str] = []

    def __enter__(self) -> Hub:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, name: str, files: Mapping[str, bytes] | None = None, **options: Any) -> Repo:
        """Add a repository with these files on main. options: is_private, gated, granted of Repo."""
        repo = self.repos[name] = Repo(name, **options)
        if files:
            repo.commit(files)
        return repo

    def token_of(self, name: str, *orgs: str, may_write: bool = True) -> str:
        """Return a new token of a user."""
        token = f"hf_{len(self.users):030}"
        self.users[token] = User(name, orgs, may_write)
        return token

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Return the variables with which another process uses this Hub, with its caches and logins below `home`."""
        variables = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
        return {**variables, "HF_HUB_DISABLE_XET": "1", **({"HF_TOKEN": token} if token else {})}

    @contextlib.contextmanager
    def in_process(self, home: Path, token: str | None = None) -> Iterator[None]:
        """Inside, the client in this process uses this Hub: it reads the environment when it is imported."""
        import datasets
        from huggingface_hub import HfFileSystem, constants
        from huggingface_hub.utils import close_session

        of_datasets = {
            "HF_ENDPOINT": self.endpoint,
            "HUB_DATASETS_URL": self.endpoint + "/datasets/{repo_id}/resolve/{revision}/{path}",
            "HF_HUB_OFFLINE": False,
        }
        changed = {
            "ENDPOINT": self.endpoint,
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "HUGGINGFACE_CO_URL_TEMPLATE": self.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        }
        client, other = mock.patch.multiple(constants, **changed), mock.patch.multiple(datasets.config, **of_datasets)
        with client, other, mock.patch.dict(os.environ, {"HF_TOKEN": "", **self.environment(home, token)}):
            try:
                yield
            finally:
                HfFileSystem.clear_instance_cache()
                close_session()

    def is_possible(self, request: web.Request, status: int, body: bytes, fault: str) -> bool:
        return "Signature" in request.query if fault == "expired" else super().is_possible(request, status, body, fault)

    async def answer(self, request: web.Request) -> Answer:
        body = await request.read()
        parts = [unquote(part) for part in urlsplit(request.raw_path).path.split("/")[1:]]
        try:
            match parts:
                case ["cdn" | "upload", org, name, sha256]:
                    return self._signed(request, self.repos[f"{org}/{name}"], sha256, body)
                case ["api", "repos", "create"]:
                    return self._create(self._user(request), json.loads(body))
                case ["api", "validate-yaml"]:
                    return as_json({"errors": [], "warnings": []})
                case ["datasets", org, name, "resolve", revision, *path]:
                    return self._resolve(request, self._repo(request, f"{org}/{name}"), revision, "/".join(path))
                case ["api", "datasets", org, name]:
                    return self._info(self._repo(request, f"{org}/{name}"), "main")
                case ["api", "datasets", org, name, "revision", revision]:
                    return self._info(self._repo(request, f"{org}/{name}"), revision)
                case ["api", "datasets", org, name, "tree", revision, *folder]:
                    return self._tree(request, self._repo(request, f"{org}/{name}"), revision, "/".join(folder))
                case ["api", "datasets", org, name, "paths-info", revision]:
                    paths = (await request.post()).getall("paths")
                    return self._paths_info(self._repo(request, f"{org}/{name}"), revision, [*map(str, paths)])
                case ["api", "datasets", org, name, "branch", branch]:
                    repo = self._writable(request, f"{org}/{name}")
                    repo.refs[f"refs/heads/{branch}"] = repo.refs["refs/heads/main"]
                    return as_json({})
                case ["api", "datasets", org, name, "preupload", revision]:
                    return self._preupload(self._writable(request, f"{org}/{name}"), revision, json.loads(body))
                case ["datasets", org, name, "info", "lfs", "objects", "batch"]:
                    return self._batch(self._writable(request, f"{org}/{name.removesuffix('.git')}"), json.loads(body))
                case ["api", "datasets", org, name, "commit", branch]:
                    return self._commit(self._writable(request, f"{org}/{name}"), branch, body)
            raise Refused(404, "Sorry, we can't find the page you are looking for.")
        except Refused as refused:
            return refused.answer

    def _user(self, request: web.Request) -> User | None:
        header = request.headers.get("Authorization")
        user = self.users.get(header.removeprefix("Bearer ")) if header else None
        if header and user is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def _repo(self, request: web.Request, name: str) -> Repo:
        """A repository that the user may see."""
        user, repo = self._user(request), self.repos.get(name)
        if repo is None or (repo.is_private and not (user and user.owns(name))):
            raise Refused(404 if user else 401, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, request: web.Request, name: str) -> Repo:
        """A repository that the user may write."""
        repo, user = self._repo(request, name), self._user(request)
        if user is None or not (user.owns(name) and user.may_write):
            raise Refused(403 if user else 401, "You don't have the rights to write")
        return repo

    def _commit_of(self, repo: Repo, revision: str) -> Commit:
        if commit := repo.find(revision):
            return commit
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def _create(self, user: User | None, wanted: dict[str, Any]) -> Answer:
        name = f"{wanted.get('organization') or (user and user.name)}/{wanted['name']}"
        if user is None or not (user.owns(name) and user.may_write):
            raise Refused(403 if user else 401, "You don't have the rights to create a dataset under the namespace")
        self.add(name, is_private=wanted.get("visibility") == "private" or wanted.get("private") is True)
        return as_json({"url": f"{self.endpoint}/datasets/{name}", "name": name})

    def _info(self, repo: Repo, revision: str) -> Answer:
        commit = self._commit_of(repo, revision)
        about = {"id": repo.name, "sha": commit.sha, "private": repo.is_private, "gated": repo.gated or False}
        return as_json({**about, "siblings": [{"rfilename": path} for path in commit.files]})

    def _tree(self, request: web.Request, repo: Repo, revision: str, folder: str) -> Answer:
        commit, prefix, entries = self._commit_of(repo, revision), f"{folder}/" if folder else "", dict[str, Any]()
        for path, blob in commit.files.items():
            if path.startswith(prefix):
                names = path.removeprefix(prefix).split("/")
                for n in range(1, len(names)):
                    inner = prefix + "/".join(names[:n])
                    entries[inner] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": inner}
                entries[path] = blob.described(path)
        if not entries:
            raise Refused(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
        if request.query.get("recursive", "").lower() != "true":
            entries = {path: entry for path, entry in entries.items() if "/" not in path.removeprefix(prefix)}
        start = int(request.query.get("cursor", 0))
        stop, headers = start + self.page, {"X-Repo-Commit": commit.sha}
        if stop < len(entries):
            following = request.rel_url.update_query(cursor=stop)
            headers["Link"] = f'<{self.endpoint}{following}>; rel="next"'
        return as_json([*entries.values()][start:stop], headers=headers)

    def _paths_info(self, repo: Repo, revision: str, paths: list[str]) -> Answer:
        commit, found = self._commit_of(repo, revision), []
        for path in paths:
            if path in commit.files:
                last = next(each.sha for each in repo.history(commit.sha) if path in each.changed)
                dated = {"id": last, "title": "a push", "date": "2026-01-02T03:04:05.000Z"}
                found.append({**commit.files[path].described(path), "lastCommit": dated})
        return as_json(found)

    def _resolve(self, request: web.Request, repo: Repo, revision: str, path: str) -> Answer:
        user = self._user(request)
        if repo.gated and not (user and (user.owns(repo.name) or user.name in repo.granted)):
            raise Refused(403 if user else 401, f"Access to dataset {repo.name} is restricted.", "GatedRepo")
        commit = self._commit_of(repo, revision)
        blob = commit.files.get(path)
        if blob is None:
            raise Refused(404, "Entry not found", "EntryNotFound")
        headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{blob.etag}"'}
        if not blob.is_lfs:
            return self._content(request, blob.content, headers)
        linked = {"X-Linked-Size": str(len(blob.content)), "X-Linked-ETag": f'"{blob.etag}"'}
        return Answer(302, {**headers, **linked, "Location": self._signed_url("cdn", repo, blob.sha256)})

    def _signed_url(self, kind: str, repo: Repo, sha256: str) -> str:
        """Of another origin than that of the API, as on the real Hub."""
        return f"http://localhost:{self.port}/{kind}/{repo.name}/{sha256}?Signature=0"

    def _signed(self, request: web.Request, repo: Repo, sha256: str, body: bytes) -> Answer:
        """Answer a request of a signed URL: /cdn/ORG/NAME/SHA256 has the content, /upload/ORG/NAME/SHA256 takes it."""
        if token := request.headers.get("Authorization"):
            self.authorizations.append(token)
        if request.method == "PUT":
            repo.stored[sha256] = body
            self.upload_bytes += len(body)
            return Answer()
        answer = self._content(request, repo.stored[sha256], {"ETag": f'"{sha256}"'})
        self.cdn_bytes += 0 if request.method == "HEAD" else len(answer.body)
        return answer

    def _content(self, request: web.Request, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Answer with a content, or with the range of it that was requested."""
        headers = {**headers, "Accept-Ranges": "bytes"}
        if "Range" not in request.headers:
            return Answer(200, headers, content)
        covered = range(len(content))[request.http_range]
        headers["Content-Range"] = f"bytes {covered.start}-{covered.stop - 1}/{len(content)}"
        return Answer(206, headers, content[request.http_range])

    def _preupload(self, repo: Repo, revision: str, wanted: dict[str, Any]) -> Answer:
        files = []
        for file in wanted["files"]:
            present = self._commit_of(repo, revision).files.get(file["path"])
            mode = "lfs" if is_lfs(file["path"], file["size"]) else "regular"
            oid = {"oid": present.etag} if present else {}
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return as_json({"files": files})

    def _batch(self, repo: Repo, wanted: dict[str, Any]) -> Answer:
        """Say where to send objects. Those which are stored already need no action."""
        objects = []
        for entry in wanted["objects"]:
            known = {"oid": entry["oid"], "size": entry["size"]}
            if entry["oid"] not in repo.stored:
                known["actions"] = {"upload": {"href": self._signed_url("upload", repo, entry["oid"])}}
            objects.append(known)
        return as_json({"transfer": "basic", "objects": objects})

    def _commit(self, repo: Repo, branch: str, body: bytes) -> Answer:
        header, *operations = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit", (head := self._commit_of(repo, branch)).sha) != head.sha:
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files, deleted = dict[str, bytes | Blob](), list[str]()
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]), False)
            elif operation["key"] == "lfsFile":
                files[value["path"]] = Blob(repo.stored[value["oid"]], True)
            else:
                deleted.append(value["path"])
        if missing := {*deleted} - head.files.keys():
            raise Refused(404, f"A file with this name doesn't exist: {missing}", "EntryNotFound")
        sha = repo.commit(files, deleted, branch)
        url = f"{self.endpoint}/datasets/{repo.name}/commit/{sha}"
        return as_json({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})


def as_json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())
