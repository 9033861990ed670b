"""The program `chatmill-worker`: what a runner starts if the environment is PROCESS.

It replaces the boot program of Beam's containers. It installs nothing that was staged with the job: Chatmill is already
installed on the worker's machine.
"""

from __future__ import annotations

import argparse
import os


def main() -> None:
    """Run the console command `chatmill-worker`."""
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from apache_beam.runners.worker import sdk_worker_main
    from google.protobuf import json_format, text_format

    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    arguments, _ = parser.parse_known_args()
    with grpc.insecure_channel(arguments.provision_endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        provision = stub.GetProvisionInfo(request, metadata=[("worker_id", arguments.id)]).info
    os.environ |= {
        "WORKER_ID": arguments.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(provision.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(provision.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(provision.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(provision.runner_capabilities),
        "TOKENIZERS_PARALLELISM": "false",  # the other workers use the other cores
    }
    sdk_worker_main.main([])
