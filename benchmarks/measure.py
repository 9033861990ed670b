"""Helpers of the benchmarks: measure a build, repeat a corpus, describe the machine, store a table."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def build(options: Sequence[str]) -> tuple[float, int, dict[str, Any]]:
    """Run a build in a separate process; return its seconds, its peak memory in bytes, and its manifest."""
    output = next(option.partition("=")[2] for option in options if option.startswith("--output="))
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "pipeline", *options], stdout=subprocess.DEVNULL, cwd=HERE.parent)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_pss(process.pid))
        time.sleep(0.1)
    seconds = time.monotonic() - start
    if process.returncode:
        sys.exit(f"the build failed with exit code {process.returncode}")
    return seconds, peak, json.loads(Path(output, "manifest.json").read_text())


def tree_pss(pid: int) -> int:
    """Return the proportional set size of a process and its descendants, in bytes. Shared pages count once."""
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


def repeated(corpus: Path, times: int, target: Path) -> Path:
    """Write a JSONL corpus `times` times, one copy after another, into one file."""
    with open(target, "wb") as file:
        for _ in range(times):
            with open(corpus, "rb") as source:
                shutil.copyfileobj(source, file)
    return target


def peers_python() -> str:
    """Return the Python of the other tools' environment, which is created from peers.txt if it does not exist."""
    folder = HERE / ".peers"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", HERE / "peers.txt"], check=True)
    return str(python)


def machine() -> str:
    """Describe the machine in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.processor()
    memory = psutil.virtual_memory().total / 2**30
    return f"{cores} cores of {model}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def publish(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, and store it for report.py."""
    RESULTS.mkdir(exist_ok=True)
    table = {
        "title": title,
        "machine": machine(),
        "header": list(header),
        "rows": [list(map(str, row)) for row in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")
    print(table["title"], "", " | ".join(header), *(" | ".join(map(str, row)) for row in rows), sep="\n")
