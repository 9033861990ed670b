"""Servers that note each request and fail some of them on purpose, and a proxy in front of a store's server.

They run in a thread of the test process. Only a seed and the sequence of requests determine what fails.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

# What each kind of fault does to a request:
#   429, 500, 503  responds with this status; nothing is done
#   reset          resets the connection while the request is still being sent
#   lost           resets the connection after the request was processed: the response is lost
#   truncated      closes the connection in the middle of the response body
#   short          responds with fewer bytes than the requested range, as if they were all
FAULTS = ("429", "500", "503", "reset", "lost", "truncated", "short")
_CODES = {"429": "TooManyRequests", "500": "InternalError", "503": "SlowDown"}
_NOT_FORWARDED = {"transfer-encoding", "content-length", "connection", "keep-alive", "content-encoding"}


def seeded(kinds: Sequence[str], rate: float, seed: int) -> Iterator[str | None]:
    """Yield for each request its fault, or None."""
    chance = random.Random(seed)
    while True:
        yield chance.choice(kinds) if chance.random() < rate else None


def each(n: int, *faults: str) -> Iterator[str | None]:
    """Yield None n - 1 times, then a fault, the next one each time, without end."""
    for fault in itertools.cycle(faults):
        yield from [None] * (n - 1)
        yield fault


class Answer(NamedTuple):
    """A response, before any fault."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


class FaultyServer:
    """A server at 127.0.0.1. Without faults and refusals it answers all that it can.

    Attributes:
        faults: the fault of each request, or None.
        refused: requests that get status 403: a pattern of "METHOD path body", and the code of the store's error.
        limited: headers of each 429.
        on_request: called before a request that has arrived is answered, with its number and "METHOD path".
        requests: number of requests by method.
        injected: number of faults by kind.
        log: method and path of each request.
        uploads: of each request with a body "METHOD path body", of the body the start, and how many bytes it has.
    """

    def __init__(self) -> None:
        self.limited: dict[str, str] = {}
        self.reset()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    async def answer(self, request: web.Request) -> Answer:
        """Answer a request; its body has been read."""
        raise NotImplementedError

    def start(self, port: int = 0) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def reset(self) -> None:
        """Answer everything, and count from zero."""
        self.faults: Iterator[str | None] = iter(())
        self.refused: dict[str, str] = {}
        self.on_request: Callable[[int, str], None] | None = None
        self.requests, self.injected = Counter[str](), Counter[str]()
        self.log, self._pending = list[str](), list[str]()
        self.uploads = list[tuple[str, int]]()

    def count(self, part: str) -> int:
        """The number of requests whose method and path have a part."""
        return sum(part in request for request in self.log)

    @property
    def port(self) -> int:
        return self._runner.addresses[0][1]

    async def _start(self, port: int) -> None:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method] += 1
        if self.on_request:
            await request.read()
        self.log.append(f"{request.method} {request.raw_path}")
        if self.on_request:  # without a pause after the log, in which other requests may come
            self.on_request(len(self.log), self.log[-1])
        for pattern, code in self.refused.items():
            # Google's clients send the name of an upload at the beginning of the body.
            if re.match(pattern, f"{request.method} {request.path} {(await request.read())[:300]!r}"):
                return _error(request, 403, code)
        fault = next(self.faults, None)
        if fault in _CODES:
            self.injected[fault] += 1
            return _error(request, int(fault), _CODES[fault], self.limited if fault == "429" else {})
        if fault == "reset":
            await request.content.readany()
            return self._cut(request, fault)
        if body := await request.read():
            self.uploads.append((f"{request.method} {request.path} {body[:300]!r}", len(body)))
        status, headers, body = await self.answer(request)
        if fault == "lost":
            return self._cut(request, fault)
        # A fault that this response cannot have waits for the next one that can, so that each kind of fault occurs.
        if fault:
            self._pending.append(fault)
        fault = next((kind for kind in self._pending if self.is_possible(request, status, body, kind)), None)
        if fault:
            self._pending.remove(fault)
            self.injected[fault] += fault != "truncated"
        if fault == "expired":
            return _error(request, 403, "AccessDenied")
        if fault == "short":
            headers = {name: value for name, value in headers.items() if name != "Content-Range"}
            body = body[: len(body) // 2]
        if fault == "truncated":
            response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(body))})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            return self._cut(request, fault, response)
        if request.method == "HEAD":
            return web.Response(status=status, headers={"Content-Length": str(len(body)), **headers})
        return web.Response(status=status, headers=headers, body=body)

    def is_possible(self, request: web.Request, status: int, body: bytes, fault: str) -> bool:
        """Whether the response to a request can have a fault."""
        return len(body) > 1 and (status == 206 if fault == "short" else request.method == "GET")

    def _cut(self, request: web.Request, fault: str, response: web.StreamResponse | None = None) -> web.StreamResponse:
        self.injected[fault] += 1
        if request.transport is not None:
            request.transport.close() if fault == "truncated" else request.transport.abort()
        return response or web.Response()


class FaultyProxy(FaultyServer):
    """A proxy for the server at 127.0.0.1:port.

    Attributes:
        ignored: names of headers, in lower case, that the server does not get, as if it did not know them.
    """

    def __init__(self, port: int):
        super().__init__()
        self._server_port = port

    def reset(self) -> None:
        super().reset()
        self.ignored: set[str] = set()

    async def answer(self, request: web.Request) -> Answer:
        """Send a request to the server."""
        url = f"http://127.0.0.1:{self._server_port}{request.raw_path}"
        known = [(name, value) for name, value in request.headers.items() if name.lower() not in self.ignored]
        sent = {"data": await request.read(), "headers": known, "allow_redirects": False}
        async with self._session.request(request.method, URL(url, encoded=True), **sent) as response:
            excluded = _NOT_FORWARDED - ({"content-length"} if request.method == "HEAD" else set())
            headers = {name: value for name, value in response.headers.items() if name.lower() not in excluded}
            return Answer(response.status, headers, await response.read())

    async def _start(self, port: int) -> None:
        self._session = aiohttp.ClientSession(
            auto_decompress=False, skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
        )
        await super()._start(port)

    async def _stop(self) -> None:
        await self._session.close()
        await super()._stop()


def _error(request: web.Request, status: int, code: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error in the format of the service: JSON for Google's and the Hub's, XML for Amazon's."""
    if re.match("/(storage|upload|download|api|datasets)/", request.path) and "Signature" not in request.query:
        body = json.dumps({"error": {"code": status, "message": f"{code} by the tests' server"}})
        return web.Response(status=status, text=body, content_type="application/json", headers=headers)
    body = f"<Error><Code>{code}</Code><Message>{code} by the tests' server</Message></Error>"
    return web.Response(status=status, text=body, content_type="application/xml", headers=headers)
