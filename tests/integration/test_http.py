"""Input over http: a server with ranges works, a server without ranges is refused in one line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiohttp import web

from support.datasets import digests, manifest_of
from support.paths import CHATS, TOKENIZER

OPTIONS = (f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000")


@pytest.fixture
def with_ranges() -> Iterator[str]:
    """The url of the examples on a server that gives parts of files."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_static("/chats", CHATS)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/chats"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def without_ranges() -> Iterator[str]:
    """The url of the examples on Python's own server, which has no ranges."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(CHATS)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_input_over_http_gives_the_same_dataset_as_on_a_disk(build, tmp_path, with_ranges):
    names = ("arithmetic.jsonl", "support.jsonl")
    for source, output in ((CHATS, tmp_path / "disk"), (with_ranges, tmp_path / "http")):
        ended = build(f"--input={','.join(f'{source}/{name}' for name in names)}", f"--output={output}", *OPTIONS)
        assert ended.code == 0, ended.err
    shards = {name: digest for name, digest in digests(tmp_path / "disk").items() if name.startswith("data")}
    assert len(shards) > 2
    assert {name: digests(tmp_path / "http")[name] for name in shards} == shards
    assert manifest_of(tmp_path / "http")["records"] == manifest_of(tmp_path / "disk")["records"]


def test_server_without_ranges_is_refused_in_one_line(build, tmp_path, without_ranges):
    url = f"{without_ranges}/arithmetic.jsonl"
    ended = build(f"--input={url}", f"--output={tmp_path}/out", *OPTIONS)
    assert ended.code == 2
    assert ended.err.startswith(f"chatmill: --input {url}: its server does not give parts of it (")
    assert ended.err.endswith("Copy it to a disk or a bucket first.\n") and ended.err.count("\n") == 1


def test_file_that_is_not_on_the_server_is_reported_in_one_line(build, tmp_path, with_ranges):
    ended = build(f"--input={with_ranges}/none.jsonl", f"--output={tmp_path}/out", *OPTIONS)
    assert (ended.code, ended.err) == (
        2, f"chatmill: --input {with_ranges}/none.jsonl: there is no such file or folder.\n"
    )  # fmt: skip
