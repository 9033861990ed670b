"""Other tools on the same corpus. throughput.py runs this in a separate environment (peers.txt).

    python benchmarks/peers.py NAME CORPUS.jsonl,.. TOKENIZER WORKERS [TEMPLATE]

prints [{"seconds": .., "cpu": .., "tokens": ..}, ..], one for each corpus. The clock starts after the imports and after
the tokenizer is loaded.
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
from typing import Any

LENGTH = 4096
READ = ("messages", "tools", "chat_template_kwargs", "conversations", "prompt", "completion", "text")
TEMPLATE: str | None = None  # the chat template; None for the tokenizer's own


def encode_batch(corpus: Path, tokenizer: str, workers: int) -> tuple[float, int]:
    """Time encode_batch_fast of tokenizers alone, on texts that are already rendered."""
    from tokenizers import Tokenizer

    texts = rendered(corpus, tokenizer)
    encoder = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    start, tokens = time.perf_counter(), 0
    for first in range(0, len(texts), 1000):
        tokens += sum(len(encoding.ids) for encoding in encoder.encode_batch_fast(texts[first : first + 1000]))
    return time.perf_counter() - start, tokens


def datasets_map(corpus: Path, tokenizer: str, workers: int) -> tuple[float, int]:
    """Time the loop of many tutorials: render each conversation with and without its last answer, mask the prompt."""
    import datasets

    loaded = load(tokenizer)
    start = time.perf_counter()
    rows = datasets.load_dataset("json", data_files=str(corpus), split="train")

    def tokenize_and_mask(row: dict[str, Any]) -> dict[str, Any]:
        whole = loaded.apply_chat_template(row["messages"], tokenize=True, return_dict=False)
        prompt = loaded.apply_chat_template(
            row["messages"][:-1], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return {"input_ids": whole, "labels": [-100] * len(prompt) + whole[len(prompt) :]}

    rows = rows.map(tokenize_and_mask, num_proc=workers, remove_columns=rows.column_names)
    rows.to_parquet(os.path.join(tempfile.mkdtemp(), "rows.parquet"))
    return time.perf_counter() - start, sum(map(len, rows["input_ids"]))


def trl(corpus: Path, tokenizer: str, workers: int) -> tuple[float, int]:
    """Time the preparation of SFTTrainer with bfd packing, without masks if it refuses them for this template."""
    import datasets
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from trl import SFTConfig, SFTTrainer

    loaded = load(tokenizer)
    tiny = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(loaded), **tiny, **heads))
    for assistant_only in (True, False):
        start = time.perf_counter()
        rows = datasets.load_dataset("json", data_files=str(corpus), split="train")
        rows = rows.remove_columns([name for name in rows.column_names if name not in READ])
        packed = {"packing": True, "max_length": LENGTH, "dataset_num_proc": workers if workers > 1 else None}
        unused = {"output_dir": tempfile.mkdtemp(), "report_to": "none", "use_cpu": True, "bf16": False}
        arguments = SFTConfig(assistant_only_loss=assistant_only, **packed, **unused)
        try:
            trainer = SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=loaded)
            break
        except (ValueError, RuntimeError) as error:
            print(f"TRL: {str(error).splitlines()[0]}", file=sys.stderr)
    return time.perf_counter() - start, sum(map(len, trainer.train_dataset["input_ids"]))


def datatrove(corpus: Path, tokenizer: str, workers: int) -> tuple[float, int]:
    """Time DocumentTokenizer on texts that are already rendered; it makes no masks and no rows."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    folder = Path(tempfile.mkdtemp())
    texts = rendered(corpus, tokenizer)
    (folder / "in").mkdir()
    for worker in range(workers):
        lines = [json.dumps({"text": text, "id": str(number)}) for number, text in enumerate(texts[worker::workers])]
        (folder / "in" / f"{worker}.jsonl").write_text("\n".join(lines) + "\n")
    start = time.perf_counter()
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(folder / "in")),
            DocumentTokenizer(
                str(folder / "out"), tokenizer_name_or_path=f"{tokenizer}/tokenizer.json", shuffle_documents=False
            ),
        ],
        tasks=workers,
        workers=workers,
        logging_dir=str(folder / "logs"),
    ).run()
    seconds = time.perf_counter() - start
    bytes_per_token = 4 if len(load(tokenizer)) > 2**16 else 2
    return seconds, sum(path.stat().st_size for path in (folder / "out").glob("*.ds")) // bytes_per_token


def load(tokenizer: str) -> Any:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    loaded.chat_template = TEMPLATE or loaded.chat_template
    return loaded


def rendered(corpus: Path, tokenizer: str) -> list[str]:
    loaded = load(tokenizer)
    with open(corpus, encoding="utf-8") as file:
        records = map(json.loads, file)
        return [
            loaded.apply_chat_template(record["messages"], tokenize=False)
            if "messages" in record
            else record["prompt"] + record["completion"]
            for record in records
        ]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


PEERS = {"encode_batch_fast": encode_batch, "datasets.map": datasets_map, "TRL": trl, "datatrove": datatrove}

if __name__ == "__main__":
    name, corpora, tokenizer, workers, *template = sys.argv[1:]
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp()
    logging.disable()
    if template:
        TEMPLATE = Path(*template).read_text()
    results = []
    for corpus in corpora.split(","):
        before = cpu_seconds()
        seconds, tokens = PEERS[name](Path(corpus), tokenizer, int(workers))
        results.append({"seconds": seconds, "cpu": cpu_seconds() - before, "tokens": tokens})
    print(json.dumps(results))
