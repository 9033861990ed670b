"""Measure planning: a million tasks over 10,000 files, whose content is not read.

    .venv/bin/python benchmarks/planning.py [--files 10000] [--tasks 1000000]

The files are sparse: they have a size, but use no space on the disk.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from measure import publish

from transforms.files.listing import list_inputs
from transforms.files.tasks import encode_plan, make_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="(default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="(default: %(default)s)")
    arguments = parser.parse_args()
    task_bytes = 64 << 20
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.files):
            with open(Path(folder, f"{number:06}.jsonl"), "wb") as file:
                file.write(b'{"messages": []}\n')
                file.truncate(task_bytes * arguments.tasks // arguments.files)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        files = list_inputs([folder], "auto")
        listed = time.perf_counter()
        plan = encode_plan(files)
        tasks = sum(1 for _ in make_tasks(files, task_bytes))
        end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    publish(
        "planning",
        "Planning without reading the data",
        ["files", "tasks", "seconds to list", "seconds to plan", "bytes of the plan", "MB of additional memory"],
        [
            [
                f"{len(files):,}",
                f"{tasks:,}",
                f"{listed - start:.1f}",
                f"{end - listed:.1f}",
                f"{len(plan):,}",
                f"{(after - before) / 1024:.0f}",
            ]
        ],
    )


if __name__ == "__main__":
    main()
