"""The rows equal the rows of TRL's SFTTrainer for the same records (tests/trl/make_expected.py, TRL 1.16).

Rows whose labels are all -100 are ignored on both sides, because Chatmill does not write them. Unpacked and wrapped
rows must be equal and in the same order. Rows of bfd and bfd_split must have the same segments, in no more rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.paths import ROOT
from transforms import RenderConfig, Slice, Split
from transforms.model.batches import Records, Rows
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

HERE = ROOT / "tests" / "trl"
TOKENIZER = str(HERE / "tokenizer")
MAX_LENGTH = 17
MODES = {
    "none": {"packing": "none", "truncation": "keep_start"},
    "keep_end": {"packing": "none", "truncation": "keep_end"},
    "bfd": {"packing": "bfd"},
    "bfd_split": {"packing": "bfd_split"},
    "wrapped": {"packing": "wrapped"},
}
OTHER_COLUMNS = ("id", "score")
CASES = sorted(path.stem for path in (HERE / "expected").glob("*.jsonl"))

Segment = tuple[tuple[int, ...], tuple[int, ...]]


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def chatmill_rows(records: list[dict], loss: str, mode: str, keep_columns: tuple[str, ...]) -> Rows:
    raws = [Record(position, json.dumps(record).encode()) for position, record in enumerate(records)]
    split = Split(number=0, slices=(Slice(url="records.jsonl", format="jsonl", compression=None, start=0, stop=1),))
    batch = Records(split=split, part=0, last=True, outcomes=Outcomes(read=len(raws)), records=raws)
    examples = Parser(keep_columns=keep_columns)(batch)
    tokens = Encoder(TOKENIZER)(Renderer(RenderConfig(tokenizer=TOKENIZER, loss_on=loss))(examples))
    return Packer(max_length=MAX_LENGTH, **MODES[mode])(build_labels(tokens))


def rows_of(rows: Rows) -> list[dict]:
    """Return the rows with TRL's column names."""
    table = rows.train
    cuts = table.offsets[1:-1]
    columns = {
        "input_ids": np.split(table.ids, cuts),
        "labels": np.split(table.labels, cuts),
        "seq_lengths": np.split(table.segment_lengths, table.segment_offsets[1:-1]),
    }
    return [
        {name: values[row].tolist() for name, values in columns.items()}
        for row in range(len(table))  # np.split returns one empty piece for a table without rows
    ]


def segments_of(rows: list[dict]) -> Iterator[Segment]:
    for row in rows:
        start = 0
        for length in row.get("seq_lengths") or [len(row["input_ids"])]:
            stop = start + length
            yield tuple(row["input_ids"][start:stop]), tuple(row["labels"][start:stop])
            start = stop


def trained(rows: list[Segment] | Iterator[Segment]) -> list[Segment]:
    return [(ids, labels) for ids, labels in rows if any(label != -100 for label in labels)]


@pytest.mark.parametrize("other_columns", [True, False], ids=["with_columns", "without_columns"])
@pytest.mark.parametrize("case", CASES)
def test_rows_equal_sft_trainer(case: str, other_columns: bool):
    name, loss, mode = case.split(".")
    records = read_jsonl(HERE / "inputs" / f"{name}.jsonl")
    if not other_columns:
        records = [{key: value for key, value in row.items() if key not in OTHER_COLUMNS} for row in records]
    theirs = read_jsonl(HERE / "expected" / f"{case}.jsonl")

    rows = chatmill_rows(records, loss, mode, OTHER_COLUMNS if other_columns else ())
    ours = rows_of(rows)

    assert rows.outcomes.unaccounted() == 0
    assert not rows.outcomes.rejects
    if mode.startswith("bfd"):
        assert Counter(trained(segments_of(ours))) == Counter(trained(segments_of(theirs)))
        assert len(ours) <= len(theirs)
    else:
        as_pairs = [[(tuple(row["input_ids"]), tuple(row["labels"])) for row in these] for these in (ours, theirs)]
        assert trained(as_pairs[0]) == trained(as_pairs[1])


def test_every_packing_and_truncation_is_compared():
    """Without this, the comparison would pass if files of the grid (TRL's pull request 3572) were missing."""
    assert len(CASES) == 35
    assert {case.rpartition(".")[2] for case in CASES} == MODES.keys()


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "inputs").glob("*.jsonl")))
def test_other_columns_stay_with_the_rows_of_their_records(name: str):
    records = read_jsonl(HERE / "inputs" / f"{name}.jsonl")
    rows = chatmill_rows(records, "all", "none", OTHER_COLUMNS)

    source = rows.source.take(rows.train.sources)
    assert source.columns.to_pylist() == [{"id": record["id"], "score": str(record["score"])} for record in records]
    assert source.positions.tolist() == list(range(len(records)))
