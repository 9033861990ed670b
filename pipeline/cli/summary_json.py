"""--summary_json: the result of a run as JSON, for schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from transforms.base.errors import StoreError, Unavailable, UserError
from transforms.catalog.snapshot import Increment
from transforms.storage.files import check_reachable, full_url, is_inside, kind_of, read_bytes
from transforms.storage.writing import write_atomically

# A file is only replaced if it has this.
_MARK, _COMMAND = "written_by", "chatmill build"
_SUMS = ("records", "rows", "tokens", "trained_tokens", "trained_tokens_lost", "notes", "sources")


def sums(manifest: dict[str, Any]) -> dict[str, Any]:
    """The sums of a manifest, as --summary_json has them."""
    of_snapshot = {"snapshot": manifest["snapshot"]} if "snapshot" in manifest else {}
    return {name: manifest[name] for name in _SUMS} | {"shards": len(manifest["shards"])} | of_snapshot


def appended_sums(increments: Sequence[Increment]) -> dict[str, Any]:
    """The sums of the increments that an append added, as --summary_json has them."""
    return {
        "increments": len(increments),
        "files": sum(len(each.inputs) for each in increments),
        "records": sum(each.sums["records"]["read"] for each in increments),
        **{name: sum(each.sums[name] for each in increments) for name in ("rows", "tokens", "trained_tokens")},
    }


def check_summary_json(summary: dict[str, Any], url: str, output: str | None) -> None:
    """Write a first summary, that of a run that has begun, to find out whether the url can be written.

    Args:
        summary: what to write.
        url: the value of --summary_json.
        output: the folder of the dataset, None if it is not known.

    Raises:
        UserError: if the url cannot be written, is in the output, or is a file of something else.
        Unavailable: if its store does not answer.
    """
    if url == "-":
        return
    if output and is_inside(full_url(url), output):
        raise UserError(
            f"--summary_json {url}: it is inside --output, which holds nothing but the dataset. Give another url."
        )
    try:
        check_reachable(url)
        kind = kind_of(url)
        if kind not in (None, "file", "directory"):
            raise UserError(f"--summary_json {url}: it is not a regular file (a pipe or a device). Give another url.")
        if kind == "file" and not _is_summary(read_bytes(url)):
            raise UserError(
                f"--summary_json {url}: this file exists and is not a summary, so it is not replaced. Give another url."
            )
        write_summary_json(summary, url)
    except StoreError as error:
        raise error.as_user_error(f"--summary_json {error}") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--summary_json {url}: it cannot be written ({error}).") from None


def _is_summary(content: bytes) -> bool:
    """Whether we wrote a file, or nothing is in it."""
    try:
        return msgspec.json.decode(content, type=dict).get(_MARK) == _COMMAND
    except msgspec.MsgspecError:
        return not content


def write_summary_json(summary: dict[str, Any], url: str) -> None:
    """Write the summary of a run as JSON: indented to a url, in one line to standard output (-)."""
    summary = {_MARK: _COMMAND, **summary}
    if url == "-":
        print(msgspec.json.encode(summary).decode(), flush=True)
    else:
        write_atomically(full_url(url), msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")


def write_failure(error: str, url: str) -> None:
    """Write the summary of a run that failed. If that cannot be written either, the first error is the one to show.

    Args:
        error: why it failed.
        url: the value of --summary_json.
    """
    summary = {"status": "failed", "error": error}
    with suppress(UserError, Unavailable):
        check_summary_json(summary, url, output=None)
        write_summary_json(summary, url)
