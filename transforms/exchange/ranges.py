"""Ranges: parts of the files that splits and judges have written, read side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from transforms.base.errors import InputError
from transforms.storage.files import join, read_range

# The path of a file, relative to the folder of the dataset, and the bytes of it.
Range = tuple[str, int, int]
_READERS = 16


def read_ranges(output: str, ranges: Sequence[Range]) -> list[bytes]:
    """Read ranges of files.

    Args:
        output: the folder of the dataset.
        ranges: any number.

    Returns:
        Their contents, in order.

    Raises:
        InputError: if a file is missing.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        try:
            return [*pool.map(lambda each: read_range(join(output, each[0]), *each[1:]), ranges)]
        except FileNotFoundError as error:
            raise InputError(f"{error}: examples that were sent are missing. Run the same command again.") from None
