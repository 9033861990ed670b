"""Figures: what a watch has done since it began, for --summary_json and for its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.cli.summary_json import sums
from transforms.base.phrases import counted
from transforms.catalog.layout import Folder
from transforms.catalog.snapshot import Increment, Snapshot


class Figures:
    """The figures of a watch.

    Attributes:
        increments: how many were committed, with those that failed.
    """

    def __init__(self) -> None:
        self.increments = 0
        self._failures = self._files = self._records = 0
        self._lag = self._longest_lag = 0.0

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Figures:
        """Take the figures from a summary. described: of `described`; empty at the beginning."""
        figures = cls()
        figures.increments = described.get("increments", 0)
        figures._failures, figures._files = described.get("failures", 0), described.get("files", 0)
        figures._records = described.get("records", 0)
        figures._lag = described.get("lag_seconds", 0.0)
        figures._longest_lag = described.get("longest_lag_seconds", 0.0)
        return figures

    def add(self, increment: Increment, lag: float) -> str:
        """Add a commit.

        Args:
            increment: that it added.
            lag: seconds from when the first of its files was first seen as it is, until the commit.

        Returns:
            A line for the log.
        """
        has_failed = increment.status == "failed"
        self.increments += 1
        self._failures += has_failed
        files, records = len(increment.inputs), increment.sums["records"]["read"]
        self._files += files
        self._records += records
        self._lag, self._longest_lag = lag, max(lag, self._longest_lag)
        added = f"{counted(files, 'file')} with {counted(records, 'record')}"
        if has_failed:
            return f"{added} failed: {increment.error} (chatmill build --append --retry_failed takes them again)"
        return f"{added}, {lag:,.0f} s after they arrived"

    def line(self) -> str:
        """Return the sums in one line."""
        failed = f", {self._failures:,} failed" if self._failures else ""
        sums = (counted(self._files, "file"), counted(self._records, "record"), counted(self.increments, "increment"))
        return f"{', '.join(sums)}{failed}"

    def described(self, waiting: int) -> dict[str, Any]:
        """Return the figures as --summary_json has them. waiting: the files that are seen and not taken."""
        return {
            "files": self._files,
            "records": self._records,
            "increments": self.increments,
            "failures": self._failures,
            "files_waiting": waiting,
            "lag_seconds": round(self._lag, 1),
            "longest_lag_seconds": round(self._longest_lag, 1),
        }


def summary_of(folder: Folder, snapshot: Snapshot, status: str, figures: Figures, waiting: int) -> dict[str, Any]:
    """Return the summary of a watch, for --summary_json.

    Args:
        folder: of the dataset.
        snapshot: the newest one.
        status: watching, stopped or failed.
        figures: of the watch.
        waiting: the files that are seen and not taken.
    """
    summary = {"status": status, "output": folder.output, "watch": figures.described(waiting)}
    return summary | (sums(snapshot.manifest()) if snapshot.increments else {})
