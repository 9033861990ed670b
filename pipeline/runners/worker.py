"""A worker's program: what a runner starts where the environment is PROCESS, in place of the one in Beam's containers.

It fetches no packages along with the job: Chatmill is installed on the machine that it runs on.
"""

from __future__ import annotations

import argparse
import os

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format


def main() -> None:
    """The console command `chatmill-worker`."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    given, _ = parser.parse_known_args()
    with grpc.insecure_channel(given.provision_endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(given.id))
        )
        provision = stub.GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest()).info
    os.environ |= {
        "WORKER_ID": given.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(provision.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(provision.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(provision.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(provision.runner_capabilities),
        "TOKENIZERS_PARALLELISM": "false",  # the cores are taken by the other workers
    }
    sdk_worker_main.main([])
