"""Install, build and start the programs and servers that the tests use."""

from __future__ import annotations

import os
import posixpath
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from support.paths import ROOT


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this package in a folder."""
    sources = folder / "sources"
    for name in ("pipeline", "transforms"):
        shutil.copytree(ROOT / name, sources / name)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, sources)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=sources, check=True, timeout=120)
    return next(folder.glob("*.whl"))


# Programs are installed or built once, and kept for later runs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chatmill"

FAKE_GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"


def go_program(module: str) -> str | None:
    """Return the path of a program, which Go builds if it is not installed; None if neither is possible."""
    name = posixpath.basename(module).partition("@")[0]
    folder = CACHE / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # tests run in several processes
        found = shutil.which(name) or shutil.which(name, path=folder)
        if found is None and shutil.which("go"):
            subprocess.run(["go", "install", module], env=os.environ | {"GOBIN": str(folder)}, check=False)
            found = shutil.which(name, path=folder)
    return found


def why_no_program(module: str) -> str:
    return f"neither {posixpath.basename(module)} nor Go, to build it, is installed (go install {module})"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """Run a server, and wait until it listens on its port."""
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
