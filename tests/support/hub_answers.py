"""What the tests' Hub answers: its API for datasets, as the real client reads it, and the signed URLs of LFS files."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

from support.hub_repos import Blob, Commit, Repo, folder_entry, is_lfs

if TYPE_CHECKING:
    from support.hub import Hub


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


class Refused(Exception):
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


class Request:
    """A request of a client, and its answer.

    Args:
        hub: the server.
        command: GET, HEAD, POST or PUT.
        url: the path and the query.
        headers: by name.
        body: its content.

    Attributes:
        kind: one of KINDS of the server.
    """

    def __init__(self, hub: Hub, command: str, url: str, headers: Message, body: bytes):
        parts = urlsplit(url)
        self._hub, self._command, self._path, self._headers, self._body = hub, command, parts.path, headers, body
        self._parts = [unquote(part) for part in parts.path.split("/")[1:]]
        self._query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.kind = "resolve" if "resolve" in self._parts[3:4] else "api"
        if self._parts[0] in ("cdn", "upload"):
            self.kind = self._parts[0]

    def __str__(self) -> str:
        return f"{self._command} {self._path}"

    def answer(self, is_expired: bool = False) -> Answer:
        """Return the answer to the request.

        Args:
            is_expired: whether a signed URL is answered as one that has expired.

        Raises:
            Refused: if the answer is an error.
        """
        if self.kind in ("cdn", "upload"):
            return self._signed(is_expired)
        match self._parts:
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
        raise Refused(404, "Sorry, we can't find the page you are looking for.")

    def _user(self) -> User | None:
        header = self._headers.get("Authorization")
        if header is None:
            return None
        user = self._hub.users.get(header.removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def _repo(self, name: str) -> Repo:
        """Return a repository that the user may see."""
        user = self._user()
        repo = self._hub.repos.get(name)
        if repo is None or (repo.is_private and not (user and user.owns(name))):
            raise Refused(404 if user else 401, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, name: str) -> Repo:
        """Return a repository that the user may write."""
        user, repo = self._user(), self._repo(name)
        if user is None:
            raise Refused(401, "Invalid username or password.")
        if not user.owns(name):
            raise Refused(403, f"Authorization error. You don't have the rights to write to {name}")
        self._require_write(user)
        return repo

    def _require_write(self, user: User) -> None:
        if user.role != "write":
            message = (
                "Your token doesn't have the rights to write: you must use a write token to upload to a repository."
            )
            raise Refused(403, message)

    def _commit_of(self, repo: Repo, revision: str) -> Commit:
        commit = repo.resolve(revision)
        if commit is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def _whoami(self) -> dict:
        user = self._user()
        if user is None:
            raise Refused(401, "Invalid username or password.")
        orgs = [{"type": "org", "name": name, "roleInOrg": "write"} for name in user.orgs]
        auth = {"type": "access_token", "accessToken": {"displayName": "tests", "role": user.role}}
        return {"type": "user", "name": user.name, "fullname": user.name, "orgs": orgs, "auth": auth}

    def _create(self) -> Answer:
        user, wanted = self._user(), json.loads(self._body)
        if user is None:
            raise Refused(401, "Invalid username or password.")
        org = wanted.get("organization") or user.name
        name = f"{org}/{wanted['name']}"
        if not user.owns(name):
            raise Refused(403, f'You don\'t have the rights to create a dataset under the namespace "{org}"')
        self._require_write(user)
        created = {"url": f"{self._hub.endpoint}/datasets/{name}", "name": name}
        if name in self._hub.repos:
            return _json({**created, "error": "You already created this dataset repo"}, status=409)
        is_private = wanted.get("visibility") == "private" or wanted.get("private") is True
        self._hub.add(name, is_private=is_private)
        return _json(created)

    def _validate_yaml(self) -> Answer:
        """Refuse a card whose front matter is not YAML, or does not give `configs` as a list."""
        content = json.loads(self._body)["content"]
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
        with_blobs = self._query.get("blobs", "").lower() in ("true", "1")
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
        expand = self._query.get("expand", "").lower() == "true"
        commit = self._commit_of(repo, revision)
        entries = repo.tree(commit, folder, self._query.get("recursive", "").lower() == "true", expand)
        if entries is None:
            raise Refused(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
        limit = min(int(self._query.get("limit", self._hub.page)), 50 if expand else self._hub.page)
        start = int(base64.b64decode(self._query.get("cursor", "MA==")))
        headers = {"X-Repo-Commit": commit.sha}
        if start + limit < len(entries):
            cursor = quote(base64.b64encode(str(start + limit).encode()).decode(), safe="")
            kept = "&".join(f"{name}={quote(value)}" for name, value in self._query.items() if name != "cursor")
            path = self._path
            headers["Link"] = f'<{self._hub.endpoint}{path}?{kept}&cursor={cursor}>; rel="next"'
        return _json(entries[start : start + limit], headers=headers)

    def _paths_info(self, repo: Repo, revision: str) -> list[dict]:
        commit = self._commit_of(repo, revision)
        asked = parse_qs(self._body.decode())
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
            raise Refused(409, f"Reference already exists: {branch}")
        start = json.loads(self._body or b"{}").get("startingPoint", "main")
        repo.refs[f"refs/heads/{branch}"] = self._commit_of(repo, start).sha
        return _json({})

    def _resolve(self, repo: Repo, revision: str, path: str) -> Answer:
        user = self._user()
        if repo.gated and not (user and (user.owns(repo.name) or user.name in repo.granted)):
            message = f"Access to dataset {repo.name} is restricted. "
            message += "You are not in the authorized list." if user else "You must be authenticated to access it."
            raise Refused(403 if user else 401, message, "GatedRepo")
        commit = self._commit_of(repo, revision)
        blob = commit.files.get(path)
        if blob is None:
            raise Refused(404, "Entry not found", "EntryNotFound", X_Repo_Commit=commit.sha)
        headers = {"X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes", "ETag": f'"{blob.etag}"'}
        if not blob.is_lfs:
            return self._content(blob.content, headers)
        until = time.time() + self._hub.link_seconds
        location = f"{self._hub.cdn}/cdn/{repo.name}/{blob.sha256}?Expires={until}&Signature={_signature(blob, until)}"
        linked = {"X-Linked-Size": str(len(blob.content)), "X-Linked-ETag": f'"{blob.etag}"', "Location": location}
        return Answer(302, b"Found. Redirecting to a signed URL", {**headers, **linked})

    def _signed(self, is_expired: bool) -> Answer:
        """Answer a request of a signed URL: /cdn/ORG/NAME/SHA256 has the content, /upload/ORG/NAME/SHA256 takes it."""
        _, org, name, sha256 = self._parts
        repo = self._hub.repos[f"{org}/{name}"]
        if self._headers.get("Authorization"):
            self._hub.authorizations.append(self._headers["Authorization"])
            return _xml(400, "InvalidArgument", "Only one auth mechanism allowed")
        until = float(self._query.get("Expires", 0))
        if is_expired or until < time.time():
            return _xml(403, "AccessDenied", "Request has expired")
        if self._query.get("Signature") != _signed_text(sha256, until):
            return _xml(403, "SignatureDoesNotMatch", "The signature does not match")
        if self.kind == "upload":
            return self._uploaded(repo, sha256)
        answer = self._content(repo.stored[sha256], {"Accept-Ranges": "bytes", "ETag": f'"{sha256}"'})
        self._hub.cdn_bytes += 0 if self._command == "HEAD" else len(answer.body)
        return answer

    def _uploaded(self, repo: Repo, sha256: str) -> Answer:
        if Blob(self._body, True).sha256 != sha256:
            return _xml(400, "BadDigest", "The content has another sha256 than its name")
        repo.stored[sha256] = self._body
        self._hub.upload_bytes += len(self._body)
        return Answer(200, headers={"ETag": f'"{sha256}"'})

    def _content(self, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Answer with a content, or with the range of it that was requested."""
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self._headers.get("Range", ""), re.IGNORECASE)
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
        for file in json.loads(self._body)["files"]:
            present = commit.files.get(file["path"])
            is_large = is_lfs(file["path"], file["size"]) or _is_binary(base64.b64decode(file["sample"]))
            mode = "lfs" if is_large else "regular"
            oid = {"oid": present.etag} if present else {}
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return {"files": files, "commitOid": commit.sha}

    def _lfs_batch(self, repo: Repo) -> Answer:
        """Say where to send objects. Those which are stored already need no action."""
        if len(wanted := json.loads(self._body)["objects"]) > 1000:
            raise Refused(413, "too many objects")
        objects = []
        for entry in wanted:
            known = {"oid": entry["oid"], "size": entry["size"]}
            if entry["oid"] not in repo.stored:
                until = time.time() + self._hub.link_seconds
                signature = _signed_text(entry["oid"], until)
                href = f"{self._hub.cdn}/upload/{repo.name}/{entry['oid']}?Expires={until}&Signature={signature}"
                known["actions"] = {"upload": {"href": href}}
            objects.append(known)
        return _json({"transfer": "basic", "objects": objects})

    def _commit(self, repo: Repo, branch: str) -> Answer:
        lines = [json.loads(line) for line in self._body.splitlines()]
        header, operations = lines[0]["value"], lines[1:]
        head = self._commit_of(repo, branch)
        if f"refs/heads/{branch}" not in repo.refs:
            raise Refused(400, f"{branch} is not a branch")
        files: dict[str, bytes | Blob] = {}
        deleted: list[str] = []
        for operation in operations:
            key, value = operation["key"], operation["value"]
            if key == "file":
                content = base64.b64decode(value["content"])
                if _is_binary(content):
                    raise Refused(400, f"Your push was rejected because it contains binary files: {value['path']}")
                files[value["path"]] = Blob(content, False)
            elif key == "lfsFile":
                if value["oid"] not in repo.stored:
                    raise Refused(400, f"LFS pointer of {value['path']} pointed to a file that does not exist")
                files[value["path"]] = Blob(repo.stored[value["oid"]], True)
            else:
                path = value["path"].rstrip("/")
                gone = [p for p in head.files if p == path or (key == "deletedFolder" and p.startswith(f"{path}/"))]
                if not gone:
                    raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                deleted += gone
        try:
            sha = repo.commit(files, deleted, branch, header["summary"], header.get("parentCommit"))
        except KeyError:
            raise Refused(412, "A commit has happened since. Please refresh and try again.") from None
        url = f"{self._hub.endpoint}/datasets/{repo.name}/commit/{sha}"
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
