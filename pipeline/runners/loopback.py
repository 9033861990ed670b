"""Loopback: the servers of Beam's local runner, for this machine alone, and for who knows a secret.

Beam's servers listen at all addresses of the machine and believe any worker id. What they get from a worker is
unpickled: a stranger could run code in the launcher.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers

# All of its addresses, of IPv4 and IPv6: Beam's workers connect to this name.
_ADDRESS = "localhost:0"


@contextmanager
def loopback_servers(secret: str = "") -> Iterator[None]:
    """Let the servers that Beam's local runner starts inside listen on the loopback interface.

    Args:
        secret: what a worker's id must end with, in each request; empty if Beam itself starts the workers, and chooses
            their ids.
    """
    worker_handlers.grpc = _Grpc(secret)
    try:
        yield
    finally:
        worker_handlers.grpc = grpc


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
