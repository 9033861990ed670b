"""LLaMA-Factory: what its `tokenized_path` reads, a `DatasetDict.save_to_disk` with one example in a row.

Read by `get_dataset` in llamafactory/data/loader.py.
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
    "input_ids": pa.list_(pa.int32()), "attention_mask": pa.list_(pa.int8()), "labels": pa.list_(pa.int32()),
})  # fmt: skip


def _rows(examples: RowExamples) -> pa.Table:
    columns = (examples.ids, np.ones(len(examples.ids), np.int8), examples.labels)
    return pa.table([list_column(values, examples.offsets) for values in columns], schema=_SCHEMA)


def _recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""chatmill export {path} --for llamafactory --output out/llamafactory
llamafactory-cli train --stage sft --do_train --model_name_or_path {model} \\
  --dataset none --tokenized_path out/llamafactory --output_dir out/model"""


EXPORT = Export(
    title="LLaMA-Factory",
    columns=default_columns,
    problems=no_problems,
    recipe=_recipe,
    language="bash",
    writer=saved_shards(_SCHEMA, _rows),
    ending=lambda splits: saved_to_disk(splits, _SCHEMA),
)
