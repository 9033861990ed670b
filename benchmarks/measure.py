"""What the benchmarks share: builds that are measured, corpora that are repeated, the machine, tables that are kept."""

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
    """Seconds and peak bytes of a build with these options in a process of its own, and its manifest."""
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
    """Bytes of proportional set size of a process and all below it, in which pages that are shared count once."""
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
    """A file that holds a JSONL corpus so many times."""
    with open(target, "wb") as file:
        for _ in range(times):
            with open(corpus, "rb") as source:
                shutil.copyfileobj(source, file)
    return target


def peers_python() -> str:
    """The Python of the peers' own environment, which is made from peers.txt where it is missing."""
    folder = HERE / ".peers"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", HERE / "peers.txt"], check=True)
    return str(python)


def machine() -> str:
    """The machine in a line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.processor()
    memory = psutil.virtual_memory().total / 2**30
    return f"{cores} cores of {model}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def publish(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, and keep it for report.py."""
    RESULTS.mkdir(exist_ok=True)
    table = {
        "title": title,
        "machine": machine(),
        "header": list(header),
        "rows": [list(map(str, row)) for row in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")
    print(table["title"], "", " | ".join(header), *(" | ".join(map(str, row)) for row in rows), sep="\n")
