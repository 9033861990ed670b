"""Other tools on the same corpora. measure.py runs this in a separate environment (peers.txt).

    python benchmarks/peers.py NAME WORKERS < TASKS

TASKS is a JSON list of [corpus, tokenizer, chat template or null]. It prints [{"seconds": .., "cpu": .., "tokens": ..,
"masked": ..}, ..], one for each task. The clock starts after the imports and after the tokenizer is loaded.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

LENGTH = 4096
READ = ("messages", "tools", "chat_template_kwargs", "conversations", "prompt", "completion", "text")


class Task(NamedTuple):
    """A corpus to prepare. The template is a file; None for the tokenizer's own."""

    corpus: str
    tokenizer: str
    template: str | None


class Result(NamedTuple):
    """What it took. masked: whether the prompts are masked."""

    seconds: float
    cpu: float
    tokens: int
    masked: bool


class Clock:
    """The seconds, and the CPU seconds of this process and of those that it has waited for, since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), self._cpu()

    def result(self, tokens: int, masked: bool) -> Result:
        return Result(time.perf_counter() - self._start[0], self._cpu() - self._start[1], tokens, masked)

    @staticmethod
    def _cpu() -> float:
        usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def encode_batch(task: Task, workers: int) -> Result:
    """Time encode_batch_fast of tokenizers alone, on texts that are already rendered."""
    from tokenizers import Tokenizer

    texts = rendered(task)
    encoder = Tokenizer.from_file(f"{task.tokenizer}/tokenizer.json")
    clock, tokens = Clock(), 0
    for first in range(0, len(texts), 1000):
        tokens += sum(len(encoding.ids) for encoding in encoder.encode_batch_fast(texts[first : first + 1000]))
    return clock.result(tokens, masked=False)


def gigatoken_alone(task: Task, workers: int) -> Result:
    """Time gigatoken alone, which is the floor, on texts that are already rendered, with all cores."""
    import awkward
    import gigatoken

    texts = rendered(task)
    encoder = gigatoken.Tokenizer.from_json(Path(task.tokenizer, "tokenizer.json").read_text())
    clock, tokens = Clock(), 0
    for first in range(0, len(texts), 1000):
        tokens += int(awkward.count(encoder.encode_batch(texts[first : first + 1000])))
    return clock.result(tokens, masked=False)


def datasets_map(task: Task, workers: int) -> Result:
    """Time the loop of many tutorials: render each conversation with and without its last answer, mask the prompt."""
    import datasets

    loaded = load(task)
    clock = Clock()
    rows = datasets.load_dataset("json", data_files=task.corpus, split="train")

    def tokenize_and_mask(row: dict[str, Any]) -> dict[str, Any]:
        whole = loaded.apply_chat_template(row["messages"], tokenize=True, return_dict=False)
        prompt = loaded.apply_chat_template(
            row["messages"][:-1], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return {"input_ids": whole, "labels": [-100] * len(prompt) + whole[len(prompt) :]}

    rows = rows.map(tokenize_and_mask, num_proc=workers, remove_columns=rows.column_names)
    rows.to_parquet(os.path.join(tempfile.mkdtemp(), "rows.parquet"))
    return clock.result(sum(map(len, rows["input_ids"])), masked=True)


def trl(task: Task, workers: int) -> Result:
    """Time the preparation of SFTTrainer with bfd packing, without masks if it refuses them for this template."""
    import datasets
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from trl import SFTConfig, SFTTrainer

    loaded = load(task)
    tiny: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(loaded), **tiny, **heads))
    for assistant_only in (True, False):
        clock = Clock()
        rows = datasets.load_dataset("json", data_files=task.corpus, split="train")
        rows = rows.remove_columns([name for name in rows.column_names if name not in READ])
        packed = {"packing": True, "max_length": LENGTH, "dataset_num_proc": workers if workers > 1 else None}
        unused = {"output_dir": tempfile.mkdtemp(), "report_to": "none", "use_cpu": True, "bf16": False}
        arguments = SFTConfig(assistant_only_loss=assistant_only, **packed, **unused)
        try:
            trainer = SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=loaded)
            break
        except (ValueError, RuntimeError) as error:
            print(f"TRL: {task.corpus}: {str(error).splitlines()[0]}", file=sys.stderr)
    result = clock.result(sum(map(len, trainer.train_dataset["input_ids"])), masked=False)
    return result._replace(masked=-100 in trainer.train_dataset[0]["labels"])


def datatrove(task: Task, workers: int) -> Result:
    """Time DocumentTokenizer on texts that are already rendered; it makes no masks and no rows."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    folder = Path(tempfile.mkdtemp())
    texts = rendered(task)
    (folder / "in").mkdir()
    for worker in range(workers):
        lines = [json.dumps({"text": text, "id": str(number)}) for number, text in enumerate(texts[worker::workers])]
        (folder / "in" / f"{worker}.jsonl").write_text("\n".join(lines) + "\n")
    clock = Clock()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(folder / "in")),
            DocumentTokenizer(
                str(folder / "out"), tokenizer_name_or_path=f"{task.tokenizer}/tokenizer.json", shuffle_documents=False
            ),
        ],
        tasks=workers,
        workers=workers,
        logging_dir=str(folder / "logs"),
    ).run()
    result = clock.result(0, masked=False)
    bytes_per_token = 4 if len(load(task)) > 2**16 else 2
    return result._replace(tokens=sum(file.stat().st_size for file in (folder / "out").glob("*.ds")) // bytes_per_token)


def load(task: Task) -> Any:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(task.tokenizer)
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    if task.template:
        loaded.chat_template = Path(task.template).read_text()
    return loaded


def rendered(task: Task) -> list[str]:
    loaded = load(task)
    with open(task.corpus, encoding="utf-8") as file:
        records = map(json.loads, file)
        return [
            loaded.apply_chat_template(record["messages"], tokenize=False)
            if "messages" in record
            else record["prompt"] + record["completion"]
            for record in records
        ]


PEERS = {
    "gigatoken": gigatoken_alone,
    "encode_batch_fast": encode_batch,
    "datasets.map": datasets_map,
    "TRL": trl,
    "datatrove": datatrove,
}

if __name__ == "__main__":
    name, workers = sys.argv[1:]
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp()
    logging.disable()
    results = [PEERS[name](Task(*task), int(workers)) for task in json.load(sys.stdin)]
    print(json.dumps([result._asdict() for result in results]))
