"""What differs between two datasets by their manifests: jobs, outcomes of records, sums, and files of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_Pairs = dict[str, tuple[Any, Any]]
# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("recipe", "options", "versions", "split_bytes", "tasks", "input_bytes", "unpacked_bytes", "sources")


@dataclass(frozen=True)
class Differences:
    """What differs between two datasets, by name: of each the value in A and in B, None if it is not there.

    Attributes:
        job: options, versions of libraries, the tokenizer, the template, the inputs and the options of sources.
        records: the outcomes of records, such as `rejected: bad_message`.
        sums: rows, tokens, and other counts.
        files: how many files of rows A has, how many B has, and how many are the same bytes in both.
    """

    job: _Pairs
    records: _Pairs
    sums: _Pairs
    files: tuple[int, int, int]

    @property
    def are_of_job_alone(self) -> bool:
        """Whether the datasets have the same outcomes, sums and files, whatever made them."""
        return not (self.records or self.sums) and len({*self.files}) == 1


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Differences:
    """Compare the manifests of two datasets."""
    files = [Counter(shard["sha256"] for shard in manifest["shards"]) for manifest in (a, b)]
    counts = (files[0].total(), files[1].total(), (files[0] & files[1]).total())
    return Differences(_pairs(_job, a, b), _pairs(_records, a, b), _pairs(_sums, a, b), counts)


def _pairs(
    described: Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]], *manifests: Mapping[str, Any]
) -> _Pairs:
    a, b = (dict(described(manifest)) for manifest in manifests)
    return {name: (a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)}


def _job(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    job = manifest["job"]
    for name, value in job["options"].items():
        yield f"--{name}", value
    for name, value in job["versions"].items():
        yield f"version of {name}", value
    for name, value in job.items():
        if name not in _NOT_COMPARED:
            yield name.replace("_", " "), value
    for number, source in enumerate(job.get("sources", [])):
        # Its files are compared, as the inputs of the job, and not how they were named.
        yield f"source {number}", {name: value for name, value in source.items() if name != "input"}


def _records(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    records = manifest["records"]
    for name in ("read", "kept", "truncated"):
        yield name, records[name]
    for outcome in ("dropped", "rejected"):
        for reason, count in records[outcome].items():
            yield f"{outcome}: {reason}", count


def _sums(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in ("rows", "tokens", "trained_tokens", "trained_tokens_lost"):
        yield name, manifest[name]
    yield from manifest["notes"].items()
