"""The kinds of input that margins.py measures, and how they are made from real corpora."""

from __future__ import annotations

import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from tokenizers import Regex, Tokenizer, pre_tokenizers

Record = dict[str, Any]


def as_they_are(records: Iterable[Record]) -> Iterable[Record]:
    return records


def with_parts(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        parts = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in record["messages"]]
        yield {**record, "messages": parts}


def mostly_rejected(records: Iterable[Record]) -> Iterator[Record]:
    """One record of ten has one problem only, so that `--parity reject` leaves some rows."""
    for number, record in enumerate(records):
        yield {**record, "messages": record["messages"][-2:]} if number % 10 == 0 else record


def with_kwargs(records: Iterable[Record]) -> Iterator[Record]:
    for number, record in enumerate(records):
        yield {**record, "chat_template_kwargs": {"enable_thinking": number % 2 == 0}}


_SHAREGPT = {"user": "human", "assistant": "gpt"}


def as_sharegpt(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        turns = [{"from": _SHAREGPT.get(m["role"], m["role"]), "value": m["content"]} for m in record["messages"]]
        yield {"id": record["id"], "conversations": turns}


def for_trl(record: Record) -> Record:
    """A record as TRL can read it: it does not know the roles of ShareGPT, and a column must have one type."""
    if "conversations" in record:
        roles = {theirs: role for role, theirs in _SHAREGPT.items()}
        turns = record["conversations"]
        return {"messages": [{"role": roles.get(t["from"], t["from"]), "content": t["value"]} for t in turns]}
    return {**record, "tools": json.dumps(record["tools"])} if "tools" in record else record


def as_alpaca(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        yield {"instruction": record["prompt"], "input": "", "output": record["completion"]}


def as_long_texts(records: Iterable[Record]) -> Iterator[Record]:
    """Texts of 100,000 characters."""
    text = "\n".join(message["content"] for record in records for message in record["messages"])
    for start in range(0, len(text) - 100_000, 100_000):
        yield {"text": text[start : start + 100_000]}


@dataclass(frozen=True)
class Kind:
    """One row of the table.

    Args:
        name: for --only.
        title: what a reader sees.
        corpus: the name of the corpus.
        tokenizer: the name of its folder; after a comma one of PRE_TOKENIZERS, which it gets instead of its own.
        template: the name of the chat template; None for the tokenizer's own.
        derive: what makes the records of those of the corpus.
        options: further options of the build.
        megabytes: the size of the smaller input; it is chosen so that three times as much takes some seconds of CPU.
        max_length: of the rows.
        trl: whether TRL can prepare such records.
    """

    name: str
    title: str
    corpus: str
    tokenizer: str
    template: str | None = None
    derive: Callable[[Iterable[Record]], Iterable[Record]] = as_they_are
    options: tuple[str, ...] = ()
    megabytes: float = 12
    max_length: int = 8192
    trl: bool = True


# Of Falcon.
PRE_TOKENIZERS = {
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}

PLAIN, TOOLS, THINK = "plain chats (sgd)", "tools, calls, answers (sgd_tools)", "reasoning (gsm8k_think)"
EXPAND, REJECT = ("--parity=expand",), ("--parity=reject",)
CHINESE, LONG = "Chinese, ShareGPT (kdconv)", "texts of 100,000 characters"

# fmt: off
KINDS = [
    Kind("sgd-llama3", PLAIN, "sgd", "llama3", megabytes=32),
    Kind("sgd-qwen3", PLAIN, "sgd", "qwen", "qwen3", megabytes=32),
    Kind("sgd-mistral", PLAIN, "sgd", "mistral", megabytes=24),
    Kind("sgd-qwen2_5", PLAIN, "sgd", "qwen", "qwen2_5", megabytes=32),
    Kind("tools-qwen3", TOOLS, "sgd_tools", "qwen", "qwen3"),
    Kind("tools-llama3_1", TOOLS, "sgd_tools", "llama3", "llama3_1"),
    Kind("tools-qwen2_5", TOOLS, "sgd_tools", "qwen", "qwen2_5"),
    Kind("think-qwen3", THINK, "gsm8k_think", "qwen", "qwen3"),
    Kind("think-expand", f"{THINK}, expand", "gsm8k_think", "qwen", "qwen3", options=EXPAND, trl=False),
    Kind("think-reject", f"{THINK}, reject", "gsm8k_think", "qwen", "qwen3", mostly_rejected, REJECT, trl=False),
    Kind("think-deepseek", THINK, "gsm8k_think", "qwen", "deepseek_r1_distill"),
    Kind("think-gptoss", THINK, "gsm8k_think", "qwen", "gptoss"),
    Kind("parts", f"{PLAIN}, content as parts", "sgd", "qwen", "qwen3", with_parts, megabytes=24, trl=False),
    Kind("kwargs", f"{PLAIN}, `chat_template_kwargs` in records", "sgd", "qwen", "qwen3", with_kwargs, megabytes=24),
    Kind("kdconv-llama3", CHINESE, "kdconv", "llama3"),
    Kind("kdconv-mistral", CHINESE, "kdconv", "mistral"),
    Kind("kdconv-qwen3", CHINESE, "kdconv", "qwen", "qwen3"),
    Kind("long", LONG, "sgd", "llama3", None, as_long_texts, megabytes=32, max_length=32768),
    Kind("sharegpt", "ShareGPT (sgd)", "sgd", "llama3", None, as_sharegpt, megabytes=32),
    Kind("alpaca", "Alpaca (gsm8k)", "gsm8k", "llama3", None, as_alpaca, trl=False),
    Kind("completion", "prompt and completion (gsm8k)", "gsm8k", "llama3"),
    Kind("refused", f"{PLAIN}, gigatoken refuses it", "sgd", "llama3, falcon", megabytes=8),
]
# fmt: on


def read_lines(kind: Kind, corpora: Path, size: float) -> list[bytes]:
    """Return the lines of an input of about `size` bytes. A corpus that is smaller is repeated."""
    made = [
        json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in kind.derive(read_records(kind, corpora))
    ]
    sizes = itertools.accumulate(len(line) for line in itertools.cycle(made))
    return [line for line, _ in zip(itertools.cycle(made), itertools.takewhile(lambda total: total <= size, sizes))]


def read_records(kind: Kind, corpora: Path) -> Iterator[Record]:
    path = corpora / f"{kind.corpus}.jsonl"
    with path.open("rb") if path.exists() else zstandard.open(f"{path}.zst", "rb") as file:
        yield from map(json.loads, io.BufferedReader(file))


def changed(tokenizer: Path, pre_tokenizer: str, folder: Path) -> Path:
    """Copy a tokenizer with another one of PRE_TOKENIZERS."""
    shutil.copytree(tokenizer, folder)
    loaded = Tokenizer.from_file(str(folder / "tokenizer.json"))
    loaded.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre_tokenizer])
    (folder / "tokenizer.json").unlink()  # which may be read-only
    loaded.save(str(folder / "tokenizer.json"))
    return folder
