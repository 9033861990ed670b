"""The plan: which files are read, and the order in which workers get the splits."""

from __future__ import annotations

import gzip
import random

import pytest

from pipeline.plan import InputFile, largest_first, list_inputs, splits_of

KILO, MEGA = 1 << 10, 1 << 20
CORPORA = {
    "a big file among small ones": [2 * KILO] * 20 + [90 * MEGA] + [3 * KILO] * 20,
    "big and small ones by turns": [4 * MEGA, KILO] * 12,
    "a last file that is the largest": [*range(50 * KILO, 150 * KILO, KILO), 4 * MEGA],
    "one file": [33 * MEGA],
}


@pytest.mark.parametrize("sizes", CORPORA.values(), ids=CORPORA)
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_no_worker_is_idle_for_longer_than_the_largest_split_takes(sizes, workers):
    files = [InputFile(f"/{i}.jsonl", "jsonl", None, size, "") for i, size in enumerate(sizes)]
    splits = largest_first(splits_of(files, 4 * MEGA))
    largest = max(split.stop - split.start for split in splits)
    # Dealt out in turn, as by Beam's local runner.
    dealt = [sum(split.stop - split.start for split in splits[worker::workers]) for worker in range(workers)]
    assert max(dealt) - min(dealt) <= largest
    # Taken by whoever is free.
    busy = [0] * workers
    for split in splits:
        busy[busy.index(min(busy))] += split.stop - split.start
    assert max(busy) - min(busy) <= largest


def test_splits_keep_their_numbers_in_another_order():
    sizes = random.Random(1).choices(range(1, 9 * MEGA), k=50)
    files = [InputFile(f"/{i}.jsonl", "jsonl", None, size, "") for i, size in enumerate(sizes)]
    planned = list(splits_of(files, MEGA))
    assert [split.number for split in planned] == list(range(len(planned)))
    ordered = largest_first(planned)
    assert ordered != planned
    assert sorted(ordered, key=lambda split: split.number) == planned


def test_compressed_file_comes_before_larger_ones_that_are_cut():
    files = [InputFile("/a.jsonl", "jsonl", None, 4 * MEGA, ""), InputFile("/b.jsonl.gz", "jsonl", "gzip", MEGA, "")]
    assert [split.url for split in largest_first(splits_of(files, 4 * MEGA))] == ["/b.jsonl.gz", "/a.jsonl"]


def test_what_a_folder_holds_besides_records_is_left_out_and_told(tmp_path, capsys):
    (tmp_path / "below").mkdir()
    records = ["a.jsonl", "below/b.json.gz"]
    for name in [*records, ".hidden.csv", "_part.csv", "dataset_infos.json", "c.csv", "below/d", "e.zip"]:
        (tmp_path / name).write_bytes(gzip.compress(b"[]") if name.endswith(".gz") else b"{}")
    found = list_inputs([str(tmp_path)], "auto")
    assert [file.url for file in found] == [str(tmp_path / name) for name in records]
    assert "by its name (3): below/d, c.csv, e.zip. To" in capsys.readouterr().err
    list_inputs([str(tmp_path / "a.jsonl")], "auto")
    assert capsys.readouterr().err == ""
