"""Finding: the files that sources name now, and what is to be known of them to take them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from pipeline.cli.console import error_text
from pipeline.cli.sources import Source, check_repeated
from pipeline.watching.arrivals import FoundFile, Key
from transforms.base.errors import InputError, UserError
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.formats import DEFAULT_FORMAT
from transforms.inputs.hub.repository import Commits
from transforms.inputs.listing import InputFile, find_files, input_file, listed_version
from transforms.storage.files import exists

# Until the first increment shows another mean.
_BYTES_PER_RECORD = 2_000.0


def find_arriving(sources: Sequence[Source]) -> dict[Key, FoundFile]:
    """List the files of all sources, without reading any. There may be none yet.

    Args:
        sources: of read_sources.

    Returns:
        The files, in the order of the sources and of their listings.

    Raises:
        UserError: if a source lists a file of an earlier source although it may not.
        Unavailable: if a store does not answer.
    """
    found, commits = {}, Commits()
    for number, source in enumerate(sources):
        with source.named_in_errors():
            entries = find_files(source.options.input, "input", True, source.options.split, commits)
        for url, entry in entries.items():
            with suppress(OSError):  # it has just vanished
                file = FoundFile(number, url, entry["size"], listed_version(url, entry), entry)
                found[file.key] = file
    check_repeated(found.values(), sources)
    return found


def input_of(found: FoundFile, source: Source) -> tuple[InputFile | None, str | None]:
    """Make an input file of a file that is to be taken.

    Args:
        found: of find_arriving.
        source: of its number.

    Returns:
        The input file, and why it cannot be read; no file if it is not as it was found any more.

    Raises:
        Unavailable: if its store does not answer.
    """
    problem = None
    try:
        file = input_file(found.url, dict(found.entry), format=source.options.input_format, parameter="input")
    except (UserError, InputError) as error:
        if not exists(found.url):
            return None, None
        problem = error_text(error)
        file = InputFile(found.url, DEFAULT_FORMAT, None, found.bytes, found.version)
    is_same = file.version == found.version
    return (msgspec.structs.replace(file, source=found.source), problem) if is_same else (None, None)


def bytes_per_record(snapshot: Snapshot) -> float:
    """Return how many bytes of input a record of a dataset has, in the mean."""
    size = sum(file.bytes for each in snapshot.increments for file in each.inputs)
    records = sum(each.sums["records"]["read"] for each in snapshot.increments)
    return size / records if size and records else _BYTES_PER_RECORD
