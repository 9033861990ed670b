"""Read an export with OLMo-core, and print the loss of each example. OLMo-core's Python runs this.

    run_olmo_core.py MODEL RECIPE RESULT < EXAMPLES

RECIPE is a file of code, which defines `dataset`. EXAMPLES is the JSON of the rows of the dataset before its export.
RESULT is a file, which gets JSON: `alone` and `in_trainer`, by the ids of each example its loss in a forward pass of
its own, and with the labels and documents that OLMo-core's dataset and collator make of packed instances.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from olmo_core.data import DataCollator
from olmo_core.data.utils import get_labels
from transformers import AutoModelForCausalLM

IGNORED = -100


def loss_of(model: torch.nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean loss of an example. labels: of the next token."""
    logits = model(input_ids=ids[None], use_cache=False).logits[0].float()
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED).item()


def main() -> None:
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
    names: dict[str, object] = {}
    exec(Path(sys.argv[2]).read_text(), names)
    dataset = names["dataset"]
    alone, in_trainer = {}, {}
    with torch.no_grad():
        for row in json.load(sys.stdin):
            labels = torch.tensor([*row["labels"][1:], IGNORED])
            alone[str(row["input_ids"])] = loss_of(model, torch.tensor(row["input_ids"]), labels)
        collate = DataCollator(pad_token_id=dataset.pad_token_id)
        batch = collate([dataset[number] for number in range(len(dataset))])
        labels = get_labels(batch)
        for ids, of_row, lengths in zip(batch["input_ids"], labels, batch["doc_lens"].tolist(), strict=True):
            start = 0
            for length in lengths:
                document = slice(start, start + length)
                start += length
                if (of_row[document] != IGNORED).any():
                    in_trainer[str(ids[document].tolist())] = loss_of(model, ids[document], of_row[document])
    Path(sys.argv[3]).write_text(json.dumps({"alone": alone, "in_trainer": in_trainer}))


if __name__ == "__main__":
    main()
