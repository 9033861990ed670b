"""A lower bound for each step: a loop written by hand for one corpus, without checks, outcomes or other schemas.

Each loop takes the input of its step and does the same work with the same libraries. The corpus is JSONL of plain
messages, all assistant turns are trained on, and the template is ChatML. There is no loop for parity, which other tools
do not check, and none for pack, which is already such a loop.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import gigatoken
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.model.batches import Examples, Records, Rows, Texts, Tokens

_HEADERS = {role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")}


class _Message(msgspec.Struct):
    role: str
    content: str


class _Conversation(msgspec.Struct):
    messages: list[_Message]


def by_hand(tokenizer: Path, target: Path) -> dict[str, Callable[[Any], Any]]:
    """Return the loop of each step that has one.

    Args:
        tokenizer: folder of the tokenizer.
        target: the file that `write` writes.
    """
    encoder = gigatoken.Tokenizer.from_json((tokenizer / "tokenizer.json").read_text())
    lengths = np.zeros(encoder.vocab_size, np.int64)
    for number, token in encoder.vocab.items():
        lengths[number] = len(token)

    decode: Any = msgspec.json.Decoder(_Conversation).decode

    def parse(batch: Records) -> Any:
        return [decode(record.raw).messages for record in batch.records]

    def render(batch: Examples) -> Any:
        texts = []
        for example in batch.examples:
            pieces, spans, length = [], [], 0
            for role, content in zip(*example.content.plain, strict=True):  # type: ignore[union-attr, misc]
                header = _HEADERS[role]
                start = length + len(header)
                length = start + len(content) + 11
                pieces += [header, content, "<|im_end|>\n"]
                if role == "assistant":
                    spans.append((start, length))
            texts.append(("".join(pieces), spans))
        return texts

    def tokenize(batch: Texts) -> Any:
        layout = encoder.backend.encode_batch([text.text for text in batch.texts], parallel=False).layout
        ids = np.asarray(layout.content.data).view(np.int32)
        ends = np.cumsum(lengths.take(ids))
        spans = chain.from_iterable(text.spans for text in batch.texts)
        edges = np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 2)
        bases = np.append(0, ends)[np.asarray(layout.offsets.data)[:-1]]
        starts, stops = (edges + np.repeat(bases, [len(text.spans) for text in batch.texts])[:, None]).T
        tokens = np.searchsorted(ends, starts, side="right"), np.searchsorted(ends, stops, side="left") + 1
        runs = np.diff(np.stack(tokens, axis=1).ravel(), prepend=0, append=len(ids))
        return ids, np.repeat(np.arange(len(runs)) % 2 == 1, runs)

    def label(batch: Tokens) -> Any:
        return np.where(batch.trained, batch.ids, np.int32(-100))

    def write(batch: Rows) -> None:
        table, buffer = batch.train, io.BytesIO()
        offsets = pa.array(table.offsets.astype(np.int32))
        rows = {"input_ids": table.ids, "labels": table.labels}
        columns = {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in rows.items()}
        pq.write_table(pa.table(columns), buffer, compression="zstd", use_dictionary=False, write_statistics=False)
        target.write_bytes(buffer.getbuffer())

    return {"parse": parse, "render": render, "tokenize": tokenize, "label": label, "write": write}
