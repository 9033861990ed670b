"""Keys: pseudo-random numbers of records, by a seed and by where each record is in the input."""

from __future__ import annotations

import numpy as np

# Of SplitMix64 (Steele, Lea and Flood 2014): the step, and the multipliers of its finalizer.
_STEP, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def shuffle_keys(seed: int, task: int, positions: np.ndarray) -> np.ndarray:
    """Return a pseudo-random number for each record of a task.

    Args:
        seed: another one gives other numbers.
        task: its number.
        positions: int64, shape (records,): of the records in the task.

    Returns:
        uint64, shape (records,), evenly spread.
    """
    begin = _mixed(_mixed(np.array([seed % 2**64], np.uint64)) + np.uint64(task))
    return _mixed(_mixed(begin + positions.astype(np.uint64)))


def bucket_keys(keys: np.ndarray, buckets: int) -> np.ndarray:
    """Return the bucket of each key: int64, shape (records,), below `buckets`, which is below 2**31.

    Buckets are ranges of keys of the same size (Lemire 2019, without the rejection).
    """
    count = np.uint64(buckets)
    return ((keys >> _32) * count + ((keys & _LOW) * count >> _32) >> _32).astype(np.int64)


def _mixed(values: np.ndarray) -> np.ndarray:
    values = values + _STEP
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
