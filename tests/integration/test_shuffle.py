"""--shuffle global: examples of all sources in a pseudo-random order, the same on any runner and at any parallelism."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import digests, read_manifest, read_rows, stopped_before_the_commit, work_in, write_jsonl
from support.harms import flip_a_bit
from support.paths import TOKENIZER
from transforms import Dataset, Task

OPTIONS = ("--tokenizer", TOKENIZER, "--shuffle=global", "--split_bytes=4000", "--max_reject_fraction=0.5")
OPTIONS += ("--direct_num_workers=1",)
OTHERS = ("--keep_columns=id", "--provenance", "--validation_fraction=0.1")
EACH = 150
SOURCES = ("chats", "questions", "notes")


def chat(number: int, topic: str) -> dict[str, Any]:
    messages = [user(f"{topic} number {number}?"), assistant(f"{topic}: " + "word " * (number % 7))]
    return {"id": f"{topic}-{number}", "messages": messages}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    """Three sources: chats, some of which are rejected or dropped; completions with an option of their own; texts."""
    folder = tmp_path_factory.mktemp("sources")
    chats = [chat(number, "chat") for number in range(EACH)]
    chats[7] = {"id": "bad", "messages": "none"}
    del chats[9]["messages"][1]  # nothing to train on
    write_jsonl(folder / "chats.jsonl", chats)
    questions = [{"id": f"question-{i}", "prompt": f"question {i}", "completion": "yes"} for i in range(EACH)]
    write_jsonl(folder / "questions.jsonl", questions)
    write_jsonl(folder / "notes.jsonl", [{"id": f"note-{i}", "text": f"note {i} " * (1 + i % 9)} for i in range(EACH)])
    entries: list[dict[str, Any]] = [{"name": name, "input": [str(folder / f"{name}.jsonl")]} for name in SOURCES]
    entries[1]["as_chat"] = True
    (folder / "recipe.yaml").write_text(json.dumps({"sources": entries}))
    return folder / "recipe.yaml"


@pytest.fixture(scope="module")
def built(recipe, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("built") / "out"
    assert chatmill("build", recipe, *OPTIONS, *OTHERS, "--output", output) == 0
    return output


def test_a_file_of_examples_that_is_damaged_or_lost_is_an_error_that_says_what_to_do(
    recipe, tmp_path, capfd, monkeypatch
):
    """A disk that fails as soon as a file is written: later, such a task is done again."""
    replace, command = os.replace, ("build", recipe, *OPTIONS, "--output", tmp_path / "out")
    for harm, error in (
        (flip_a_bit, "the examples are damaged: they are not as they were written. Build it again."),
        (Path.unlink, "examples that were sent are missing. Run the same command again."),
    ):

        def replace_and_harm(source: str, target: str, harm: Any = harm) -> None:
            replace(source, target)
            if "/sent/" in target:
                harm(Path(target))

        monkeypatch.setattr(os, "replace", replace_and_harm)
        assert chatmill(*command) == 1
        assert capfd.readouterr().err.splitlines()[-1].endswith(error)
    monkeypatch.setattr(os, "replace", replace)
    assert chatmill(*command) == 0


def test_rows_know_where_they_are_from(built):
    rows = read_rows(built)
    contents = {file: Path(file).read_bytes() for file in {row["origin_file"] for row in rows}}
    for row in rows:
        line = contents[row["origin_file"]][row["origin_position"] :].partition(b"\n")[0]
        assert json.loads(line)["id"] == row["id"]


def test_order_depends_on_the_seed_alone(recipe, built, tmp_path):
    """Of some 404 rows, neighbours of one source are a third, 134, with a deviation of 9. The order of a seed stays."""
    assert [row["id"] for row in read_rows(built)][:4] == ["note-67", "note-128", "question-82", "question-3"]
    other = tmp_path / "other"
    assert chatmill("build", recipe, *OPTIONS, "--keep_columns=id", "--output", other, "--seed=1") == 0
    order, other_order = ([row["id"] for row in read_rows(each)] for each in (built, other))
    assert [each for each in other_order if each in {*order}] != order
    kinds = [each.partition("-")[0] for each in order]
    assert 90 < sum(one == other for one, other in itertools.pairwise(kinds)) < 180


FORMATTER = """
def turns(record):
    roles = ("user", "assistant")
    return [{"messages": [{"role": role, "content": text} for role in roles]} for text in record["texts"]]
"""


def test_shuffled_rows_are_those_of_the_files_with_all_their_columns(recipe, tmp_path):
    """Some sources have parts of turns, and some records have several examples, which follow each other."""
    (tmp_path / "formatters.py").write_text(FORMATTER)
    texts = [{"id": str(number), "texts": [f"{number} {part}" for part in range(number % 4)]} for number in range(60)]
    write_jsonl(tmp_path / "texts.jsonl", texts)
    entries = json.loads(recipe.read_text())["sources"]
    own = {"input": [f"{tmp_path}/texts.jsonl"], "formatter": f"{tmp_path}/formatters.py:turns"}
    entries.append({"name": "texts", **own})
    (tmp_path / "recipe.yaml").write_text(json.dumps({"sources": entries}))
    columns = "--write_columns=input_ids,labels,part_lengths,part_kinds,part_messages"
    found = {}
    for order in ("none", "global"):
        options = [*(each for each in OPTIONS if each != "--shuffle=global"), *OTHERS, columns, f"--shuffle={order}"]
        assert chatmill("build", tmp_path / "recipe.yaml", *options, "--output", tmp_path / order) == 0
        found[order] = [read_rows(tmp_path / order, split) for split in ("train", "validation")]
    for plain, shuffled in zip(found["none"], found["global"], strict=True):
        assert Counter(map(str, shuffled)) == Counter(map(str, plain)) and shuffled != plain
    of_texts = [row["id"] for row in found["global"][0] if row["id"].isdigit()]
    in_turn = [(id, len([*of])) for id, of in itertools.groupby(of_texts)]
    assert len(in_turn) > 30 and all(count == int(id) % 4 for id, count in in_turn)


def test_packed_rows_have_examples_of_all_sources_in_as_many_shards_as_asked(recipe, tmp_path):
    output = tmp_path / "out"
    packed = ("--packing=bfd", "--max_length=256", "--shards=2", "--keep_columns=id")
    assert chatmill("build", recipe, *OPTIONS, *packed, "--output", output) == 0
    manifest = read_manifest(output)
    assert len(manifest["shards"]) == 2
    kinds = [{id.partition("-")[0] for id in row["id"]} for row in read_rows(output)]
    assert sum(len(of_row) > 1 for of_row in kinds) > 0.6 * manifest["rows"]
    assert next(iter(Dataset(str(output)).rows("train", ["input_ids"])))


@pytest.mark.slow
def test_each_bucket_has_all_that_was_sent_to_it_and_the_list_of_its_own_records_alone(tmp_path):
    """Some 60 tasks send to 60 buckets, and each record is there twice: some 5,000 blocks with a record or two each."""
    records = 3600
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"id": str(n), "text": f"note {n}"} for n in range(records)])
    common = ("build", "--input", corpus, "--tokenizer", TOKENIZER, "--keep_columns=id", "--split_bytes=2000")
    common += ("--direct_num_workers=1", "--report=none")
    assert chatmill(*common, "--output", tmp_path / "plain") == 0
    shuffled = (*common, "--shuffle=global", "--epochs=2", "--output", tmp_path / "out")
    with stopped_before_the_commit():
        assert chatmill(*shuffled) == 1
        raise RuntimeError("stopped before the commit")  # the command line has shown it
    lists = [
        pa.ipc.open_stream(path.read_bytes()).read_all() for path in (work_in(tmp_path / "out") / "selected").iterdir()
    ]
    assert len(lists) > 50 and sum(map(len, lists)) == 2 * records
    assert chatmill(*shuffled) == 0
    plain, found = read_manifest(tmp_path / "plain"), read_manifest(tmp_path / "out")
    assert Counter(row["id"] for row in read_rows(tmp_path / "out")) == dict.fromkeys(map(str, range(records)), 2)
    assert all(found[name] == 2 * plain[name] for name in ("rows", "tokens", "trained_tokens"))


def _noted(element: Any, path: str) -> Any:
    """Write down the size of what a runner passes on for a bucket."""
    if isinstance(element, tuple) and isinstance(element[0], Task) and not element[0].slices:
        with open(path, "a") as file:
            file.write(f"{len(pickle.dumps(element))}\n")
    return element


@pytest.mark.slow
def test_what_a_runner_passes_on_for_a_bucket_does_not_grow_with_the_number_of_files(tmp_path, monkeypatch):
    reshuffle, sizes = beam.Reshuffle, {}

    class Noting(beam.PTransform):
        def expand(self, elements: beam.PCollection) -> beam.PCollection:
            note = beam.Map(_noted, str(tmp_path / "sizes")).with_output_types(elements.element_type)
            return elements | note | reshuffle()

    monkeypatch.setattr(beam, "Reshuffle", Noting)
    for files in (200, 2000):
        for number in range(files):
            path = tmp_path / f"in {files}" / f"{number:05}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'{{"text": "note {number}"}}\n')
        options = ("--tokenizer", TOKENIZER, "--shuffle=global", "--dedup=exact", "--shards=3", "--report=none")
        options += ("--direct_num_workers=1", "--output", tmp_path / f"out {files}")
        assert chatmill("build", "--input", tmp_path / f"in {files}", *options) == 0
        sizes[files] = [*map(int, (tmp_path / "sizes").read_text().split())]
        (tmp_path / "sizes").unlink()
    assert len(sizes[200]) == len(sizes[2000]) == 3
    assert max(sizes[2000]) <= max(sizes[200]) < 1000


@pytest.mark.slow
def test_tasks_of_a_large_plan_exchange_in_groups_that_have_a_share_of_each_source(recipe, tmp_path):
    """Some 300 tasks, in two groups, each for two of four shards."""
    options = ("--tokenizer", TOKENIZER, "--shuffle=global", "--split_bytes=150", "--shards=4", "--keep_columns=id")
    assert chatmill("build", recipe, *options, "--max_reject_fraction=0.5", "--output", tmp_path / "out") == 0
    assert len(read_rows(tmp_path / "out")) == 3 * EACH - 2
    for shard in read_manifest(tmp_path / "out")["shards"]:
        ids = pq.read_table(tmp_path / "out" / shard["path"], columns=["id"])["id"].to_pylist()
        kinds = Counter(id.partition("-")[0] for id in ids)
        assert len(kinds) == 3 and min(kinds.values()) > 20, kinds


def test_stopped_build_reads_nothing_again(recipe, built, tmp_path):
    """It goes on with what was sent and written: what the inputs say now, of the same size and time, is not seen."""
    output, notes = tmp_path / "out", recipe.parent / "notes.jsonl"
    command = ("build", recipe, *OPTIONS, *OTHERS, "--output", output)
    with stopped_before_the_commit():
        assert chatmill(*command) == 1
        raise RuntimeError("stopped before the commit")  # the command line has shown it
    min((output / "data").iterdir()).write_bytes(b"damaged")
    content, status = notes.read_bytes(), notes.stat()
    try:
        notes.write_bytes(content.replace(b"note ", b"tone "))
        os.utime(notes, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert chatmill(*command) == 0
    finally:
        notes.write_bytes(content)
        os.utime(notes, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests(output) == digests(built)


def test_what_is_appended_is_shuffled_on_its_own(recipe, tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    command = ("build", *OPTIONS, "--input", folder, "--output", output, "--keep_columns=id")
    for name in ("a", "b"):
        write_jsonl(folder / f"{name}.jsonl", [chat(number, name) for number in range(40)])
        assert chatmill(*command, "--append") == 0
    ids = [row["id"] for row in read_rows(output)]
    assert sorted(ids) == sorted(f"{name}-{i}" for name in "ab" for i in range(40))
    assert {each[0] for each in ids[:40]} == {"a"} and {each[0] for each in ids[40:]} == {"b"}
    assert ids[:40] != sorted(ids[:40], key=lambda each: int(each[2:]))
