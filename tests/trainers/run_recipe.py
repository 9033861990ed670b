"""Run a recipe with a tiny random model, and print the loss of each example. The Python of the trainers runs this.

    run_recipe.py < REQUEST

REQUEST is JSON: `recipe`, the code, which defines `trainer`; `examples`, the rows of a dataset that is not packed;
`without`, columns that are removed from the dataset before the trainer reads it. The result, on the last line, is JSON:
`alone`, the loss of each example in a forward pass of its own; `in_trainer`, its loss as the trainer computes it, in a
batch with other examples; `mean`, the mean loss of all labels; `trained`, what trainer.train() reports for one step
with all rows.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import datasets
import torch

IGNORED = -100
Row = dict[str, Any]


def losses_alone(model: Any, row: Row) -> torch.Tensor:
    """The loss of each label of an example."""
    ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"][1:])
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
    losses = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    return losses[labels != IGNORED]


def one_by_one(rows: list[Row]) -> tuple[list[list[int]], list[Row]]:
    """Make a batch of two rows for each example: its row with no other labels, and the next row without labels.

    Returns:
        The ids of the examples, and the rows of the batches.
    """
    examples, batches = [], []
    for number, row in enumerate(rows):
        other = rows[(number + 1) % len(rows)]
        start = 0
        for length in row.get("true_lengths") or [len(row["input_ids"])]:
            own = range(start, start + length)
            labels = [label if at in own else IGNORED for at, label in enumerate(row["labels"])]
            examples.append(row["input_ids"][start : start + length])
            batches += [row | {"labels": labels}, other | {"labels": [IGNORED] * len(other["labels"])}]
            start += length
    return examples, batches


def main() -> None:
    request = json.load(sys.stdin)
    load = datasets.load_dataset
    lengths: list[list[int]] = []

    def load_without(*arguments: Any, **options: Any) -> Any:
        loaded = load(*arguments, **options)
        if "seq_lengths" in loaded["train"].column_names:
            lengths.extend(loaded["train"]["seq_lengths"])
        return loaded.remove_columns(request["without"])

    datasets.load_dataset = load_without
    names: Row = {}
    exec(request["recipe"], names)
    trainer = names["trainer"]

    rows = trainer.train_dataset.to_list()
    true = [{"true_lengths": of_row} for of_row in lengths] or [{}] * len(rows)
    ids, batches = one_by_one([row | own for row, own in zip(rows, true, strict=True)])
    features = trainer.train_dataset.features
    trainer.args.per_device_eval_batch_size = 2
    loader = trainer.get_eval_dataloader(
        datasets.Dataset.from_list([{name: row[name] for name in features} for row in batches], features=features)
    )
    with torch.no_grad():
        alone = {tuple(row["input_ids"]): losses_alone(trainer.model, row) for row in request["examples"]}
        in_trainer = [trainer.compute_loss(trainer.model, batch).item() for batch in loader]

    trainer.args.per_device_train_batch_size = trainer._train_batch_size = len(rows)
    trainer.args.num_train_epochs, trainer.args.save_strategy, trainer.args.report_to = 1, "no", []
    trained = trainer.train().training_loss
    result = {
        "alone": [alone[tuple(example)].mean().item() for example in ids],
        "in_trainer": in_trainer,
        "mean": torch.cat(list(alone.values())).mean().item(),
        "trained": trained,
    }
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
