"""Every: what is new in the inputs is appended again and again, until SIGTERM.

All that lasts is in the dataset: its versions, and an increment that was begun, which the next run finishes first.
"""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable

from pipeline.cli.console import show
from pipeline.growth.append import Appended
from pipeline.growth.increments import planned_files
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Increment
from transforms.inputs.listing import Accepts, Key


def append_every(seconds: int, folder: Folder, append: Callable[[Accepts], Appended]) -> Appended:
    """Append what has settled since the look before, until SIGTERM, which ends it after the current increment.

    Args:
        seconds: from one look at the inputs to the next.
        folder: of the dataset.
        append: appends those files that a function accepts. What it raises ends this.

    Returns:
        The last append, with the increments of all of them; or the first one whose job does not end in this process.
    """
    before: dict[Key, str] = {}
    now = {file.key: file.version for id in folder.begun() for file in planned_files(Folder(folder.output, id))}
    increments: list[Increment] = []
    signals: list[int] = []

    def has_settled(key: Key, version: str) -> bool:
        now[key] = version
        return before.get(key) == version

    def stop(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        show("stopping after the current increment")

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            next_look, before, now = time.monotonic() + seconds, now, {}
            appended = append(has_settled)
            increments += appended.increments
            gc.collect()  # a graph is full of cycles, and holds what it read
            while not signals and time.monotonic() < next_look:
                time.sleep(0.2)
            if signals or appended.status not in ("done", "nothing_new"):
                return appended._replace(increments=tuple(increments))
    finally:
        signal.signal(signal.SIGTERM, previous)
