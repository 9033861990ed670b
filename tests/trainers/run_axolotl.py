"""Prepare a dataset and a trainer with Axolotl, and print the loss of each example. Axolotl's Python runs this.

    run_axolotl.py CONFIG RESULT < EXAMPLES

CONFIG is Axolotl's, in YAML. EXAMPLES is the JSON of the rows of the dataset. RESULT is a file, which gets JSON:
`rows`, how many of them Axolotl keeps; `alone` and `in_trainer`, the loss of each in a forward pass of its own, and as
the trainer computes it in a batch with another row.
"""

from __future__ import annotations

import json
import os
import sys
from copy import deepcopy
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "ACCELERATE_USE_CPU": "1",
}

import torch
from axolotl.cli.args import TrainerCliArgs
from axolotl.cli.config import load_cfg
from axolotl.common.datasets import load_datasets
from axolotl.train import setup_model_and_trainer

IGNORED = -100


def main() -> None:
    config = load_cfg(sys.argv[1])
    prepared = load_datasets(cfg=config, cli_args=TrainerCliArgs())
    trainer = setup_model_and_trainer(config, prepared)[0]
    rows = json.load(sys.stdin)
    in_trainer, alone = [], []
    with torch.no_grad():
        for number, row in enumerate(rows):
            other = rows[(number + 1) % len(rows)]
            # The collator pads the rows that it is given in place.
            batch = trainer.data_collator(deepcopy([row, other | {"labels": [IGNORED] * len(other["labels"])}]))
            in_trainer.append(trainer.compute_loss(trainer.model, dict(batch)).item())
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"][1:])
            logits = trainer.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
            alone.append(torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED).item())
    found = {"rows": len(prepared.train_dataset), "alone": alone, "in_trainer": in_trainer}
    Path(sys.argv[2]).write_text(json.dumps(found))
    os._exit(0)  # workers of the data loader may be left


if __name__ == "__main__":  # Axolotl starts processes that import this file
    main()
