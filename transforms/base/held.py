"""The files that a job was planned with: a worker refuses others, which somebody has written there since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from transforms.base.errors import UserError

# By the url of a file or folder, the fingerprint of its content.
_HELD: ContextVar[Mapping[str, str] | None] = ContextVar("held_files", default=None)


@contextmanager
def held_to(fingerprints: Mapping[str, str] | None) -> Iterator[None]:
    """Let what is loaded inside, and by the steps that are applied inside, be what was planned.

    Args:
        fingerprints: by the url of a tokenizer's folder or a formatter's file, as load_tokenizer and load_formatter get
            it; None for any.
    """
    token = _HELD.set(fingerprints)
    try:
        yield
    finally:
        _HELD.reset(token)


class Hold:
    """What held_to says. Make it while the pipeline is built; it is pickled with the DoFn."""

    def __init__(self) -> None:
        self._held = _HELD.get()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, files that are others are refused."""
        with held_to(self._held):
            yield


def check_held(kind: str, url: str, fingerprint: str) -> None:
    """Check that something is what was planned, before it is used.

    Args:
        kind: what it is, for the error: "tokenizer".
        url: of its file or folder.
        fingerprint: of its content.

    Raises:
        UserError: if it is not.
    """
    if (_HELD.get() or {}).get(url, fingerprint) != fingerprint:
        raise UserError(f"{url}: the {kind} was changed during the build. Run the same command again.")
