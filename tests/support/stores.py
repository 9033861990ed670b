"""Servers that replace the stores: moto for s3://, fake-gcs-server for gs://.

s3fs and gcsfs are configured only by environment variables, as for a user. A proxy counts the requests and makes some
of them fail.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import fsspec
import pytest
from fsspec import AbstractFileSystem

from support.faulty_proxy import FaultyProxy
from support.programs import FAKE_GCS_SERVER, free_port, go_program, serving, why_no_program


def s3(port: int, proxy: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of moto's server on a port, and the environment in which s3fs uses it through the proxy.

    A page of its listings has twenty objects.
    """
    program = (
        "import os, sys; os.environ['MOTO_S3_DEFAULT_MAX_KEYS'] = '20'\n"
        "from moto.server import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, f"-p{port}"]
    secrets = {"AWS_ACCESS_KEY_ID": "key-of-the-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests"}
    return command, {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}", "AWS_DEFAULT_REGION": "us-east-1", **secrets}


def gs(port: int, proxy: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of fake-gcs-server on a port, and the environment in which gcsfs uses it through the proxy."""
    server = go_program(FAKE_GCS_SERVER)
    if server is None:
        pytest.skip(why_no_program(FAKE_GCS_SERVER))
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{proxy}"]
    options += ["-external-url", f"http://127.0.0.1:{proxy}"]
    anonymous = {"FSSPEC_GS_TOKEN": "anon", "FSSPEC_GCS_TOKEN": "anon"}
    return [server, *options, "-backend", "memory"], {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{proxy}", **anonymous}


@dataclass(frozen=True)
class Store:
    """A local store. Processes find it by environment variables."""

    protocol: str
    files: AbstractFileSystem
    proxy: FaultyProxy

    def url(self, path: str) -> str:
        return f"{self.protocol}://{path}"

    def names(self, path: str) -> list[str]:
        self.files.invalidate_cache()
        return self.files.find(path)

    def digests_of_shards(self, output: str) -> dict[str, str]:
        names = [name for name in self.names(output) if "/data/" in name]
        return {name.removeprefix(f"{output}/"): hashlib.sha256(self.files.cat(name)).hexdigest() for name in names}


@contextmanager
def running(kind: Callable[[int, int], tuple[list[str], dict[str, str]]]) -> Iterator[Store]:
    """Run a store inside. kind: s3 or gs."""
    port, proxy_port = free_port(), free_port()
    command, environment = kind(port, proxy_port)
    proxy = FaultyProxy(port)
    proxy.start(proxy_port)
    with patch.dict(os.environ, environment), patch.dict(fsspec.config.conf), serving(command, port):
        fsspec.config.set_conf_env(fsspec.config.conf)
        fsspec.get_filesystem_class(kind.__name__).clear_instance_cache()  # of clients of an earlier server
        try:
            yield Store(kind.__name__, fsspec.filesystem(kind.__name__, skip_instance_cache=True), proxy)
        finally:
            proxy.stop()
