"""The servers of a local build: no other machine reaches them, and they refuse who does not belong to the run.

If they cannot, because of another Beam or of an option, the build says so or is refused.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from pipeline.local.worker_processes import INTERNALS, Internal
from support.paths import CHATS, ROOT, TOKENIZER

FORMATTER = """
import os, time
def wait(record):
    if os.path.exists({plan!r}):
        time.sleep(60)
    return record
"""

STREAMS = {
    "Control": lambda channel: beam_fn_api_pb2_grpc.BeamFnControlStub(channel).Control,
    "Data": lambda channel: beam_fn_api_pb2_grpc.BeamFnDataStub(channel).Data,
    "State": lambda channel: beam_fn_api_pb2_grpc.BeamFnStateStub(channel).State,
    "Logging": lambda channel: beam_fn_api_pb2_grpc.BeamFnLoggingStub(channel).Logging,
}


def listening(build: psutil.Process) -> list[tuple[str, int]]:
    """The addresses and ports at which the processes of a build listen."""
    processes = [build, *build.children(recursive=True)]
    connections = [found for process in processes for found in process.net_connections("tcp")]
    return [connection.laddr for connection in connections if connection.status == "LISTEN"]


def own_addresses() -> list[str]:
    """The addresses of this machine under which others reach it."""
    found = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    addresses = [entry.address for entry in found if entry.family == socket.AF_INET]
    return [address for address in addresses if not address.startswith("127.")]


@pytest.mark.parametrize("mode", [None, "multi_threading"])
def test_servers_of_a_build_listen_on_the_loopback_interface_and_refuse_strangers(mode, tmp_path):
    formatter, output = tmp_path / "formatter.py", tmp_path / "out"
    formatter.write_text(FORMATTER.format(plan=str(output / "_chatmill" / "job.json")))
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={output}", f"--formatter={formatter}:wait"]
    options += ["--direct_num_workers=2", "--split_bytes=60000"] + ([f"--direct_running_mode={mode}"] if mode else [])
    build = subprocess.Popen([sys.executable, "-m", "pipeline", *options], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline, servers = time.monotonic() + 60, []
        while len({port for _, port in servers}) < 4:
            assert build.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
            servers = listening(psutil.Process(build.pid))
        assert {address for address, _ in servers} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
        for address in own_addresses():
            for _, port in servers:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((address, port), timeout=5)
        if mode:
            return  # the workers are Beam's own, whose ids are no secret
        answers = []
        for port in {port for _, port in servers}:
            for name, of_channel in STREAMS.items():
                for metadata in ((), (("worker_id", "worker_0"),), (("worker_id", f"worker_0-{'0' * 32}"),)):
                    with grpc.insecure_channel(f"localhost:{port}") as channel:
                        stream = of_channel(channel)(iter(()), metadata=metadata, timeout=20)
                        with pytest.raises(grpc.RpcError) as raised:
                            list(stream)
                    answers.append((name, raised.value.code()))
        refused = {name for name, code in answers if code == grpc.StatusCode.UNAUTHENTICATED}
        assert refused == set(STREAMS)
        # A server does not have the methods of the others.
        assert {code for _, code in answers} == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}
    finally:
        for child in psutil.Process(build.pid).children(recursive=True):
            child.kill()
        build.kill()
        build.wait()


MULTI_THREADING = "--direct_running_mode=multi_threading"


def two_workers(build, output, *options: str):
    arguments = ["--input", CHATS / "support.jsonl", "--tokenizer", TOKENIZER, "--output", output]
    return build(*arguments, "--max_reject_fraction=0.5", "--direct_num_workers=2", *options)


@pytest.mark.parametrize("mode", [None, MULTI_THREADING])
def test_servers_without_a_secret_listen_on_the_loopback_interface_and_are_warned_of(
    mode, build, tmp_path, monkeypatch, caplog
):
    missing = Internal("apache_beam.transforms.environments", "NoSuchEnvironment", 0)
    monkeypatch.setattr("pipeline.local.worker_processes.INTERNALS", (*INTERNALS, missing))
    ports = []
    monkeypatch.setattr(grpc, "server", of_ports(grpc.server, ports))
    assert two_workers(build, tmp_path / "out", *filter(None, [mode])).code == 0
    assert ports and set(ports) == {"localhost:0"}
    (warning,) = (message for message in caplog.messages if "no secret" in message)
    assert "other users of this machine can connect to the servers of this build, and run code in it" in warning


def of_ports(make_server, ports: list[str]):
    """Makes servers that note at which addresses they are to listen."""

    def make(*arguments, **options):
        server = make_server(*arguments, **options)
        add_port = server.add_insecure_port
        server.add_insecure_port = lambda address: (ports.append(address), add_port(address))[1]
        return server

    return make


@pytest.mark.parametrize(
    ("module", "mode"),
    [(worker_handlers, None), (worker_handlers, MULTI_THREADING), (local_job_service, MULTI_THREADING)],
)
def test_a_build_is_refused_if_its_servers_cannot_be_kept_to_this_machine(module, mode, build, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "grpc", None)
    ended = two_workers(build, tmp_path / "out", *filter(None, [mode]))
    assert ended.code == 2
    assert f"{module.__name__}.grpc as Chatmill expects it" in ended.err and "in_memory, which has no" in ended.err
    given = "--direct_running_mode=in_memory", "--direct_num_workers=1"
    assert two_workers(build, tmp_path / "out", *given).code == 0
