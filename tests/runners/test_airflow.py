"""The DAGs of deploy/airflow load and run in a real Airflow, and request the expected build."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gcsfs
import kubernetes_validate
import pytest

from pipeline.options import Options, parse_options
from support.paths import ROOT
from support.programs import CACHE, FAKE_GCS_SERVER, free_port, go_program, serving, why_no_program

DAGS = ROOT / "deploy" / "airflow"
# The DAGs are triggered by hand at these times; the day before the first of them is already finished.
DONE, TO_DO = "2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00"
EXPECTED = Options(
    input=("gs://example-corpus/chats/2026-11-20/*",),
    tokenizer="gs://example-models/qwen3",
    output="gs://example-shards/qwen3-4096/2026-11-20",
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


@contextmanager
def store_with_a_finished_day() -> Iterator[dict[str, str]]:
    """The environment variables of a store in which the day of DONE is finished; empty if there is no such store."""
    server = go_program(FAKE_GCS_SERVER)
    if server is None:
        yield {}
        return
    port = free_port()
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    with serving([server, *arguments, "-backend", "memory"], port):
        url = f"http://127.0.0.1:{port}"
        files = gcsfs.GCSFileSystem(endpoint_url=url, token="anon", skip_instance_cache=True)
        files.mkdir("example-shards")
        files.pipe("example-shards/qwen3-4096/2026-11-19/_SUCCESS", b"")
        connection = {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True}}
        yield {"STORAGE_EMULATOR_HOST": url, "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps(connection)}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """The result of airflow_probe.py."""
    python, home = airflow_python(), tmp_path_factory.mktemp("airflow")
    settings = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__DAGS_FOLDER": DAGS, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    with store_with_a_finished_day() as store:
        environment = os.environ | {name: str(value) for name, value in settings.items()} | store
        for arguments in (
            ["-m", "airflow", "db", "migrate"],
            [ROOT / "tests" / "support" / "airflow_probe.py", DAGS, home / "found.json", DONE, TO_DO],
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
def test_each_day_is_built_after_it_is_over_and_none_is_skipped(found, dag):
    assert found["dags"][dag]["first"] == {"of": "2026-11-01T03:00:00+00:00", "at": "2026-11-02T03:00:00+00:00"}
    assert found["dags"][dag]["settings"] == {"catchup": True, "max_active_runs": 1, "retries": 2}


def test_template_is_started_with_the_options_of_the_day_before(found):
    run = runs_on_dataflow(found)[TO_DO]
    assert run["state"] == "success"
    [body] = run["requests"]
    launch = body["launchParameter"]
    assert launch["jobName"] == "chatmill-2026-11-20"
    options, beam_flags = parse_options([f"--{name}={value}" for name, value in launch["parameters"].items()])
    assert options == EXPECTED
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


def test_finished_day_starts_no_job(found):
    assert runs_on_dataflow(found)[DONE] == {"state": "success", "requests": []}


def test_pod_runs_the_build_of_the_day_before(found):
    run = found["dags"]["chatmill_pod"]["runs"][TO_DO]
    assert run["state"] == "success"
    [pod] = run["requests"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["chatmill", "build"]
    options, beam_flags = parse_options(container["args"])
    assert options == Options(**{**vars(EXPECTED), "summary_json": "-"})
    assert beam_flags == [f"--direct_num_workers={container['resources']['limits']['cpu']}"]
