"""ms-swift: what its `cached_dataset` reads, a `save_to_disk` folder with one example in a row and its length.

Read by `get_cached_dataset` in swift/pipelines/utils.py. Since version 4 rows of a cached dataset are messages, which
are encoded during training; with `--truncation_strategy split` they are taken as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transforms.exports import Export, no_problems
from transforms.exports.tables import list_column, saved_shards, saved_to_disk
from transforms.rows.columns import default_columns

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout
    from transforms.reading.row_examples import RowExamples

_SCHEMA = pa.schema({
    "input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32()), "lengths": pa.int32(),
})  # fmt: skip


def _rows(examples: RowExamples) -> pa.Table:
    lists = [list_column(values, examples.offsets) for values in (examples.ids, examples.labels)]
    return pa.table([*lists, pa.array(np.diff(examples.offsets).astype(np.int32))], schema=_SCHEMA)


def _recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""chatmill export {path} --for ms_swift --output out/ms_swift
swift sft --model {model} --cached_dataset out/ms_swift/train \\
  --truncation_strategy split --output_dir out/model    # split: rows are not encoded again"""


EXPORT = Export(
    title="ms-swift",
    columns=default_columns,
    problems=no_problems,
    recipe=_recipe,
    language="bash",
    writer=saved_shards(_SCHEMA, _rows),
    ending=lambda splits: saved_to_disk(splits, _SCHEMA),
)
