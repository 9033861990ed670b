"""Pack the rows of a dataset for Megatron-Bridge, whose `packed_train_data_path` is then OUTPUT/train.

    python examples/megatron_bridge.py DATASET OUTPUT --max_length 4096 [--multiple 16]

DATASET was built without packing. MAX_LENGTH is Bridge's seq_length; MULTIPLE is its pad_seq_to_mult, for context
parallelism. Of each example the last token is a label alone, so that n tokens take n - 1 in a sequence. This number is
padded to the multiple, with the token that ends a text; the mask of a token is that of the next one.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms import Dataset
from transforms.rows.packing import pack_segments
from transforms.tokens.tokenizer import load_tokenizer

TOKENS = pa.list_(pa.int32())
SCHEMA = pa.schema({"input_ids": TOKENS, "loss_mask": pa.list_(pa.int8()), "seq_start_id": TOKENS})


def packed_rows(rows: pa.Table, max_length: int, multiple: int, eos: int | None) -> pa.Table:
    """Return rows of several examples, as Bridge reads them. rows: of one example each, with input_ids and labels."""
    ids, masks = [], []
    for example, labels in zip(rows["input_ids"], rows["labels"], strict=True):
        tokens, trained = example.values.to_numpy(), labels.values.to_numpy() != -100
        if len(tokens) < 2:
            continue  # there is no next token to train on
        padding = -(len(tokens) - 1) % multiple
        if len(tokens) - 1 + padding > max_length:
            most = max_length - max_length % multiple + 1
            raise SystemExit(f"An example has {len(tokens)} tokens: build the dataset with --max_length {most}.")
        if padding and eos is None:
            raise SystemExit("The tokenizer has no eos_token, with which Bridge pads.")
        ids.append(np.append(tokens, np.full(padding, eos or 0, np.int32)))
        masks.append(np.append(trained[1:], np.zeros(1 + padding, bool)).astype(np.int8))
    packed = pack_segments("bfd", np.array([len(each) - 1 for each in ids], np.int64), max_length)
    examples = [packed.segments.example_index[start:stop] for start, stop in pairwise(packed.offsets)]
    columns = {
        "input_ids": [np.concatenate([ids[each] for each in row]) for row in examples],
        "loss_mask": [np.concatenate([masks[each] for each in row]) for row in examples],
        "seq_start_id": [np.cumsum([0, *(len(ids[each]) for each in row[:-1])]) for row in examples],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("output", type=Path)
    parser.add_argument("--max_length", type=int, required=True)
    parser.add_argument("--multiple", type=int, default=1)
    given = parser.parse_args()
    dataset = Dataset(given.dataset)
    if dataset.layout.packed or dataset.layout.shift_labels or not {"input_ids", "labels"} <= {*dataset.layout.columns}:
        raise SystemExit(f"{given.dataset}: build it with input_ids and labels, without --packing and --shift_labels.")
    eos = load_tokenizer(dataset.tokenizer_folder).eos_token_id
    for number, shard in enumerate(dataset.readable()):
        file = given.output / shard["split"] / f"part-{number:05d}.idx.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.Table.from_batches(dataset.read_shard(shard)).combine_chunks()
        table = packed_rows(rows, given.max_length, given.multiple, eos)
        pq.write_table(table, file, row_group_size=500)
        print(f"{file}: {rows.num_rows} examples in {table.num_rows} rows")


if __name__ == "__main__":
    main()
