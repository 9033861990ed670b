"""The laws that tests hold each dataset against: a row, a line or a sum that breaks one is named, signed or not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from support.datasets import read_rows, write_jsonl
from support.harms import with_values
from support.kinds import build_dataset
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms.outputs.tfrecord import encode_tfrecord


def sign(folder: Path) -> None:
    """Let manifest.json and SHA256SUMS have the sizes and the checksums of the files as they are now."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    files = [*manifest["shards"], *manifest["exceptions"]]
    for file in files:
        content = (folder / file["path"]).read_bytes()
        file |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    lines = [f"{file['sha256']}  {file['path']}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite(folder: Path, part: str, change: Callable[[pa.Table], pa.Table], number: int = 0) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    path = folder / manifest[part][number]["path"]
    pq.write_table(change(pq.read_table(path)), path)
    sign(folder)


def first_label(change: int) -> Callable[[list[int]], None]:
    def changed(labels: list[int]) -> None:
        at = next(at for at, label in enumerate(labels) if label != -100)
        labels[at] += change

    return changed


def put(value: int, at: int = 5) -> Callable[[list[Any]], Any]:
    return lambda values: values.__setitem__(at, value)


def of_values(name: str, change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, "shards", with_values(name, change))


def of_lines(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, "exceptions", with_values(name, change))


def without_a_reject(lines: pa.Table) -> pa.Table:
    at = lines["outcome"].to_pylist().index("rejected")
    return pa.concat_tables([lines.slice(0, at), lines.slice(at + 1)])


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edited(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return edited


HARMS: list[tuple[str, Callable[[Path], None], str]] = [
    ("packed", of_values("labels", first_label(1)), "row 3: a label is neither the id of its token nor -100"),
    ("packed", of_values("labels", lambda labels: [-100] * len(labels)), "row 3: no token is trained on"),
    ("packed", of_values("labels", lambda labels: labels[:-1]), "row 3: it has not as many labels as input_ids"),
    ("packed", of_values("input_ids", put(70_000)), "row 3: an id is not in the vocabulary"),
    ("packed", of_values("input_ids", put(-7)), "row 3: an id is not in the vocabulary"),
    ("packed", of_values("attention_mask", put(0)), "row 3: attention_mask is not 1"),
    ("packed", of_values("position_ids", put(7)), "row 3: position_ids do not count from 0"),
    ("packed", of_values("loss_mask", lambda mask: [1 - mask[0], *mask[1:]]), "row 3: loss_mask is not 1 where"),
    ("packed", of_values("seq_lengths", lambda of: [of[0] + 1, *of[1:]]), "row 3: its seq_lengths do not add up"),
    ("packed", of_values("seq_lengths", lambda of: [0, *of]), "row 3: an example has no token"),
    ("packed", of_values("origin_file", lambda of: of[:-1]), "row 3: it has not as many origin_file as examples"),
    ("shifted_and_packed", of_values("labels", first_label(1)), "row 3: a label is neither the id of its token nor"),
    ("packed", lambda folder: rewrite(folder, "shards", lambda rows: rows.slice(1)), "the shard has {'rows'"),
    ("packed", lambda folder: rewrite(folder, "shards", lambda rows: rows.drop_columns("labels")), "its columns are"),
    ("packed", edit(lambda manifest: manifest["layout"].update(max_length=100)), "its metadata are of another dataset"),
    ("packed", edit(lambda manifest: manifest.update(rows=1)), "the manifest has 1 rows, and its sources have others"),
    ("packed", edit(lambda manifest: manifest["records"].update(kept=1)), "records were read, and"),
    ("packed", edit(lambda manifest: manifest["notes"].update(window_rows_added=1)), "examples, and the records have"),
    ("packed", edit(lambda manifest: manifest["shards"][0].update(bytes=1)), "its size or its sha256 is not that of"),
    ("packed", lambda folder: (folder / "SHA256SUMS").write_text(""), "SHA256SUMS has []; the manifest has"),
    ("packed", lambda folder: rewrite(folder, "exceptions", without_a_reject), "the rejects have the reasons"),
    ("keep_end", of_lines("trained_tokens", lambda _: 1), "has other tokens than its line says"),
    ("keep_end", of_lines("segment", lambda _: 99), "has no segment 99"),
    ("keep_end", lambda folder: rewrite(folder, "exceptions", lambda of: pa.concat_tables([of, of])), "two lines"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "harm", "expected"), HARMS, ids=lambda of: of if isinstance(of, str) else None)
def test_each_broken_law_is_named(kind, harm, expected, tmp_path):
    folder = Path(shutil.copytree(build_dataset(kind), tmp_path / "dataset"))
    assert broken_laws(folder) == []
    harm(folder)
    found = broken_laws(folder)
    assert any(expected in law for law in found), found


@pytest.mark.slow
def test_record_in_both_splits_is_named(tmp_path):
    folder = Path(shutil.copytree(build_dataset("packed"), tmp_path / "dataset"))
    shards = json.loads((folder / "manifest.json").read_bytes())["shards"]
    [train, validation] = (
        next(number for number, shard in enumerate(shards) if shard["split"] == split and shard["format"] == "parquet")
        for split in ("train", "validation")
    )
    first = pq.read_table(folder / shards[train]["path"])
    positions = first["origin_position"][0].as_py()
    sources = first["origin_file"][0].as_py()

    def moved(rows: pa.Table) -> pa.Table:
        for name, value in (("origin_file", sources[0]), ("origin_position", positions[0])):
            rows = with_values(name, lambda of, value=value: [value, *of[1:]], row=0)(rows)
        return rows

    rewrite(folder, "shards", moved, validation)
    assert any("is in train and in validation" in law for law in broken_laws(folder))


@pytest.mark.parametrize("packing", ["none", "bfd", "bfd_split"])
def test_kept_columns_of_packed_rows_are_lists_with_a_value_for_each_example(build, tmp_path, packing):
    texts = [f"text {number}, {'at length ' * (number % 5)}" for number in range(12)]
    records = [{"text": text} | ({"id": f"r{number}"} if number % 3 else {}) for number, text in enumerate(texts)]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", records)
    options = [f"--packing={packing}", "--max_length=24", "--keep_columns=id", "--output_format=parquet,tfrecord"]
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", *options)
    assert ended.code == 0, ended.err  # the laws hold: one value for each example
    of_text = {text: record.get("id") for text, record in zip(texts, records, strict=True)}
    decode, found = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).decode, []
    for row in read_rows(tmp_path / "out"):
        lengths = row.get("seq_lengths", [len(row["input_ids"])])
        ids = row["id"] if isinstance(row["id"], list) else [row["id"]]
        for start, length, id in zip(accumulate(lengths, initial=0), lengths, ids, strict=False):
            text = decode(row["input_ids"][start : start + length])
            whole = [each for each in texts if each.startswith(text.strip()) or text.strip() in each]
            found.append(id)
            assert id in {of_text[each] for each in whole}, (text, id)
    assert {*found} == {*of_text.values()}


def test_value_that_is_null_is_an_empty_text_in_a_list_of_tfrecord():
    encoded = [
        encode_tfrecord(pa.table({"id": pa.array([ids], pa.list_(pa.string()))})) for ids in (["a", None], ["a", ""])
    ]
    assert encoded[0] == encoded[1]
