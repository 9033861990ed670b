"""`chatmill-worker` connects to a runner as Beam's own worker does."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)

from support.paths import ROOT


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
    program = Path(sys.executable).with_name("chatmill-worker")
    arguments = ["--id=the-worker", f"--provision_endpoint={endpoint.url}", "--another=argument"]
    worker = subprocess.Popen([program, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert control.connected.wait(60), (
            f"chatmill-worker did not connect: {worker.communicate(timeout=5)[1][-2000:]}"
        )
        assert provision.worker_id == control.worker_id == "the-worker"
    finally:
        worker.kill()
        worker.communicate()
        server.stop(0)
