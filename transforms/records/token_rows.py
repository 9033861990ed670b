"""Records that are tokenized already."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from operator import ne
from typing import Any

import numpy as np

from transforms.base.errors import RecordError
from transforms.model.examples import TokenRow
from transforms.records.json_text import json_type
from transforms.records.reading import Reading

MASKS = ("completion_mask", "assistant_masks", "loss_mask", "attention_mask")
# Which tokens of a row are one example. Of trainers: how many values there are of one example, and its number at each
# of its tokens.
_MOST = {"seq_lens": 1, "cu_seqlens": 2}
_NUMBERS = ("segment_ids", "document_ids")
PACKED_ROW_COLUMNS = ("seq_lengths", "position_ids", "seq_start_id", *_MOST, *_NUMBERS)


def token_row(reading: Reading, input_ids: Any, **columns: Any) -> TokenRow:
    """Read a row of token ids, and which of them are trained on.

    Args:
        reading: the reading of the record.
        input_ids: the ids. Tokens at their ends with attention_mask 0 are padding, which is left out.
        columns: `labels`, MASKS, `loss_weights` and PACKED_ROW_COLUMNS, as lists, if the record has them.

    Raises:
        RecordError: if they are not integers, or contradict each other, or a weight is not 0 or 1, or the row has
            several examples.
    """
    for name, values in columns.items():
        if isinstance(values, str) and values.lstrip().startswith("["):  # another one may be an id
            raise RecordError("bad_tokens", f"{name} is {json_type(values)}; expected a list of numbers")
    ids = _integers(input_ids, "input_ids")
    tokens = len(ids)
    if not tokens:
        raise RecordError("empty", "input_ids is empty")
    own = _unpadded(columns["attention_mask"], tokens, reading) if "attention_mask" in columns else slice(None)
    _check_not_packed(columns, tokens, own)
    ids = _token_ids(ids[own])
    if isinstance(weights := columns.get("loss_weights"), list):
        if others := [weight for weight in weights if weight not in (0, 1)]:
            raise RecordError(
                "bad_weight", f"loss_weights has {others[0]!r}; of a tokenized row, expected 0 and 1 alone"
            )
        columns["loss_weights"] = [*map(int, weights)]
    trained = np.ones(len(ids), bool)
    if "labels" in columns:
        labels = _integers(columns["labels"], "labels", tokens)[own]
        trained = labels != -100
        if len(wrong := np.flatnonzero(trained & (labels != ids))):
            at = wrong[0]
            raise RecordError("bad_tokens", f"label {at} is {labels[at]}; expected the token's id {ids[at]}, or -100")
    for name in ("loss_weights", *MASKS):
        if name in columns:
            trained &= _mask(columns[name], name, tokens)[own]
    return TokenRow(ids, trained)


def sampled_row(prompt: list[int], completion: list[int], mask: Any, column: str) -> TokenRow:
    """Make the row of the literal ids of a call of a model. mask: of its completion, or of both; or None.

    Raises:
        RecordError: if they are not token ids, or the mask has another length.
    """
    ids = _token_ids(_integers([*prompt, *completion], "input_ids"))
    trained = np.arange(len(ids)) >= len(prompt)
    if mask is not None:
        given = _mask(mask, column, len(completion), len(ids))
        trained[len(ids) - len(given) :] = given
    return TokenRow(ids, trained)


def _token_ids(ids: np.ndarray) -> np.ndarray:
    """Check that integers are token ids: int32, shape (tokens,)."""
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise RecordError("bad_tokens", f"input_ids has {wrong}, which is not a token id")
    return ids.astype(np.int32)


def _check_not_packed(columns: Mapping[str, Any], tokens: int, own: slice) -> None:
    """Raise RecordError if a row has several examples: each would attend to those before it."""
    if "seq_start_id" in columns:
        problem = "the row is packed for Megatron-Bridge (seq_start_id), and a loss_mask is that of the next token"
        raise RecordError("bad_tokens", f"{problem}; expected rows of one example, each with a mask of its own tokens")
    several = "seq_lengths" in columns and len(_integers(columns["seq_lengths"], "seq_lengths")) > 1
    if "position_ids" in columns:
        several |= not _integers(columns["position_ids"], "position_ids", tokens)[own][1:].all()
    lists = {name: value for name, value in columns.items() if isinstance(value, list)}
    several |= any(len(lists.get(name, ())) > most for name, most in _MOST.items())
    for name in lists.keys() & _NUMBERS:
        several |= len(lists[name]) == tokens and any(map(ne, lists[name][own], lists[name][own][1:]))
    if several:
        raise RecordError("bad_tokens", "the row is packed, with several examples; expected rows of one example")


def _unpadded(attention_mask: Any, tokens: int, reading: Reading) -> slice:
    """Find the tokens between the padding of a row."""
    attended = np.flatnonzero(_mask(attention_mask, "attention_mask", tokens))
    if not len(attended):
        raise RecordError("empty", "attention_mask is 0 for each token")
    if attended[-1] - attended[0] + 1 != len(attended):
        raise RecordError("bad_tokens", "attention_mask has 0 between tokens; expected it at the ends alone")
    if len(attended) < tokens:
        reading.notes["padding_removed"] = None
    return slice(attended[0], attended[-1] + 1)


def _mask(values: Any, name: str, *tokens: int) -> np.ndarray:
    mask = _integers(values, name, *tokens)
    if mask.min() < 0 or mask.max() > 1:
        raise RecordError("bad_tokens", f"{name} has other numbers than 0 and 1")
    return mask.astype(bool)


def _integers(values: Any, column: str, *lengths: int) -> np.ndarray:
    """Check that values are integers, and as many as they may be: int64, shape (values,)."""
    if not isinstance(values, list):
        raise RecordError("bad_tokens", f"{column} is {json_type(values)}; expected a list of integers")
    if lengths and len(values) not in lengths:
        tokens = " or ".join(map(str, lengths))
        raise RecordError("bad_tokens", f"{column} has {len(values)} values for {tokens} tokens")
    try:
        return np.frombuffer(array("q", values), np.int64)  # twice as fast as np.array of a list
    except TypeError:
        raise RecordError("bad_tokens", f"{column} is not a list of integers") from None
    except OverflowError:
        raise RecordError("bad_tokens", f"{column} has a number beyond 64 bits") from None
