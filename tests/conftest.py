"""What the tests share: where things are, and how a dataset is built and read."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
CHATS = ROOT / "examples" / "chats"
TOKENIZER = ROOT / "examples" / "tokenizer"

os.environ["HF_HUB_OFFLINE"] = "1"
# Else gcsfs, which looks when it is imported, asks for the kind of each bucket at an address of Google's.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# The files that take longest come first, or the other cores would wait for them at the end.
LONGEST = ("test_stores", "test_flink")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@dataclass(frozen=True)
class Ended:
    """How a build ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def build(capfd, monkeypatch):
    """Builds a dataset in this process, as `python -m pipeline` would with these options."""
    from pipeline.cli import build as build_with_cli

    def run(*options: object) -> Ended:
        capfd.readouterr()
        code = build_with_cli([str(option) for option in options])
        return Ended(code, *capfd.readouterr())

    return run


def build_apart(*options: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Builds a dataset in a process of its own."""
    command = [sys.executable, "-m", "pipeline", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **how)


def manifest_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "manifest.json").read_text())


def rows_of(output: Path, split: str = "train") -> list[dict[str, Any]]:
    """All rows of a dataset's split, in the order of its shards."""
    return [row for shard in sorted((output / "data").glob(f"{split}-*")) for row in pq.read_table(shard).to_pylist()]


def rejects_of(output: Path) -> list[dict[str, Any]]:
    return [row for shard in sorted((output / "rejects").glob("*")) for row in pq.read_table(shard).to_pylist()]


def digests(output: Path) -> dict[str, str]:
    """sha256 of each file that a dataset consists of, its manifest and card included."""
    files = [path for path in output.rglob("*") if path.is_file() and "_chatmill" not in path.parts]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def build_wheel(folder: Path) -> Path:
    """What pip would install, made in a folder."""
    sources = folder / "sources"
    for name in ("pipeline", "transforms"):
        shutil.copytree(ROOT / name, sources / name)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, sources)
    how = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, "."], cwd=sources, check=True, timeout=120)
    return next(folder.glob("*.whl"))


# What the tests install or build, once for all runs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chatmill"
FAKE_GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"


def go_program(module: str) -> str | None:
    """A program that is installed, or that Go builds here, once for all runs; None where neither can be."""
    name = posixpath.basename(module).partition("@")[0]
    folder = CACHE / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # tests run in several processes
        found = shutil.which(name) or shutil.which(name, path=folder)
        if found is None and shutil.which("go"):
            subprocess.run(["go", "install", module], env=os.environ | {"GOBIN": str(folder)}, check=False)
            found = shutil.which(name, path=folder)
    return found


def no_program(module: str) -> str:
    return f"neither {posixpath.basename(module)} nor Go, to build it, is installed (go install {module})"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """A server runs, and answers on its port."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()
