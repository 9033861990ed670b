"""Retries: transient errors are retried, refusals are reported at once, and each error says what failed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from transforms import StoreError, Unavailable, UserError
from transforms.storage import retries
from transforms.storage.retries import is_transient, with_retries

URL = "memory://bucket/file"


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


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries._RETRYING, "sleep", lambda seconds: None)


def failing(*errors: BaseException) -> tuple[Callable[[str], str], list[str]]:
    """Return an operation that raises these errors one after another and then succeeds, and the urls of its calls."""
    left, calls = list(errors), []

    @with_retries("read")
    def read(url: str) -> str:
        calls.append(url)
        if left:
            raise left.pop(0)
        return "content"

    return read, calls


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
def test_a_transient_error_is_retried(error: BaseException):
    assert is_transient(error)
    read, calls = failing(error, error)
    assert read(URL) == "content"
    assert calls == [URL] * 3


@pytest.mark.parametrize("error", [Answer(403, "no\n  access."), PermissionError("no access.")], ids=repr)
def test_a_refusal_is_reported_at_once_in_one_line(error: BaseException):
    read, calls = failing(error)
    with pytest.raises(StoreError, match=r"^memory://bucket/file: it cannot be read \(no access\)\.$") as raised:
        read(URL)
    assert calls == [URL]
    assert type(raised.value.as_user_error("message")) is UserError


def test_a_lasting_error_is_reported_after_six_attempts():
    read, calls = failing(*[Answer(503, "slow down")] * 9)
    with pytest.raises(StoreError, match="slow down") as raised:
        read(URL)
    assert len(calls) == 6
    assert type(raised.value.as_user_error("message")) is Unavailable


@pytest.mark.parametrize("error", [FileNotFoundError(URL), caused_by(FileNotFoundError(URL), Answer(404))], ids=repr)
def test_a_file_that_does_not_exist_is_not_an_error_of_the_store(error: BaseException):
    read, calls = failing(error)
    with pytest.raises(FileNotFoundError):
        read(URL)
    assert calls == [URL]


def test_an_error_of_a_local_disk_is_that_of_a_store_without_the_path_again(tmp_path: Any):
    for url in (str(tmp_path), f"file://{tmp_path}"):
        read, _ = failing(PermissionError(errno.EACCES, "no access", url))
        with pytest.raises(StoreError, match=r": it cannot be read \(no access\)\.$"):
            read(url)


def test_a_file_below_a_file_of_a_disk_does_not_exist(tmp_path: Any):
    read, _ = failing(NotADirectoryError(errno.ENOTDIR, "Not a directory"))
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path))


def test_what_an_operation_makes_of_a_local_file_is_raised_as_it_is(tmp_path: Any):
    read, _ = failing(ValueError("not what it should be"))
    with pytest.raises(ValueError):
        read(str(tmp_path))


def test_a_user_error_is_raised_as_it_is():
    read, calls = failing(UserError("the url holds a password"))
    with pytest.raises(UserError):
        read(URL)
    assert calls == [URL]
