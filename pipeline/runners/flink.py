"""Flink: default options that fit the cluster, and how a job on it is cancelled."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.runners.runner import Runner, job_name
from transforms.base.errors import Unavailable, UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request
    from pipeline.plan import Plan

# The values of --flink_master with which Flink runs inside Beam's job server.
_EMBEDDED = ("[local]", "[auto]")

_SECONDS_TO_ANSWER = 10
# How long an idle worker is kept: long enough for the next stage, or for a restart of the job.
_WORKERS_KEPT_MILLIS = 20_000


def _find_cluster(options: PipelineOptions) -> str | None:
    """The url of the cluster's REST server; None if Flink is to run inside the job server."""
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    master = options.view_as(FlinkRunnerOptions).flink_master.strip()
    if master in _EMBEDDED:
        return None
    return (master if master.startswith(("http://", "https://")) else f"http://{master}").rstrip("/")


def _job_server(version: str) -> str:
    """Beam's job server for a version of Flink, which Beam downloads."""
    from apache_beam.runners.portability.job_server import JavaJarJobServer

    try:
        return JavaJarJobServer.local_jar(
            JavaJarJobServer.path_to_beam_jar(f":runners:flink:{version}:job-server:shadowJar")
        )
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"--runner FlinkRunner: Beam's job server for Flink {version} cannot be downloaded ({error}). "
            "Give its file with --flink_job_server_jar."
        ) from None


def _ask(cluster: str, path: str, method: str = "GET") -> Any:
    """Ask the cluster's REST server. Raises Unavailable if there is no answer, UserError if it is not Flink's."""
    import urllib.request
    from http.client import InvalidURL

    try:
        request = urllib.request.Request(f"{cluster}/{path}", method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as answer:
            return json.load(answer)
    except (OSError, ValueError, InvalidURL) as error:
        answers = not isinstance(error, OSError) or getattr(error, "code", 500) < 500  # an HTTPError has a code
        reason = getattr(error, "reason", error)
        raise (UserError if answers else Unavailable)(
            f"--flink_master {cluster}: no Flink cluster answers there ({reason})."
        ) from None


class _FlinkRunner(Runner):
    def beam_options(self, request: Request) -> PipelineOptions:
        from apache_beam.options.pipeline_options import FlinkRunnerOptions, JobServerOptions

        from transforms.tokens.tokenizer import ONLY_TOKENIZERS

        options = self.parse(request.flags)
        given = {flag.partition("=")[0] for flag in request.flags}
        cluster = _find_cluster(options)
        java = options.view_as(JobServerOptions).job_server_java_launcher
        if not shutil.which(java) and not (cluster and options.view_as(FlinkRunnerOptions).flink_submit_uber_jar):
            raise UserError(
                f"--runner FlinkRunner: {java} is not installed. Install it (Debian: apt-get install default-jre)."
            )
        if cluster:
            about = _ask(cluster, "overview")
            slots, machines = about["slots-total"], about["taskmanagers"]
            if not slots and not given.issuperset({"--parallelism", "--sdk_worker_parallelism"}):
                raise Unavailable(
                    f"--flink_master {cluster}: the cluster has no TaskManager with a slot yet. If it starts them "
                    "when a job needs them, give --parallelism and --sdk_worker_parallelism, which otherwise follow "
                    "from them."
                )
            version = ".".join(about["flink-version"].split(".")[:2])
        else:
            slots, machines = os.cpu_count() or 1, 1
            version = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS[-1]
        defaults = [
            f"--job_name={job_name(request.options.output)}",
            f"--environment_cache_millis={_WORKERS_KEPT_MILLIS}",
        ]
        if slots:
            defaults += [f"--parallelism={slots}", f"--sdk_worker_parallelism={-(-slots // machines)}"]
        if "--environment_type" not in given:
            worker: dict[str, Any] = {"command": str(Path(sys.executable).with_name("chatmill-worker"))}
            if ONLY_TOKENIZERS in os.environ:
                worker["env"] = {ONLY_TOKENIZERS: os.environ[ONLY_TOKENIZERS]}
            defaults += ["--environment_type=PROCESS", f"--environment_config={json.dumps(worker)}"]
        if "--flink_version" in given:
            version = options.view_as(FlinkRunnerOptions).flink_version
        if given.isdisjoint({"--flink_job_server_jar", "--job_endpoint"}):
            defaults += [f"--flink_version={version}", f"--flink_job_server_jar={_job_server(version)}"]
        return self.parse([*defaults, *request.flags])

    def cancel(self, beam_options: PipelineOptions, result: Any) -> None:
        cluster = _find_cluster(beam_options)
        if cluster is None:  # Flink ends with the job server
            return
        from apache_beam.options.pipeline_options import GoogleCloudOptions

        # Beam's own cancel ends the wait of its job server, and the job goes on (Beam 2.70, Flink 1.19).
        name = beam_options.view_as(GoogleCloudOptions).job_name
        for job in _ask(cluster, "jobs/overview")["jobs"]:
            if job["name"] == name and job["end-time"] < 0:
                _ask(cluster, f"jobs/{job['jid']}?mode=cancel", "PATCH")

    def started(
        self, request: Request, plan: Plan, beam_options: PipelineOptions, reports: str | None
    ) -> AbstractContextManager[Any]:
        from apache_beam.options.pipeline_options import FlinkRunnerOptions

        flink = beam_options.view_as(FlinkRunnerOptions)
        flink.parallelism = min(flink.parallelism, plan.job.tasks)
        return super().started(request, plan, beam_options, reports)


RUNNERS = (_FlinkRunner("FlinkRunner"),)
