"""chatmill repack: the bytes of a build with the same options, from the examples that another build kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.program import main
from support.chats import assistant, user
from support.datasets import digests, manifest_of, stopped_before_the_commit, write_jsonl
from support.laws import broken_laws
from support.paths import CHATS, TOKENIZER
from transforms.reading.reader import Dataset
from transforms.rows.parts import PART_COLUMNS as COLUMNS
from transforms.steps import keep

INPUTS = ("--input", CHATS, "--tokenizer", TOKENIZER, "--split_bytes=200000", "--validation_fraction=0.1")
OTHERS = ("--keep_columns=id", "--max_reject_fraction=1", "--direct_num_workers=1", "--ledger=all")
OF_GROWN = ("--max_length=128", "--packing=bfd", "--provenance")
COMBINATIONS = {
    "as it was": (),
    "packed, shifted, both formats": (
        *("--max_length=256", "--packing=bfd", "--shift_labels", "--output_format=parquet,tfrecord"),
    ),
    "windows with provenance": ("--max_length=64", "--truncation=windows", "--provenance"),
    "another validation split": ("--validation_fraction=0.3", "--max_length=128"),
    "no validation split, shuffled": (
        *("--validation_fraction=0", "--shuffle=global", "--seed=3", "--shards=3", "--max_length=128", "--packing=bfd"),
    ),
    "without duplicates, mixed": (
        *("--dedup=exact", "--shuffle=global", "--epochs=1.5", "--mix_tokens=9000", "--max_length=128"),
    ),
    "for a trainer": ("--for=trl", "--max_length=128", "--packing=bfd_split", "--ledger=exceptions"),
}


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("kept") / "out"
    assert run("build", *INPUTS, *OTHERS, "--keep_examples", "--output", output) == 0
    return output


def examples_of(output: Path) -> list[Path]:
    return [path for path in (output / "_chatmill/examples").rglob("*") if path.is_file()]


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
def test_repacked_dataset_is_that_of_a_build(kept, tmp_path, options):
    assert run("repack", kept, "--output", tmp_path / "repacked", "--direct_num_workers=1", *options) == 0
    assert run("build", *INPUTS, *OTHERS, "--output", tmp_path / "built", *options) == 0
    assert digests(tmp_path / "repacked") == digests(tmp_path / "built")
    assert broken_laws(tmp_path / "repacked") == []


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> tuple[Path, Path]:
    """A dataset of two increments that keep their examples, and the same with other rows."""
    folder = tmp_path_factory.mktemp("grown")
    (folder / "in").mkdir()
    options = ("--append", "--input", folder / "in", "--tokenizer", TOKENIZER, *OTHERS)
    for file in sorted(CHATS.iterdir())[:2]:
        shutil.copy(file, folder / "in")
        assert run("build", *options, "--keep_examples", "--output", folder / "kept") == 0
        assert run("build", *options, *OF_GROWN, "--output", folder / "built") == 0
    return folder / "kept", folder / "built"


def test_appended_dataset_is_repacked_as_a_build_and_appends(grown, tmp_path, capfd):
    kept, built = grown
    output = tmp_path / "repacked"
    assert run("repack", f"{kept}@1", "--output", output, *OF_GROWN, "--direct_num_workers=1") == 0
    assert len(Dataset(str(output)).snapshot.increments) == 1
    # What was appended since, or what was left by one that was stopped.
    assert run("repack", kept, "--output", output, *OF_GROWN, "--direct_num_workers=1") == 0
    assert f"{output} goes on." in capfd.readouterr().err
    assert digests(output) == digests(built)
    assert run("verify", output) == 0


# Of turns with reasoning, with calls, and of neither.
TURNS = {
    "tools": [assistant("Yes.", tool_calls=[{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}])],
    "thoughts": [assistant("<think>It is even.</think>\n\nNo."), user("And 9?"), assistant("Nor is 9.")],
}
PART_COLUMNS = f"--write_columns=input_ids,labels,{','.join(COLUMNS)}"
OF_PARTS = {
    "another part": ("--train_parts=tool_calls", "--keep_examples"),
    "parts, packed": (
        *("--train_parts=reasoning,content", "--max_length=64", "--packing=bfd"),
        *("--write_columns=input_ids,labels,seq_lengths", "--shift_labels"),
    ),
    "mixed, without duplicates": (
        *("--train_parts=content,end", "--shuffle=global", "--dedup=exact", "--max_examples=15", "--shards=2"),
    ),
    "windows": ("--train_parts=content,end", "--max_length=24", "--truncation=windows", "--output_format=tfrecord"),
}


@pytest.fixture(scope="module")
def parted(tmp_path_factory) -> tuple[Path, Any]:
    """A dataset of two sources, whose parts of turns are known, in two increments; and a function that builds the same
    with other options.
    """
    folder = tmp_path_factory.mktemp("parted")
    entries = [
        {"name": "tools", "input": [f"{folder}/tools"], "train_field": "learn"},
        {"name": "thoughts", "input": [f"{folder}/thoughts"], "train_parts": ["reasoning", "content", "end"]},
    ]
    (folder / "recipe.json").write_text(json.dumps({"sources": entries}))
    options = (folder / "recipe.json", "--tokenizer", TOKENIZER, *OTHERS)

    for source, turns in TURNS.items():
        (folder / "all" / source).mkdir(parents=True)
        for number in range(2):
            numbers = [i // 2 for i in range(20 * number, 20 * number + 20)]  # some are duplicates
            rows = [{"id": f"{i}", "messages": [user(f"Is {i} prime?"), *turns]} for i in numbers]
            write_jsonl(folder / "all" / source / f"{number}.jsonl", [*rows, {"id": "x", "messages": "none"}])

    def build(output: Path, *others: str) -> None:
        for source in TURNS:
            shutil.rmtree(folder / source, ignore_errors=True)
            (folder / source).mkdir()
        for number in range(1 if "--shuffle=global" in others else 2):  # others are not appended to
            for source in TURNS:
                shutil.copy2(folder / "all" / source / f"{number}.jsonl", folder / source)
            appends = () if "--shuffle=global" in others else ("--append",)
            assert run("build", *options, *appends, *others, "--output", output) == 0

    build(folder / "kept", PART_COLUMNS, "--keep_examples")
    return folder / "kept", build


@pytest.mark.slow
@pytest.mark.parametrize("options", OF_PARTS.values(), ids=OF_PARTS)
def test_other_parts_of_turns_are_those_of_a_build(parted, tmp_path, options):
    kept, build = parted
    columns = () if any(option.startswith("--write_columns") for option in options) else (PART_COLUMNS,)
    build(tmp_path / "built", *options, *columns)
    version = f"{kept}@1" if "--shuffle=global" in options else kept
    repacking = ("repack", version, "--output", tmp_path / "repacked", "--direct_num_workers=1", *options)
    if "--keep_examples" in options:  # once is enough
        with stopped_before_the_commit():
            assert run(*repacking) == 1
            raise RuntimeError("stopped before the commit")  # the command line has shown it
    assert run(*repacking) == 0
    assert digests(tmp_path / "repacked") == digests(tmp_path / "built")
    if "--keep_examples" in options:  # whatever is chosen of them
        of_each = [sorted(map(Path.read_bytes, examples_of(each))) for each in (kept, *tmp_path.iterdir())]
        assert of_each[0] and of_each == [of_each[0]] * 3
    assert broken_laws(tmp_path / "repacked") == []


def test_repack_that_was_stopped_goes_on_with_its_shards(kept, tmp_path, monkeypatch):
    options = ("--output", tmp_path / "out", "--max_length=64", "--direct_num_workers=1")
    with stopped_before_the_commit():
        assert run("repack", kept, *options) == 1
        raise RuntimeError("stopped before the commit")  # the command line has shown it
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/data").iterdir()}
    assert before and not (tmp_path / "out/_SUCCESS").exists()
    monkeypatch.setattr(keep, "read_examples", None)  # nothing is left to be made
    assert run("repack", kept, *options) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/data").iterdir()} == before
    assert run("verify", tmp_path / "out") == 0


def test_repacked_dataset_can_keep_its_examples(kept, tmp_path, capfd):
    output = tmp_path / "out"
    assert run("repack", kept, "--output", output, "--keep_examples", "--max_length=64", "--direct_num_workers=1") == 0
    of_kept, of_output = (sorted(file.read_bytes() for file in examples_of(each)) for each in (kept, output))
    assert len(of_kept) == 5 and of_kept == of_output
    again = run("repack", kept, "--output", output, "--keep_examples", "--max_length=64")
    assert again == 0 and "is finished already" in capfd.readouterr().err
    assert run("repack", kept, "--output", output, "--max_length=32") == 2
    assert "holds another dataset" in capfd.readouterr().err


def test_damaged_examples_are_an_error_that_names_them(kept, tmp_path, capfd):
    good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    chats = write_jsonl(tmp_path / "chats.jsonl", [good, {"messages": "none"}])
    output = tmp_path / "one"
    options = ("--input", chats, "--tokenizer", TOKENIZER, "--output", output, *OTHERS)
    assert run("build", *options, "--keep_examples") == 0
    # The build accepted its rejects.
    assert run("repack", output, "--output", tmp_path / "fine", "--max_length=64", "--direct_num_workers=1") == 0
    [file] = examples_of(output)
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    repacking = ("repack", output, "--output", tmp_path / "other", "--direct_num_workers=1")
    assert run(*repacking) == 1
    assert f"{file}: the kept examples are damaged" in capfd.readouterr().err
    file.unlink()
    file.with_name("other").write_bytes(b"")
    assert run(*repacking) == 1
    assert f"{file}: the kept examples are missing" in capfd.readouterr().err
    # A build that replaces the dataset keeps no examples; those of the replaced one go with it.
    assert run("build", *options, "--overwrite", "--expire_replaced") == 0
    assert not [*(output / "_chatmill").glob("examples/*")]


def test_validation_split_is_not_added_to_what_a_formatter_made(tmp_path, capfd):
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"text": "a"}])
    (tmp_path / "same.py").write_text("def same(record):\n    return record\n")
    formatter = ("--formatter", f"{tmp_path}/same.py:same")
    options = ("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / "out", *formatter, *OTHERS)
    assert run("build", *options, "--keep_examples") == 0
    assert run("repack", tmp_path / "out", "--output", tmp_path / "other", "--validation_fraction=0.5") == 2
    assert "--validation_fraction 0.5: with a formatter, a build with a validation split" in capfd.readouterr().err
    assert run("repack", tmp_path / "out", "--output", tmp_path / "other", "--seed=5", "--direct_num_workers=1") == 0


def test_parts_that_are_not_known_are_refused(parted, tmp_path, capfd):
    kept, _ = parted
    repacking = ("repack", kept, "--output", tmp_path / "out")
    assert run(*repacking, "--write_columns=labels") == 2
    assert f"source tools: --train_parts and the columns {','.join(COLUMNS)}" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_text_without_turns_has_no_parts_to_choose(tmp_path, capfd):
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"text": "a"}])
    options = ("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / "kept", *OTHERS, "--keep_examples")
    assert run("build", *options, PART_COLUMNS) == 0
    repacking = ("repack", tmp_path / "kept", "--output", tmp_path / "out", "--direct_num_workers=1")
    assert run(*repacking, "--train_parts=content") == 1
    assert "it has texts without turns, which a build that chooses parts of turns" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tokenizer=other",), "--tokenizer decides what the examples are"),
        (("--seed=1",), "--seed 1: OUT has the hashes for a validation split of seed 0 alone"),
        (("--seed=1", "--validation_fraction=0", "--keep_examples"), "--seed 1: OUT has the hashes for"),
        (
            ("--train_parts=content",),
            "the parts of turns, which are found when records are rendered, and OUT was built",
        ),
        (
            (PART_COLUMNS,),
            "was built without them. Build the records again, with part_lengths,part_kinds,part_messages in",
        ),
        (("--packing=bfd",), "--packing bfd: it needs a max_length"),
        (("--max_lenght=3",), "Did you mean --max_length?"),
        (("--keep_columns=x",), "--keep_columns decides what the examples are"),
    ],
)
def test_what_repack_cannot_change_is_one_line(kept, tmp_path, capfd, options, message):
    assert run("repack", kept, "--output", tmp_path / "out", *options) == 2
    error = capfd.readouterr().err
    assert message.replace("OUT", str(kept)) in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_output_that_a_build_refuses_is_refused(kept, capfd):
    assert run("repack", kept, "--output", "hf://datasets/a/b") == 2
    assert "--output hf://datasets/a/b: a build needs a disk or a bucket" in capfd.readouterr().err
    assert run("repack", kept, "--output", "s3://") == 2
    assert "--output s3://: expected the name of a bucket" in capfd.readouterr().err
    assert run("repack", kept, "--output", "memory://out") == 2
    assert "--output memory://out: memory:// is lost when the process ends" in capfd.readouterr().err


def test_dataset_without_examples_is_one_line(kept, tmp_path, capfd):
    assert run("repack", kept, "--output", tmp_path / "out", "--direct_num_workers=1") == 0
    capfd.readouterr()
    assert run("repack", tmp_path / "out", "--output", tmp_path / "again") == 2
    assert "it does not keep its examples. Build it with --keep_examples." in capfd.readouterr().err
    assert json.dumps(manifest_of(tmp_path / "out")["job"]["recipe"]).count("keep_examples") == 0
