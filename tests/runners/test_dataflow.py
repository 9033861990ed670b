"""Dataflow, as far as it can be tested without Google: the job request, the image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from contextlib import redirect_stdout
from pathlib import Path

import apache_beam as beam
import fsspec
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from pipeline import config
from support.command_line import chatmill
from support.datasets import build_in_process
from support.paths import CHATS, ROOT, TOKENIZER
from support.programs import build_wheel, free_port, serving
from support.stores import gs

DEPLOY = ROOT / "deploy"
CLOUD = [
    "--runner=DataflowRunner",
    "--project=project-name",
    "--region=europe-west4",
    "--sdk_container_image=registry/chatmill:1",
]


@pytest.fixture(scope="module", autouse=True)
def memory_is_a_store():
    """Jobs are only submitted here, so that the memory of this process is as good as a bucket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(config._NO_OUTPUT, "memory://")
        yield


@pytest.fixture(scope="module")
def corpus() -> str:
    """The url of conversations in the memory of this process, which are not on a disk."""
    fsspec.filesystem("memory").pipe("/corpus/support.jsonl", (CHATS / "support.jsonl").read_bytes())
    return "memory://corpus/support.jsonl"


@pytest.fixture(scope="module")
def submitted(corpus, tmp_path_factory) -> Path:
    """The folder of a build that was submitted."""
    return submit(tmp_path_factory.mktemp("submitted"), f"--input={corpus}", "--output=memory://shards/2026-11")


def submit(folder: Path, *options: str) -> Path:
    """Write a job to a folder, as the launcher of a template does: template/job.json and staging/pipeline.pb."""
    for name in ("temp", "staging", "template"):
        (folder / name).mkdir()
    arguments = [
        *options, f"--tokenizer={TOKENIZER}", *CLOUD,
        f"--temp_location={folder}/temp", f"--staging_location={folder}/staging",
        f"--template_location={folder}/template/job.json", "--dataflow_endpoint=http://localhost:1", "--no_auth",
        "--machine_type=n2-standard-4", "--num_workers=2", "--max_num_workers=7", "--json",
    ]  # fmt: skip
    with (folder / "summary.json").open("w") as file, redirect_stdout(file):
        code = chatmill(*arguments)
    assert code == 0
    return folder


def test_job_of_a_template_has_the_image_machines_and_limits_of_the_options(submitted):
    job = json.loads((submitted / "template" / "job.json").read_text())
    (pool,) = job["environment"]["workerPools"]
    (image,) = pool["sdkHarnessContainerImages"]
    assert image["containerImage"] == pool["workerHarnessContainerImage"] == "registry/chatmill:1"
    assert pool["machineType"] == "n2-standard-4"
    assert pool["numWorkers"] == 2
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert pool["numThreadsPerWorker"] == 1
    # The list of packages of this environment, for people to read. Workers must install nothing.
    assert [package["name"] for package in pool["packages"]] == ["submission_environment_dependencies.txt"]
    assert job["type"] == "JOB_TYPE_BATCH"
    assert re.fullmatch("chatmill-2026-11-[0-9a-f]{8}", job["name"])


def test_summary_of_a_launcher_that_only_submits_has_the_status_submitted(submitted):
    summary = json.loads((submitted / "summary.json").read_text())
    assert summary == {"status": "submitted", "output": "memory://shards/2026-11"}
    assert fsspec.filesystem("memory").glob("/shards/2026-11/_chatmill/building/*/plan.jsonl")
    assert not fsspec.filesystem("memory").exists("/shards/2026-11/manifest.json")


# Read a pipeline's proto and load each function in it, as a worker does.
LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2 as api
pipeline = api.Pipeline.FromString(open(sys.argv[2], "rb").read())
for transform in pipeline.components.transforms.values():
    if transform.spec.urn == "beam:transform:pardo:v1":
        pickled = api.ParDoPayload.FromString(transform.spec.payload).do_fn.payload
        if not pickled:  # one of Beam's own functions, which is in the graph by its name
            continue
        function = pickler.loads(pickled)[0]
        print(transform.unique_name, type(function).__module__, type(function).__name__)
        assert not any(held.__module__ == "__main__" for held in vars(function).values() if hasattr(held, "__module__"))
print(sys.modules["transforms.steps.base"].__file__)
"""


def test_workers_need_only_the_package(submitted, tmp_path):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        wheel.extractall(installed)
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, installed, submitted / "staging" / "pipeline.pb"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    *functions, home = loaded.stdout.splitlines()
    assert home == str(installed / "transforms" / "steps" / "base.py")
    for step in ("parse", "render", "parity", "tokenize", "label", "pack"):
        assert f"{step}/ParDo(_MapChunks) transforms.steps.base _MapChunks" in functions
    assert "write/ParDo(OnWorkers) transforms.steps.workers OnWorkers" in functions


def test_graph_of_many_tasks_contains_neither_these_nor_the_tokenizer(corpus, submitted, tmp_path):
    many = submit(tmp_path, f"--input={corpus}", "--output=memory://shards/many", "--split_bytes=50")
    few, more = ((folder / "staging" / "pipeline.pb").stat().st_size for folder in (submitted, many))
    [job] = fsspec.filesystem("memory").glob("/shards/many/_chatmill/building/*/job.json")
    assert json.loads(fsspec.filesystem("memory").cat(job))["tasks"] > 2000
    assert more < few + 500 and more < 1 << 17


def test_graph_distributes_the_tasks_and_groups_the_receipts(submitted):
    pipeline = beam_runner_api_pb2.Pipeline.FromString((submitted / "staging" / "pipeline.pb").read_bytes())
    names = {transform.unique_name: transform.spec.urn for transform in pipeline.components.transforms.values()}
    assert names["skip/Reshuffle"] == "beam:transform:reshuffle:v1"
    assert names["commit/all"] == "beam:transform:group_by_key:v1"


def test_dry_run_accepts_gs_urls_for_everything(monkeypatch):
    port = free_port()
    command, environment = gs(port, port)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with serving(command, port):
        files = fsspec.filesystem("gs", token="anon", skip_instance_cache=True)
        files.mkdir("bucket")
        files.put(str(CHATS), "bucket/chats", recursive=True)
        files.put(str(TOKENIZER), "bucket/tokenizer", recursive=True)
        urls = ["--input=gs://bucket/chats", "--tokenizer=gs://bucket/tokenizer", "--output=gs://bucket/out"]
        dry = build_in_process(
            *urls, *CLOUD, "--as_chat=true", "--temp_location=gs://bucket/temp", "--dry_run=True", timeout=120
        )
    assert dry.returncode == 0, dry.stderr
    assert dry.stderr == "chatmill: a dry run: the job could be run\n"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"project": None}, "--project is missing, and Dataflow needs it: the project"),
        ({"region": None}, "--region is missing, and Dataflow needs it: where it runs"),
        ({"temp_location": None}, "--temp_location is missing, and Dataflow needs it: a folder in a bucket"),
        ({"temp_location": "/here"}, "--temp_location /here: Dataflow needs a folder in a bucket"),
        ({"sdk_container_image": None}, "--sdk_container_image is missing"),
        ({"input": str(CHATS)}, f"--input {CHATS}: Dataflow's workers cannot read a local file"),
        ({"output": "out/here"}, "--output out/here: Dataflow's workers cannot read a local file"),
        (
            {"input": None, "recipe": f"{ROOT}/examples/sources.yaml"},
            f"{ROOT}/examples/sources.yaml: input {CHATS}/support.jsonl: Dataflow's workers cannot",
        ),
        ({"project": "12345"}, "Invalid Project ID (12345)"),
        ({"job_name": "No Name"}, "Invalid job_name (No Name)"),
        ({"num_workers": "9", "max_num_workers": "3"}, "num_workers (9) cannot exceed max_num_workers (3)"),
    ],
)
def test_user_error_is_one_line_before_anything_is_written(build, corpus, monkeypatch, changed, message):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    given = dict(option.removeprefix("--").split("=") for option in CLOUD)
    given |= {"temp_location": "gs://bucket/temp", "dry_run": "True"}
    given |= {"input": corpus, "tokenizer": str(TOKENIZER), "output": "memory://nothing"} | changed
    ended = build(*(f"--{name}={value}" for name, value in given.items() if value))
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.count("\n") == 1
    assert not fsspec.filesystem("memory").exists("/nothing")


def test_missing_packages_of_google_are_named_with_how_to_install_them():
    hidden = "import sys; sys.modules['google.cloud.dataflow'] = None; "
    hidden += "from pipeline import config; del config._NO_OUTPUT['memory://']; "
    code = hidden + "from pipeline import main; sys.exit(main(sys.argv[1:]))"
    given = ["--input=memory://chats", "--tokenizer=t", "--output=memory://out", *CLOUD]
    ended = subprocess.run([sys.executable, "-c", code, *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "apache-beam[gcp] is not installed for" in ended.stderr and ended.stderr.count("\n") == 1


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_linter_finds_no_problem_in_the_dockerfile():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_dockerfile_has_the_beam_version_of_this_environment():
    assert ("FROM", f"apache/beam_python3.11_sdk:{beam.__version__}") in instructions()


@pytest.mark.nightly
def test_steps_of_the_image_in_a_clean_environment(tmp_path):
    image = tmp_path / "image"
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    folder = image
    for word, rest in instructions():
        if word == "WORKDIR":
            folder = image / rest.lstrip("/")
            folder.mkdir(parents=True)
        elif word == "COPY":
            *sources, target = rest.split()
            destination = image / target.lstrip("/") if target.startswith("/") else folder / target
            destination.parent.mkdir(parents=True, exist_ok=True)
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, destination)
        elif word == "RUN":
            # --no-cache-dir only keeps the image small.
            subprocess.run(["sh", "-ec", rest.replace("--no-cache-dir ", "")], cwd=folder, env=environment, check=True)
    shown = subprocess.run(
        ["chatmill", "build", "--help"], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    assert "--sdk_container_image" not in shown.stdout and "--tokenizer" in shown.stdout
    for module in ("apache_beam.runners.worker.sdk_worker_main", "google.cloud.dataflow", "pipeline.graph"):
        subprocess.run(["python", "-c", f"import {module}"], env=environment, cwd="/", check=True)
