"""The columns of prompts and their answers, as TRL names them; and back from them to tokens and labels.

DPOTrainer reads a prompt, a chosen and a rejected answer; KTOTrainer a prompt and a completion; RewardTrainer whole
conversations, which a chosen and a rejected answer are if there is no column of the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from transforms.rows import IGNORED
from transforms.rows.ragged import indices_of, offsets_of, slices_of

if TYPE_CHECKING:
    from transforms.model.batches import RowTable

PROMPT = "prompt_ids"
# Of each answer, the number of its segment in the row.
_ANSWERS = {"chosen": 0, "rejected": 1, "completion": 0}
PAIR_COLUMNS = (PROMPT, "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask")
COMPLETION_COLUMNS = (PROMPT, "completion_ids", "completion_mask")
ANSWER_COLUMNS = (*PAIR_COLUMNS, *COMPLETION_COLUMNS[1:])
# Whether the answer of a row is desirable: one value for each row.
LABEL = "label"
# By how much the chosen answer of a pair is the better one, a column of RewardTrainer: one number for each row, of a
# column of the records that is carried along.
MARGIN = "margin"
# The schemas of preference data, and the columns of their rows: pairs; answers that have a label, as for KTO.
PREFERENCE, UNPAIRED = "preference", "unpaired_preference"
COLUMNS_OF = {PREFERENCE: PAIR_COLUMNS, UNPAIRED: (*COMPLETION_COLUMNS, LABEL)}

# The values of all rows, and the offsets of the rows in them, as in transforms.rows.columns.
_Column = tuple[np.ndarray, np.ndarray]


def answer_column(table: RowTable, name: str, names: Collection[str]) -> _Column:
    """Return a column of a prompt or an answer.

    Args:
        table: the rows, each of two segments with the same prompt if it is a pair, otherwise of one.
        name: one of ANSWER_COLUMNS.
        names: of all columns that are written.

    Returns:
        The ids, int32, or the mask of tokens that are trained on, int8, shape (tokens,); and the offsets of the rows in
        them, int64, shape (rows + 1,).
    """
    prompts = prompt_lengths(table) if PROMPT in names else np.zeros(len(table), np.int64)
    answer, _, what = name.rpartition("_")
    segments = table.segment_offsets[:-1] + _ANSWERS.get(answer, 0)
    starts, lengths = offsets_of(table.segment_lengths)[segments], table.segment_lengths[segments]
    if name == PROMPT:
        lengths = prompts
    else:
        starts, lengths = starts + prompts, lengths - prompts
    values = table.ids if what == "ids" else (table.labels != IGNORED).astype(np.int8)
    return slices_of(values, starts, lengths), offsets_of(lengths)


def prompt_lengths(table: RowTable) -> np.ndarray:
    """Return how many tokens of each row are the prompt: int64, shape (rows,).

    It ends before the first trained token of any of its segments; and, as TRL's prompts do, where these differ.
    """
    starts = offsets_of(table.segment_lengths)[:-1]
    first = np.flatnonzero(table.labels != IGNORED)  # each segment has one
    before = first[np.searchsorted(first, starts)] - starts
    lengths = np.minimum.reduceat(before, table.segment_offsets[:-1]) if len(table) else np.zeros(0, np.int64)
    pairs = np.flatnonzero(np.diff(table.segment_offsets) == 2)
    both = [slices_of(table.ids, starts[table.segment_offsets[pairs] + side], lengths[pairs]) for side in (0, 1)]
    different = np.flatnonzero(both[0] != both[1])
    rows, places = (
        np.repeat(pairs, lengths[pairs])[different],
        indices_of(np.zeros(len(pairs), np.int64), lengths[pairs])[different],
    )
    np.minimum.at(lengths, rows, places)
    return lengths


def with_tokens(columns: Mapping[str, _Column]) -> dict[str, _Column]:
    """Return the columns input_ids, labels and seq_lengths of rows of prompts and answers; others as they are.

    Args:
        columns: of the rows, by name. There are no labels if an answer has no mask.
    """
    answers = [answer for answer in _ANSWERS if f"{answer}_ids" in columns]
    if not answers:
        return dict(columns)
    rows = len(columns[f"{answers[0]}_ids"][1]) - 1
    nothing = np.empty(0, np.int32), np.zeros(rows + 1, np.int64)
    prompt, prompt_offsets = columns.get(PROMPT, nothing)
    # Of each row: the prompt and the first answer, the prompt and the second one.
    pieces = []
    for answer in answers:
        ids, offsets = columns[f"{answer}_ids"]
        mask, _ = columns.get(f"{answer}_mask", (np.ones(len(ids), np.int8), offsets))
        pieces.append((prompt, np.zeros(len(prompt), np.int8), prompt_offsets))
        pieces.append((ids, mask, offsets))
    lengths = np.stack([np.diff(offsets) for *_, offsets in pieces], axis=1)
    bases = offsets_of(np.array([len(ids) for ids, *_ in pieces]))
    starts = np.stack([base + offsets[:-1] for base, (*_, offsets) in zip(bases, pieces, strict=False)], axis=1)
    order = indices_of(starts.ravel(), lengths.ravel())
    ids = np.concatenate([ids for ids, *_ in pieces])[order]
    mask = np.concatenate([mask for _, mask, _ in pieces])[order]
    offsets = offsets_of(lengths.sum(axis=1))
    of_segments = lengths.reshape(rows, len(answers), 2).sum(axis=2).ravel()
    found = {name: column for name, column in columns.items() if name not in ANSWER_COLUMNS}
    found |= {"input_ids": (ids, offsets), "seq_lengths": (of_segments, np.arange(rows + 1) * len(answers))}
    if all(f"{answer}_mask" in columns for answer in answers):
        found["labels"] = np.where(mask != 0, ids, np.int32(IGNORED)), offsets
    return found
