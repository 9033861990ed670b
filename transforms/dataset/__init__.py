"""What a dataset consists of: its layout, versions, sums and manifest."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.base.options import Configuration, Fraction, option

# Kinds of reports that are written with a dataset.
REPORTS = ("html", "none")


@dataclass(frozen=True, kw_only=True)
class Budgets(Configuration):
    """How much may be rejected, lost or wrong before a run fails; 1 allows everything."""

    max_reject_fraction: Fraction = option(
        "Output",
        "the build fails if more than this fraction of the records is rejected",
        0.01,
        common=True,
    )
    max_lost_fraction: Fraction = option(
        "Output",
        "the build fails if more than this fraction of the tokens to train on is in no row because of max_length",
        1.0,
    )
    max_parity_fraction: Fraction = option(
        "Output",
        "with --parity report, the build fails if more than this fraction of the trained turns that were compared "
        "differs from inference",
        1.0,
    )
    max_unprinted_fraction: Fraction = option(
        "Output",
        "with --unprinted report, the build fails if more than this fraction of the records has a content, a tool call "
        "or tools that the chat template does not print",
        1.0,
    )
