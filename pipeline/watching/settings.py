"""Settings: when a watch takes the files that arrive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """When files are taken. All but min_records are in seconds.

    every: between two looks. settle, min_records, max_delay: as Arrivals has them.
    """

    every: int = 60
    settle: int = 30
    min_records: int = 1_000
    max_delay: int = 600
