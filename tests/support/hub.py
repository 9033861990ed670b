"""A server that speaks the Hugging Face Hub's API for datasets, as the real `huggingface_hub` client uses it.

It runs in threads of the test process, and clients in this and other processes find it by HF_ENDPOINT. Its answers are
those that the client (2.4) reads and that its own tests record; what they are on the real Hub was not seen from here.
Two differences are meant:

- It has no Xet storage, whose protocol is that of a closed server and a binary client. The client does not ask whether
  a Hub has it, so `environment` and `in_process` set HF_HUB_DISABLE_XET: uploads then go through LFS.
- A missing repository is 401 or 404 with X-Error-Code: RepoNotFound. The real 401 has no code, and the client knows it
  by a URL with https://.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

from support.hub_answers import Answer, Refused, Request, User
from support.hub_repos import Repo

# What each kind of fault does to a request:
#   429, 500, 503  responds with this status, before anything is done
#   reset          closes the connection before anything is done
#   lost           closes the connection after the request was processed: a commit is made, its answer is lost
#   truncated      closes the connection in the middle of the body
#   stalled        does not answer for `stall_seconds`, then closes the connection
#   expired        a signed URL is answered as one that has expired; other requests are processed
FAULTS = ("429", "500", "503", "reset", "lost", "truncated", "stalled", "expired")
KINDS = ("api", "resolve", "cdn", "upload")


def each(n: int, *faults: str) -> Iterator[str | None]:
    """Yield None n - 1 times, then a fault, the next one each time, without end."""
    for fault in itertools.cycle(faults):
        yield from [None] * (n - 1)
        yield fault


class Hub:
    """The server. Use it as a context manager.

    Attributes:
        repos: by name, ORG/NAME.
        users: by token.
        faults: the fault of each request, or None; see `each`, and `seeded` of faulty_proxy.
        faulty: the kinds of requests that `faults` is asked for.
        limit_headers: headers of a 429. The client waits one second more than `t`.
        on_request: called before each request is answered, with its number from 1 on and "METHOD path".
        link_seconds: how long a signed URL is valid.
        stall_seconds: how long a stalled request waits.
        page: entries of a page of `tree`; 50 if expanded.
        calls: number of requests by kind (KINDS).
        injected: number of faults by kind.
        cdn_bytes, upload_bytes: bytes of LFS files that were read and sent.
        log: "METHOD path" of each request.
        authorizations: the Authorization headers that a signed URL got: the client must not send its token there.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.users: dict[str, User] = {}
        self.faulty = KINDS
        self.limit_headers = {"RateLimit": '"api";r=0;t=0', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
        self.link_seconds = 3600.0
        self.stall_seconds = 5.0
        self.page = 1000
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.reset()

    def reset(self) -> None:
        """Answer everything, and count from zero. Repositories and users stay."""
        self.faults: Iterator[str | None] = iter(())
        self.on_request: Callable[[int, str], None] | None = None
        self.calls: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.cdn_bytes = self.upload_bytes = 0
        self.log: list[str] = []
        self.authorizations: list[str] = []

    def __enter__(self) -> Hub:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cdn(self) -> str:
        """The origin of signed URLs: another one than that of the API, as on the real Hub."""
        return f"http://localhost:{self.port}"

    def add(self, name: str, files: Mapping[str, bytes] | None = None, **options: object) -> Repo:
        """Add a repository with these files on main.

        Args:
            name: ORG/NAME.
            files: content by path.
            options: is_private, gated, granted of Repo.
        """
        repo = self.repos[name] = Repo(name, **options)  # type: ignore[arg-type]
        if files:
            repo.commit(files)
        return repo

    def token_of(self, name: str, *orgs: str, role: str = "write") -> str:
        """Return a new token of a user."""
        token = "hf_" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=30))
        self.users[token] = User(name, orgs, role)
        return token

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Return the variables with which another process uses this Hub, with its caches and logins below `home`."""
        variables = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
        return {**variables, "HF_HUB_DISABLE_XET": "1", **({"HF_TOKEN": token} if token else {})}

    @contextlib.contextmanager
    def in_process(self, home: Path, token: str | None = None) -> Iterator[None]:
        """Inside, the client in this process uses this Hub: it reads the environment when it is imported."""
        from huggingface_hub import HfFileSystem, constants
        from huggingface_hub.utils import close_session

        changed = {
            "ENDPOINT": self.endpoint,
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "HUGGINGFACE_CO_URL_TEMPLATE": self.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        }
        environment = self.environment(home, token)
        with contextlib.ExitStack() as stack:
            for name, value in changed.items():
                stack.enter_context(mock.patch.object(constants, name, value))
            stack.enter_context(mock.patch.dict(os.environ, environment))
            if token is None:
                os.environ.pop("HF_TOKEN", None)
            try:
                yield
            finally:
                HfFileSystem.clear_instance_cache()
                close_session()

    def fault(self, kind: str) -> str | None:
        """Return the fault of the next request of a kind."""
        with self._lock:
            return next(self.faults, None) if kind in self.faulty else None

    def count(self, kind: str, request: str) -> int:
        """Count a request, and return its number."""
        with self._lock:
            self.calls[kind] += 1
            self.log.append(request)
            return len(self.log)

    def stall(self) -> None:
        """Wait as long as a stalled request does."""
        self._stopped.wait(self.stall_seconds)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.hub
        request = Request(hub, self.command, self.path, self.headers, self._read_body())
        number = hub.count(request.kind, str(request))
        if hub.on_request:
            hub.on_request(number, str(request))
        fault = hub.fault(request.kind)
        if fault == "stalled":
            hub.stall()
        if fault in ("reset", "stalled"):
            return self._cut(fault)
        is_expired = fault == "expired" and request.kind in ("cdn", "upload")
        if is_expired:
            hub.injected["expired"] += 1
        try:
            answer = self._failure(fault) or request.answer(is_expired)
        except Refused as refused:
            answer = refused.answer
        if fault == "lost":
            return self._cut(fault)
        self._send(answer, fault)

    do_HEAD = do_POST = do_PUT = do_GET

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline().strip(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _failure(self, fault: str | None) -> Answer | None:
        if fault not in ("429", "500", "503"):
            return None
        self.hub.injected[fault] += 1
        headers = {"Content-Type": "application/json", **(self.hub.limit_headers if fault == "429" else {})}
        return Answer(int(fault), json.dumps({"error": f"{fault} by the tests' Hub"}).encode(), headers)

    def _cut(self, fault: str) -> None:
        self.hub.injected[fault] += 1
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, answer: Answer, fault: str | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" else answer.body
        is_cut = fault == "truncated" and len(body) > 1
        self.wfile.write(body[: len(body) // 2] if is_cut else body)
        self.wfile.flush()
        if is_cut:
            self._cut("truncated")
