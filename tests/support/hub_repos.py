"""Dataset repositories of the tests' Hub: files, commits and refs, in memory, with the ids that Git gives them."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

# Each repository of the Hub begins with a commit of this file. The patterns are a few of the real ones.
GIT_ATTRIBUTES = "".join(
    f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n"
    for suffix in ("arrow", "bin", "gz", "npy", "npz", "parquet", "safetensors", "tar", "tgz", "xz", "zip", "zst")
).encode()
_LFS_SUFFIXES = tuple(line.split()[0][1:] for line in GIT_ATTRIBUTES.decode().splitlines())
_REGULAR_BYTES = 10 << 20  # the Hub takes no larger file outside of LFS


@dataclass(frozen=True)
class Blob:
    """The content of a file.

    Attributes:
        content: its bytes.
        is_lfs: stored in LFS: Git has a pointer, whose id is the file's blob id.
    """

    content: bytes
    is_lfs: bool

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        return text.encode()

    @cached_property
    def oid(self) -> str:
        """The id of the blob in Git, as `git hash-object` prints it."""
        stored = self.pointer if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        """What identifies the content in HTTP headers and in `preupload`: the sha256 of an LFS file."""
        return self.sha256 if self.is_lfs else self.oid

    def described(self, path: str) -> dict:
        """Return the file as `tree` and `paths-info` describe it."""
        entry = {"type": "file", "oid": self.oid, "size": len(self.content), "path": path}
        if self.is_lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}
        return entry

    def sibling(self, path: str, with_blobs: bool) -> dict:
        """Return the file as `siblings` of a repository's information describe it."""
        if not with_blobs:
            return {"rfilename": path}
        entry = {"rfilename": path, "size": len(self.content), "blobId": self.oid}
        if self.is_lfs:
            entry["lfs"] = {"sha256": self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}
        return entry


@dataclass(frozen=True)
class Commit:
    """A version of a repository: its files by path, in the order of Git."""

    sha: str
    title: str
    files: Mapping[str, Blob]
    parent: str | None
    changed: frozenset[str]

    def last_commit(self) -> dict:
        """Return the commit as entries of an expanded tree name it."""
        return {"id": self.sha, "title": self.title, "date": "2026-01-02T03:04:05.000Z"}


@dataclass
class Repo:
    """A dataset repository.

    Attributes:
        name: ORG/NAME.
        is_private: other users get the answer of a repository that does not exist.
        gated: None, or "auto" or "manual": files can be read only by members of its namespace and users in `granted`.
        granted: names of users whom a gated repository admits.
        commits: by id.
        refs: the id of a commit by full name: refs/heads/main, refs/tags/v1, refs/convert/parquet.
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
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.commit({".gitattributes": GIT_ATTRIBUTES}, title="initial commit")

    def commit(
        self,
        files: Mapping[str, bytes | Blob],
        deleted: Iterable[str] = (),
        revision: str = "main",
        title: str = "a push",
        parent: str | None = None,
    ) -> str:
        """Commit files, as a user's push does.

        Args:
            files: the new content of each path.
            deleted: paths that the commit removes.
            revision: a branch, or a ref such as refs/convert/parquet. It is created, empty, if there is none.
            title: of the commit.
            parent: the commit on which the changes were made.

        Returns:
            The id of the commit.

        Raises:
            KeyError: the branch is not at `parent`.
        """
        ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        with self._lock:
            head = self.commits.get(self.refs.get(ref, ""))
            if parent is not None and (head is None or head.sha != parent):
                raise KeyError(parent)
            blobs = {path: self._blob(path, content) for path, content in files.items()}
            kept = {path: blob for path, blob in (head.files if head else {}).items() if path not in set(deleted)}
            tree = dict(sorted({**kept, **blobs}.items()))
            sha = hashlib.sha1(f"{self.name} {ref} {next(self._numbers)}".encode()).hexdigest()
            changed = frozenset(blobs) | frozenset(deleted)
            self.commits[sha] = Commit(sha, title, tree, head.sha if head else None, changed)
            self.refs[ref] = sha
            return sha

    def _blob(self, path: str, content: bytes | Blob) -> Blob:
        blob = content if isinstance(content, Blob) else Blob(content, is_lfs(path, len(content)))
        if blob.is_lfs:
            self.stored[blob.sha256] = blob.content
        return blob

    def resolve(self, revision: str) -> Commit | None:
        """Return the commit of a branch, tag, ref or (abbreviated) commit id; None if there is none."""
        for ref in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if ref in self.refs:
                return self.commits[self.refs[ref]]
        found = [sha for sha in self.commits if len(revision) >= 7 and sha.startswith(revision)]
        return self.commits[found[0]] if len(found) == 1 else None

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Return the content of each file of a revision."""
        commit = self.resolve(revision)
        assert commit is not None, revision
        return {path: blob.content for path, blob in commit.files.items()}

    def history(self, revision: str = "main") -> list[Commit]:
        """Return the commits of a branch, the newest first."""
        found, commit = [], self.resolve(revision)
        while commit is not None:
            found.append(commit)
            commit = self.commits.get(commit.parent or "")
        return found

    def tree(self, commit: Commit, folder: str, recursive: bool, expand: bool) -> list[dict] | None:
        """Return the entries of a folder, or of the file that has this path, as `tree` lists them; None if absent."""
        if folder in commit.files:
            return [self._expanded(commit.files[folder].described(folder), commit, expand)]
        prefix = f"{folder}/" if folder else ""
        entries: dict[str, dict] = {}
        for path, blob in commit.files.items():
            if not path.startswith(prefix):
                continue
            for parent in list(PurePosixPath(path).parents)[-2::-1]:
                inner = str(parent)
                if inner.startswith(prefix) and (recursive or "/" not in inner[len(prefix) :]):
                    entries[inner] = folder_entry(inner)
            if recursive or "/" not in path[len(prefix) :]:
                entries[path] = blob.described(path)
        if folder and not entries:
            return None
        return [self._expanded(entries[path], commit, expand) for path in sorted(entries)]

    def _expanded(self, entry: dict, commit: Commit, expand: bool) -> dict:
        if not expand:
            return entry
        of_path = entry["path"]
        changes = (
            one for one in self.history(commit.sha) if any(f"{p}/".startswith(f"{of_path}/") for p in one.changed)
        )
        return {**entry, "lastCommit": next(changes).last_commit()}


def folder_entry(path: str) -> dict:
    """Return a folder as `tree` and `paths-info` describe it."""
    return {"type": "directory", "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0, "path": path}


def is_lfs(path: str, size: int) -> bool:
    """Return whether the Hub wants a file in LFS."""
    return size > 0 and (path.endswith(_LFS_SUFFIXES) or size > _REGULAR_BYTES)
