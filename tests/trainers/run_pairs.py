"""Prepare pairs with TRL's trainers, and train on rows of pairs with the recipes. The Python of the trainers runs this.

    run_pairs.py < REQUEST

REQUEST is JSON: `records`, of a schema of preference data; `trainer`, one of DPO, KTO and Reward; `model`, the folder
of a model with its tokenizer; `recipe`, code that defines `trainer`. The result, on the last line, is JSON: `expected`,
the rows that the trainer itself makes of the records, and `rows`, those that it reads by the recipe; `expected_batch`
and `batch`, what its collator makes of them; and `loss`, as trainer.train() reports it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

from datasets import Dataset

import trl

request = json.load(sys.stdin)
name, model = request["trainer"], request["model"]
settings = {"use_cpu": True, "bf16": False, "max_steps": 1, "report_to": [], "per_device_train_batch_size": 4}
own = getattr(trl, f"{name}Trainer")(
    model=model,
    train_dataset=Dataset.from_list(request["records"]),
    args=getattr(trl, f"{name}Config")(output_dir="own", max_length=None, **settings),
)
given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
names: dict[str, Any] = {}
exec(request["recipe"].replace("Config(", f"Config({given}, "), names)
trainer = names["trainer"]


def rows(trainer: Any) -> list[dict[str, Any]]:
    """The columns of a trainer's dataset that its collator reads."""
    names = trainer.train_dataset.column_names
    read = [name for name in names if name.endswith("_ids") or name in ("label", "margin")]
    return trainer.train_dataset.select_columns(read).to_list()


def batch(trainer: Any) -> dict[str, Any]:
    """The batch that a trainer's collator makes of its first rows."""
    made = trainer.data_collator(rows(trainer)[:4])
    return {name: getattr(value, "tolist", lambda value=value: value)() for name, value in made.items()}


result = {"expected": rows(own), "rows": rows(trainer), "expected_batch": batch(own), "batch": batch(trainer)}
print(json.dumps(result | {"loss": trainer.train().training_loss}))
