"""Flink: installed once on a machine, and clusters of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.paths import ROOT

_SCRIPTS = ROOT / "tests" / "support" / "flink_cluster"
# What job_server.sh builds.
_JOB_SERVER = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chatmill" / "flink-job-server-1.19.jar"
)
FLINK = ("--runner=FlinkRunner", f"--flink_job_server_jar={_JOB_SERVER}")


def install_flink() -> None:
    """Install Flink and its job server. Skips the test if it cannot be."""
    missing = [tool for tool in ("java", "mvn", "curl") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"Flink needs {', '.join(missing)} (apt-get install default-jre-headless maven curl)")
    for script in ("install.sh", "job_server.sh"):
        done = subprocess.run([_SCRIPTS / script], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{script} failed, and Flink was not tested: {done.stderr.strip()[-500:]}")


@dataclass(frozen=True)
class Cluster:
    """A cluster. folder: the FOLDER of start.sh. address: host:port of the REST server."""

    folder: Path
    address: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/{path}", timeout=30) as answer:
            return json.load(answer)

    def last_job(self) -> dict[str, Any]:
        job = max(self.get("jobs/overview")["jobs"], key=lambda job: job["start-time"])
        return self.get(f"jobs/{job['jid']}")

    def tasks_written(self, job: dict[str, Any]) -> dict[str, int]:
        """The number of tasks that each TaskManager wrote."""
        (writing,) = (vertex for vertex in job["vertices"] if "write" in vertex["name"])
        managers = self.get(f"jobs/{job['jid']}/vertices/{writing['id']}/taskmanagers")["taskmanagers"]
        return {manager["taskmanager-id"]: manager["metrics"]["read-records"] for manager in managers}

    def processes(self) -> list[psutil.Process]:
        """The processes of the cluster, and those of its workers, which inherit its environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FLINK_PID_DIR") == str(self.folder / "pids"):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill_taskmanager(self) -> None:
        """Kill one of two TaskManagers that have a worker, and its worker, as soon as there are two."""
        deadline = time.monotonic() + 120
        workers = self._workers()
        while len({worker.ppid() for worker in workers}) != 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
            workers = self._workers()
        for process in (workers[0].parent(), workers[0]):
            process.kill()

    def _workers(self) -> list[psutil.Process]:
        return [process for process in self.processes() if "chatmill-worker" in " ".join(process.cmdline())]


@contextmanager
def running_cluster(folder: Path, taskmanagers: int) -> Iterator[Cluster]:
    """A cluster, which is stopped in the end."""
    started = subprocess.run(
        [_SCRIPTS / "start.sh", folder, str(taskmanagers)], capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, started.stderr
    cluster = Cluster(folder, started.stdout.strip())
    yield cluster
    subprocess.run([_SCRIPTS / "stop.sh", folder], capture_output=True, check=True)
    _, alive = psutil.wait_procs(cluster.processes(), timeout=10)
    assert not alive
