"""Input over http: a server with ranges works, a server without ranges is refused in one line."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from aiohttp import web

from support.datasets import digests, name_in_increment, read_manifest
from support.paths import CHATS, TOKENIZER

OPTIONS = (f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000")
ONE = "--direct_running_mode=in_memory"


async def _redirect(request: web.Request) -> web.Response:
    """Send whoever asks to a signed url, which is refused, as one that has expired."""
    if "signature" in request.query:
        raise web.HTTPForbidden
    raise web.HTTPFound(f"{request.path}?signature=secret")


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and its url on a server that gives parts of files."""
    (tmp_path / "served").mkdir()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_static("/chats", tmp_path / "served")
        application.router.add_get("/chats-of-others/{name}", _redirect)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield tmp_path / "served", f"http://127.0.0.1:{runner.addresses[0][1]}/chats"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)


@pytest.fixture
def without_ranges() -> Iterator[str]:
    """The url of the examples on Python's own server, which has no ranges."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(CHATS)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_input_over_http_gives_the_same_dataset_as_on_a_disk(build, tmp_path, served):
    folder, url = served
    names = ("arithmetic.jsonl", "support.jsonl")
    for name in names:
        (folder / name).write_bytes((CHATS / name).read_bytes())
    for source, output in ((CHATS, tmp_path / "disk"), (url, tmp_path / "http")):
        ended = build(f"--input={','.join(f'{source}/{name}' for name in names)}", f"--output={output}", *OPTIONS)
        assert ended.code == 0, ended.err
    on_disk, over_http = (
        {name_in_increment(name): digest for name, digest in digests(tmp_path / source / "data").items()}
        for source in ("disk", "http")
    )
    assert len(on_disk) > 2 and over_http == on_disk
    assert read_manifest(tmp_path / "http")["records"] == read_manifest(tmp_path / "disk")["records"]


def test_server_without_ranges_is_refused_in_one_line(build, tmp_path, without_ranges):
    url = f"{without_ranges}/support.jsonl"
    line = build(f"--input={url}", f"--output={tmp_path}/out", *OPTIONS).err.partition("chatmill: ")[2]
    problem = "it cannot be read (its server does not give parts of files: copy it to a disk or a bucket)."
    assert line == f"--input {url}: {problem}\n"


def test_file_that_is_not_on_the_server_is_reported_in_one_line(build, tmp_path, served):
    ended = build(f"--input={served[1]}/none.jsonl", f"--output={tmp_path}/out", *OPTIONS)
    assert (ended.code, ended.err) == (
        2, f"chatmill: --input {served[1]}/none.jsonl: there is no such file or folder.\n"
    )  # fmt: skip


CHANGES = """
def change(record):
    if record["text"] == "a {at}":
        open({path!r}, "wb").write(open({content!r}, "rb").read())
    return record
"""


def test_signed_url_to_which_a_server_redirects_is_not_shown(build, tmp_path, served):
    url = f"{served[1]}-of-others/a.jsonl"
    ended = build(f"--input={url}", f"--output={tmp_path}/out", *OPTIONS)
    assert ended.code == 2
    assert ended.err == f"chatmill: --input {url}: it cannot be listed (403, message='Forbidden', url='{url}').\n"


@pytest.mark.parametrize("at", [0, 60], ids=["before the first byte", "between two requests"])
def test_file_that_changes_on_the_server_is_not_mixed_with_the_planned_one(build, served, tmp_path, at):
    """Of the first record, the launcher has a look."""
    folder, url = served
    for path, letter in ((folder / "a.jsonl", "a"), (tmp_path / "new", "b")):
        lines = (json.dumps({"text": f"{letter} {n}", "noise": letter * 100_000}) for n in range(200))
        path.write_text("".join(f"{line}\n" for line in lines))
    formatter = tmp_path / "formatter.py"
    formatter.write_text(CHANGES.format(at=at, path=str(folder / "a.jsonl"), content=str(tmp_path / "new")))
    options = [f"--tokenizer={TOKENIZER}", f"--formatter={formatter}:change", "--split_bytes=30000000", ONE]
    ended = build(f"--input={url}/a.jsonl", *options, f"--output={tmp_path}/out")
    assert ended.code == 2, ended.err
    assert f"{url}/a.jsonl: the file has changed since the job was planned" in ended.err.splitlines()[-1]
