"""--dedup near: records that say nearly the same as an earlier one are dropped, and no others."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.program import main
from support.datasets import assert_statistics_add_up, digests, ledger_of, manifest_of, write_jsonl
from support.paths import TOKENIZER
from transforms.contamination.words import normalized
from transforms.exchange import duplicates, near

OTHER = "zebra"  # a word that no chat has


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


def chat(name: str, *contents: str) -> dict[str, Any]:
    turns = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(contents)]
    return {"id": name, "messages": [{"role": "system", "content": "You are kind. " * 9}, *turns]}


def texts_of(record: dict[str, Any]) -> list[str]:
    return [message["content"] for message in record["messages"][1:]]


def changed(text: str, places: list[int]) -> str:
    words = text.split()
    return " ".join(OTHER if at in places else word for at, word in enumerate(words))


def planted(number: int, record: dict[str, Any]) -> dict[str, Any]:
    """A record that is nearly the same; of a number in twelve, one that is not."""
    asked, answered, *more = texts_of(record)
    match number % 12:
        case 0:
            contents = (asked, answered, *more)  # the same tokens
        case 1:
            contents = (f"  {asked.upper()}!", f"«{answered.replace(' ', ' … ')}»", *more)
        case 2:
            contents = (changed(asked, [20]), answered, *more)
        case 3:
            contents = (asked, changed(answered, [0, 40]), *more)
        case 4:
            contents = (asked, f"{answered} I hope that this helps.", *more)
        case 5:
            contents = (f"Hello. {asked}", changed(answered, [7]), *more)
        case 6:  # another question about the same
            contents = (asked, f"{OTHER} {OTHER}", *more)
        case 7:  # the same answer to others
            contents = (f"{OTHER} {OTHER}", answered, *more)
        case 8:
            contents = (changed(asked, [0, 8, 16, 24, 32, 40, 48, 56]), answered, *more)
        case 9:
            contents = (f"{asked} {answered}", "", *more)
        case _:
            contents = (f"{OTHER} {asked[::-1]}", answered[::-1], *more)
    return chat(f"{record['id']}-{number % 12}", *contents)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    """Two sources: chats, and others that are nearly the same as some of both."""
    folder, draw = tmp_path_factory.mktemp("sources"), random.Random(5)
    vocabulary = ["".join(draw.choices("aeioubcdfglmnprst", k=draw.randint(2, 8))) for _ in range(900)]

    def text(count: int) -> str:
        return " ".join(draw.choices(vocabulary, k=count))

    chats = [chat(f"{number}", text(60), text(60)) for number in range(48)]
    chats.append(chat("short", "Hi!", "Hello."))
    chats.append(chat("han", "你知道广化寺吗？" + "附近还有啥景点吗？" * 3, "天安门广场就在附近。"))
    second = [planted(number, record) for number, record in enumerate(chats[:48])]
    # A chain, of which each is similar to the one before, and the third one not to the first.
    question, answer = text(60), text(60)
    chain = [chat(f"chain {end}", question, changed(answer, list(range(0, end, 6)))) for end in (0, 7, 13)]
    more = [
        chat("short too", "HI", "hello"),
        chat("han too", *(each.replace("？", " ?") for each in texts_of(chats[-1]))),
    ]
    write_jsonl(folder / "first.jsonl", chats)
    write_jsonl(folder / "second.jsonl", [*second, *chain, *more, {"input_ids": [1, 2], "labels": [1, 2]}])
    path = folder / "recipe.yaml"
    entries = [{"name": name, "input": [f"{folder}/{name}.jsonl"]} for name in ("first", "second")]
    path.write_text(json.dumps({"sources": entries}))
    return path


def build(recipe: Path, output: Path, *options: object, workers: int = 1) -> Path:
    others = ("--tokenizer", TOKENIZER, "--split_bytes=20000", "--ledger=all", f"--direct_num_workers={workers}")
    assert run("build", recipe, *others, "--unprinted=report", "--output", output, *options) == 0
    return output


@pytest.fixture(scope="module")
def built(recipe, tmp_path_factory) -> Path:
    return build(recipe, tmp_path_factory.mktemp("built") / "out", "--dedup=near")


def records_of(recipe: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """All records with messages, by their url and position, in the order of the input."""
    found = {}
    for name in ("first", "second"):
        path, at = recipe.parent / f"{name}.jsonl", 0
        for line in path.read_bytes().splitlines(keepends=True):
            if b"messages" in line:
                found[str(path), at] = json.loads(line)
            at += len(line)
    return found


def similarity(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The lower of the Jaccard similarities of the runs of five words of users, and of assistants."""
    found = []
    for role in ("user", "assistant"):
        sets = []
        for record in (one, other):
            texts = [message["content"] for message in record["messages"] if message["role"] == role]
            words = normalized("\n".join(texts)).split()
            sets.append({tuple(words[at : at + 5]) for at in range(max(len(words) - 4, 1))})
        found.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    return min(found)


def test_records_that_are_similar_to_an_earlier_one_are_dropped_and_no_others(recipe, built):
    records, kept, expected = records_of(recipe), [], {}
    for place, record in records.items():
        same = [other for other in kept if texts_of(records[other]) == texts_of(record)]
        similar = [(similarity(record, records[other]), other) for other in kept]
        found, other = max(similar, key=lambda each: each[0], default=(0.0, place))
        if same:
            expected[place] = ("duplicate", f"of {same[0][0]}:{same[0][1]}")
        elif found >= 0.8:
            expected[place] = ("near_duplicate", f"of {other[0]}:{other[1]}, similarity {found:.3f}")
        else:
            kept.append(place)
    lines = [line for line in ledger_of(built) if line["outcome"] == "dropped"]
    assert {(each["source"], each["position"]): (each["reason"], each["detail"]) for each in lines} == expected
    # What was planted is what is found.
    dropped = Counter(records[place]["id"].rpartition("-")[2] for place in expected)
    chain_and_short = {"chain 7": 1, "short too": 1, "han too": 1}
    assert dropped == {**{f"{kind}": 4 for kind in range(6)}, **chain_and_short}
    manifest = manifest_of(built)
    assert manifest["records"] == {
        "read": len(records) + 1,
        "kept": len(records) + 1 - len(expected),
        "truncated": 0,
        "dropped": {"duplicate": 4, "near_duplicate": 23},
        "rejected": {},
    }
    assert manifest["statistics"]["duplicates"] == {"1 of 0": 26, "1 of 1": 1}
    assert manifest["notes"]["not_compared_with_others"] == 1
    assert_statistics_add_up(manifest)
    assert run("verify", built, "--replay=1") == 0


@pytest.mark.slow
def test_similarity_decides_how_much_is_dropped(recipe, tmp_path):
    few = build(recipe, tmp_path / "few", "--dedup=near", "--near_similarity=1")
    assert manifest_of(few)["records"]["dropped"] == {"duplicate": 4, "near_duplicate": 6}  # other case, spaces, marks
    many = build(recipe, tmp_path / "many", "--dedup=near", "--near_similarity=0.5")
    records = list(records_of(recipe).values())
    similar = {two["id"] for one, two in combinations(records, 2) if similarity(one, two) >= 0.5}
    dropped = manifest_of(many)["records"]["dropped"]
    assert sum(dropped.values()) == len(similar) > 27


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers_or_on_how_many_judges_there_are(recipe, built, tmp_path, monkeypatch):
    assert digests(build(recipe, tmp_path / "two", "--dedup=near", workers=2)) == digests(built)
    monkeypatch.setattr(near, "_ENTRIES_OF_JUDGE", 100)
    monkeypatch.setattr(near, "_SHINGLES_AT_ONCE", 300)
    monkeypatch.setattr(duplicates, "_RECORDS_OF_JUDGE", 9)
    assert digests(build(recipe, tmp_path / "many", "--dedup=near")) == digests(built)


@pytest.mark.slow
def test_shuffled_mix_with_a_validation_split_has_the_same_records(recipe, built, tmp_path):
    options = ("--dedup=near", "--shuffle=global", "--epochs=2", "--validation_fraction=0.2")
    mixed = build(recipe, tmp_path / "mixed", *options, "--max_length=1024", "--packing=bfd")
    records = manifest_of(mixed)["records"]
    assert records["dropped"] == manifest_of(built)["records"]["dropped"]
    assert manifest_of(mixed)["notes"]["copies_added"] == records["kept"] + records["truncated"]
    assert manifest_of(mixed)["sources"][1]["records"]["dropped"] == records["dropped"]
    assert run("verify", mixed, "--replay=1") == 0


@pytest.mark.slow
def test_repack_finds_the_same_and_needs_the_words_that_the_build_kept(recipe, tmp_path, capfd):
    kept = build(recipe, tmp_path / "kept", "--dedup=near", "--keep_examples")
    others = ("--near_similarity=0.9", "--max_length=256", "--packing=bfd")
    assert run("repack", kept, "--output", tmp_path / "repacked", "--direct_num_workers=1", *others) == 0
    assert digests(tmp_path / "repacked") == digests(build(recipe, tmp_path / "built", "--dedup=near", *others))
    assert run("repack", kept, "--output", tmp_path / "exact", "--dedup=exact") == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert "--dedup exact: near looks at the words of records" in error and "--dedup near. Build" in error


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--append", "--dedup=near"), "--dedup near: an append does not compare what records say"),
        (("--near_similarity=0.9",), "--near_similarity 0.9: it needs dedup near."),
        (("--dedup=near", "--near_similarity=0.4"), "--near_similarity 0.4: expected 0.5 to 1."),
    ],
)
def test_options_that_cannot_be_met_are_refused(recipe, tmp_path, capfd, options, problem):
    common = ("--input", recipe.parent / "first.jsonl", "--tokenizer", TOKENIZER, "--output", tmp_path / "out")
    assert run("build", *common, *options) == 2
    error = capfd.readouterr().err
    assert problem in error and error.count("\n") == 1
