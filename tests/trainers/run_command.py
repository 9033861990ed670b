"""Run the command of a trainer on saved rows, and print the loss of each example. The Python of the trainer runs this.

    run_command.py RESULT COMMAND ARGUMENT ..

COMMAND is llamafactory-cli or swift, with its arguments. RESULT is a file, which gets JSON: `rows`, the ids of the rows
of the trainer's dataset; `alone`, the loss of each in a forward pass of its own; `in_trainer`, its loss in the trainer,
in a batch with another row; `mean`, the mean loss of all labels; `trained`, what the trainer reports of one step with
all rows.
"""

from __future__ import annotations

import json
import os
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DISABLE_VERSION_CHECK": "1",
    "CUDA_VISIBLE_DEVICES": "",
}

import torch
from transformers import Trainer

IGNORED = -100
found: dict[str, Any] = {}
train = Trainer.train


def losses_alone(model: Any, row: dict[str, Any]) -> torch.Tensor:
    ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"][1:])
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    return losses[labels != IGNORED]


def observed_train(trainer: Trainer, *arguments: Any, **options: Any) -> Any:
    """Compute the losses of the rows before the trainer trains on them."""
    rows = [trainer.train_dataset[number] for number in range(len(trainer.train_dataset))]
    trainer.model.train(False)
    with torch.no_grad():
        alone = [losses_alone(trainer.model, row) for row in rows]
        in_trainer = []
        for number, row in enumerate(rows):
            other = rows[(number + 1) % len(rows)]
            batch = trainer.data_collator(deepcopy([row, other | {"labels": [IGNORED] * len(other["labels"])}]))
            in_trainer.append(trainer.compute_loss(trainer.model, dict(batch)).item())
    trained = train(trainer, *arguments, **options)
    found.update(
        rows=[row["input_ids"] for row in rows],
        alone=[losses.mean().item() for losses in alone],
        in_trainer=in_trainer,
        mean=torch.cat(alone).mean().item(),
        trained=trained.training_loss,
    )
    return trained


def main() -> None:
    result, command, *arguments = sys.argv[1:]
    Trainer.train = observed_train
    if command == "llamafactory-cli":
        from llamafactory.train.tuner import run_exp

        sys.argv = sys.argv[:1] + arguments[1:]
        run_exp()
    else:
        from swift import sft_main

        sft_main(arguments[1:])
    Path(result).write_text(json.dumps(found))
    os._exit(0)  # workers of the data loader may be left


if __name__ == "__main__":
    main()
