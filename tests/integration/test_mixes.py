"""Mixes of sources: their shares, their epochs, and where copies are."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import assert_statistics_add_up, read_manifest, read_rows, write_jsonl
from support.paths import TOKENIZER

SIZES = {"short": 400, "long": 100, "few": 20, "ten": 10, "twenty": 20}
WORDS = {"short": 3, "long": 60, "few": 9}
# Each record of these has twice as many trained tokens, and 4 more.
SAME = {"ten": 48, "twenty": 3}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name, size in SIZES.items():
        words = ["word " * (SAME[name] if name in SAME else WORDS[name] * (1 + i % 5)) for i in range(size)]
        chats = ([user(f"{name} {i}?"), assistant(text)] for i, text in enumerate(words))
        write_jsonl(folder / f"{name}.jsonl", [{"id": f"{name}-{i}", "messages": chat} for i, chat in enumerate(chats)])
    (folder / "formatter.py").write_text("def twice(record):\n    return [record, record]\n")
    return folder


def build(sources: Path, output: Path, of_sources: dict[str, dict[str, Any]], *options: object) -> int:
    entries = [{"name": name, "input": [f"{sources}/{name}.jsonl"], **own} for name, own in of_sources.items()]
    recipe = output.parent / f"{output.name}.yaml"
    recipe.write_text(json.dumps({"shuffle": "global", "sources": entries}).replace("FOLDER", str(sources)))
    common = ("--tokenizer", TOKENIZER, "--split_bytes=9000", "--keep_columns=id", "--direct_num_workers=1")
    return chatmill("build", recipe, *common, "--output", output, *options)


def count_copies(output: Path) -> dict[str, Counter[str]]:
    """How often each record of each source is in a dataset that is not packed."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in read_rows(output):
        found[row["id"].partition("-")[0]][row["id"]] += 1
    return found


def test_epochs_are_exact_and_copies_are_in_other_shards(sources, tmp_path):
    output = tmp_path / "out"
    mix = {"short": {"epochs": 0.3}, "long": {"epochs": 1.5}, "few": {"epochs": 2.5}}
    assert build(sources, output, mix) == 0
    copies = count_copies(output)
    assert Counter(copies["short"].values()) == {1: 120}
    assert Counter(copies["long"].values()) == {1: 50, 2: 50}
    assert Counter(copies["few"].values()) == {2: 10, 3: 10}
    manifest = read_manifest(output)
    assert manifest["records"]["kept"] == 240 and manifest["records"]["dropped"] == {"not_in_mix": 280}
    assert manifest["notes"]["copies_added"] == 80
    assert [source["rows"] for source in manifest["sources"]] == [120, 150, 50]
    assert [source["records"]["kept"] for source in manifest["sources"]] == [120, 100, 20]
    assert_statistics_add_up(manifest)
    shards: dict[str, list[str]] = defaultdict(list)
    for shard in manifest["shards"]:
        for id in pq.read_table(output / shard["path"], columns=["id"])["id"].to_pylist():
            shards[id].append(shard["path"])
    assert all(len({*of_record}) == len(of_record) for of_record in shards.values())
    # Which records are taken has nothing to do with where they are.
    of_short = {path for id, of_record in shards.items() if id.startswith("short") for path in of_record}
    assert len(of_short) > 0.9 * len(manifest["shards"])


@pytest.mark.parametrize(
    ("ten", "twenty", "options", "rows"),
    [
        ({"epochs": 0.3}, {"epochs": 0.99}, (), (3, 20)),  # 19.8 are 20
        ({"max_examples": 4, "epochs": 1.5}, {"max_examples": 99}, (), (6, 20)),
        ({"max_tokens": 350}, {}, (), (3, 20)),
        ({"epochs": 1}, {"epochs": 2.5}, (), (10, 50)),
        # Without mix_tokens the source that has the fewest for its weight is used whole.
        ({"weight": 1}, {"weight": 1}, (), (2, 20)),
        ({"weight": 1}, {"weight": 1, "epochs": 2.5}, (), (5, 50)),
        ({"weight": 1}, {"weight": 1}, ("--mix_by=examples",), (10, 10)),
        ({"weight": 1, "max_tokens": 100}, {"weight": 1}, (), (1, 10)),
        ({"weight": 1, "max_examples": 1}, {"weight": 1}, (), (1, 10)),
        ({"weight": 1}, {"weight": 3}, ("--mix_tokens=800",), (2, 60)),
        ({}, {}, ("--mix_tokens=600",), (5, 10)),
        # Of a record of two examples both count.
        ({"max_tokens": 499, "formatter": "FOLDER/formatter.py:twice"}, {"max_examples": 4}, (), (4, 4)),
    ],
)
def test_what_each_source_has(sources, tmp_path, ten, twenty, options, rows):
    mix = {"ten": ten, "twenty": twenty}
    assert build(sources, tmp_path / "out", mix, *options) == 0
    found = read_manifest(tmp_path / "out")["sources"]
    assert [(of["rows"], of["trained_tokens"]) for of in found] == [(rows[0], 100 * rows[0]), (rows[1], 10 * rows[1])]


def test_a_sample_is_of_any_records_as_the_seed_says(sources, tmp_path):
    samples = []
    for seed in (0, 2):
        output, mix = tmp_path / str(seed), {"ten": {"max_examples": 2}, "few": {"epochs": 0.1}}
        assert build(sources, output, mix, f"--seed={seed}") == 0
        samples.append({name: sorted(found) for name, found in count_copies(output).items()})
    assert samples == [
        {"ten": ["ten-1", "ten-7"], "few": ["few-1", "few-11"]},
        {"ten": ["ten-0", "ten-2"], "few": ["few-12", "few-16"]},
    ]


@pytest.mark.slow
def test_source_may_have_many_small_files_and_many_copies(tmp_path):
    """A shard has a block of each copy: with 130 copies of 4,096 files, 532,480 files."""
    (tmp_path / "many").mkdir()
    for number in range(4095):
        (tmp_path / "many" / f"{number:04d}.jsonl").write_text("\n")
    chats = [{"messages": [user("many?"), assistant(f"word {number}")]} for number in range(900)]
    last = write_jsonl(tmp_path / "many" / "9999.jsonl", chats)
    options = ("--shuffle=global", "--epochs=130", "--provenance", "--direct_num_workers=1", "--tokenizer", TOKENIZER)
    assert chatmill("build", "--input", tmp_path / "many", *options, "--output", tmp_path / "out") == 0
    rows = read_rows(tmp_path / "out")
    assert len(rows) == 900 * 130 and {row["origin_file"] for row in rows} == {str(last)}


def test_shares_are_those_of_trained_tokens(sources, tmp_path):
    weights = {"short": {"weight": 2}, "long": {"weight": 5}, "few": {"weight": 3, "epochs": 9.5}}
    packed = ("--packing=bfd", "--max_length=4096", "--mix_tokens=20000")
    assert build(sources, tmp_path / "one", weights, *packed) == 0
    manifest = read_manifest(tmp_path / "one")
    tokens = [source["trained_tokens"] for source in manifest["sources"]]
    # In whole examples: each source is off by half of its longest one at most, in either direction.
    for found, wanted, longest in zip(tokens, (4000, 10000, 6000), (34, 604, 94), strict=True):
        assert abs(found - wanted) <= longest / 2
    assert [round(of / sum(tokens), 2) for of in tokens] == [0.2, 0.5, 0.3]
    card, page = ((tmp_path / "one" / name).read_text() for name in ("README.md", "report.html"))
    shares = [f"{of / sum(tokens):.2%} of trained tokens" for of in tokens]
    asked = [f"weight {of} ({of}0.00% of trained tokens)" for of in (2, 5, 3)]
    asked[2] += ", epochs 9.5"
    for words, share in zip(asked, shares, strict=True):
        assert f"| {words} | {share} |" in card
        assert f'<td class="n">{words}</td><td class="n">{share}</td>' in page


def test_copies_of_which_no_label_is_left_are_not_in_the_dataset(tmp_path):
    chats = ([user(f"{number} " * words), assistant("word " * 9)] for number, words in enumerate([3, 300] * 5))
    write_jsonl(tmp_path / "long.jsonl", [{"messages": chat} for chat in chats])
    assert build(tmp_path, tmp_path / "out", {"long": {"epochs": 3}}, "--max_length=64", "--packing=bfd") == 0
    manifest = read_manifest(tmp_path / "out")
    assert (manifest["records"]["kept"], manifest["records"]["dropped"]) == (5, {"no_trained_tokens_left": 5})
    assert manifest["notes"]["copies_added"] == 10
    assert manifest["notes"]["records_that_lost_trained_tokens"] == 5
    assert_statistics_add_up(manifest)


@pytest.mark.parametrize(
    ("more", "options", "error"),
    [
        ({"max_examples": 3}, (), "the source silent has no record that is trained on, so it cannot have its share."),
        (
            {"max_tokens": 100},
            ("--mix_tokens=2000",),
            "the source ten is to have 1,000 trained tokens, more than its max_tokens 100. Give it a smaller weight, "
            "or fewer mix_tokens.",
        ),
    ],
)
def test_share_that_cannot_be_met_is_an_error_in_one_line(sources, tmp_path, capfd, more, options, error):
    other = "silent" if "max_examples" in more else "twenty"
    write_jsonl(sources / "silent.jsonl", [{"messages": [user("hm?")]}])
    mix = {"ten": {"weight": 1, **more}, other: {"weight": 1}}
    assert build(sources, tmp_path / "out", mix, *options) == 1
    assert capfd.readouterr().err == f"chatmill: {error}\n"


def test_duplicates_do_not_count_for_the_mix(sources, tmp_path):
    again = {"short": {}, "few": {}, "long": {"epochs": 0.5}, "more": {"epochs": 2}}
    shutil.copy(sources / "few.jsonl", sources / "more.jsonl")
    assert build(sources, tmp_path / "out", again, "--dedup=exact") == 0
    manifest = read_manifest(tmp_path / "out")
    assert manifest["records"]["dropped"] == {"duplicate": 20, "not_in_mix": 50}
    assert [source["rows"] for source in manifest["sources"]] == [400, 20, 50, 0]


def test_more_copies_than_shards_is_an_error_that_says_how_many_are_needed(sources, tmp_path, capfd):
    assert build(sources, tmp_path / "out", {"few": {"epochs": 3}}, "--shards=2") == 2
    error = capfd.readouterr().err
    assert "there are 3 copies of some records" in error and "Give --shards 3." in error and error.count("\n") == 1
    # How many copies a number of tokens takes shows only when the tokens are counted.
    assert build(sources, tmp_path / "out", {"few": {}}, "--shards=2", "--mix_tokens=5000") == 1
    assert capfd.readouterr().err == (
        "chatmill: the mix has 5 copies of some records, and no shard may have two of them, which takes at least 5 "
        "shards. Give --shards 5.\n"
    )
    assert build(sources, tmp_path / "many", {"few": {"epochs": 20}}) == 0
    assert read_manifest(tmp_path / "many")["rows"] == 400


def test_validation_records_are_in_their_split_once_whatever_the_mix(sources, tmp_path):
    shutil.copy(sources / "few.jsonl", sources / "more.jsonl")
    mix = {"short": {"epochs": 0.3}, "long": {"epochs": 3}, "few": {"max_examples": 5}, "more": {}}
    options = ("--validation_fraction=0.2", "--seed=5", "--dedup=exact")
    assert build(sources, tmp_path / "plain", {name: {} for name in mix}, *options) == 0
    assert build(sources, tmp_path / "out", mix, *options) == 0
    validation = [Counter(row["id"] for row in read_rows(tmp_path / name, "validation")) for name in ("plain", "out")]
    assert validation[0] == validation[1] and {*validation[1].values()} == {1} and len(validation[1]) > 60
    train = count_copies(tmp_path / "out")
    in_training = {name: size - sum(id.startswith(name) for id in validation[1]) for name, size in SIZES.items()}
    expected = {"short": round(0.3 * in_training["short"]), "long": 3 * in_training["long"], "few": 5}
    assert {name: sum(of.values()) for name, of in train.items()} == expected
