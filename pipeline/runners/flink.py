"""Flink: what its cluster is asked before a job is submitted, the defaults that follow, and the job on the cluster."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
)
from apache_beam.runners.portability.job_server import JavaJarJobServer
from apache_beam.runners.runner import PipelineResult, PipelineState

from pipeline.job import job_name
from transforms.errors import Unavailable, UserError
from transforms.tokens.tokenizer import WITHOUT_TORCH

# The values of --flink_master with which Flink runs inside Beam's job server.
_EMBEDDED = ("[local]", "[auto]")

_SECONDS_TO_ANSWER = 10
# For how long a worker is kept that no stage needs: until the next stage, or until the job begins anew.
_WORKERS_KEPT_MILLIS = 20_000
# The one that deploy/flink/job_server.sh builds.
_BUILT_VERSION = "1.19"


def flink_defaults(options: PipelineOptions, flags: Sequence[str], output: str) -> list[str]:
    """The options of Beam's that a job needs besides the flags that were given, which stand behind them and so win.

    Raises Unavailable where the cluster is not there, UserError where what it takes to submit a job to it is not.
    """
    given = {flag.partition("=")[0] for flag in flags}
    cluster = _cluster_of(options)
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if not shutil.which(java) and not (cluster and options.view_as(FlinkRunnerOptions).flink_submit_uber_jar):
        raise UserError(f"--runner FlinkRunner: there is no {java}. Install it (Debian: apt-get install default-jre).")
    if cluster:
        about = _ask(cluster, "overview")
        slots, machines = about["slots-total"], about["taskmanagers"]
        if not slots and not given.issuperset({"--parallelism", "--sdk_worker_parallelism"}):
            raise Unavailable(
                f"--flink_master {cluster}: the cluster has no TaskManager with a slot yet. Where it starts them when "
                "a job needs them, give --parallelism and --sdk_worker_parallelism, which follow from them else."
            )
        version = ".".join(about["flink-version"].split(".")[:2])
    else:
        slots, machines = os.cpu_count() or 1, 1
        version = _BUILT_VERSION if _built_job_server().exists() else FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS[-1]
    defaults = [
        f"--job_name={job_name(output)}",
        f"--environment_cache_millis={_WORKERS_KEPT_MILLIS}",
    ]
    if slots:
        defaults += [f"--parallelism={slots}", f"--sdk_worker_parallelism={-(-slots // machines)}"]
    if "--environment_type" not in given:
        worker: dict[str, Any] = {"command": str(Path(sys.executable).with_name("chatmill-worker"))}
        if WITHOUT_TORCH in os.environ:
            worker["env"] = {WITHOUT_TORCH: os.environ[WITHOUT_TORCH]}
        defaults += ["--environment_type=PROCESS", f"--environment_config={json.dumps(worker)}"]
    if "--flink_version" in given:
        version = options.view_as(FlinkRunnerOptions).flink_version
    if given.isdisjoint({"--flink_job_server_jar", "--job_endpoint"}):
        defaults += [f"--flink_version={version}", f"--flink_job_server_jar={_job_server(version)}"]
    return defaults


def _cluster_of(options: PipelineOptions) -> str | None:
    """The url of the cluster's REST server; None where Flink is to run inside the job server."""
    master = options.view_as(FlinkRunnerOptions).flink_master.strip()
    if master in _EMBEDDED:
        return None
    return (master if master.startswith(("http://", "https://")) else f"http://{master}").rstrip("/")


def _built_job_server() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "chatmill" / f"flink-job-server-{_BUILT_VERSION}.jar"


def _job_server(version: str) -> str:
    """Beam's job server for a version of Flink: the one that was built here, else Beam's own, which it fetches."""
    if version == _BUILT_VERSION and _built_job_server().exists():
        return str(_built_job_server())
    try:
        return JavaJarJobServer.local_jar(
            JavaJarJobServer.path_to_beam_jar(f":runners:flink:{version}:job-server:shadowJar")
        )
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"--runner FlinkRunner: Beam's job server for Flink {version} cannot be had ({error}). "
            f"deploy/flink/job_server.sh builds the one for Flink {_BUILT_VERSION}."
        ) from None


def _ask(cluster: str, path: str, method: str = "GET") -> Any:
    """What the cluster's REST server answers. Raises Unavailable where none does, UserError where it is no Flink's."""
    request = urllib.request.Request(f"{cluster}/{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        answers = isinstance(error, ValueError) or getattr(error, "code", 500) < 500  # an HTTPError has a code
        reason = getattr(error, "reason", error)
        raise (UserError if answers else Unavailable)(
            f"--flink_master {cluster}: no Flink cluster answers there ({reason})."
        ) from None


@dataclass(frozen=True)
class FlinkJob:
    """A job on a cluster, known there by its name. earlier: the ids of those of that name that have ended."""

    cluster: str
    name: str
    earlier: frozenset[str]

    @classmethod
    def to_submit(cls, options: PipelineOptions) -> FlinkJob | None:
        """The job that these options will submit, None where Flink is to run here.

        Raises Unavailable where it is running already.
        """
        cluster, name = _cluster_of(options), options.view_as(GoogleCloudOptions).job_name
        if cluster is None:
            return None
        job = cls(cluster, name, frozenset())
        of_name = job._found()
        if running := [known["jid"] for known in of_name if known["end-time"] < 0]:
            raise Unavailable(
                f"the job {name} is running already: {job._page(running[0])}. Wait for its end, or cancel it."
            )
        return cls(cluster, name, frozenset(known["jid"] for known in of_name))

    def page_when_there(self, result: PipelineResult) -> str:
        """The page of the job in Flink's own pages, once the cluster has it. Raises what the job server raises else."""
        while not (found := self._found()):
            if result.state == PipelineState.FAILED:
                result.wait_until_finish()
            time.sleep(0.5)
        return self._page(found[0]["jid"])

    def cancel(self) -> None:
        for known in self._found():
            _ask(self.cluster, f"jobs/{known['jid']}?mode=cancel", "PATCH")

    def _page(self, job_id: str) -> str:
        return f"{self.cluster}/#/job/running/{job_id}/overview"

    def _found(self) -> list[dict[str, Any]]:
        jobs = _ask(self.cluster, "jobs/overview")["jobs"]
        return [known for known in jobs if known["name"] == self.name and known["jid"] not in self.earlier]
