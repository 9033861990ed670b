"""Loopback: the servers of Beam's local runner, for this machine alone, and for who knows a secret.

Beam's servers listen at all addresses of the machine and believe any worker id. What they get from a worker is
unpickled: a stranger could run code in the launcher.
"""

from __future__ import annotations

import hmac
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from apache_beam.version import __version__ as beam_version

from transforms.base.errors import UserError

# The modules of Beam whose `grpc.server` makes the servers of the runner, and those of workers that Beam itself starts.
_OF_RUNNER = "apache_beam.runners.portability.fn_api_runner.worker_handlers"
_OF_WORKERS = "apache_beam.runners.portability.local_job_service"
# All of its addresses, of IPv4 and IPv6: Beam's workers connect to this name.
_ADDRESS = "localhost:0"


@contextmanager
def loopback_servers(secret: str = "") -> Iterator[None]:
    """Let the servers that Beam's local runner starts inside listen on the loopback interface.

    Args:
        secret: what a worker's id must end with, in each request; empty if Beam itself starts the workers, and chooses
            their ids.

    Raises:
        UserError: if Beam makes its servers in another way, so that they would listen everywhere.
    """
    modules = [_module(name) for name in ([_OF_RUNNER] if secret else [_OF_RUNNER, _OF_WORKERS])]
    for module in modules:
        module.grpc = _Grpc(secret)
    try:
        yield
    finally:
        for module in modules:
            module.grpc = grpc


def _module(name: str) -> Any:
    module = None
    with suppress(ImportError):
        module = importlib.import_module(name)
    if getattr(module, "grpc", None) is not grpc:
        raise UserError(
            f"Beam {beam_version} has no {name}.grpc as Chatmill expects it, so the servers of the build would listen "
            "at all addresses of this machine, and anybody could run code in it. Give --direct_running_mode in_memory, "
            "which has no servers and one worker, or install an earlier Beam."
        )
    return module


class _Grpc:
    """The module grpc, with another `server`."""

    def __init__(self, secret: str):
        self._interceptors = (_SecretInterceptor(secret),) if secret else ()

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> grpc.Server:
        server = grpc.server(*arguments, interceptors=self._interceptors, **options)
        add_port = server.add_insecure_port
        server.add_insecure_port = lambda _: add_port(_ADDRESS)  # type: ignore[method-assign]
        return server


class _SecretInterceptor(grpc.ServerInterceptor):
    """Refuses requests of a worker whose id does not end with a secret."""

    def __init__(self, secret: str):
        self._secret = secret.encode()

    def intercept_service(self, continuation: Callable[..., Any], details: grpc.HandlerCallDetails) -> Any:
        handler = continuation(details)
        given = str(dict(details.invocation_metadata or ()).get("worker_id")).encode()
        if handler is None or hmac.compare_digest(given[-len(self._secret) :], self._secret):
            return handler

        def refuse(_: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "this worker does not belong to the run")

        kinds = (
            "stream" if streams else "unary" for streams in (handler.request_streaming, handler.response_streaming)
        )
        return getattr(grpc, f"{'_'.join(kinds)}_rpc_method_handler")(refuse)
