"""Megatron-Bridge: what its `GPTSFTPackedParquetDataset` reads, Parquet with packed rows.

Read by megatron/bridge/data/packing/parquet.py. The mask is that of the label of each token, which is the next token
of its example; of each example the last token is a label alone. So an example of n tokens takes n - 1 in a sequence,
and that number is padded for context parallelism, with the token that ends a text: `tokenize_dataset` in
megatron/bridge/data/packing/offline.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.exports import CreateFile, Export, Place, Written, no_problems
from transforms.exports.tables import list_column
from transforms.outputs.parquet import ParquetWriter
from transforms.rows.columns import default_columns
from transforms.rows.ragged import indices_of, offsets_of

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout
    from transforms.reading.row_examples import RowExamples


def _rows(examples: RowExamples, place: Place) -> pa.Table:
    starts, lengths = examples.offsets[:-1], np.diff(examples.offsets)
    padded = -(-(lengths - 1) // place.multiple) * place.multiple + 1
    offsets = offsets_of(padded)
    ids = np.full(offsets[-1], place.eos_token_id, np.int32)
    ids[indices_of(offsets[:-1], lengths)] = examples.ids
    mask = np.zeros(offsets[-1], np.int8)
    mask[indices_of(offsets[:-1], lengths - 1)] = examples.trained[indices_of(starts + 1, lengths - 1)]
    of_rows = offsets_of(examples.counts)
    row_offsets = offsets[of_rows]
    first = np.repeat(row_offsets[:-1], examples.counts)
    return pa.table({
        "input_ids": list_column(ids, row_offsets),
        "loss_mask": list_column(mask, row_offsets),
        "seq_start_id": list_column((offsets[:-1] - first).astype(np.int32), of_rows),
    })  # fmt: skip


class _Writer:
    def __init__(self, create: CreateFile, place: Place):
        self._writer, self._place = ParquetWriter(create(f"part-{place.number:05d}.idx.parquet")), place

    def write(self, examples: RowExamples) -> Written:
        rows = _rows(examples, self._place)
        self._writer.write(rows)
        lengths = pc.list_value_length(rows["input_ids"]).to_numpy()
        longest = (lengths - examples.counts).max()  # the last token of an example is a label alone
        return Written(int(longest), int(lengths.sum()) - len(examples.ids))

    def close(self) -> None:
        self._writer.close()


def _recipe(path: str, model: str, layout: RowLayout) -> str:
    length = layout.max_length or "LONGEST ROW"
    multiple = layout.pad_to_multiple_of
    padding = f"\n        pad_seq_to_mult={multiple}," if multiple > 1 else ""
    return f"""# chatmill export {path} --for megatron_bridge --output out/megatron_bridge
from megatron.bridge.data.builders.gpt_sft import GPTSFTDatasetConfig
from megatron.bridge.data.packing.config import PackedSequenceSpecs

dataset = GPTSFTDatasetConfig(
    dataset_root="out/megatron_bridge",
    seq_length={length},
    enable_offline_packing=True,
    offline_packing_specs=PackedSequenceSpecs(
        packed_sequence_size={length},
        packed_train_data_path="out/megatron_bridge/train",{padding}
    ),
    do_validation=False,
    do_test=False,
)"""


EXPORT = Export(
    title="Megatron-Bridge",
    columns=default_columns,
    problems=no_problems,
    recipe=_recipe,
    writer=_Writer,
    packs=True,
    pads=True,
    needs_tokenizer=True,
)
