"""What is needed of job.json, which the command line or WriteDataset wrote, and which each version has."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from transforms.base.version import __version__
from transforms.storage.files import read_bytes

# Each of these can change texts, tokens or the bytes of a shard.
_LIBRARIES = ("transformers", "tokenizers", "jinja2", "pyarrow", "msgspec")


class NamedSource(msgspec.Struct, frozen=True):
    """The name of a source."""

    name: str


class Description(msgspec.Struct, frozen=True):
    """The types of what each job has.

    Args:
        options: the options that change rows, by name, as JSON.
        tasks: how many tasks were planned.
        tokenizer: the fingerprint of its files.
        tokenizer_name: the tokenizer, as the user named it.
        versions: of the libraries that can change the output.
        sources: the sources of the records, by their numbers.
    """

    options: dict[str, Any]
    tasks: int
    tokenizer: str
    tokenizer_name: str
    versions: dict[str, str]
    sources: tuple[NamedSource, ...] = (NamedSource("input"),)


def read_job(url: str) -> dict[str, Any]:
    """Read a job.json. Raises msgspec.MsgspecError or UnicodeDecodeError if it is damaged."""
    job = msgspec.json.decode(read_bytes(url), type=dict[str, Any])
    msgspec.convert(job, Description)
    return job


def library_versions() -> dict[str, str]:
    """Return the versions of Chatmill and of the libraries that can change its output."""
    return {"chatmill": __version__} | {library: version(library) for library in _LIBRARIES}
