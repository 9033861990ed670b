"""Helpers of the benchmarks: measure a build, repeat a corpus, describe the machine, store a table."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

HERE = Path(__file__).parent
RESULTS = HERE / "results"


class Build(NamedTuple):
    """What a build took: seconds, seconds of CPU, peak memory in bytes (0 if not measured); and its manifest."""

    seconds: float
    cpu: float
    peak: int
    manifest: dict[str, Any]


def build(options: Sequence[str], memory: bool = True) -> Build:
    """Run a build in a separate process, which is polled for its memory if that is to be measured."""
    output = next(option.partition("=")[2] for option in options if option.startswith("--output="))
    start, cpu = time.monotonic(), cpu_of_children()
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", "pipeline", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, cwd=HERE.parent)
        peak = 0
        while memory and process.poll() is None:
            peak = max(peak, tree_pss(process.pid))
            time.sleep(0.1)
        process.wait()
        seconds, cpu = time.monotonic() - start, cpu_of_children() - cpu
        if process.returncode:
            errors.seek(0)
            sys.exit(f"the build failed with exit code {process.returncode}: {errors.read()}")
    return Build(seconds, cpu, peak, json.loads(Path(output, "manifest.json").read_text()))


def cpu_of_children() -> float:
    """Return the CPU seconds of all processes that this one started and waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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


def peer(name: str, tasks: Sequence[tuple[Path, Path, Path | None]], workers: int) -> list[dict[str, Any]]:
    """Run another tool in one process.

    Args:
        name: of peers.PEERS.
        tasks: a corpus, a folder of a tokenizer, and a file of a chat template or None, for each.
        workers: processes of the tool.

    Returns:
        Seconds, CPU seconds, tokens and whether prompts are masked, for each task.
    """
    command = [str(peers_python()), str(HERE / "peers.py"), name, str(workers)]
    given = json.dumps([[path and str(path) for path in task] for task in tasks])
    finished = subprocess.run(
        command, check=False, input=given, capture_output=True, text=True, cwd=tempfile.gettempdir()
    )
    if finished.returncode:
        sys.exit(f"{name} failed: {finished.stderr[-2000:]}")
    return json.loads(finished.stdout.splitlines()[-1])


def peers_templates() -> Path:
    """Return the folder of chat templates that TRL has."""
    return next(Path(peers_python()).parents[1].glob("lib/python*/site-packages/trl/chat_templates"))


def machine() -> str:
    """Describe the machine in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.processor()
    memory = psutil.virtual_memory().total / 2**30
    return f"{cores} cores of {model}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def publish(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], store: bool = True) -> None:
    """Print a table, and store it for report.py if it is complete."""
    RESULTS.mkdir(exist_ok=True)
    table = {
        "title": title,
        "machine": machine(),
        "header": list(header),
        "rows": [list(map(str, row)) for row in rows],
    }
    if store:
        (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    print(table["title"], "", " | ".join(header), *(" | ".join(map(str, row)) for row in rows), sep="\n")
