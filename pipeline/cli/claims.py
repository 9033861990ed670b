"""The claim of the output, as commands hold it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transforms.storage.claim import Claim, Holder


@contextmanager
def claim_of(claims: str, output: str, job: str | None = None) -> Iterator[Claim]:
    """Yield the claim of an output, to be taken inside. It is released at the end, unless it is left to the job.

    Args:
        claims: the url of the folder of claims of the output.
        output: as errors name it.
        job: the job on a cluster that may go on without this process.
    """
    claim = Claim(claims, output, job)
    try:
        yield claim
    finally:
        if not claim.is_left:
            with suppress(OSError):  # it is taken over as soon as this process is gone, or gives no sign
                claim.release()


def take(claim: Claim, job_has_ended: bool, waits: bool = False) -> bool:
    """Take a claim, and report if it is taken over.

    Args:
        claim: of claim_of.
        job_has_ended: as for Claim.take.
        waits: whether to wait until another one has released it.

    Returns:
        Whether another one held it until then.
    """
    held: list[Holder | None] = []

    def report(holder: Holder | None) -> None:
        held.append(holder)
        print(f"chatmill: waiting: the output is locked by {_described(holder)}", file=sys.stderr, flush=True)

    before = claim.take(job_has_ended, when_held=report if waits else None)
    if before:
        print(f"chatmill: took over the output, whose lock is stale: {before}", file=sys.stderr)
    return bool(held)


def say_who_holds(holder: Holder | None) -> None:
    """Print for whom a command waits, which changes the dataset now."""
    print(f"chatmill: waiting: the dataset is locked by {_described(holder)}", file=sys.stderr)


def _described(holder: Holder | None) -> str:
    return str(holder or "a build whose claim cannot be read")
