"""The lines of the exceptions of a dataset: of records that are not plainly kept (docs/output.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from transforms.dataset.reader import Dataset, FailedBuild
from transforms.outputs import shard_stem

Line: TypeAlias = Mapping[str, Any]
# What is added to the columns of a line.
ADDED = ("shard", "number")
# The columns by which lines are chosen. The others may be large.
_CHOSEN_BY = ("origin_file", "origin_position", "outcome", "reason", "detail", "split", "row", "tokens_lost")


def read_lines(dataset: Dataset | FailedBuild, is_wanted: Callable[[Line], bool], shard: str = "") -> Iterator[Line]:
    """Yield the wanted lines.

    Args:
        dataset: its exceptions are read.
        is_wanted: chooses lines by _CHOSEN_BY. They are compared in Python: a comparison of pyarrow imports pandas.
        shard: the path of a shard, if only lines about its rows may be wanted.

    Yields:
        The columns of a line; `shard`: what the path of the shard of its row begins with; and `number`: how many
        records were rejected before, in all lines.
    """
    rejects = 0
    for file in dataset.manifest["exceptions"]:
        shards = {split: shard_stem(path) for split, path in file.get("shards", {}).items()}
        if shard and shard_stem(shard) not in shards.values():
            continue
        for batch in dataset.read_exceptions(file):
            for number, line in enumerate(batch.select(_CHOSEN_BY).to_pylist()):
                if is_wanted(line):
                    [whole] = batch.slice(number, 1).to_pylist()
                    yield {**whole, "shard": shards.get(line["split"]), "number": rejects}
                rejects += line["outcome"] == "rejected"
