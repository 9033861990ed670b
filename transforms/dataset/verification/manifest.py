"""Check a manifest: against itself, against the receipts of what was written, and against the files around it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from transforms.dataset.consumers import RowLayout
from transforms.dataset.description import job_id, read_description
from transforms.dataset.log_files import LogFiles
from transforms.dataset.manifest import build_manifest, check_complete, named_rejects
from transforms.dataset.reader import Dataset
from transforms.dataset.verification.rows import Fault
from transforms.errors import InputError, ParameterError
from transforms.model.receipts import Receipt, numbers_of, read_receipts
from transforms.storage.files import join, read_bytes, sha256_of
from transforms.tokens.files import fingerprint, read_tokenizer_folder

MANIFEST = "manifest.json"
_NUMBERED = re.compile(r"(?P<before>.+)-(?P<number>\d+)-of-(?P<total>\d+)(?P<suffix>\.[\w.]+)")
_AT_ONCE = 16
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
    yield from _numbering_faults([shard["path"] for shard in dataset.shards()])
    yield from _numbering_faults(manifest["rejects"])


def expected_examples(manifest: Mapping[str, Any]) -> int:
    """Return how many examples the outcomes of the records and the notes add up to, if none is split."""
    added = ("parity_rows_added", "formatter_rows_added")
    records, notes = manifest["records"], manifest["notes"]
    return records["kept"] + records["truncated"] + sum(notes.get(name, 0) for name in added)


def _numbering_faults(paths: Sequence[str]) -> Iterator[Fault]:
    """Find gaps in names such as train-00007-of-00042.parquet."""
    found = []
    for path in paths:
        if name := _NUMBERED.fullmatch(path):
            found.append((name["before"], name["suffix"], int(name["total"]), int(name["number"])))
        else:
            yield Fault(MANIFEST, f"{path} is not the name of a file of a dataset")
    for (before, suffix), files in groupby(sorted(found), key=lambda file: file[:2]):
        totals, numbers = zip(*((total, number) for _, _, total, number in files), strict=True)
        if {*totals} != {len(totals)} or list(numbers) != list(range(len(numbers))):
            yield Fault(MANIFEST, f"of {before}-*{suffix} it names {len(numbers)} files, of {max(totals)}")


def read_all_receipts(dataset: Dataset, names: Sequence[str]) -> tuple[list[Receipt], list[Fault]]:
    """Read the receipts of a dataset.

    Args:
        dataset: with its folder `_chatmill`.
        names: of all its files.

    Returns:
        The receipts in order, none if something is wrong with any, and what is wrong.
    """
    folder = "_chatmill/receipts"
    parts = Counter(
        numbers[0]
        for name in names
        if name.startswith(f"{folder}/") and (numbers := numbers_of(name[len(folder) + 1 :]))
    )
    job = job_id(dataset.folder)

    def read(split: int) -> list[Receipt] | str:
        try:
            return (
                read_receipts(dataset.folder.receipts, split, parts[split], job) or f"split {split} has no last receipt"
            )
        except (ValueError, FileNotFoundError) as error:
            return str(error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(read, sorted(parts)))
    if problems := [problem for problem in found if isinstance(problem, str)]:
        return [], [Fault(folder, f"{len(problems):,} of {len(found):,} receipts are not usable: {problems[0]}")]
    receipts = [receipt for of_split in found for receipt in of_split if isinstance(receipt, Receipt)]
    try:
        check_complete(read_description(dataset.folder.job).splits, receipts)
    except ValueError as error:
        return [], [Fault(folder, str(error))]
    return receipts, []


def receipts_faults(dataset: Dataset, receipts: Sequence[Receipt]) -> Iterator[Fault]:
    """Yield where a manifest is not the one that its receipts add up to, and files of rejects that are others."""
    try:
        built = build_manifest(read_description(dataset.folder.job), receipts)
    except ValueError as error:
        yield Fault("_chatmill/receipts", str(error))
        return
    differences = list(_differences(dataset.manifest, msgspec.json.decode(msgspec.json.encode(built)), ""))
    for difference in differences[:_DIFFERENCES_SHOWN]:
        yield Fault(MANIFEST, difference)
    if len(differences) > _DIFFERENCES_SHOWN:
        yield Fault(MANIFEST, f"{len(differences) - _DIFFERENCES_SHOWN:,} further values are not those of the receipts")


def _differences(found: Any, expected: Any, at: str) -> Iterator[str]:
    """Describe where two JSON values differ. A key that a later version adds is not a difference."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected} if at else {*found} & {*expected}):
            yield from _differences(found.get(key), expected.get(key), f"{at}.{key}" if at else key)
    elif _are_entries(found) and _are_entries(expected):
        by_path, as_written = ({entry["path"]: entry for entry in entries} for entries in (found, expected))
        yield from _differences(by_path, as_written, at)
    elif found != expected:
        yield f"{at} is {_shown(found)}; by the receipts it is {_shown(expected)}"


def _are_entries(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) and "path" in entry for entry in value)


def _shown(value: Any) -> str:
    text = "not there" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:197]}..."


def rejects_faults(dataset: Dataset, receipts: Sequence[Receipt]) -> Iterator[Fault]:
    """Yield what is wrong with the rejects: their files, and their reasons against the manifest."""
    checksums = {path: file for file, path in named_rejects(receipts)}
    of_files = {receipt.rejects_file: receipt.rejects_sha256 for receipt in receipts if receipt.rejects_file}
    reasons: Counter[str] = Counter()
    is_complete = True
    for path in dataset.manifest["rejects"]:
        url = join(dataset.url, path)
        try:
            for batch in dataset.read_rejects(path):
                reasons.update(batch.column("reason").to_pylist())
            expected = of_files.get(checksums.get(path, ""))
            if expected is not None and sha256_of(url) != expected:
                yield Fault(path, "it is not the file of the receipt: it was changed or damaged")
        except InputError as error:
            is_complete = False
            yield Fault(path, str(error).removeprefix(f"{url}: "))
        except (KeyError, pa.ArrowException):
            is_complete = False
            yield Fault(path, f"it has not the columns of rejects: {', '.join(_REJECTS)}")
    if is_complete and reasons != Counter(expected_reasons := dataset.rejected()):
        problem = f"the rejects have the reasons {dict(sorted(reasons.items()))}; the manifest has"
        yield Fault("rejects", f"{problem} {expected_reasons}")


def stored_files_faults(dataset: Dataset) -> Iterator[Fault]:
    """Yield which files next to a dataset are not those of its job: job.json, plan, tokenizer, formatters."""
    job = dataset.manifest["job"]
    try:
        stored = msgspec.json.decode(read_bytes(dataset.folder.job))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        yield Fault("_chatmill/job.json", "it is missing or damaged")
    else:
        if stored != job:
            yield Fault("_chatmill/job.json", "it is not the job that the manifest has")
    if dataset.version is None and not LogFiles(dataset.folder).has_first_inputs():
        yield Fault("_chatmill/plan.jsonl", "it is missing, or is not the list of the inputs of the job")
    try:
        found = fingerprint(read_tokenizer_folder(dataset.folder.tokenizer))
    except ParameterError as error:
        yield Fault("_chatmill/tokenizer", error.problem)
    else:
        if found != job["tokenizer"]:
            problem = f"its files have the fingerprint {found}; the job was run with {job['tokenizer']}"
            yield Fault("_chatmill/tokenizer", problem)
    for path, sha256 in _formatters(job):
        try:
            found = hashlib.sha256(read_bytes(join(dataset.folder.work, path))).hexdigest()
        except FileNotFoundError:
            found = "missing"
        if found != sha256:
            yield Fault(f"_chatmill/{path}", f"its sha256 is {found}; the job was run with {sha256}")


def _formatters(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The files of formatters that a build stores, and their sha256. A pipeline of the user's own stores none."""
    if "steps" in job:
        return
    if job.get("formatter"):
        yield "formatter.py", job["formatter"]
    for number, source in enumerate(job.get("sources", ())):
        if source.get("formatter"):
            yield f"formatters/{number}.py", source["formatter"]
