"""SkyRL: what its `pretokenized_dataset_paths` reads, Parquet with the mask of one example in a row.

Read by skyrl/train/dataset/pretokenized.py. It has no place for `labels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transforms.exports import CreateFile, Export, Place, no_problems
from transforms.exports.tables import TableShard, list_column
from transforms.outputs.parquet import ParquetWriter
from transforms.rows.columns import default_columns

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout
    from transforms.reading.row_examples import RowExamples


def _rows(examples: RowExamples) -> pa.Table:
    columns = {"input_ids": examples.ids, "loss_mask": examples.trained.astype(np.int8)}
    return pa.table({name: list_column(values, examples.offsets) for name, values in columns.items()})


def _writer(create: CreateFile, place: Place) -> TableShard:
    return TableShard(ParquetWriter(create(f"part-{place.number:05d}.parquet")), _rows)


def _recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""chatmill export {path} --for skyrl --output out/skyrl
python -m skyrl.train.main_sft model.path={model} "pretokenized_dataset_paths=['out/skyrl/train']\""""


EXPORT = Export(
    title="SkyRL",
    columns=default_columns,
    problems=no_problems,
    recipe=_recipe,
    language="bash",
    writer=_writer,
)
