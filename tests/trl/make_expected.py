"""Create expected/ and tokenizer/ again: the rows of TRL's SFTTrainer for inputs/ with max_length 17.

usage: python tests/trl/make_expected.py
Needs trl==1.16.0, transformers==5.23.0, datasets, tokenizers and torch; a CPU is enough, and nothing is downloaded.

The grid is that of TRL's pull request 3572: conversational or standard, language modelling or prompt and completion,
each packing and none, with and without other columns, which do not change the rows and so are stored once.

inputs/NAME.jsonl is written by hand, and so is tokenizer/chat_template.jinja. expected/NAME.LOSS.MODE.jsonl is the
trainer's train_dataset: input_ids, labels (-100 if a token is not trained) and, for bfd and bfd_split, seq_lengths.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

import trl

HERE = Path(__file__).resolve().parent
TRL_VERSION = "1.16.0"
MAX_LENGTH = 17
VOCAB_SIZE = 512
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
OTHER_COLUMNS = ["id", "score"]

LOSSES = {
    "all": {"completion_only_loss": False, "assistant_only_loss": False},
    "completion": {"completion_only_loss": True, "assistant_only_loss": False},
    "assistant": {"completion_only_loss": False, "assistant_only_loss": True},
}
MODES = {
    "none": {"packing": False, "truncation_mode": "keep_start"},
    "keep_end": {"packing": False, "truncation_mode": "keep_end"},
    "bfd": {"packing": True, "packing_strategy": "bfd"},
    "bfd_split": {"packing": True, "packing_strategy": "bfd_split"},
    "wrapped": {"packing": True, "packing_strategy": "wrapped"},
}
LOSSES_OF = {
    "conversational_language_modeling": ["all", "assistant"],
    "conversational_prompt_completion": ["all", "completion"],
    "standard_language_modeling": ["all"],
    "standard_prompt_completion": ["all", "completion"],
}


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_jsonl(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def strings(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, in order. With the roles among them, a role becomes one token."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def make_tokenizer(directory: Path, records: list[dict]) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE on the records, write it next to its chat template, and load it by transformers."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(strings(records), trainer)
    bpe.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "TokenizersBackend",
        "backend": "tokenizers",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    return AutoTokenizer.from_pretrained(directory)


def prepare(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, loss: str, mode: str) -> list[dict]:
    """Return the rows that SFTTrainer would train on. The model is only there because SFTTrainer requires one."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCAB_SIZE, num_key_value_heads=1, **sizes))
    with tempfile.TemporaryDirectory() as output_dir:
        args = trl.SFTConfig(
            output_dir, max_length=MAX_LENGTH, use_cpu=True, bf16=False, report_to="none", **LOSSES[loss], **MODES[mode]
        )
        prepared = trl.SFTTrainer(model, args, train_dataset=dataset, processing_class=tokenizer).train_dataset
    columns = [name for name in ("input_ids", "labels", "seq_lengths") if name in prepared.column_names]
    return prepared.select_columns(columns).to_list()


def main() -> None:
    if trl.__version__ != TRL_VERSION:
        sys.exit(f"trl is {trl.__version__}; the expected rows are from {TRL_VERSION}. pip install trl=={TRL_VERSION}")
    inputs = {name: read_jsonl(HERE / "inputs" / f"{name}.jsonl") for name in LOSSES_OF}
    tokenizer = make_tokenizer(HERE / "tokenizer", [record for records in inputs.values() for record in records])
    for name, losses in LOSSES_OF.items():
        with_columns = Dataset.from_list(inputs[name])
        for loss in losses:
            for mode in MODES:
                rows = prepare(with_columns, tokenizer, loss, mode)
                without = prepare(with_columns.remove_columns(OTHER_COLUMNS), tokenizer, loss, mode)
                assert rows == without, f"{name}.{loss}.{mode}: other columns change the rows"
                write_jsonl(HERE / "expected" / f"{name}.{loss}.{mode}.jsonl", rows)
                print(f"{name}.{loss}.{mode}: {len(rows)} rows")


if __name__ == "__main__":
    main()
