"""Input over http: a server with ranges works, a server without ranges is refused in one line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from aiohttp import web

from support.datasets import digests, manifest_of, name_in_increment
from support.paths import CHATS, TOKENIZER
from transforms import UserError
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.steps.read import read_split

OPTIONS = (f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The url of a folder on a server that gives parts of files."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_static("/chats", folder)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/chats"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)


@pytest.fixture
def with_ranges() -> Iterator[str]:
    """The url of the examples on a server that gives parts of files."""
    with serving(CHATS) as url:
        yield url


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and its url on such a server."""
    with serving(tmp_path) as url:
        yield tmp_path, url


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
    on_disk, over_http = (
        {name_in_increment(name): digest for name, digest in digests(tmp_path / source / "data").items()}
        for source in ("disk", "http")
    )
    assert len(on_disk) > 2 and over_http == on_disk
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


@pytest.mark.parametrize("moment", ["before the first byte", "between two requests"])
def test_file_that_changes_on_the_server_is_not_mixed_with_the_planned_one(served, moment):
    folder, url = served
    content = b'{"text": "one"}\n' * 600_000
    (folder / "corpus.jsonl").write_bytes(content)
    [split] = splits_of(list_inputs(f"{url}/corpus.jsonl"), 1 << 30)
    parts = read_split(split, 1 << 20)
    if moment == "between two requests":
        next(parts)
    (folder / "corpus.jsonl").write_bytes(content.replace(b"one", b"two"))
    with pytest.raises(UserError, match=f"{url}/corpus.jsonl: the file has changed since the job was planned"):
        list(parts)
