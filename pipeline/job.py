"""The job: all that decides what the rows are, resolved once at launch and written to OUT/_chatmill/job.json."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from transforms.dataset.layout import Folder
from transforms.storage.files import exists, full_url, read_bytes, write_atomically


class Job(msgspec.Struct, frozen=True):
    """What a worker must know. The same job gives the same bytes, on any runner and at any parallelism.

    options: those that shape rows. split_bytes: bytes of input for a split. now: what strftime_now tells.
    tokenizer, formatter: sha256 of the files beside this one. chat_template: its text, where it is not the tokenizer's.
    inputs: sha256 of the list of input files. versions: of the libraries that shape the output.
    """

    options: dict[str, Any]
    split_bytes: int
    now: str | None
    tokenizer: str
    tokenizer_name: str
    chat_template: str | None
    formatter: str | None
    inputs: str
    input_bytes: int
    splits: int
    versions: dict[str, str]


def job_name(output: str) -> str:
    """The name by which a cluster knows the job for an output: one that is running is found by it, or refused by it."""
    url = full_url(output).rstrip("/")
    folder = re.sub("[^a-z0-9]+", "-", posixpath.basename(url).lower())[:40].strip("-")
    return "-".join(filter(None, ("chatmill", folder, hashlib.sha256(url.encode()).hexdigest()[:8])))


def write_job(folder: Folder, job: Job) -> None:
    write_atomically(folder.job, msgspec.json.format(msgspec.json.encode(job), indent=2))


def read_job(folder: Folder) -> Job | None:
    """The job that was planned in a folder, None where none was."""
    return msgspec.json.decode(read_bytes(folder.job), type=Job) if exists(folder.job) else None


def differences(before: Job, now: Job) -> Iterator[str]:
    """What of a job is not as it was, in words."""
    yield from differences_of_options(before.options, now.options)
    if before.tokenizer != now.tokenizer:
        yield f"the tokenizer's files differ (--tokenizer was {before.tokenizer_name} and is {now.tokenizer_name})"
    if before.chat_template != now.chat_template:
        yield "the chat template differs"
    if before.formatter != now.formatter:
        yield "the formatter's file differs"
    if before.now != now.now:
        yield f"--now was {before.now} and is {now.now}"
    for library in now.versions:
        if before.versions.get(library) != now.versions[library]:
            yield f"{library} was {before.versions.get(library)} and is {now.versions[library]}"


def differences_of_options(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"--{name} was {_shown(before.get(name))} and is {_shown(now.get(name))}"


def _shown(value: Any) -> str:
    return "none" if value is None else msgspec.json.encode(value).decode().strip('"')
