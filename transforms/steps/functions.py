"""The steps of a build as functions of plain values, without Beam."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.base.errors import ParameterError, RecordDropped, RecordError
from transforms.base.options import check_choice
from transforms.chat.config import ENGINES
from transforms.model.batches import Labels, Records, Task
from transforms.model.examples import Example, Record
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Outcomes
from transforms.records.input_options import ParseOptions
from transforms.rows.ragged import joined, lengths_to_offsets
from transforms.steps.pack import Packer
from transforms.steps.parse import Parser
from transforms.tokens import TextEncoder
from transforms.tokens.fast_encoder import NotSupported, load_fast_encoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer

# Of values that come from no file.
_TASK = Task(0, ())
# The parsers of the last options, which take 10 ms to make each.
_PARSERS: dict[str, Parser] = {}
_MOST_PARSERS = 16


def parse(record: Mapping[str, Any] | bytes, **options: Any) -> list[Example]:
    """Read one record as a build does.

    Args:
        record: the row of a table, or a line of JSON.
        options: as of ParseConversations.

    Returns:
        Its example; several, if a formatter makes several of one record, or a recording has several conversations.

    Raises:
        RecordError: if a build would reject the record; its `reason` and `detail` say why.
        RecordDropped: if a build would drop it; its `reason` says why.
        ParameterError: if an option is not one of those.
    """
    raw = record if isinstance(record, bytes) else dict(record)
    batch = _get_parser(options)(Records(_TASK, 0, True, Outcomes(read=1), [Record(0, raw)]))
    for reject in batch.outcomes.rejects:
        raise RecordError(reject.reason, reject.detail)
    for drop in batch.outcomes.drops:
        raise RecordDropped(drop.reason)
    return batch.examples


def _get_parser(options: dict[str, Any]) -> Parser:
    """The parser of options; a new one if there is a formatter, whose file may have changed."""
    if options.get("formatter"):
        return _new_parser(**options)
    name = repr(sorted(options.items()))
    if name not in _PARSERS:
        parser = _new_parser(**options)
        if len(_PARSERS) == _MOST_PARSERS:
            _PARSERS.clear()
        _PARSERS[name] = parser
    return _PARSERS[name]


def _new_parser(**options: Any) -> Parser:
    return Parser(ParseOptions(**options))


def tokenize(texts: Sequence[str], tokenizer: str, *, special_tokens: bool = False, engine: str = "auto") -> list[Any]:
    """Encode texts, many times faster than transformers if gigatoken knows the tokenizer, to the same ids.

    Args:
        texts: any number of them.
        tokenizer: the folder of a tokenizer of transformers, at any url that fsspec opens.
        special_tokens: whether the tokenizer's own special tokens are added, and an EOS if the last token is not one,
            as for a plain text that a model is trained on; a conversation's are printed by its chat template.
        engine: `reference` uses transformers alone.

    Returns:
        For each text int32, shape (tokens,).

    Raises:
        RecordError: if the tokenizer cannot encode one of them.
        ParameterError: if the tokenizer cannot be loaded, or engine is not one of those.
    """
    check_choice("engine", engine, ENGINES)
    if not texts:
        return []
    fast = load_fast_encoder(tokenizer) if engine == "auto" else None
    encoder: TextEncoder
    encoder = ReferenceEncoder(load_tokenizer(tokenizer)) if fast is None or isinstance(fast, NotSupported) else fast
    encoded = encoder.encode([*texts], special_tokens)
    for number, error in encoded.failed.items():
        raise RecordError("tokenizer_failed", f"text {number}: {error}")
    return np.split(encoded.ids, encoded.offsets[1:-1])


def pack(
    examples: Iterable[Mapping[str, Sequence[int]]], max_length: int | None, **options: Any
) -> list[dict[str, list[int]]]:
    """Truncate or pack labelled token ids into rows no longer than max_length.

    Args:
        examples: each with `input_ids` and, of the same length, `labels`, which are the ids or -100.
        max_length: of a row, in tokens; None truncates none.
        options: packing, truncation, window_overlap and shift_labels, as of TruncateOrPack.

    Returns:
        The rows, each with `input_ids`, `labels` and `seq_lengths`, the lengths of the examples that it holds. An
        example without a label that is not -100, or of which none is left, is in no row.

    Raises:
        ParameterError: if an option is not one of those.
    """
    pairs = [(np.array(each["input_ids"], np.int32), np.array(each["labels"], np.int32)) for each in examples]
    for number, (row, row_labels) in enumerate(pairs):
        if len(row) != len(row_labels):
            raise ParameterError("examples", number, f"{len(row_labels)} labels of {len(row)} input_ids.")
    facts = RowFacts(pa.table({"position": np.arange(len(pairs))}))
    ids, labels = (joined([pair[i] for pair in pairs], np.int32) for i in range(2))
    offsets = lengths_to_offsets(np.array([len(row) for row, _ in pairs], np.int64))
    labelled = Labels(_TASK, 0, True, Outcomes(), ids, labels, offsets, facts)
    table = Packer(max_length=max_length, **options)(labelled).train
    lengths = table.segment_lengths.tolist()
    return [
        {
            "input_ids": table.ids[start:stop].tolist(),
            "labels": table.labels[start:stop].tolist(),
            "seq_lengths": lengths[first:last],
        }
        for (start, stop), (first, last) in zip(
            itertools.pairwise(table.offsets.tolist()), itertools.pairwise(table.segment_offsets.tolist()), strict=True
        )
    ]
