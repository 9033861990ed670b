"""Push a dataset to a repository of the Hub, so that no reader there ever sees a part of it.

Shards go to large file storage first, where only a commit makes them visible. If they are few, one commit adds them,
replaces the card, manifest and report, and deletes what the version no longer has. If they are many, several commits
add the others before it: no card names their files yet. A push that was killed is run again, and finds what is there:
what was committed by its sha256, what was only uploaded by the Hub's own answer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import CommitOperationAdd

from transforms.base.errors import InputError, Unavailable, UserError
from transforms.dataset.reader import Dataset, reading
from transforms.dataset.versions import read_version
from transforms.pushing.card_header import with_header_of
from transforms.pushing.contents import CARD, MANIFEST, Contents, DataFile, contents_of, shards_of
from transforms.pushing.planning import UNFINISHED, Held, NotReplaceable, Plan, check_replaceable, plan
from transforms.pushing.repository import Moved, Repository
from transforms.storage.files import file_system, full_url, open_file

# Files in a commit: the Hub may take longer than a minute for more, which a proxy then cuts off.
FILES_IN_COMMIT = 256
# What is uploaded at once, and what temporary files take, if the dataset is not on this machine.
BYTES_AT_ONCE = 1 << 30
_ATTEMPTS = 5
_PIECE = 4 << 20

_T = TypeVar("_T")


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        url: of the repository.
        version: of the dataset that it has now.
        commits: how many were made.
        sent: how many files were committed.
        there: how many files it had already.
        deleted: how many files were deleted.
    """

    url: str
    version: int
    commits: int
    sent: int
    there: int
    deleted: int


def push(
    url: str,
    name: str,
    branch: str | None = None,
    private: bool = False,
    with_rejects: bool = False,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Pushed:
    """Push a version of a dataset. The same push can be run again at any time, and then does what is left.

    Args:
        url: of the folder of the dataset; with @N its version N. What is committed meanwhile is not pushed.
        name: of the repository, ORG/NAME. It is made if it does not exist.
        branch: to push to; None for main.
        private: whether a new repository is private. An existing one must be, then.
        with_rejects: whether the files of exceptions, which have the rejected records, are pushed, too.
        overwrite: whether to replace what is there, also if it is not an earlier version of this dataset.
        progress: called with a line for people.

    Raises:
        UserError: if there is no such dataset, no token, or none that may write.
        NotReplaceable: if the repository has something else than an earlier version of the dataset.
        InputError: if a file of the dataset is missing or damaged.
        StoreError: if the store of the dataset or the Hub fails.
        Unavailable: if others commit to the repository all the time.
    """
    dataset, repository = Dataset(full_url(url)), Repository(name, branch)
    contents = contents_of(dataset, name, with_rejects)
    repository.open(private)
    made = _Pushing(repository, f"version {dataset.version}", progress)
    for _ in range(_ATTEMPTS):
        held = repository.held()
        if not overwrite:
            _check(held, contents, dataset, repository)
        todo = plan(contents, with_header_of(contents.card, held.card), held)
        try:
            made.do(todo, held)
        except Moved:
            continue
        return Pushed(repository.url, dataset.version, made.commits, made.sent, todo.there, len(todo.deleted))
    raise Unavailable(f"{repository.url}: others commit to it all the time. Run the same command again.")


def _check(held: Held, contents: Contents, dataset: Dataset, repository: Repository) -> None:
    """Raise NotReplaceable if a repository has something else than an earlier version of a dataset."""

    def shards_of_version(version: int) -> frozenset[tuple[str, str]] | None:
        try:
            return shards_of(read_version(dataset.folder, version).shards())
        except UserError:  # it has expired
            return None

    try:
        check_replaceable(held, contents, dataset.version, shards_of_version)
    except NotReplaceable as error:
        raise NotReplaceable(f"{repository.url}: {error}") from None


class _Pushing:
    """The uploads and commits of a push.

    Args:
        repository: to push to.
        what: is pushed, for the titles of commits.
        progress: called with a line for people.

    Attributes:
        commits, sent: as of Pushed.
    """

    def __init__(self, repository: Repository, what: str, progress: Callable[[str], None]):
        self._repository = repository
        self._what = what
        self._progress = progress
        self._uploaded: dict[str, CommitOperationAdd] = {}
        self.commits = self.sent = 0

    def do(self, todo: Plan, held: Held) -> None:
        """Do what is to be done. Raises Moved if somebody else has committed meanwhile."""
        if not (todo.data or todo.derived or todo.deleted):
            return
        parent, left = held.commit, len(todo.data)
        *earlier, last = [*_chunks(todo.data, FILES_IN_COMMIT)] or [[]]
        unfinished = with_header_of(UNFINISHED, held.card).encode()
        hidden = {CARD: unfinished} if earlier and MANIFEST not in held.files else {}
        for files in earlier:
            additions = [*self._upload(files, left), *(CommitOperationAdd(*each) for each in hidden.items())]
            title = f"Push {self._what}: {left - len(files):,} files are left"
            parent, left, hidden = self._commit(additions, [], parent, title), left - len(files), {}
        additions = self._upload(last, left)
        additions += [CommitOperationAdd(path, content) for path, content in todo.derived.items()]
        self._commit(additions, todo.deleted, parent, f"Push {self._what}")

    def _commit(self, additions: list[CommitOperationAdd], deleted: Sequence[str], parent: str, title: str) -> str:
        commit = self._repository.commit(additions, deleted, parent, title)
        self.commits += 1
        self.sent += len(additions)
        return commit

    def _upload(self, files: Sequence[DataFile], left: int) -> list[CommitOperationAdd]:
        """Upload files, unless an earlier attempt of this process did. left: how many are to be uploaded in all."""
        for some in _batches([file for file in files if file.path not in self._uploaded]):
            self._progress(f"{left:,} files to upload, now {some[0].path}")
            left -= len(some)
            with ExitStack() as stack:
                additions = [self._addition(file, stack) for file in some]
                self._repository.upload(additions)
                for addition in additions:
                    if addition.path_or_fileobj != b"":  # a small text, which is sent with the commit
                        content = Path(str(addition.path_or_fileobj)).read_bytes()
                        addition = CommitOperationAdd(addition.path_in_repo, content)
                    self._uploaded[addition.path_in_repo] = addition
        return [self._uploaded[file.path] for file in files]

    @staticmethod
    def _addition(file: DataFile, stack: ExitStack) -> CommitOperationAdd:
        """A file to upload: that on this disk, or a copy in a temporary folder, which the stack removes."""
        with reading(file.url):
            system, path = file_system(file.url)
            if not isinstance(system, LocalFileSystem):
                path = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "file")
                with open_file(file.url) as source, open(path, "wb") as copy:
                    while piece := source.read(_PIECE):
                        copy.write(piece)
            elif not Path(path).is_file():
                raise FileNotFoundError(path)
            addition = CommitOperationAdd(file.path, path)
        if addition.upload_info.sha256.hex() != file.sha256:
            raise InputError(
                f"{file.url}: the file is damaged (its sha256 is not that of the dataset). Copy it again, or build the "
                "dataset again."
            )
        return addition


def _chunks(values: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(values), most):
        yield values[start : start + most]


def _batches(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Put files together that are uploaded at once."""
    batch: list[DataFile] = []
    size = 0
    for file in files:
        if batch and size + file.size > BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
