"""An HTTP proxy between a client and a store's server, which counts requests and fails some of them on purpose.

It runs in a thread of the test process. Only a seed and the sequence of requests determine what fails.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import aiohttp
from aiohttp import web
from yarl import URL

# What each kind of fault does to a request:
#   429, 500, 503  responds with this status; the server does not get the request
#   reset          resets the connection while the request is still being sent
#   lost           resets the connection after the server has processed the request: the response is lost
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


class FaultyProxy:
    """A proxy for the server at 127.0.0.1:port. Without faults and refusals it forwards everything.

    Attributes:
        faults: the fault of each request, or None.
        refused: requests that get status 403: a pattern of "METHOD path body", and the code of the store's error.
        ignored: names of headers, in lower case, that the server does not get, as if it did not know them.
        requests: number of requests by method.
        injected: number of faults by kind.
        log: method and path of each request.
    """

    def __init__(self, port: int):
        self._server_port = port
        self.faults: Iterator[str | None] = iter(())
        self.refused: dict[str, str] = {}
        self.ignored: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.log: list[str] = []
        self._pending: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self, port: int) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def reset(self) -> None:
        """Forward everything, and count from zero."""
        self.faults, self.refused, self.ignored = iter(()), {}, set()
        self.requests, self.injected, self.log, self._pending = Counter(), Counter(), [], []

    async def _start(self, port: int) -> None:
        self._session = aiohttp.ClientSession(
            auto_decompress=False, skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
        )
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()

    async def _stop(self) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method] += 1
        self.log.append(f"{request.method} {request.raw_path}")
        for pattern, code in self.refused.items():
            # Google's clients send the name of an upload at the beginning of the body.
            if re.match(pattern, f"{request.method} {request.path} {(await request.read())[:300]!r}"):
                return _error(request, 403, code)
        fault = next(self.faults, None)
        if fault in _CODES:
            self.injected[fault] += 1
            return _error(request, int(fault), _CODES[fault])
        if fault == "reset":
            await request.content.readany()
            return self._cut(request, fault)
        status, headers, body = await self._forward(request)
        if fault == "lost":
            return self._cut(request, fault)
        # A fault that this response cannot have waits for the next one that can, so that each kind of fault occurs.
        if fault:
            self._pending.append(fault)
        fault = next((kind for kind in self._pending if self._is_possible(request, status, body, kind)), None)
        if fault:
            self._pending.remove(fault)
        if fault == "short":
            self.injected[fault] += 1
            headers.pop("Content-Range", None)
            body = body[: len(body) // 2]
        if fault == "truncated":
            response = web.StreamResponse(status=status, headers=headers | {"Content-Length": str(len(body))})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            return self._cut(request, fault, response)
        if request.method == "HEAD":
            return web.Response(status=status, headers=headers)
        return web.Response(status=status, headers=headers, body=body)

    @staticmethod
    def _is_possible(request: web.Request, status: int, body: bytes, fault: str) -> bool:
        return len(body) > 1 and (status == 206 if fault == "short" else request.method == "GET")

    async def _forward(self, request: web.Request) -> tuple[int, dict[str, str], bytes]:
        """Send a request to the server, and return the status, headers and body of its response."""
        url = f"http://127.0.0.1:{self._server_port}{request.raw_path}"
        body = await request.read()
        known = [(name, value) for name, value in request.headers.items() if name.lower() not in self.ignored]
        sent = {"data": body, "headers": known, "allow_redirects": False}
        async with self._session.request(request.method, URL(url, encoded=True), **sent) as response:
            content = await response.read()
            excluded = _NOT_FORWARDED - ({"content-length"} if request.method == "HEAD" else set())
            headers = {name: value for name, value in response.headers.items() if name.lower() not in excluded}
            return response.status, headers, content

    def _cut(self, request: web.Request, fault: str, response: web.StreamResponse | None = None) -> web.StreamResponse:
        self.injected[fault] += 1
        if request.transport is not None:
            request.transport.close() if fault == "truncated" else request.transport.abort()
        return response or web.Response()


def _error(request: web.Request, status: int, code: str) -> web.Response:
    """Return an error in the format of the store: JSON for Google's, XML for Amazon's."""
    if re.match("/(storage|upload|download)/", request.path):
        body = json.dumps({"error": {"code": status, "message": f"{code} by the tests' proxy"}})
        return web.Response(status=status, text=body, content_type="application/json")
    body = f"<Error><Code>{code}</Code><Message>{code} by the tests' proxy</Message></Error>"
    return web.Response(status=status, text=body, content_type="application/xml")
