"""What the commit of an increment needs of job.json, which the command line or WriteDataset wrote."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from transforms.base.version import __version__
from transforms.storage.files import read_bytes

# Each of these can change texts, tokens or the bytes of a shard.
_LIBRARIES = ("transformers", "tokenizers", "jinja2", "pyarrow", "zstandard", "msgspec")


class NamedSource(msgspec.Struct, frozen=True):
    """The name of a source."""

    name: str


class Description(msgspec.Struct, frozen=True):
    """A job, as far as its commit needs it.

    Args:
        options: the options that change rows, by name, as JSON.
        tasks: how many tasks were planned.
        tokenizer_name: the tokenizer, as the user named it.
        versions: of the libraries that can change the output.
        sources: the sources of the records, by their numbers.
        job: all of job.json, which goes into the manifest.
    """

    options: dict[str, Any]
    tasks: int
    tokenizer_name: str
    versions: dict[str, str]
    sources: tuple[NamedSource, ...] = (NamedSource("input"),)
    job: dict[str, Any] = {}


_decode = msgspec.json.Decoder(Description).decode


def read_description(url: str) -> Description:
    """Read the description of a job from its job.json."""
    content = read_bytes(url)
    described = _decode(content)
    return msgspec.structs.replace(described, job=msgspec.json.decode(content, type=dict))


def library_versions() -> dict[str, str]:
    """Return the versions of Chatmill and of the libraries that can change its output."""
    return {"chatmill": __version__} | {library: version(library) for library in _LIBRARIES}
