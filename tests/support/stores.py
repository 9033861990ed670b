"""Servers that replace the stores: moto for s3://, fake-gcs-server for gs://."""

from __future__ import annotations

import sys

import pytest

from support.programs import FAKE_GCS_SERVER, go_program, why_no_program


def s3(port: int, proxy: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of moto's server on a port, and the environment in which s3fs uses it through the proxy."""
    command = [sys.executable, "-c", "import sys; from moto.server import main; sys.exit(main())", f"-p{port}"]
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
