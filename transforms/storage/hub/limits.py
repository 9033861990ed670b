"""The Hub's rate limits, obeyed by all processes of one machine together.

A process that has to wait stores the time until which it does, and the others do not ask before that time either:
otherwise each would find out by a request that counts against the limit.
"""

from __future__ import annotations

import os
import random
import re
import time
from contextlib import suppress
from typing import Any

from transforms.storage.hub.folder import locked, shared_folder

# The Hub counts requests in windows of five minutes.
_MOST_SECONDS = 330.0
_SECONDS_APART = 1.0


def wait(request: Any) -> None:
    """Wait until the host of a request may be asked: a hook of the HTTP client, called before each request."""
    while (left := _blocked_until(_name_of(request.url)) - time.time()) > 0:
        time.sleep(min(left, _MOST_SECONDS) + random.uniform(0, _SECONDS_APART))  # not all at the same moment


def note(response: Any) -> None:
    """Note how long a host is not to be asked: a hook of the HTTP client, called after each response."""
    seconds = _seconds_to_wait(response.status_code, response.headers)
    if seconds is None:
        return
    name, until = _name_of(response.request.url), time.time() + min(seconds, _MOST_SECONDS)
    with locked(name):
        if until > _blocked_until(name):
            path = os.path.join(shared_folder(), name)
            with open(f"{path}.new", "w", encoding="ascii") as file:
                file.write(f"{until:.3f}")
            os.replace(f"{path}.new", path)


def _seconds_to_wait(status: int, headers: Any) -> float | None:
    """What a response says: of its window, if no request is left in it, or of a refused request; None if nothing."""
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    after = headers.get("retry-after", "").strip()
    return float(after) if status in (429, 503) and after.isdigit() else None


def _name_of(url: Any) -> str:
    """The name of a limit: the Hub counts requests of its API and of files apart, and hosts count for themselves."""
    kind = "api" if url.path.startswith("/api/") else "files"
    return f"limit-{re.sub('[^a-z0-9.-]', '_', url.host.lower())}-{url.port or ''}-{kind}"


def _blocked_until(name: str) -> float:
    with suppress(FileNotFoundError, ValueError), open(os.path.join(shared_folder(), name), encoding="ascii") as file:
        return float(file.read())
    return 0.0
