"""The plan: the list of input files that is stored next to the output, one line for each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from transforms.files.formats import INPUT_FORMATS
from transforms.files.listing import InputFile

_decode = msgspec.json.Decoder(InputFile).decode


def encode_plan(files: Sequence[InputFile]) -> bytes:
    """Return the content of the plan file: JSON lines."""
    return b"".join(msgspec.json.encode(file) + b"\n" for file in files)


def decode_plan(content: bytes) -> list[InputFile]:
    """Return the input files that the content of a plan file lists. Raises msgspec.MsgspecError if it is damaged."""
    files = [_decode(line) for line in content.splitlines()]
    if unknown := {file.format for file in files} - {*INPUT_FORMATS}:
        raise msgspec.ValidationError(f"there is no input format {min(unknown)}")
    return files
