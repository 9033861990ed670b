"""Files of datasets on the Hugging Face Hub, each at a commit, and what errors of huggingface_hub mean for people.

A file that is downloaded costs two requests, and the other tasks of it are likely read on the same machine. A range
costs a request, and the Hub limits these: ranges are for a small part of a large file, and for a look at a file.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import tenacity

from transforms.base.errors import StoreError
from transforms.base.version import __version__
from transforms.storage import retries
from transforms.storage.ranges import RangeReader, complete
from transforms.storage.retries import NOT_CONNECTED, http_status, is_transient, reason_of

_T = TypeVar("_T")

# A larger file is downloaded only if a task needs at least half of it.
_ALWAYS_WHOLE = 2 << 30
# How much is asked for at once if ranges are read: not more than is needed.
_AT_ONCE, _PEEK_BYTES = 16 << 20, 1 << 20
_SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 5.0, 120.0  # a large commit takes the Hub some forty seconds
_URL = re.compile(r"(hf://datasets/([^/@:]+/[^/@:]+))@([0-9a-f]{40})/(.+)", re.DOTALL)


class RemoteChanged(Exception):
    """A commit that does not follow what is there: somebody else has committed, or its answer was lost."""


class HubFile(NamedTuple):
    """A file of a dataset on the Hub, whose content never changes.

    repository: ORG/NAME. commit: 40 hexadecimal digits. path: in the repository.
    """

    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """Where it is, for any process."""
        return f"hf://datasets/{self.repository}@{self.commit}/{self.path}"


def hub_file(url: str) -> HubFile | None:
    """Return the file of a url; None if the url is not that of a file on the Hub at a commit."""
    found = _URL.fullmatch(url) if url.startswith("hf://") else None
    return HubFile(found[2], found[3], found[4]) if found else None


def strip_commit(url: str) -> str:
    """Return the url of the same file in any commit; other urls as they are."""
    file = hub_file(url)
    return f"hf://datasets/{file.repository}/{file.path}" if file else url


def open_hub_file(file: HubFile, size: int, reads: int) -> io.BufferedReader:
    """Open a file for reading.

    Args:
        file: the file.
        size: its bytes.
        reads: about how many of them will be read in this process; 0 for a look at it, which downloads nothing.

    Raises:
        FileNotFoundError: if its commit has no such file.
        StoreError: if the Hub refuses or fails.
    """

    def request(hub: Any) -> str:
        return hub.hf_hub_download(file.repository, file.path, repo_type="dataset", revision=file.commit)

    if reads and (size <= _ALWAYS_WHOLE or 2 * reads >= size):
        return open(ask_hub(request, file.url, "read", file.repository), "rb")
    reader = RangeReader(file.url, {"size": size}, functools.partial(read_hub_range, file), is_pinned=True)
    return io.BufferedReader(reader, buffer_size=min(reads or _PEEK_BYTES, _AT_ONCE))


def read_hub_range(file: HubFile, start: int, stop: int) -> bytes:
    """Return the bytes of a file from start to stop, which is not after its end. Raises as open_hub_file does."""

    def request(_: Any) -> bytes:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        url = hf_hub_url(file.repository, file.path, repo_type="dataset", revision=file.commit)
        headers = build_hf_headers(library_name="chatmill")
        headers |= {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        response = get_session().get(url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
        hf_raise_for_status(response)
        content = response.content[start:stop] if response.status_code == 200 else response.content
        return complete(content, start, stop - start)

    return ask_hub(request, file.url, "read", file.repository) if stop > start else b""


def ask_hub(request: Callable[[Any], _T], url: str, action: str, repository: str, revision: str | None = None) -> _T:
    """Ask the Hub, with retries.

    Args:
        request: does it, with the HfApi.
        url: of what is asked for, for errors.
        action: what is to be done with it, as a past participle for the message: "read".
        repository: ORG/NAME.
        revision: that was named for it, for errors.

    Raises:
        FileNotFoundError: if the repository has no such file in this revision.
        RemoteChanged: if it is a commit that does not follow the last one.
        StoreError: if the Hub refuses, cannot be reached or fails.
    """
    try:
        return RETRYING(request, hub())
    except Exception as error:  # of the Hub's client, of its HTTP library, or of the system
        from huggingface_hub.errors import RemoteEntryNotFoundError

        if http_status(cause_of(error)) == 412:
            raise RemoteChanged from None
        if isinstance(error, RemoteEntryNotFoundError):
            raise FileNotFoundError(url) from None
        raise StoreError(url, action, _reason(cause_of(error), repository, revision), may_pass(error)) from None


def hub() -> Any:
    """Return an HfApi. The token is that of the environment or of `hf auth login`."""
    from huggingface_hub import HfApi

    _set_up()
    return HfApi(library_name="chatmill", library_version=__version__)


@functools.cache
def _set_up() -> None:
    """Let the client of this process log errors only, show no progress, and not wait for an answer for ever."""
    from huggingface_hub.utils import disable_progress_bars, set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def client() -> Any:
        made = default_client_factory()
        made.timeout = type(made.timeout)(SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT)
        return made

    # The client, and the libraries that it sends requests with: each request, each retry.
    for name in ("httpx", "httpx2", "huggingface_hub", "filelock"):
        logging.getLogger(name).setLevel(logging.ERROR)
    disable_progress_bars()
    set_client_factory(client)


def cause_of(error: Any) -> Any:
    """Return why a download or an upload failed, whatever huggingface_hub made of it.

    Of a download it says that the file is not on this machine, and of an upload it raises a RuntimeError.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    return error.__cause__ if isinstance(error, (LocalEntryNotFoundError, RuntimeError)) and error.__cause__ else error


def may_pass(error: Any) -> bool:
    """Return whether the Hub, or the storage that it redirects to, may answer later what it did not answer now."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    error = cause_of(error)
    if isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError) and http_status(error) in (400, 401, 403):
        # That of a storage: its signed url has expired, and the Hub gives another. The Hub itself knows the token.
        path = urlsplit(str(error.response.url)).path
        return not (path.startswith("/api/") or "/resolve/" in path or ".git/" in path)
    # huggingface_hub's error for a body that ended early, and the errors of hf_xet.
    is_cut_short = type(error) is OSError and "Consistency check failed" in str(error)
    is_of_xet = type(error) is RuntimeError or type(error).__module__.startswith("hf_xet")
    is_of_a_proxy = isinstance(error, json.JSONDecodeError)  # an answer that huggingface_hub took for the Hub's
    return is_cut_short or is_of_xet or is_of_a_proxy or is_transient(error)


def _reason(error: Any, repository: str, revision: str | None) -> str:
    """What is wrong, in one line and without urls that were signed."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = f"{constants.ENDPOINT}/datasets/{repository}"
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, or download the files and name their folder"
    if isinstance(error, GatedRepoError):
        if get_token():
            return f"{repository} is gated, and your token has no access to it: ask for it at {page}"
        return f"{repository} is gated: ask for access at {page}, then {log_in}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repository} has no revision {revision or 'main'}"
    status = http_status(error)
    if status == 401 and get_token() and not isinstance(error, RepositoryNotFoundError):
        return f"the Hub does not accept your token: {log_in}"
    if isinstance(error, RepositoryNotFoundError) or status == 401:
        help = "your token has no access to it" if get_token() else f"for a private one, {log_in}"
        return f"there is no dataset {repository} on {constants.ENDPOINT}, or it is private: check the name; {help}"
    if type(error).__name__ in NOT_CONNECTED:
        return f"{constants.ENDPOINT} cannot be reached: {reason_of(error)}"
    if status is not None:
        message = error.response.headers.get("x-error-message", "")
        answer = f"the Hub answered {status}" + (f": {' '.join(message.split())[:200]}" if message else "")
        help = f"; make a token that may do this at {constants.ENDPOINT}/settings/tokens" if status == 403 else ""
        return f"{answer}{help}"
    return reason_of(error)


# The rules of retries, for more errors.
RETRYING = retries.RETRYING.copy(retry=tenacity.retry_if_exception(may_pass))
