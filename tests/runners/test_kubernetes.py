"""The manifests of deploy are valid, their commands are builds, and what cannot succeed is not tried again."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.command_line import chatmill
from support.paths import CHATS, ROOT, TOKENIZER

MANIFESTS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "deploy").glob("*.yaml")}
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


@pytest.mark.parametrize("name", ["cronjob", "flink-job"])
def test_manifest_is_valid(name):
    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_flink_deployment_is_valid(flink_schema):
    deployment = MANIFESTS["flink-cluster"]
    assert (deployment["apiVersion"], deployment["kind"]) == ("flink.apache.org/v1beta1", "FlinkDeployment")
    jsonschema.Draft4Validator(flink_schema).validate(deployment)


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    [container] = job["spec"]["template"]["spec"]["containers"]
    return container


def test_flink_job_is_a_build_on_the_cluster_next_to_it(capfd):
    container, cluster = container_of(MANIFESTS["flink-job"]), MANIFESTS["flink-cluster"]
    assert container["command"] == ["chatmill", "build"]
    [pool] = cluster["spec"]["taskManager"]["podTemplate"]["spec"]["initContainers"]
    slots = cluster["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"]
    options, of_cluster = container["args"][:6], container["args"][6:]
    assert of_cluster == [
        "--runner=FlinkRunner",
        f"--flink_master={cluster['metadata']['name']}-rest:8081",
        f"--flink_version={cluster['spec']['flinkVersion'].removeprefix('v').replace('_', '.')}",
        "--flink_submit_uber_jar",
        "--parallelism=8",
        f"--sdk_worker_parallelism={slots}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{pool['startupProbe']['tcpSocket']['port']}",
    ]
    assert pool["image"] == container["image"] and {"--max_length=4096", "--packing=bfd", "--json"} < {*options}
    capfd.readouterr()
    assert chatmill("build", *container["args"], "--nope=1") == 2  # each other option is known
    assert json.loads(capfd.readouterr().out)["error"].startswith("unknown option --nope.")


def test_pod_of_the_cronjob_appends_what_is_new_and_ends_with_the_codes_that_its_job_knows(tmp_path):
    job = MANIFESTS["cronjob"]["spec"]["jobTemplate"]
    container = container_of(job)
    here = {"input": tmp_path / "in", "tokenizer": TOKENIZER, "output": tmp_path / "out", "direct_num_workers": 1}
    names = [word.removeprefix("--").partition("=")[0] for word in container["args"]]
    assert {*here} <= {*names} and "--direct_num_workers=$(CPUS)" in container["args"]
    words = [
        f"--{name}={here[name]}" if name in here else word for name, word in zip(names, container["args"], strict=True)
    ]
    path = os.pathsep.join(map(str, (Path(sys.executable).parent, os.environ["PATH"])))

    def run() -> tuple[int, str]:
        """The exit code of a pod, and the status in the last line of its standard output."""
        done = subprocess.run(
            [*container["command"], *words],
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout.splitlines()[-1])["status"]

    [user_error, drained] = job["spec"]["podFailurePolicy"]["rules"]
    assert (user_error["action"], user_error["onExitCodes"]["values"]) == ("FailJob", [2])
    assert drained["action"] == "Ignore" and job["spec"]["backoffLimit"] > 0
    assert run() == (2, "failed")  # there is no such folder
    (tmp_path / "in").mkdir()
    for name in ("monday", "tuesday"):
        (tmp_path / "in" / f"{name}.jsonl").write_bytes((CHATS / "support.jsonl").read_bytes())
        assert run() == (0, "done")
        assert run() == (0, "nothing_new")
