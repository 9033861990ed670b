"""Read files as a build does, by the public names: what `ReadConversations` lists, and the records that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from transforms import Chunks, InputError, ReadConversations, Task, UserError


@dataclass
class File:
    """What was read of a file.

    Attributes:
        records: the position and the content of each record, in the order in which they were read.
        rejects: the position, the reason, the detail and the bytes of each reject.
        faults: the errors that ended the reading of a task of it.
    """

    records: list[tuple[int, Any]] = field(default_factory=list)
    rejects: list[tuple[int, str, str, bytes]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def rejected(self) -> list[tuple[int, str]]:
        """The position and the reason of each reject."""
        return [(position, reason) for position, reason, _, _ in self.rejects]


class _NoPipeline:
    """Takes the steps of a pipeline and makes none of them. files: what its tasks are made of, which is enough."""

    files: list[Any]

    def __or__(self, step: Any) -> _NoPipeline:
        if step.label == "tasks":
            self.files = step.transform.args[0]
        return self


def listed(patterns: str | Sequence[str] | Mapping[str, Any], *splits: str, **options: Any) -> list[Any]:
    """Return the input files that patterns name."""
    pipeline = _NoPipeline()
    ReadConversations(patterns, split=splits, **options).expand(pipeline)
    return pipeline.files


def list_urls(pattern: object, *splits: str, **options: Any) -> list[str]:
    """Return the urls of the input files that a pattern names, in order."""
    return [file.url for file in listed(str(pattern), *splits, **options)]


def list_paths(folder: Path, *splits: str, **options: Any) -> list[str]:
    """Return the paths of the input files in a folder, in order."""
    return [str(Path(url).relative_to(folder)) for url in list_urls(folder, *splits, **options)]


def read(
    patterns: Any,
    before: Callable[[], object] = lambda: None,
    between: Callable[[], object] | None = None,
    **options: Any,
) -> dict[str, File]:
    """Read the files that patterns name: what was read of each, by its name.

    before: what happens after the files are listed. between: what happens after the first batch is read.
    """
    files: dict[str, File] = {}
    _between[:] = [between] if between else []
    for task, batches, fault in _tasks(patterns, before, **options):
        for piece in task.slices:
            files.setdefault(_name(piece.url), File())
        for batch in batches:
            for record in batch.records:
                piece, position = task.origin(record.position)
                files[_name(piece.url)].records.append((position, record.raw))
            for reject in batch.outcomes.rejects:
                piece, position = task.origin(reject.position)
                found = (position, reject.reason, reject.detail, reject.record)
                files[_name(piece.url)].rejects.append(found)
        if fault:
            files[_name(task.slices[-1].url)].faults.append(fault)
    return files


def order_of_tasks(patterns: Any, **options: Any) -> list[Task]:
    """Return the tasks of files in the order in which workers get them."""
    [*_tasks(patterns, lambda: None, **options)]
    return [task for task, _, _ in _found]


def read_each(paths: Sequence[Path], **options: Any) -> dict[str, File]:
    """Read each of some files by itself, so that a fault of one costs no other, also one that is found in the list."""
    rest, refused = {path.name: str(path) for path in paths}, dict[str, File]()
    while rest:
        try:
            return refused | read(rest, **options)
        except (UserError, InputError) as error:
            name = next(name for name, path in rest.items() if path in str(error))
            del rest[name]
            refused[name] = File(faults=[str(error)])
    return refused


def read_content(path: Path, content: bytes, **options: Any) -> File:
    """Read a file with this content."""
    path.write_bytes(content)
    return read_each([path], **options)[path.name]


def make_batches(patterns: Any, *steps: Any, **options: Any) -> list[Any]:
    """Read files, apply steps, and return the batches that come out, in the order of the files."""
    return [batch for _, batches, _ in _tasks(patterns, lambda: None, *steps, **options) for batch in batches]


_Found = tuple[Task, list[Any], str]
_found: list[_Found] = []
_between: list[Callable[[], object]] = []


def _tasks(patterns: Any, before: Callable[[], object], *steps: Any, **options: Any) -> Iterator[_Found]:
    """Yield each task, in order, with the batches of its records, and the error that ended them."""
    _found.clear()
    with beam.Pipeline(FnApiRunner()) as pipeline:
        batches = pipeline | ReadConversations(patterns, **options)
        for step in steps:
            batches = batches | step
        _ = batches | beam.Map(_collect)
        before()
    yield from sorted(_found, key=lambda found: found[0].number)


def _collect(chunks: Chunks[Any]) -> None:
    batches, fault = [], ""
    try:
        for batch in chunks:
            batches.append(batch)
            while _between:
                _between.pop()()
    except (UserError, InputError) as error:
        fault = str(error)
    _found.append((chunks.task, batches, fault))


def _name(url: str) -> str:
    return url.rpartition("/")[2]
