"""Where the parts of a dataset are, and which folders may become one."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from transforms.base.errors import ParameterError, UserError
from transforms.model.receipts import work_folder
from transforms.outputs import output_folders
from transforms.storage.files import exists, join, path_type, read_bytes
from transforms.storage.versions import modification_time
from transforms.storage.walking import entries_below, link_below, names_in
from transforms.storage.writing import SECONDS_ALIVE

# Of a version of a dataset, and of its manifest, whose keys are public: a change of their meaning is another one.
FORMAT = 3
# Of the rows of a dataset.
SPLITS = ("train", "validation")
# What the names of files begin with, by the folder of the files. The id of their increment follows.
_NAMES = {**dict.fromkeys(output_folders(), SPLITS), "records": ("records",)}
# The folders of the files of rows and of exceptions.
PUBLISHED = tuple(_NAMES)
# The folders of what the jobs of several versions may have in common.
STORED = ("_chatmill/tokenizers", "_chatmill/formatters", "_chatmill/evaluations")
# What a dataset consists of.
PARTS = ("manifest.json", "report.html", "README.md", "recipe.yaml", "SHA256SUMS", *PUBLISHED, "_chatmill")
_INCREMENT = "[0-9a-f]{16}"
# The numbers of the task, and of its shard, follow.
_PUBLISHED = re.compile(
    f"({'|'.join(f'{folder}/{name}' for folder, names in _NAMES.items() for name in names)})"
    rf"-(?P<increment>{_INCREMENT})-\d{{6,}}-\d{{3,}}(\.\w+)+"
)
_STORED = re.compile(r"_chatmill/((tokenizers|evaluations)/[0-9a-f]{16}/.+|formatters/[0-9a-f]{16}\.py)")


class Folder:
    """The urls of the parts of a dataset, or of one increment of it that is being built.

    What is below `work` is the increment's own, and is removed when it is committed.

    Args:
        output: the url of its folder.
        increment: the id of the increment; empty for the dataset.
    """

    def __init__(self, output: str, increment: str = ""):
        self.output = output
        self.increment = increment
        self.state = join(output, "_chatmill")
        self.work = work_folder(output, increment)
        self.job = join(self.work, "job.json")
        self.plan = join(self.work, "plan.jsonl")
        self.receipts = join(self.work, "receipts")
        self.failures = join(self.work, "failures")
        self.lock = join(self.state, "lock")
        self.building = work_folder(output, "").rstrip("/")
        self.versions = join(self.state, "versions")
        self.manifest = join(output, "manifest.json")
        self.report = join(output, "report.html")
        self.card = join(output, "README.md")
        self.recipe = join(output, "recipe.yaml")
        self.checksums = join(output, "SHA256SUMS")
        # What the urls of the increment's files of exceptions begin with.
        self.records = join(output, "records", f"records-{increment}")

    def tokenizer(self, fingerprint: str) -> str:
        """Return the url of the stored files of a tokenizer. A dataset that was overwritten has those of both."""
        return join(self.state, "tokenizers", fingerprint[:16])

    def formatter(self, sha256: str) -> str:
        """Return the url of the stored file of a formatter, from the sha256 of its content."""
        return join(self.state, "formatters", f"{sha256[:16]}.py")

    def evaluations(self, sha256: str) -> str:
        """Return the url of the stored file of evaluation sets, from the sha256 of its content."""
        return join(self.state, "evaluations", sha256[:16], "evaluations.jsonl")

    def stored_formatter(self, name: str | None, sha256: str | None) -> str | None:
        """Return the name of a formatter by its stored file, or as it is if none is stored.

        Args:
            name: as it was given, module:function or file.py:function; None if there is none.
            sha256: of the content of its file; None for a module that is installed.
        """
        return f"{self.formatter(sha256)}:{name.rpartition(':')[2]}" if name and sha256 else name

    def stored(self, job: Mapping[str, Any]) -> dict[str, str]:
        """Return what a build stores for its job, whose content is given: by its url the fingerprint of a tokenizer's
        files, or the sha256 of a file.
        """
        digests = {self.tokenizer(job["tokenizer"]): job["tokenizer"]}
        for sha256 in filter(None, (each.get("formatter") for each in (job, *job.get("sources", ())))):
            digests[self.formatter(sha256)] = sha256
        if evaluations := job.get("evaluations"):
            digests[self.evaluations(evaluations["sha256"])] = evaluations["sha256"]
        return digests

    def files(self, *parts: str) -> list[str]:
        """Find the files of the increment in folders of PUBLISHED, whether or not something names them: their paths,
        relative to the folder of the dataset, in order.
        """
        paths = [
            join(part, name)
            for part in parts
            for what in _NAMES[part]
            for name in names_in(join(self.output, part), f"{what}-{self.increment}-")
        ]
        return sorted(filter(find_increment_id, paths))

    def begun(self) -> list[str]:
        """Return the ids of the increments that were begun and not committed, or of which something is left."""
        return [*filter(is_increment, names_in(self.building))]


def last_written(folder: Folder) -> float:
    """Return when the newest file below the work folder of an increment was written; 0 if there is none."""
    return max(map(modification_time, entries_below(folder.work).values()), default=0.0)


def is_alive(folder: Folder) -> bool:
    """Return whether an increment may be being built: its newest file is younger than a day.

    Then nobody removes anything of it: it may be built on another machine, or by a cluster whose launcher has ended.
    """
    return last_written(folder) > time.time() - SECONDS_ALIVE


def is_increment(id: str) -> bool:
    """Return whether a text is the id of an increment: 16 hexadecimal digits."""
    return re.fullmatch(_INCREMENT, id) is not None


def find_increment_id(path: str) -> str | None:
    """Return the id of the increment that a file belongs to, by its path relative to the folder of the dataset; None if
    no build gives a file such a path.
    """
    match = _PUBLISHED.fullmatch(path)
    return match["increment"] if match else None


def is_stored(path: str) -> bool:
    """Return whether a path, relative to the dataset's folder, is that of a file that jobs store there."""
    return _STORED.fullmatch(path) is not None


def check_no_links(folder: Folder) -> None:
    """Check that nothing is written or removed through a link: no folder of a dataset may be one.

    Args:
        folder: of the dataset. It may itself be a link.

    Raises:
        UserError: if one is.
    """
    if link := next(filter(None, (link_below(join(folder.output, part)) for part in PARTS)), None):
        raise UserError(
            f"{link}: it is a link to a folder or to nothing; expected a folder of the dataset, in which files are "
            "written and removed. Put the folder itself there."
        )


def check_free(folder: Folder, overwrite: bool = False) -> None:
    """Check that a folder is new or empty, or holds a dataset, finished or not, which may be replaced with overwrite.

    Raises:
        ParameterError: if it is a file, or holds something else.
        UserError: if a folder of the dataset is a link, or another version of Chatmill wrote it.
    """
    kind = path_type(folder.output)
    if kind == "file":
        raise ParameterError("output", folder.output, "there is a file of that name. Give a folder.")
    check_no_links(folder)
    if not overwrite:
        check_format(folder)
    # One request: what another one tries in the folder of the state may be gone at the next.
    if kind == "directory" and (names := names_in(folder.output)) and posixpath.basename(folder.state) not in names:
        hint = "overwrite replaces only what Chatmill wrote; " if overwrite else ""
        problem = f"the folder holds other files. {hint}Give one that is empty or new."
        raise ParameterError("output", folder.output, problem)


class DerivedManifest(msgspec.Struct):
    """What manifest.json says of its format, and of its files if an earlier version of Chatmill wrote it."""

    format: int
    shards: list[dict[str, Any]] = []
    ledger: list[dict[str, Any]] = []
    rejects: list[str] = []

    def paths(self) -> Iterator[str]:
        """Yield the path of each file that a build may have written."""
        for path in (*(str(file.get("path")) for file in (*self.shards, *self.ledger)), *self.rejects):
            if re.fullmatch(r"(data|tfrecord|rejects|ledger)/\w[\w.-]*", path):
                yield path


_decode_manifest = msgspec.json.Decoder(DerivedManifest).decode


def derived_manifest(folder: Folder) -> DerivedManifest | None:
    """Return what is in manifest.json, which may be of another version; None if it is missing or damaged."""
    try:
        return _decode_manifest(read_bytes(folder.manifest))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def check_format(folder: Folder) -> None:
    """Check that no other version of Chatmill wrote what is in a folder, unless a build took its place.

    Raises:
        UserError: if one did.
    """
    if names_in(folder.versions):
        return
    manifest = derived_manifest(folder)
    format = manifest.format if manifest else FORMAT
    if format != FORMAT or exists(join(folder.state, "job.json")) or names_in(join(folder.state, "log")):
        raise UserError(
            f"{folder.output}: {'a later' if format > FORMAT else 'an earlier'} version of Chatmill wrote this "
            "dataset. Its rows can be read with datasets, and as input of a build; overwrite builds it again."
        )
