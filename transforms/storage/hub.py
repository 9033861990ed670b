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
from urllib.parse import unquote, urlsplit

import tenacity

from transforms.base.errors import StoreError, UserError
from transforms.base.version import __version__
from transforms.storage import retries
from transforms.storage.ranges import RangeReader, complete
from transforms.storage.retries import NOT_CONNECTED, http_status, is_transient, store_reason

_T = TypeVar("_T")

# A larger file is downloaded only if a task needs at least half of it.
_ALWAYS_WHOLE = 2 << 30
# How much is asked for at once if ranges are read: not more than is needed.
_AT_ONCE, _PEEK_BYTES = 16 << 20, 1 << 20
_SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 5.0, 120.0  # a large commit takes the Hub some forty seconds
HUB_PREFIX = "hf://datasets/"
# What the Hub allows, without a dot or a dash at the beginning.
HUB_REPOSITORY = r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*"
_URL = re.compile(
    rf"{HUB_PREFIX}({HUB_REPOSITORY})(?::([^@/:]+))?(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?",
    re.ASCII | re.DOTALL,
)
_EXPECTED = (
    f"expected {HUB_PREFIX}ORG/NAME[:CONFIG][@REVISION], or a file, folder or glob of it: {HUB_PREFIX}ORG/NAME/PATH"
)
_COMMIT = re.compile("[0-9a-f]{40}")
# What is asked for: a dataset, a revision of it, or a file.
_ASKED = re.compile(r"(?:\w+://\S*?datasets/)?([^/@:]+/[^/@:]+)(?::[^@]+)?(?:@(.+))?.*", re.DOTALL)


class RemoteChanged(Exception):
    """A commit that does not follow what is there: somebody else has committed, or its answer was lost."""


class HubName(NamedTuple):
    """What is named on the Hub.

    repository: ORG/NAME. config: a configuration of it, if one is named. revision: a branch, a tag or a commit; None
    for the main branch. path: a file, a folder or a glob; empty for the dataset.
    """

    repository: str
    config: str | None
    revision: str | None
    path: str

    @property
    def url(self) -> str:
        """The name in full."""
        config = f":{self.config}" if self.config else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"{HUB_PREFIX}{self.repository}{config}{revision}" + (f"/{self.path}" if self.path else "")


def hub_name(url: str) -> HubName | None:
    """Return what a url names on the Hub; None if it does not begin like one. Raises UserError if it is not one."""
    if not url.startswith(HUB_PREFIX):
        return None
    match = _URL.fullmatch(url)
    if not match or (match[2] and match[4]):
        raise UserError(f"{url}: {_EXPECTED}.")
    return HubName(match[1], match[2], unquote(match[3]) if match[3] else None, (match[4] or "").strip("/"))


def hub_file(url: str) -> HubName | None:
    """Return what a url names, if it is a file on the Hub at a commit, whose content never changes; otherwise None."""
    name = hub_name(url)
    return name if name and name.path and _COMMIT.fullmatch(name.revision or "") else None


def strip_commit(url: str) -> str:
    """Return the url of the same file in any commit; other urls as they are."""
    file = hub_file(url)
    return file._replace(revision=None).url if file else url


def open_hub_file(file: HubName, size: int, reads: int) -> io.BufferedReader:
    """Open a file of the Hub for reading.

    size: its bytes. reads: about how many of them will be read in this process; 0 for a look at it, which downloads
    nothing. Raises FileNotFoundError if its commit has no such file, StoreError if the Hub refuses or fails.
    """
    if reads and (size <= _ALWAYS_WHOLE or 2 * reads >= size):
        named = {"filename": file.path, "repo_type": "dataset", "revision": file.revision}
        return open(ask_hub(lambda hub: hub.hf_hub_download(file.repository, **named), file.url, "read"), "rb")
    reader = RangeReader(file.url, {"size": size}, functools.partial(read_hub_range, file), is_pinned=True)
    return io.BufferedReader(reader, buffer_size=min(reads or _PEEK_BYTES, _AT_ONCE))


def read_hub_range(file: HubName, start: int, stop: int) -> bytes:
    """Return the bytes of a file from start to stop, which is not after its end. Raises as open_hub_file does."""

    def request(_: Any) -> bytes:
        from huggingface_hub import HfFileSystem

        with HfFileSystem().open(file.url, "rb", cache_type="none", size=stop) as opened:
            opened.seek(start)
            return complete(opened.read(stop - start), start, stop - start)

    return ask_hub(request, file.url, "read") if stop > start else b""


def ask_hub(request: Callable[[Any], _T], url: str, action: str) -> _T:
    """Ask the Hub, with retries.

    request: does it, with the HfApi. url: of what is asked for, which names the repository, and perhaps a revision.
    action: what is to be done with it, as a past participle for the message: "read".

    Raises:
        FileNotFoundError: if the repository has no such file in this revision.
        RemoteChanged: if it is a commit that does not follow the last one.
        StoreError: if the Hub refuses, cannot be reached or fails.
    """
    try:
        return _RETRYING(request, hub())
    except Exception as error:  # of the Hub's client, of its HTTP library, or of the system
        cause = _find_cause(error)
        if http_status(cause) == 412:
            raise RemoteChanged from None
        if type(cause).__name__ == "RemoteEntryNotFoundError":
            raise FileNotFoundError(url) from None
        raise StoreError(url, action, _reason(cause, url), _may_pass(error)) from None


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
        http_client = default_client_factory()
        http_client.timeout = type(http_client.timeout)(SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT)
        return http_client

    # The client, and the libraries that it sends requests with: each request, each retry.
    for name in ("httpx", "httpx2", "huggingface_hub", "filelock"):
        logging.getLogger(name).setLevel(logging.ERROR)
    disable_progress_bars()
    set_client_factory(client)


def _find_cause(error: BaseException) -> Any:
    """Why a request failed: of a download, huggingface_hub says only that the file is not on this machine."""
    is_wrapped = type(error).__name__ in ("LocalEntryNotFoundError", "RuntimeError")
    return error.__cause__ if is_wrapped and error.__cause__ else error


def _may_pass(error: BaseException) -> bool:
    """Whether the Hub, or the storage that it redirects to, may answer later what it did not answer now."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    error = _find_cause(error)
    if isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError) and http_status(error) in (400, 401, 403):
        # That of a storage: its signed url has expired, and the Hub gives another. The Hub itself knows the token.
        path = urlsplit(str(error.response.url)).path
        return not (path.startswith("/api/") or "/resolve/" in path or ".git/" in path)
    # huggingface_hub's error for a body that ended early, those of hf_xet, and an answer of a proxy for the Hub's.
    is_cut_short = type(error) is OSError and "Consistency check failed" in str(error)
    is_of_xet = type(error) is RuntimeError or type(error).__module__.startswith("hf_xet")
    return is_cut_short or is_of_xet or isinstance(error, json.JSONDecodeError) or is_transient(error)


def _reason(error: Any, url: str) -> str:
    """What is wrong, in one line and without urls that were signed."""
    from huggingface_hub import constants, errors, get_token

    match = _ASKED.fullmatch(url)
    repository, revision = match.groups() if match else (url, None)
    hub, token, status = constants.ENDPOINT, get_token(), http_status(error)
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, or download the files and name their folder"
    if isinstance(error, errors.GatedRepoError):
        page = f"{hub}/datasets/{repository}"
        if token:
            return f"{repository} is gated, and your token has no access to it: ask for it at {page}"
        return f"{repository} is gated: ask for access at {page}, then {log_in}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {revision or 'main'}"
    if isinstance(error, errors.RepositoryNotFoundError) or (status == 401 and not token):
        help = "your token has no access to it" if token else f"for a private one, {log_in}"
        return f"there is no dataset {repository} on {hub}, or it is private: check the name; {help}"
    if status == 401:
        return f"the Hub does not accept your token: {log_in}"
    if type(error).__name__ in NOT_CONNECTED:
        return f"{hub} cannot be reached: {store_reason(error)}"
    if status is not None:
        message = " ".join(error.response.headers.get("x-error-message", "").split())[:200]
        help = f"; make a token that may do this at {hub}/settings/tokens" if status == 403 else ""
        return f"the Hub answered {status}" + (f": {message}" if message else "") + help
    return store_reason(error)


_RETRYING = retries.RETRYING.copy(retry=tenacity.retry_if_exception(_may_pass))
