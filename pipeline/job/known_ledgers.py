"""Known ledgers: those of the records that an increment must not have again, found at launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.job.job_json import Job, job_of
from transforms.base.errors import UserError
from transforms.catalog.snapshot import Snapshot
from transforms.exchange.known import KnownLedger, encode_known
from transforms.reading.reader import Dataset
from transforms.storage.files import full_url

# What decides the tokens of a record: of the job, and of its options.
_OF_JOB = ("tokenizer", "chat_template", "now")
_OF_TOKENS = (
    "chat_template_kwargs",
    "content_format",
    "parity",
    "special_tokens_in_content",
    "strip_bos",
)


def known_ledgers(job: Job, snapshot: Snapshot | None = None, replaces: Sequence[str] = ()) -> bytes:
    """Find the ledgers of the records that are known to an increment.

    Args:
        job: of the dataset.
        snapshot: what it has already; None if a build takes the place of all of it.
        replaces: the ids of the increments that it takes the place of.

    Returns:
        The content of the file that lists them; empty if there are none.

    Raises:
        UserError: if a dataset of dedup_against has not what is compared.
        InputError, StoreError: as for `Dataset`.
    """
    if job.options.dedup == "none":
        return b""
    found = [ledger for url in job.options.dedup_against for ledger in _of_dataset(url, job)]
    if snapshot:
        found += [
            KnownLedger("", "", file["path"], file["sha256"])
            for each in snapshot.increments
            if each.status == "done" and each.id not in replaces
            for file in each.files.ledger
        ]
    return encode_known(found)


def _of_dataset(url: str, job: Job) -> Iterator[KnownLedger]:
    """Yield the ledgers of a dataset of dedup_against. Raises UserError if its digests are not those of the job."""
    try:
        dataset = Dataset(full_url(url))
        other = job_of(dataset.folder, Snapshot(job=dataset.manifest["job"]))
    except UserError as error:
        raise UserError(f"--dedup_against {error}") from None
    if other.options.dedup == "none" or other.options.ledger != "all":
        raise UserError(
            f"--dedup_against {url}: its ledger has no digests of its records. Build it again, with --dedup exact "
            "--ledger all, or leave it out."
        )
    before, now = (
        {name: getattr(of, name) for name in _OF_JOB} | {name: getattr(of.options, name) for name in _OF_TOKENS}
        for of in (other, job)
    )
    if changed := next((name for name in now if before[name] != now[name]), None):
        raise UserError(
            f"--dedup_against {url}: it was built with another --{changed}, so its tokens cannot be compared with "
            "those of this dataset. Give the same one, or leave it out."
        )
    for file in dataset.manifest["ledger"]:
        yield KnownLedger(dataset.name, dataset.url, file["path"], file["sha256"])
