"""Read what examples/megatron_bridge.py wrote with Bridge's dataset and collator. The Python of the trainer runs this.

    run_megatron_bridge.py FOLDER MAX_LENGTH MULTIPLE EOS

Prints JSON: of each example in the batches its tokens, without what pads it, and the mask of its labels; and whether
each label is the token after it. Bridge itself needs CUDA to be imported: its packages are entered without their
`__init__`, and what the dataset takes of them for other formats is replaced.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

PACKAGES = ("bridge", "bridge.data", "bridge.data.datasets", "bridge.data.packing", "core")
REPLACED = (
    *("training.tokenizers.tokenizer", "utils.common_utils", "utils.safe_pickle"),
    *("data.sft_processing", "data.token_utils"),
)


def enter_packages() -> None:
    root = Path(next(iter(importlib.util.find_spec("megatron").submodule_search_locations)))
    for name in PACKAGES:
        package = types.ModuleType(f"megatron.{name}")
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[package.__name__] = package
    for name in REPLACED:
        sys.modules[f"megatron.bridge.{name}"] = MagicMock()


def main() -> None:
    enter_packages()
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    folder, max_length, multiple, eos = sys.argv[1], *map(int, sys.argv[2:])
    tokenizer = types.SimpleNamespace(eos_id=eos)
    options = {"pad_seq_to_mult": multiple, "max_seq_length": max_length, "prompt_template": "{text} {output}"}
    dataset = GPTSFTPackedParquetDataset(folder, tokenizer, label_key="output", **options)
    examples, follows = [], True
    for number in range(len(dataset)):
        row, batch = dataset[number], dataset.collate_fn([dataset[number]])
        tokens, labels, mask = (batch[name][0].tolist() for name in ("tokens", "labels", "loss_mask"))
        start = 0
        for first, stop in zip(row["seq_boundaries"][:-1], row["seq_boundaries"][1:], strict=True):
            length = stop - first - 1
            ids = [*tokens[start : start + length], labels[start + length - 1]]
            follows &= ids[1:] == labels[start : start + length]
            examples.append([ids, mask[start : start + length]])
            start += length
    print(json.dumps({"examples": examples, "follows": follows}))


if __name__ == "__main__":
    main()
