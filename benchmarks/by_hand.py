"""The least that each step needs: a loop written by hand for one corpus, without checks, fates, or other schemas.

Each takes what the step takes and does with the same libraries what it does: the corpus is JSONL of plain messages, all
are trained on alike, and the template is ChatML. Parity has none, since nobody else looks; nor has fit, whose loops are
the step's own.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gigatoken
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.batches import Examples, Records, Rows, Texts, Tokens

_BEFORE = {role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")}


def by_hand(tokenizer: Path, target: Path) -> dict[str, Callable[[Any], Any]]:
    """The loop for each step that has one. tokenizer: its folder. target: where write writes."""
    encoder = gigatoken.Tokenizer.from_json((tokenizer / "tokenizer.json").read_text())
    lengths = np.zeros(encoder.vocab_size, np.int64)
    for number, token in encoder.vocab.items():
        lengths[number] = len(token)

    def parse(batch: Records) -> Any:
        return [msgspec.json.decode(record.raw)["messages"] for record in batch.records]

    def render(batch: Examples) -> Any:
        texts = []
        for example in batch.examples:
            pieces, spans, length = [], [], 0
            for message in example.content.messages:  # type: ignore[union-attr]
                role = message["role"]
                before, content = _BEFORE[role], message["content"]
                start = length + len(before)
                length = start + len(content) + 11
                pieces += [before, content, "<|im_end|>\n"]
                if role == "assistant":
                    spans.append((start, length))
            texts.append(("".join(pieces), spans))
        return texts

    def tokenize(batch: Texts) -> Any:
        layout = encoder.backend.encode_batch([text.text for text in batch.texts], parallel=False).layout
        ids = np.asarray(layout.content.data).view(np.int32)
        ends = np.cumsum(lengths[ids])
        edges = np.array([edge for text in batch.texts for span in text.spans for edge in span], np.int64)
        return ids, ends - lengths[ids], ends, edges

    def label(batch: Tokens) -> Any:
        changes = np.zeros(len(batch.ids) + 1, np.int8)
        np.add.at(changes, np.searchsorted(batch.stops, batch.spans[:, 0], side="right"), 1)
        np.add.at(changes, np.searchsorted(batch.starts, batch.spans[:, 1], side="left"), -1)
        return np.where(np.cumsum(changes[:-1], dtype=np.int8), batch.ids, np.int32(-100))

    def write(batch: Rows) -> None:
        table, buffer = batch.train, io.BytesIO()
        offsets = pa.array(table.offsets.astype(np.int32))
        rows = {"input_ids": table.ids, "labels": table.labels}
        columns = {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in rows.items()}
        pq.write_table(pa.table(columns), buffer, compression="zstd", use_dictionary=False, write_statistics=False)
        target.write_bytes(buffer.getbuffer())

    return {"parse": parse, "render": render, "tokenize": tokenize, "label": label, "write": write}
