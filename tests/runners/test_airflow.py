"""The DAGs of deploy/airflow load and run in a real Airflow, and request the expected build."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gcsfs
import kubernetes_validate
import pytest

from pipeline.cli.options import Options, parse_options
from support.datasets import build_in_process
from support.paths import CHATS, ROOT, TOKENIZER
from support.programs import CACHE, FAKE_GCS_SERVER, free_port, go_program, serving, why_no_program

DAGS = ROOT / "deploy" / "airflow"
# The DAGs are triggered by hand at these times. Of the day before the first of them, a file was rewritten since the
# dataset took it. The dataset has a part of the day before the second, all of that before the third, and nothing of
# that before the fourth.
REWRITTEN, LATE, DONE, TO_DO = (f"2026-11-{day}T10:00:00+00:00" for day in (18, 19, 20, 21))
TIMES = [REWRITTEN, LATE, DONE, TO_DO]


def expected(day: str) -> Options:
    return Options(
        input=(f"gs://example-corpus/chats/{day}/*",),
        tokenizer="gs://example-models/qwen3",
        output="gs://example-shards/qwen3-4096",
        append=True,
        max_length=4096,
        packing="bfd",
    )


def airflow_python() -> Path:
    """Return the Python of an environment with deploy/airflow/requirements.txt, which is created once (2 GB)."""
    requirements = (DAGS / "requirements.txt").read_bytes()
    environment = CACHE / f"airflow-{hashlib.sha256(requirements + sys.version.encode()).hexdigest()[:12]}"
    python, stamp = environment / "bin" / "python", environment / "installed"
    if not stamp.exists():
        install = [python, "-m", "pip", "install", "--quiet", "-r", DAGS / "requirements.txt"]
        for command in ([sys.executable, "-m", "venv", "--clear", environment], install):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.skip(f"Airflow cannot be installed: {' '.join(map(str, command))}: {reason}")
        stamp.touch()
    return python


def append(arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run the command of a pod on this machine. Returns its summary, the last line of its standard output."""
    done = build_in_process(*arguments, "--summary_json=-", env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment variables of a store with the buckets that the DAGs name; empty if it cannot be started."""
    server = go_program(FAKE_GCS_SERVER)
    if server is None:
        yield {}
        return
    port = free_port()
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with serving([server, *arguments, "-backend", "memory"], port):
        url = f"http://127.0.0.1:{port}"
        files = gcsfs.GCSFileSystem(endpoint_url=url, token="anon", skip_instance_cache=True)
        for bucket in ("example-corpus", "example-models", "example-shards"):
            files.mkdir(bucket)
        files.put(str(TOKENIZER), "example-models/qwen3", recursive=True)
        connection = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True}}
        environment = {"STORAGE_EMULATOR_HOST": url, "FSSPEC_GS_TOKEN": "anon"}
        for day in ("2026-11-17", "2026-11-18", "2026-11-19"):
            files.put(str(CHATS / "support.jsonl"), f"example-corpus/chats/{day}/support.jsonl")
            options = expected(day)
            arguments = [
                f"--input={options.input[0]}",
                f"--tokenizer={options.tokenizer}",
                f"--output={options.output}",
            ]
            append(["--append", *arguments, "--max_length=4096", "--packing=bfd"], environment)
        for path in ("2026-11-17/support.jsonl", "2026-11-18/late.jsonl", "2026-11-20/support.jsonl"):
            files.put(str(CHATS / "support.jsonl"), f"example-corpus/chats/{path}")
        yield {**environment, "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps(connection)}


@pytest.fixture(scope="module")
def found(store, tmp_path_factory) -> dict[str, Any]:
    """The result of airflow_probe.py."""
    python, home = airflow_python(), tmp_path_factory.mktemp("airflow")
    dags, program = home / "dags", home / "chatmill"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m pipeline "$@"\n')
    program.chmod(0o755)
    shutil.copytree(DAGS, dags)
    edited = (dags / "chatmill_dataflow.py").read_text().replace("/opt/chatmill/bin/chatmill", str(program))
    (dags / "chatmill_dataflow.py").write_text(edited)
    settings = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__DAGS_FOLDER": dags, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    environment = os.environ | {name: str(value) for name, value in settings.items()} | store
    for arguments in (
        ["-m", "airflow", "db", "migrate"],
        [ROOT / "tests" / "support" / "airflow_probe.py", dags, home / "found.json", *TIMES],
    ):
        done = subprocess.run(
            [python, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((home / "found.json").read_text())


def runs_on_dataflow(found: dict[str, Any]) -> dict[str, Any]:
    if not (runs := found["dags"]["chatmill_dataflow"]["runs"]):
        pytest.skip(why_no_program(FAKE_GCS_SERVER))
    return runs


def test_dags_load_without_errors(found):
    assert found["import_errors"] == {}
    assert set(found["dags"]) == {"chatmill_dataflow", "chatmill_pod"}


@pytest.mark.parametrize("dag", ["chatmill_dataflow", "chatmill_pod"])
def test_each_day_is_appended_after_it_is_over_and_none_is_skipped(found, dag):
    assert found["dags"][dag]["first"] == {"of": "2026-11-01T03:00:00+00:00", "at": "2026-11-02T03:00:00+00:00"}
    assert found["dags"][dag]["settings"] == {"catchup": True, "max_active_runs": 1, "retries": 2}


def test_template_is_started_with_the_options_of_the_day_before(found):
    run = runs_on_dataflow(found)[TO_DO]
    assert run["state"] == "success"
    [body] = run["requests"]
    launch = body["launchParameter"]
    assert launch["jobName"] == "chatmill-2026-11-20"
    options, beam_flags = parse_options([f"--{name}={value}" for name, value in launch["parameters"].items()])
    assert options == expected("2026-11-20")
    assert beam_flags == ["--sdk_container_image=registry.example.com/chatmill:TAG"]


def test_request_to_dataflow_has_only_fields_of_its_api(found):
    [body] = runs_on_dataflow(found)[TO_DO]["requests"]

    def check(value: Any, schema: dict[str, Any]) -> None:
        schema = found["dataflow_api"][schema["$ref"]] if "$ref" in schema else schema
        kinds = {"object": dict, "string": str, "integer": int}
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
        for name, part in value.items() if isinstance(value, dict) else ():
            assert name in schema.get("properties", {}) or "additionalProperties" in schema, name
            check(part, schema.get("properties", {}).get(name) or schema["additionalProperties"])

    check(body, {"$ref": "LaunchFlexTemplateRequest"})


def test_day_that_the_dataset_has_starts_no_job_one_with_a_late_file_does_and_one_with_a_rewritten_file_fails(found):
    runs = runs_on_dataflow(found)
    assert runs[DONE] == {"state": "success", "requests": []}
    assert runs[REWRITTEN] == {"state": "failed", "requests": []}
    assert [body["launchParameter"]["jobName"] for body in runs[LATE]["requests"]] == ["chatmill-2026-11-18"]


def test_pod_appends_the_day_before(found):
    run = found["dags"]["chatmill_pod"]["runs"][TO_DO]
    assert run["state"] == "success"
    [pod] = run["requests"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["chatmill", "build"]
    options, beam_flags = parse_options(container["args"])
    assert options == dataclasses.replace(expected("2026-11-20"), summary_json="-")
    assert beam_flags == [f"--direct_num_workers={container['resources']['limits']['cpu']}"]


def test_pod_that_runs_again_adds_nothing_and_takes_what_came_late(found, store):
    if not store:
        pytest.skip(why_no_program(FAKE_GCS_SERVER))
    commands = {}
    for time, run in found["dags"]["chatmill_pod"]["runs"].items():
        [container] = run["requests"][0]["spec"]["containers"]
        commands[time] = container["args"]
    ended = [append(commands[time], store) for time in (DONE, LATE, LATE, TO_DO, DONE, TO_DO)]
    assert [summary["status"] for summary in ended] == ["nothing_new", "done", "nothing_new", "done"] + [
        "nothing_new"
    ] * 2
    assert [summary["snapshot"]["version"] for summary in ended] == [3, 4, 4, 5, 5, 5]
