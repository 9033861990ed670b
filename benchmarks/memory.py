"""Peak memory of a build, against the size of its corpus: the same corpus once and ten times over.

    .venv/bin/python benchmarks/memory.py --input sgd.jsonl --tokenizer FOLDER [--times 1,10] [-- OPTION ...]

Memory is the proportional set size (PSS) of the whole process tree, so that pages that are shared count once; it is
sampled every 50 ms. What follows -- goes to the build.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="a JSONL file, not compressed")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--times", default="1,10", help="how often the corpus is repeated (default: 1,10)")
    parser.add_argument("options", nargs="*", help="options of the build")
    arguments = parser.parse_args()
    table = Table("times", "MB of input", "tokens", "seconds", "peak MB", "against the first")
    first = None
    for times in map(int, arguments.times.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            corpus, output = Path(folder, "corpus.jsonl"), Path(folder, "out")
            with open(corpus, "wb") as file:
                for _ in range(times):
                    with open(arguments.input, "rb") as source:
                        shutil.copyfileobj(source, file)
            seconds, peak = run(
                [f"--input={corpus}", f"--tokenizer={arguments.tokenizer}", f"--output={output}", *arguments.options]
            )
            tokens = json.loads((output / "manifest.json").read_text())["tokens"]
            first = first or peak
            size = corpus.stat().st_size
            table.add_row(
                f"{times}",
                f"{size / 1e6:,.1f}",
                f"{tokens:,}",
                f"{seconds:.1f}",
                f"{peak / 1e6:,.0f}",
                f"{peak / first:.3f}",
            )
    Console().print(table)


def run(options: list[str]) -> tuple[float, int]:
    """Seconds and peak bytes of a build with these options."""
    start = time.monotonic()
    build = subprocess.Popen([sys.executable, "-m", "pipeline", *options], stdout=subprocess.DEVNULL)
    peak = 0
    while build.poll() is None:
        peak = max(peak, tree_pss(build.pid))
        time.sleep(0.05)
    if build.returncode:
        sys.exit(f"the build failed with exit code {build.returncode}")
    return time.monotonic() - start, peak


def tree_pss(pid: int) -> int:
    """Bytes of proportional set size of a process and all below it; those that end meanwhile count nothing."""
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return total


if __name__ == "__main__":
    main()
