"""The manifests of deploy/kubernetes are valid, their commands are builds, and each file is taken once."""

from __future__ import annotations

import datetime
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from pipeline.cli.options import Options, parse_options
from pipeline.commands.watch import parse as parse_watch
from support.datasets import build_in_process, digests
from support.paths import CHATS, ROOT, TOKENIZER
from support.signals import with_default_signals

MANIFESTS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "deploy" / "kubernetes").glob("*.yaml")}
# From the jar org.apache.flink:flink-kubernetes-operator-api:1.10.0, META-INF/fabric8 (Apache License 2.0).
FLINK_SCHEMA = ROOT / "tests" / "support" / "kubernetes" / "flinkdeployments.flink.apache.org-v1.yml.xz"
# The first version in which podFailurePolicy and backoffLimitPerIndex are stable.
OLDEST_KUBERNETES = "1.33"


def closed(schema: Any) -> Any:
    """Return the schema in a form that refuses unknown fields, which a cluster would silently drop."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        schema.setdefault("additionalProperties", False)
    return schema


@pytest.fixture(scope="module")
def flink_schema() -> dict[str, Any]:
    definition = yaml.load(lzma.decompress(FLINK_SCHEMA.read_bytes()), yaml.CSafeLoader)
    [version] = [version for version in definition["spec"]["versions"] if version["name"] == "v1beta1"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return closed(schema)


@pytest.mark.parametrize("name", ["cronjob", "flink-job", "flink-watch", "watch"])
def test_manifest_is_valid(name):
    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


@pytest.mark.parametrize("name", ["flink-cluster", "flink-stream"])
def test_flink_deployment_is_valid(flink_schema, name):
    deployment = MANIFESTS[name]
    assert (deployment["apiVersion"], deployment["kind"]) == ("flink.apache.org/v1beta1", "FlinkDeployment")
    jsonschema.Draft4Validator(flink_schema).validate(deployment)


def test_misspelt_field_of_a_flink_deployment_is_refused(flink_schema):
    deployment = json.loads(json.dumps(MANIFESTS["flink-cluster"]))
    pool = deployment["spec"]["taskManager"]["podTemplate"]["spec"]["initContainers"][0]
    pool["restartPolice"] = pool.pop("restartPolicy")
    with pytest.raises(jsonschema.ValidationError, match="restartPolice"):
        jsonschema.Draft4Validator(flink_schema).validate(deployment)


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    [container] = job["spec"]["template"]["spec"]["containers"]
    return container


def test_flink_job_is_a_build_on_the_cluster_next_to_it():
    container, cluster = container_of(MANIFESTS["flink-job"]), MANIFESTS["flink-cluster"]
    assert container["command"] == ["chatmill", "build"]
    options, beam_flags = parse_options(container["args"])
    assert options == Options(
        input=("gs://example-corpus/chats",),
        tokenizer="gs://example-models/qwen3",
        output="gs://example-shards/qwen3-4096",
        max_length=4096,
        packing="bfd",
        summary_json="-",
        runner="FlinkRunner",
    )
    [pool] = cluster["spec"]["taskManager"]["podTemplate"]["spec"]["initContainers"]
    slots = cluster["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"]
    assert beam_flags == [
        f"--flink_master={cluster['metadata']['name']}-rest:8081",
        f"--flink_version={cluster['spec']['flinkVersion'].removeprefix('v').replace('_', '.')}",
        "--flink_submit_uber_jar",
        "--parallelism=8",
        f"--sdk_worker_parallelism={slots}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{pool['startupProbe']['tcpSocket']['port']}",
    ]
    assert pool["image"] == container["image"]


def test_flink_watch_is_a_stream_on_a_cluster_like_that_of_the_job():
    watch, spec = container_of(MANIFESTS["flink-watch"]), MANIFESTS["flink-watch"]["spec"]
    assert (spec["replicas"], spec["strategy"], watch["command"]) == (1, {"type": "Recreate"}, ["chatmill", "watch"])
    options, settings, beam_flags = parse_watch(watch["args"])
    assert (options.runner, settings.every, settings.compact_every) == ("FlinkRunner", 60, 6 * 3600)
    job, stream = container_of(MANIFESTS["flink-job"]), MANIFESTS["flink-stream"]
    assert beam_flags == [
        f"--flink_master={stream['metadata']['name']}-rest:8081" if flag.startswith("--flink_master") else flag
        for flag in parse_options(job["args"])[1]
    ]
    cluster = json.loads(json.dumps(MANIFESTS["flink-cluster"]))
    for deployment in (cluster, stream := json.loads(json.dumps(stream))):
        del deployment["metadata"]
        configuration = deployment["spec"]["flinkConfiguration"]
        configuration = {name: value for name, value in configuration.items() if "restart" not in name}
        deployment["spec"]["flinkConfiguration"] = configuration
    assert stream == cluster


class Daily:
    """The pods of the CronJob, run on this machine: its command and its environment, with local folders as buckets.

    The program `date` is replaced by one that prints the day of the Job.
    """

    def __init__(self, folder: Path):
        self._container = container_of(MANIFESTS["cronjob"]["spec"]["jobTemplate"])
        self.indexes = range(MANIFESTS["cronjob"]["spec"]["jobTemplate"]["spec"]["completions"])
        self.input, self.output = folder / "in", folder / "out"
        programs = folder / "programs"
        programs.mkdir()
        date = programs / "date"
        date.write_text(f'#!/bin/sh\nexec {shutil.which("date")} "$1" "$2" "$TODAY $3" "$4"\n')
        date.chmod(0o755)
        self._path = os.pathsep.join(map(str, (programs, Path(sys.executable).parent, os.environ["PATH"])))

    def command(self, today: datetime.date, index: int) -> dict[str, Any]:
        """The arguments of subprocess.run that run a pod of the Job of a day."""
        environment = {variable["name"]: variable.get("value") for variable in self._container["env"]}
        assert environment.keys() == {"INPUT", "TOKENIZER", "OUTPUT", "CPUS"}
        environment = {"INPUT": self.input, "TOKENIZER": TOKENIZER, "OUTPUT": self.output, "CPUS": "1"}
        environment |= {"JOB_COMPLETION_INDEX": index, "PATH": self._path, "TODAY": today.isoformat()}
        words = [expanded(word, environment) for word in (*self._container["command"], *self._container["args"])]
        return {"args": words, "env": os.environ | {name: str(value) for name, value in environment.items()}}

    def run(self, today: datetime.date, index: int) -> tuple[int, dict[str, Any]]:
        """The exit code of a pod, and the last line of its standard output."""
        done = subprocess.run(**self.command(today, index), capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout.splitlines()[-1])


def expanded(word: str, environment: dict[str, Any]) -> str:
    """Expand a word of a command like Kubernetes: $(NAME) is a variable of the container's environment, $$ is $."""
    known = {name: str(value) for name, value in environment.items()}
    return re.sub(r"\$(?:\$|\(([^)]*)\))", lambda found: known.get(found[1], found[0]) if found[1] else "$", word)


@pytest.fixture
def daily(tmp_path) -> Daily:
    return Daily(tmp_path)


DAY = datetime.date(2026, 11, 20)


def day_after(count: int) -> datetime.date:
    return DAY + datetime.timedelta(days=count)


def test_daily_command_appends_the_days_before(daily):
    chatmill = Path(daily.command(DAY, 0)["env"]["PATH"].split(os.pathsep)[0]) / "chatmill"
    chatmill.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    chatmill.chmod(0o755)
    for index, day in enumerate(("2026-02-26", "2026-02-27", "2026-02-28")):
        printed = subprocess.check_output(**daily.command(datetime.date(2026, 3, 1), index), text=True)
        command, *arguments = printed.splitlines()
        assert command == "build"
        options, beam_flags = parse_options(arguments)
        assert options == Options(
            input=(f"{daily.input}/{day}",),
            tokenizer=str(TOKENIZER),
            output=str(daily.output),
            append=True,
            max_length=4096,
            packing="bfd",
            summary_json="-",
        )
        assert beam_flags == ["--direct_num_workers=1"]
    assert list(daily.indexes) == [0, 1, 2]


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def shards_of(output: Path) -> dict[str, str]:
    return {name: digest for name, digest in digests(output).items() if name.startswith("data/")}


def test_day_that_was_killed_is_resumed_the_next_day_and_no_file_is_taken_twice(daily):
    killed, small = daily.input / "2026-11-19", daily.input / "2026-11-20"
    for folder, times in ((killed, 20), (small, 1)):
        folder.mkdir(parents=True)
        (folder / "support.jsonl").write_bytes((CHATS / "support.jsonl").read_bytes() * times)
    expected = daily.output.with_name("expected")
    options = ["--append", f"--tokenizer={TOKENIZER}", "--max_length=4096", "--packing=bfd", f"--output={expected}"]
    for folder in (killed, small):
        assert build_in_process(*options, f"--input={folder}").returncode == 0

    pod = subprocess.Popen(
        **daily.command(DAY, 2), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not (receipts := list(daily.output.glob("_chatmill/increments/*/receipts/*.json"))):
        assert pod.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(pod.pid, signal.SIGKILL)
    pod.wait()
    shards = json.loads(receipts[0].read_bytes())["shards"]
    kept = {(daily.output / shard["path"]).stat().st_ino for shard in shards}
    assert kept and not (daily.output / "_chatmill" / "log").exists()

    ended = [daily.run(day_after(1), index) for index in daily.indexes]
    assert [(code, summary["status"]) for code, summary in ended] == [(2, "failed"), (0, "done"), (0, "done")]
    assert kept <= {path.stat().st_ino for path in daily.output.glob("data/*.parquet")}
    assert shards_of(daily.output) == shards_of(expected)

    before = written(daily.output)
    # The same days again: by a Job that runs twice, and by that of the next day.
    for today, index in ((1, 1), (1, 2), (2, 0)):
        code, summary = daily.run(day_after(today), index)
        assert (code, summary["status"]) == (0, "nothing_new")
    assert written(daily.output) == before

    (killed / "late.jsonl").write_bytes((CHATS / "support.jsonl").read_bytes())
    code, summary = daily.run(day_after(2), 0)
    assert (code, summary["status"]) == (0, "done")
    assert shards_of(daily.output).items() > shards_of(expected).items()


def test_deployment_appends_what_arrives_and_ends_with_0_when_its_pod_is_stopped(tmp_path):
    spec = MANIFESTS["watch"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    container = container_of(MANIFESTS["watch"] | {"spec": spec})
    incoming, output, summary = tmp_path / "in", tmp_path / "out", tmp_path / "watch.json"
    here = {"input": incoming, "tokenizer": TOKENIZER, "output": output, "summary_json": summary}
    here |= {"every": "1s", "settle": "1s", "min_records": 1, "max_delay": "1s"}
    names = [word.removeprefix("--").partition("=")[0] for word in container["args"]]
    assert {*here} <= {*names}
    words = [
        f"--{name}={here[name]}" if name in here else word for name, word in zip(names, container["args"], strict=True)
    ]
    command = [*container["command"], *(expanded(word, {"CPUS": 1}) for word in words)]
    path = os.pathsep.join(map(str, (Path(sys.executable).parent, os.environ["PATH"])))

    incoming.mkdir()
    pod = subprocess.Popen(
        command, env=os.environ | {"PATH": path}, stderr=subprocess.DEVNULL, preexec_fn=with_default_signals
    )
    try:
        for version, name in enumerate(("monday", "tuesday"), 1):
            shutil.copy(CHATS / "support.jsonl", incoming / f"{name}.jsonl")
            deadline = time.monotonic() + 120
            while not (output / "_chatmill" / "log" / f"{version:08d}.json").exists():
                assert pod.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        pod.terminate()
        assert pod.wait(60) == 0
    finally:
        pod.kill()
    written = json.loads(summary.read_bytes())
    assert (written["status"], written["watch"]["files"], written["snapshot"]["version"]) == ("stopped", 2, 2)


def test_exit_code_of_a_failed_build_shows_whether_to_retry(daily):
    malformed = daily.input / "2026-11-19"
    malformed.mkdir(parents=True)
    (malformed / "chats.jsonl").write_text('{"text": "Once upon a time"}\n{"messages": "Hi"}\n')
    for _ in range(2):
        code, summary = daily.run(DAY, 2)
        assert (code, summary["status"]) == (1, "failed")
        assert "1 of 2 records were rejected" in summary["error"]
    code, summary = daily.run(DAY, 1)
    assert (code, summary["status"]) == (2, "failed")
    assert summary["error"] == f"--input {daily.input}/2026-11-18: there is no such file or folder."


def test_only_builds_that_may_succeed_later_are_retried():
    job = MANIFESTS["cronjob"]["spec"]["jobTemplate"]["spec"]
    [user_error, drained] = job["podFailurePolicy"]["rules"]
    assert (user_error["action"], user_error["onExitCodes"]["values"]) == ("FailIndex", [2])
    assert drained["action"] == "Ignore"
    assert job["backoffLimitPerIndex"] > 0


def test_no_pod_starts_on_another_day_than_its_job():
    """Otherwise a retry after midnight would build a day that has not ended."""
    schedule = MANIFESTS["cronjob"]["spec"]
    minute, hour = map(int, schedule["schedule"].split()[:2])
    latest = 3600 * hour + 60 * minute + schedule["startingDeadlineSeconds"]
    assert latest + schedule["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 24 * 3600
    assert schedule["timeZone"] == "Etc/UTC"
