"""Check a manifest: against itself, against the log, and against the files around it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from transforms.audit.verification.row_check import Fault
from transforms.base.errors import InputError, ParameterError
from transforms.catalog.consumers import RowLayout
from transforms.catalog.description import evaluations_of, formatters_of
from transforms.catalog.layout import increment_of
from transforms.catalog.log import Log
from transforms.inputs.plan_file import encode_plan
from transforms.model.counts import ROWS_ADDED
from transforms.publish.derived import derived_from
from transforms.reading.reader import Dataset
from transforms.storage.files import exists, join, read_bytes, sha256_of
from transforms.tokens.tokenizer_files import fingerprint, read_tokenizer_folder

MANIFEST = "manifest.json"
_DIFFERENCES_SHOWN = 20
_REJECTS = ("source", "position", "reason", "detail", "record")


def sums_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield what in a manifest contradicts itself."""
    manifest = dataset.manifest
    records = manifest["records"]
    outcomes = records["kept"] + records["truncated"] + sum(records["dropped"].values())
    outcomes += sum(records["rejected"].values())
    if records["read"] != outcomes:
        yield Fault(MANIFEST, f"{records['read']:,} records were read, and {outcomes:,} have an outcome")
    for format in sorted({shard["format"] for shard in dataset.shards()}):
        for what in ("rows", "tokens", "trained_tokens"):
            found = sum(shard[what] for shard in dataset.shards(format=format))
            if found != manifest[what]:
                yield Fault(MANIFEST, f"it has {manifest[what]:,} {what}, and its {format} shards have {found:,}")
    for what in ("rows", "tokens", "trained_tokens"):
        if (found := sum(source[what] for source in manifest["sources"])) != manifest[what]:
            yield Fault(MANIFEST, f"it has {manifest[what]:,} {what}, and its sources have {found:,}")
    if (found := sum(source["records"]["read"] for source in manifest["sources"])) != records["read"]:
        yield Fault(MANIFEST, f"{records['read']:,} records were read, and {found:,} of them from its sources")
    if not dataset.packed and manifest["rows"] != expected_examples(manifest):
        problem = f"it has {manifest['rows']:,} rows, and records that have {expected_examples(manifest):,}"
        yield Fault(MANIFEST, problem)
    layout = RowLayout.of(dataset.options)
    if manifest["layout"] != layout.described():
        yield Fault(MANIFEST, f"its layout is {manifest['layout']}; by the options of its job {layout.described()}")
    formats = {shard["format"] for shard in dataset.shards()}
    if formats != {*layout.formats} and (formats or manifest["rows"]):  # all increments may have failed
        yield Fault(MANIFEST, f"it has shards in {', '.join(sorted(formats))}; expected {', '.join(layout.formats)}")
    yield from _name_faults([shard["path"] for shard in dataset.shards()])
    yield from _name_faults(manifest["rejects"])


def expected_examples(manifest: Mapping[str, Any]) -> int:
    """Return how many examples the outcomes of the records and the notes add up to, if none is split."""
    records, notes = manifest["records"], manifest["notes"]
    return records["kept"] + records["truncated"] + sum(notes.get(name, 0) for name in ROWS_ADDED)


def _name_faults(paths: Sequence[str]) -> Iterator[Fault]:
    """Find paths that no increment gives to its files."""
    for path in paths:
        if not increment_of(path):
            yield Fault(MANIFEST, f"{path} is not the name of a file of a dataset")


def derived_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield what is not what the log gives: manifest.json, README.md, _SUCCESS, which are of its newest version."""
    newest = Log(dataset.folder).newest()
    assert newest
    if dataset.version != newest.version:
        return
    manifest, card = derived_from(dataset.folder, newest)
    try:
        written = msgspec.json.decode(read_bytes(dataset.folder.manifest))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        yield Fault(MANIFEST, "it is missing or damaged")
    else:
        differences = list(_differences(written, msgspec.json.decode(msgspec.json.encode(manifest)), ""))
        for difference in differences[:_DIFFERENCES_SHOWN]:
            yield Fault(MANIFEST, difference)
        if len(differences) > _DIFFERENCES_SHOWN:
            yield Fault(MANIFEST, f"{len(differences) - _DIFFERENCES_SHOWN:,} further values are not those of the log")
    if exists(dataset.folder.card) and read_bytes(dataset.folder.card) != card:
        yield Fault("README.md", "it is not the card of the newest version, whose files `datasets` would read")
    if not exists(dataset.folder.success):
        yield Fault("_SUCCESS", "it is missing")


def log_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield where the log contradicts itself, and builds that have other inputs than their job was planned for."""
    log = Log(dataset.folder)
    for problem in log.problems():
        yield Fault("_chatmill/log", problem)
    for entry in log.versions():
        if entry.job and entry.job.get("inputs") != hashlib.sha256(encode_plan(entry.add.inputs)).hexdigest():
            yield Fault(f"_chatmill/log/{entry.version:08d}.json", "the inputs are not those of the job")


def _differences(found: Any, expected: Any, at: str) -> Iterator[str]:
    """Describe where two JSON values differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            yield from _differences(found.get(key), expected.get(key), f"{at}.{key}" if at else key)
    elif _are_entries(found) and _are_entries(expected):
        by_path, as_written = ({entry["path"]: entry for entry in entries} for entries in (found, expected))
        yield from _differences(by_path, as_written, at)
        if by_path.keys() == as_written.keys() and [*by_path] != [*as_written]:
            yield f"{at} are in another order than in the log"
    elif found != expected:
        yield f"{at} is {_shown(found)}; by the log it is {_shown(expected)}"


def _are_entries(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) and "path" in entry for entry in value)


def _shown(value: Any) -> str:
    text = "not there" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:197]}..."


def rejects_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield what is wrong with the rejects: their files, and their reasons against the manifest."""
    increments = dataset.snapshot.increments if dataset.snapshot else ()
    sums = {file["path"]: file["sha256"] for increment in increments for file in increment.files.rejects}
    reasons: Counter[str] = Counter()
    is_complete = True
    for path in dataset.manifest["rejects"]:
        url = join(dataset.url, path)
        try:
            for batch in dataset.read_rejects(path):
                reasons.update(batch.column("reason").to_pylist())
            if path in sums and sha256_of(url) != sums[path]:
                yield Fault(path, "it is not the file that was committed: it was changed or damaged")
        except InputError as error:
            is_complete = False
            yield Fault(path, str(error).removeprefix(f"{url}: "))
        except (KeyError, pa.ArrowException):
            is_complete = False
            yield Fault(path, f"it does not have the columns of rejects: {', '.join(_REJECTS)}")
    if is_complete and reasons != Counter(expected_reasons := dataset.rejected()):
        problem = f"the rejects have the reasons {dict(sorted(reasons.items()))}; the manifest has"
        yield Fault("rejects", f"{problem} {expected_reasons}")


def stored_files_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield which files next to a dataset are not those of its job: tokenizer, formatters and evaluation sets."""
    job = dataset.manifest["job"]
    state = join(dataset.url, "")
    tokenizer = dataset.tokenizer_folder.removeprefix(state)
    try:
        found = fingerprint(read_tokenizer_folder(dataset.tokenizer_folder))
    except ParameterError as error:
        yield Fault(tokenizer, error.problem)
    else:
        if found != job["tokenizer"]:
            yield Fault(tokenizer, f"its files have the fingerprint {found}; the job was run with {job['tokenizer']}")
    stored = {dataset.folder.formatter(sha256): sha256 for sha256 in formatters_of(job)}
    if sha256 := evaluations_of(job):
        stored[dataset.folder.evaluations(sha256)] = sha256
    for url, sha256 in stored.items():
        try:
            found = hashlib.sha256(read_bytes(url)).hexdigest()
        except FileNotFoundError:
            found = "missing"
        if found != sha256:
            yield Fault(url.removeprefix(state), f"its sha256 is {found}; the job was run with {sha256}")
