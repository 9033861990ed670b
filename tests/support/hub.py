"""A server that speaks the Hugging Face Hub's API for datasets, as the real `huggingface_hub` client uses it.

It runs in threads of the test process, and clients in this and other processes find it by HF_ENDPOINT. Its answers are
those that the client (2.4) reads and that its own tests record; what they are on the real Hub was not seen from here.
Two differences are meant:

- It has no Xet storage, whose protocol is that of a closed server and a binary client. The client does not ask whether
  a Hub has it, so `environment` and `in_process` set HF_HUB_DISABLE_XET: uploads then go through LFS.
- A missing repository is 401 or 404 with X-Error-Code: RepoNotFound. The real 401 has no code, and the client knows it
  by a URL with https://.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

from support.hub_repos import Blob, Commit, Repo, folder_entry, is_lfs

# What each kind of fault does to a request:
#   429, 500, 503  responds with this status, before anything is done
#   reset          closes the connection before anything is done
#   lost           closes the connection after the request was processed: a commit is made, its answer is lost
#   truncated      closes the connection in the middle of the body
#   stalled        does not answer for `stall_seconds`, then closes the connection
#   expired        a signed URL is answered as one that has expired; other requests are processed
FAULTS = ("429", "500", "503", "reset", "lost", "truncated", "stalled", "expired")
KINDS = ("api", "resolve", "cdn", "upload")


def each(n: int, *faults: str) -> Iterator[str | None]:
    """Yield None n - 1 times, then a fault, the next one each time, without end."""
    for fault in itertools.cycle(faults):
        yield from [None] * (n - 1)
        yield fault


@dataclass(frozen=True)
class User:
    """Who a token belongs to.

    Attributes:
        name: of the user.
        orgs: the organizations of the user.
        role: of the token: "read" or "write".
    """

    name: str
    orgs: tuple[str, ...] = ()
    role: str = "write"

    def owns(self, repo_name: str) -> bool:
        return repo_name.split("/")[0] in (self.name, *self.orgs)


@dataclass
class Answer:
    """A response of the server."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class _Refused(Exception):
    """The request has this answer, which is an error."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str):
        super().__init__(message)
        coded = {"X-Error-Code": code} if code else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = Answer(
            status,
            json.dumps({"error": message}).encode(),
            {"Content-Type": "application/json", "X-Error-Message": message, **coded, **named},
        )


class Hub:
    """The server. Use it as a context manager.

    Attributes:
        repos: by name, ORG/NAME.
        users: by token.
        faults: the fault of each request, or None; see `each`, and `seeded` of faulty_proxy.
        faulty: the kinds of requests that `faults` is asked for.
        limit_headers: headers of a 429. The client waits one second more than `t`.
        on_request: called before each request is answered, with its number from 1 on and "METHOD path".
        link_seconds: how long a signed URL is valid.
        stall_seconds: how long a stalled request waits.
        page: entries of a page of `tree`; 50 if expanded.
        calls: number of requests by kind (KINDS).
        injected: number of faults by kind.
        cdn_bytes, upload_bytes: bytes of LFS files that were read and sent.
        log: "METHOD path" of each request.
        authorizations: the Authorization headers that a signed URL got: the client must not send its token there.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.users: dict[str, User] = {}
        self.faulty = KINDS
        self.limit_headers = {"RateLimit": '"api";r=0;t=0', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
        self.link_seconds = 3600.0
        self.stall_seconds = 5.0
        self.page = 1000
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.reset()

    def reset(self) -> None:
        """Answer everything, and count from zero. Repositories and users stay."""
        self.faults: Iterator[str | None] = iter(())
        self.on_request: Callable[[int, str], None] | None = None
        self.calls: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.cdn_bytes = self.upload_bytes = 0
        self.log: list[str] = []
        self.authorizations: list[str] = []

    def __enter__(self) -> Hub:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cdn(self) -> str:
        """The origin of signed URLs: another one than that of the API, as on the real Hub."""
        return f"http://localhost:{self.port}"

    def add(self, name: str, files: Mapping[str, bytes] | None = None, **options: object) -> Repo:
        """Add a repository with these files on main.

        Args:
            name: ORG/NAME.
            files: content by path.
            options: is_private, gated, granted of Repo.
        """
        repo = self.repos[name] = Repo(name, **options)  # type: ignore[arg-type]
        if files:
            repo.commit(files)
        return repo

    def token_of(self, name: str, *orgs: str, role: str = "write") -> str:
        """Return a new token of a user."""
        token = "hf_" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=30))
        self.users[token] = User(name, orgs, role)
        return token

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Return the variables with which another process uses this Hub, with its caches and logins below `home`."""
        variables = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
        return {**variables, "HF_HUB_DISABLE_XET": "1", **({"HF_TOKEN": token} if token else {})}

    @contextlib.contextmanager
    def in_process(self, home: Path, token: str | None = None) -> Iterator[None]:
        """Inside, the client in this process uses this Hub: it reads the environment when it is imported."""
        from huggingface_hub import HfFileSystem, constants
        from huggingface_hub.utils import close_session

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
        environment = self.environment(home, token)
        with contextlib.ExitStack() as stack:
            for name, value in changed.items():
                stack.enter_context(mock.patch.object(constants, name, value))
            stack.enter_context(mock.patch.dict(os.environ, environment))
            if token is None:
                os.environ.pop("HF_TOKEN", None)
            try:
                yield
            finally:
                HfFileSystem.clear_instance_cache()
                close_session()

    def fault(self, kind: str) -> str | None:
        """Return the fault of the next request of a kind."""
        with self._lock:
            return next(self.faults, None) if kind in self.faulty else None

    def count(self, kind: str, request: str) -> int:
        """Count a request, and return its number."""
        with self._lock:
            self.calls[kind] += 1
            self.log.append(request)
            return len(self.log)

    def stall(self) -> None:
        """Wait as long as a stalled request does."""
        self._stopped.wait(self.stall_seconds)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.hub
        url = urlsplit(self.path)
        self.parts = [unquote(part) for part in url.path.split("/")[1:]]
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.body = self._read_body()
        kind = self._kind()
        number = hub.count(kind, f"{self.command} {url.path}")
        if hub.on_request:
            hub.on_request(number, f"{self.command} {url.path}")
        fault = hub.fault(kind)
        if fault == "stalled":
            hub.stall()
        if fault in ("reset", "stalled"):
            return self._cut(fault)
        try:
            answer = self._faulty_answer(fault) or self._answer(kind, fault)
        except _Refused as refused:
            answer = refused.answer
        if fault == "lost":
            return self._cut(fault)
        self._send(answer, fault)

    do_HEAD = do_POST = do_PUT = do_GET

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline().strip(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _kind(self) -> str:
        if self.parts[0] in ("cdn", "upload"):
            return self.parts[0]
        return "resolve" if "resolve" in self.parts[3:4] else "api"

    def _faulty_answer(self, fault: str | None) -> Answer | None:
        if fault not in ("429", "500", "503"):
            return None
        self.hub.injected[fault] += 1
        headers = {"Content-Type": "application/json", **(self.hub.limit_headers if fault == "429" else {})}
        return Answer(int(fault), json.dumps({"error": f"{fault} by the tests' Hub"}).encode(), headers)

    def _cut(self, fault: str) -> None:
        self.hub.injected[fault] += 1
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, answer: Answer, fault: str | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" else answer.body
        is_cut = fault == "truncated" and len(body) > 1
        self.wfile.write(body[: len(body) // 2] if is_cut else body)
        self.wfile.flush()
        if is_cut:
            self._cut("truncated")

    def _answer(self, kind: str, fault: str | None) -> Answer:
        if kind in ("cdn", "upload"):
            return self._signed(kind, fault)
        match self.parts:
            case ["api", "whoami-v2"]:
                return _json(self._whoami())
            case ["api", "repos", "create"]:
                return self._create()
            case ["api", "validate-yaml"]:
                return self._validate_yaml()
            case ["api", "datasets", org, name]:
                return _json(self._info(self._repo(f"{org}/{name}"), "main"))
            case ["api", "datasets", org, name, "revision", revision]:
                return _json(self._info(self._repo(f"{org}/{name}"), revision))
            case ["api", "datasets", org, name, "refs"]:
                return _json(self._refs(self._repo(f"{org}/{name}")))
            case ["api", "datasets", org, name, "tree", revision, *path]:
                return self._tree(self._repo(f"{org}/{name}"), revision, "/".join(path))
            case ["api", "datasets", org, name, "paths-info", revision]:
                return _json(self._paths_info(self._repo(f"{org}/{name}"), revision))
            case ["api", "datasets", org, name, "branch", branch]:
                return self._branch(self._writable(f"{org}/{name}"), branch)
            case ["api", "datasets", org, name, "preupload", revision]:
                return _json(self._preupload(self._writable(f"{org}/{name}"), revision))
            case ["api", "datasets", org, name, "commit", revision]:
                return self._commit(self._writable(f"{org}/{name}"), revision)
            case ["datasets", org, git_name, "info", "lfs", "objects", "batch"]:
                return self._lfs_batch(self._writable(f"{org}/{git_name.removesuffix('.git')}"))
            case ["datasets", org, name, "resolve", revision, *path]:
                return self._resolve(self._repo(f"{org}/{name}"), revision, "/".join(path))
        raise _Refused(404, "Sorry, we can't find the page you are looking for.")

    def _user(self) -> User | None:
        header = self.headers.get("Authorization")
        if header is None:
            return None
        user = self.hub.users.get(header.removeprefix("Bearer "))
        if user is None:
            raise _Refused(401, "Invalid credentials in Authorization header")
        return user

    def _repo(self, name: str) -> Repo:
        """Return a repository that the user may see."""
        user = self._user()
        repo = self.hub.repos.get(name)
        if repo is None or (repo.is_private and not (user and user.owns(name))):
            raise _Refused(404 if user else 401, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, name: str) -> Repo:
        """Return a repository that the user may write."""
        user, repo = self._user(), self._repo(name)
        if user is None:
            raise _Refused(401, "Invalid username or password.")
        if not user.owns(name):
            raise _Refused(403, f"Authorization error. You don't have the rights to write to {name}")
        self._require_write(user)
        return repo

    def _require_write(self, user: User) -> None:
        if user.role != "write":
            message = (
                "Your token doesn't have the rights to write: you must use a write token to upload to a repository."
            )
            raise _Refused(403, message)

    def _commit_of(self, repo: Repo, revision: str) -> Commit:
        commit = repo.resolve(revision)
        if commit is None:
            raise _Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def _whoami(self) -> dict:
        user = self._user()
        if user is None:
            raise _Refused(401, "Invalid username or password.")
        orgs = [{"type": "org", "name": name, "roleInOrg": "write"} for name in user.orgs]
        auth = {"type": "access_token", "accessToken": {"displayName": "tests", "role": user.role}}
        return {"type": "user", "name": user.name, "fullname": user.name, "orgs": orgs, "auth": auth}

    def _create(self) -> Answer:
        user, wanted = self._user(), json.loads(self.body)
        if user is None:
            raise _Refused(401, "Invalid username or password.")
        org = wanted.get("organization") or user.name
        name = f"{org}/{wanted['name']}"
        if not user.owns(name):
            raise _Refused(403, f'You don\'t have the rights to create a dataset under the namespace "{org}"')
        self._require_write(user)
        created = {"url": f"{self.hub.endpoint}/datasets/{name}", "name": name}
        if name in self.hub.repos:
            return _json({**created, "error": "You already created this dataset repo"}, status=409)
        is_private = wanted.get("visibility") == "private" or wanted.get("private") is True
        self.hub.add(name, is_private=is_private)
        return _json(created)

    def _validate_yaml(self) -> Answer:
        """Refuse a card whose front matter is not YAML, or does not give `configs` as a list."""
        content = json.loads(self.body)["content"]
        try:
            card = _card_of(content)
        except yaml.YAMLError as error:
            return _json({"errors": [{"message": str(error)}], "warnings": []}, status=400)
        if not isinstance(card.get("configs", []), list):
            return _json({"errors": [{"message": '"configs" must be an array'}], "warnings": []}, status=400)
        missing = [] if card else [{"message": "empty or missing yaml metadata in repo card"}]
        return _json({"errors": [], "warnings": missing})

    def _info(self, repo: Repo, revision: str) -> dict:
        commit = self._commit_of(repo, revision)
        with_blobs = self.query.get("blobs", "").lower() in ("true", "1")
        card = commit.files.get("README.md")
        return {
            "_id": "0" * 24,
            "id": repo.name,
            "author": repo.name.split("/")[0],
            "sha": commit.sha,
            "lastModified": "2026-01-02T03:04:05.000Z",
            "createdAt": "2026-01-02T03:04:05.000Z",
            "private": repo.is_private,
            "gated": repo.gated or False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "cardData": _card_of(card.content.decode()) if card else None,
            "siblings": [blob.sibling(path, with_blobs) for path, blob in commit.files.items()],
        }

    def _refs(self, repo: Repo) -> dict:
        found: dict[str, list[dict]] = {"branches": [], "converts": [], "tags": []}
        groups = {"refs/heads/": "branches", "refs/convert/": "converts", "refs/tags/": "tags"}
        for ref, sha in repo.refs.items():
            for prefix, group in groups.items():
                if ref.startswith(prefix):
                    found[group].append({"name": ref[len(prefix) :], "ref": ref, "targetCommit": sha})
        return found

    def _tree(self, repo: Repo, revision: str, folder: str) -> Answer:
        expand = self.query.get("expand", "").lower() == "true"
        commit = self._commit_of(repo, revision)
        entries = repo.tree(commit, folder, self.query.get("recursive", "").lower() == "true", expand)
        if entries is None:
            raise _Refused(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
        limit = min(int(self.query.get("limit", self.hub.page)), 50 if expand else self.hub.page)
        start = int(base64.b64decode(self.query.get("cursor", "MA==")))
        headers = {"X-Repo-Commit": commit.sha}
        if start + limit < len(entries):
            cursor = quote(base64.b64encode(str(start + limit).encode()).decode(), safe="")
            kept = "&".join(f"{name}={quote(value)}" for name, value in self.query.items() if name != "cursor")
            path = urlsplit(self.path).path
            headers["Link"] = f'<{self.hub.endpoint}{path}?{kept}&cursor={cursor}>; rel="next"'
        return _json(entries[start : start + limit], headers=headers)

    def _paths_info(self, repo: Repo, revision: str) -> list[dict]:
        commit = self._commit_of(repo, revision)
        asked = parse_qs(self.body.decode())
        expand = asked.get("expand", [""])[-1].lower() == "true"
        found = []
        for path in asked.get("paths", []):
            if path in commit.files:
                found += repo.tree(commit, path, recursive=False, expand=expand) or []
            elif any(name.startswith(f"{path}/") for name in commit.files):
                found.append(folder_entry(path))
        return found

    def _branch(self, repo: Repo, branch: str) -> Answer:
        if f"refs/heads/{branch}" in repo.refs:
            raise _Refused(409, f"Reference already exists: {branch}")
        start = json.loads(self.body or b"{}").get("startingPoint", "main")
        repo.refs[f"refs/heads/{branch}"] = self._commit_of(repo, start).sha
        return _json({})

    def _resolve(self, repo: Repo, revision: str, path: str) -> Answer:
        user = self._user()
        if repo.gated and not (user and (user.owns(repo.name) or user.name in repo.granted)):
            message = f"Access to dataset {repo.name} is restricted. "
            message += "You are not in the authorized list." if user else "You must be authenticated to access it."
            raise _Refused(403 if user else 401, message, "GatedRepo")
        commit = self._commit_of(repo, revision)
        blob = commit.files.get(path)
        if blob is None:
            raise _Refused(404, "Entry not found", "EntryNotFound", X_Repo_Commit=commit.sha)
        headers = {"X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes", "ETag": f'"{blob.etag}"'}
        if not blob.is_lfs:
            return self._content(blob.content, headers)
        until = time.time() + self.hub.link_seconds
        location = f"{self.hub.cdn}/cdn/{repo.name}/{blob.sha256}?Expires={until}&Signature={_signature(blob, until)}"
        linked = {"X-Linked-Size": str(len(blob.content)), "X-Linked-ETag": f'"{blob.etag}"', "Location": location}
        return Answer(302, b"Found. Redirecting to a signed URL", {**headers, **linked})

    def _signed(self, kind: str, fault: str | None) -> Answer:
        """Answer a request of a signed URL: /cdn/ORG/NAME/SHA256 has the content, /upload/ORG/NAME/SHA256 takes it."""
        _, org, name, sha256 = self.parts
        repo = self.hub.repos[f"{org}/{name}"]
        if self.headers.get("Authorization"):
            self.hub.authorizations.append(self.headers["Authorization"])
            return _xml(400, "InvalidArgument", "Only one auth mechanism allowed")
        until = float(self.query.get("Expires", 0))
        if fault == "expired":
            self.hub.injected[fault] += 1
        if fault == "expired" or until < time.time():
            return _xml(403, "AccessDenied", "Request has expired")
        if self.query.get("Signature") != _signed_text(sha256, until):
            return _xml(403, "SignatureDoesNotMatch", "The signature does not match")
        if kind == "upload":
            return self._uploaded(repo, sha256)
        answer = self._content(repo.stored[sha256], {"Accept-Ranges": "bytes", "ETag": f'"{sha256}"'})
        self.hub.cdn_bytes += 0 if self.command == "HEAD" else len(answer.body)
        return answer

    def _uploaded(self, repo: Repo, sha256: str) -> Answer:
        if Blob(self.body, True).sha256 != sha256:
            return _xml(400, "BadDigest", "The content has another sha256 than its name")
        repo.stored[sha256] = self.body
        self.hub.upload_bytes += len(self.body)
        return Answer(200, headers={"ETag": f'"{sha256}"'})

    def _content(self, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Answer with a content, or with the range of it that was requested."""
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""), re.IGNORECASE)
        if not wanted or not any(wanted.groups()):
            return Answer(200, content, {**headers, "Content-Length": str(len(content))})
        first, last = wanted.groups()
        start = int(first) if first else max(len(content) - int(last), 0)
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        if start >= end:
            return Answer(416, b"", {**headers, "Content-Range": f"bytes */{len(content)}"})
        part = content[start:end]
        described = {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}", "Content-Length": str(len(part))}
        return Answer(206, part, {**headers, **described})

    def _preupload(self, repo: Repo, revision: str) -> dict:
        commit = self._commit_of(repo, revision)
        files = []
        for file in json.loads(self.body)["files"]:
            present = commit.files.get(file["path"])
            is_large = is_lfs(file["path"], file["size"]) or _is_binary(base64.b64decode(file["sample"]))
            mode = "lfs" if is_large else "regular"
            oid = {"oid": present.etag} if present else {}
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return {"files": files, "commitOid": commit.sha}

    def _lfs_batch(self, repo: Repo) -> Answer:
        """Say where to send objects. Those which are stored already need no action."""
        if len(wanted := json.loads(self.body)["objects"]) > 1000:
            raise _Refused(413, "too many objects")
        objects = []
        for entry in wanted:
            known = {"oid": entry["oid"], "size": entry["size"]}
            if entry["oid"] not in repo.stored:
                until = time.time() + self.hub.link_seconds
                signature = _signed_text(entry["oid"], until)
                href = f"{self.hub.cdn}/upload/{repo.name}/{entry['oid']}?Expires={until}&Signature={signature}"
                known["actions"] = {"upload": {"href": href}}
            objects.append(known)
        return _json({"transfer": "basic", "objects": objects})

    def _commit(self, repo: Repo, branch: str) -> Answer:
        lines = [json.loads(line) for line in self.body.splitlines()]
        header, operations = lines[0]["value"], lines[1:]
        head = self._commit_of(repo, branch)
        if f"refs/heads/{branch}" not in repo.refs:
            raise _Refused(400, f"{branch} is not a branch")
        files: dict[str, bytes | Blob] = {}
        deleted: list[str] = []
        for operation in operations:
            key, value = operation["key"], operation["value"]
            if key == "file":
                content = base64.b64decode(value["content"])
                if _is_binary(content):
                    raise _Refused(400, f"Your push was rejected because it contains binary files: {value['path']}")
                files[value["path"]] = Blob(content, False)
            elif key == "lfsFile":
                if value["oid"] not in repo.stored:
                    raise _Refused(400, f"LFS pointer of {value['path']} pointed to a file that does not exist")
                files[value["path"]] = Blob(repo.stored[value["oid"]], True)
            else:
                path = value["path"].rstrip("/")
                gone = [p for p in head.files if p == path or (key == "deletedFolder" and p.startswith(f"{path}/"))]
                if not gone:
                    raise _Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                deleted += gone
        try:
            sha = repo.commit(files, deleted, branch, header["summary"], header.get("parentCommit"))
        except KeyError:
            raise _Refused(412, "A commit has happened since. Please refresh and try again.") from None
        url = f"{self.hub.endpoint}/datasets/{repo.name}/commit/{sha}"
        return _json({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})


def _xml(status: int, code: str, message: str) -> Answer:
    """Return an error in the format of the stores of LFS files."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def _is_binary(content: bytes) -> bool:
    return b"\0" in content


def _card_of(text: str) -> dict:
    """Return the front matter of a README."""
    found = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", text, re.DOTALL)
    card = yaml.safe_load(found[1]) if found else None
    return card if isinstance(card, dict) else {}


def _signature(blob: Blob, until: float) -> str:
    return _signed_text(blob.sha256, until)


def _signed_text(sha256: str, until: float) -> str:
    """Return what makes a URL of an LFS file valid until a time."""
    return Blob(f"{sha256} {until}".encode(), False).oid
