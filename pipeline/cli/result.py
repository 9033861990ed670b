"""--json: the result of a run as the last line of standard output, for schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from transforms.dataset.versions import Increment

_SUMS = (
    "records",
    "rows",
    "tokens",
    "trained_tokens",
    "trained_tokens_lost",
    "notes",
    "sources",
    "version",
    "increments",
)


def sums(manifest: dict[str, Any]) -> dict[str, Any]:
    """The sums of a manifest, as --json has them."""
    return {name: manifest[name] for name in _SUMS} | {"shards": len(manifest["shards"])}


def appended_sums(increments: Sequence[Increment]) -> dict[str, Any]:
    """The sums of the increments that an append added, as --json has them."""
    return {
        "increments": len(increments),
        "files": sum(len(each.inputs) for each in increments),
        "records": sum(each.counts.records.read for each in increments),
        **{
            name: sum(getattr(each.counts, name) for each in increments)
            for name in ("rows", "tokens", "trained_tokens")
        },
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the result of a run as JSON: the last line of standard output, with --json."""
    print(msgspec.json.encode(result).decode(), flush=True)
