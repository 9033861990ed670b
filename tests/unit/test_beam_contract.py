"""The parts of Beam outside its documented API that Chatmill uses: if Beam changes one, a test names it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from concurrent import futures

import grpc
import pytest
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from apache_beam.runners.runner import create_runner

from support.paths import ROOT

# ---- any runner: pipeline/run.py, pipeline/cli/options.py ---


def test_create_runner_finds_runners_by_name_and_refuses_others():
    for name in ("FnApiRunner", "PrismRunner", "FlinkRunner"):
        assert type(create_runner(name)).__name__.endswith("Runner")
    with pytest.raises((ValueError, ImportError)):
        create_runner("NoSuchRunner")


# ---- Flink: pipeline/runners/flink.py --------------------------------------------------------------------------------


def test_beam_names_its_job_server_for_each_flink_version_that_it_publishes(tmp_path):
    from apache_beam.runners.portability.job_server import JavaJarJobServer

    newest = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS[-1]
    jar = JavaJarJobServer.path_to_beam_jar(f":runners:flink:{newest}:job-server:shadowJar")
    assert jar.endswith(".jar") and f"flink-{newest}-job-server" in jar
    here = tmp_path / "job-server.jar"
    here.touch()
    assert JavaJarJobServer.local_jar(str(here)) == str(here)


def test_result_of_a_portable_job_has_a_state():
    from apache_beam.runners.portability.portable_runner import PipelineResult
    from apache_beam.runners.runner import PipelineState

    assert PipelineState.FAILED == "FAILED"
    assert isinstance(inspect.getattr_static(PipelineResult, "state"), property)


# ---- Dataflow: pipeline/runners/dataflow.py --------------------------------------------------------------------------


def test_dataflow_runner_knows_its_region_and_its_options_are_validated():
    module = "apache_beam.runners.dataflow.internal.apiclient"
    pytest.importorskip(module, reason="apache-beam[gcp] is not installed", exc_type=ImportError)
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
    from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult

    runner = create_runner("DataflowRunner")
    assert callable(runner.get_default_gcp_region) and callable(DataflowPipelineResult.job_id)
    options = PipelineOptions(["--runner=DataflowRunner", "--project=Not a project", "--temp_location=gs://b/temp"])
    validator = PipelineOptionsValidator(options, runner)
    assert validator.is_service_runner()
    assert any("Not a project" in problem for problem in validator.validate())
    options.view_as(GoogleCloudOptions).dataflow_endpoint = "http://localhost:1"
    assert not validator.is_service_runner()
    assert options.view_as(StandardOptions).runner == "DataflowRunner"


# ---- chatmill-worker: pipeline/runners/worker.py ---------------------------------------------------------------------


class _Provision(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """A runner's provision server."""

    def __init__(self, info):
        self.info = info
        self.worker_id = None

    def GetProvisionInfo(self, request, context):
        self.worker_id = dict(context.invocation_metadata()).get("worker_id")
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)


class _Control(beam_fn_api_pb2_grpc.BeamFnControlServicer):
    """A runner's control server, which records the id of each worker that connects."""

    def __init__(self):
        self.worker_id = None
        self.connected = threading.Event()

    def Control(self, request_iterator, context):
        self.worker_id = dict(context.invocation_metadata()).get("worker_id")
        self.connected.set()
        return iter(())


@pytest.mark.slow
def test_chatmill_worker_requests_its_provision_info_and_connects_like_beams_worker():
    control, server = _Control(), grpc.server(futures.ThreadPoolExecutor(4))
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(control, server)
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{server.add_insecure_port('localhost:0')}")
    provision = _Provision(beam_provision_api_pb2.ProvisionInfo(control_endpoint=endpoint, logging_endpoint=endpoint))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(provision, server)
    server.start()
    program = [sys.executable, "-c", "from pipeline.runners.worker import main; main()"]
    arguments = ["--id=the-worker", f"--provision_endpoint={endpoint.url}", "--another=argument"]
    worker = subprocess.Popen([*program, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert control.connected.wait(60), (
            f"chatmill-worker did not connect: {worker.communicate(timeout=5)[1][-2000:]}"
        )
        assert provision.worker_id == control.worker_id == "the-worker"
    finally:
        worker.kill()
        worker.communicate()
        server.stop(0)
