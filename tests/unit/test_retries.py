"""Retries: transient errors are retried, refusals are reported at once, and each error says what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.reading import list_urls, listed
from transforms import ParameterError, Unavailable

URL = "failing:///bucket/a.jsonl"


class Answer(Exception):
    """An error of a store's client, with the status of an HTTP answer."""

    def __init__(self, status: int, message: str = ""):
        super().__init__(message)
        self.status = status


class ClientPayloadError(Exception):
    """Has the name of aiohttp's error for a body that ends early."""


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


class Failing(MemoryFileSystem):
    """A store that answers requests for a file with these errors, one after another, and then with the file."""

    protocol = "failing"
    errors: list[BaseException] = []  # noqa: RUF012
    requests = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("failing://").strip("/")

    def cat_file(self, *arguments: Any, **options: Any) -> bytes:
        Failing.requests += 1
        if self.errors:
            raise self.errors.pop(0)
        return super().cat_file(*arguments, **options)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    fsspec.register_implementation("failing", Failing, clobber=True)
    Failing().pipe_file("/bucket/a.jsonl", b'{"text": "a"}\n')
    Failing.errors, Failing.requests = [], 0
    return Failing


@pytest.mark.parametrize(
    "error",
    [
        Answer(500),
        Answer(503),
        Answer(429),
        Answer(408),
        ConnectionResetError(),
        TimeoutError(),
        ClientPayloadError(),
        caused_by(OSError("what s3fs raises"), Answer(503)),
        caused_by(FileNotFoundError("what fsspec raises for http"), Answer(502)),
        caused_by(ClientPayloadError(), ValueError("of a library below the client")),
    ],
    ids=repr,
)
def test_a_transient_error_is_retried(store: type[Failing], error: BaseException):
    store.errors = [error, error]
    assert list_urls(URL) == [URL]
    assert store.requests == 3


@pytest.mark.parametrize("error", [Answer(403, "no\n  access."), PermissionError("no access.")], ids=repr)
def test_a_refusal_is_reported_at_once_in_one_line(store: type[Failing], error: BaseException):
    store.errors = [error]
    with pytest.raises(ParameterError, match=rf"^patterns='{URL}': it cannot be read \(no access\)\.$"):
        listed(URL)
    assert store.requests == 1


def test_a_lasting_error_is_reported_after_six_attempts(store: type[Failing]):
    store.errors = [Answer(503, "slow down")] * 9
    with pytest.raises(Unavailable, match=rf"^{URL}: it cannot be read \(slow down\)\.$"):
        listed(URL)
    assert store.requests == 6


@pytest.mark.parametrize("error", [FileNotFoundError(URL), caused_by(FileNotFoundError(URL), Answer(404))], ids=repr)
def test_a_file_that_does_not_exist_is_not_looked_for_again(store: type[Failing], error: BaseException):
    store.errors = [error]
    with pytest.raises(ParameterError, match=URL):
        listed(URL)
    assert store.requests == 1


def test_a_file_below_a_file_of_a_disk_does_not_exist(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ParameterError, match="there is no such file or folder"):
        listed(f"{tmp_path}/a.jsonl/b.jsonl")
