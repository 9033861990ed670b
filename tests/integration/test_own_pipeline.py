"""Custom pipelines: the example of docs/api.md, run twice without changes; resumed; refused."""

from __future__ import annotations

import fcntl
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import apache_beam as beam
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.datasets import assert_statistics_add_up, digests, manifest_of, rows_of, stopped_before_the_commit, work_in
from support.paths import CHATS, ROOT, TOKENIZER
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    CheckParity,
    Examples,
    FilterExamples,
    MapExamples,
    ParameterError,
    ParseConversations,
    Parts,
    ReadConversations,
    RenderConfig,
    Tokenize,
    TruncateOrPack,
    UserError,
    WriteDataset,
)


def documented_program() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "WriteDataset" in block)


def test_the_documented_example_is_short():
    program = documented_program().partition("with beam.Pipeline")
    assert len((program[1] + program[2]).strip().splitlines()) <= 12


@pytest.mark.slow
def test_the_documented_example_run_twice_writes_each_row_once(tmp_path):
    (tmp_path / "own.py").write_text(documented_program())
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    seen = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen.append(digests(tmp_path / "out" / "own"))
    assert "is complete: no record is read again" in done.stderr
    assert seen[0] == seen[1]
    assert 'model="YOUR MODEL"' in (tmp_path / "out/own/README.md").read_text()  # its tokenizer is a folder
    manifest = manifest_of(tmp_path / "out" / "own")
    records = manifest["records"]
    assert records["read"] == 400
    assert records["dropped"]["short"] > 0
    assert sum(shard["rows"] for shard in manifest["shards"]) == manifest["rows"] == len(rows_of(tmp_path / "out/own"))


def run(
    output: Path,
    *,
    key: str | None = "1",
    least: int = 3,
    packing: str = "none",
    text: str = "",
    source: Path = CHATS,
) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        examples = (
            pipeline
            | ReadConversations(str(source / "support.jsonl"), split_bytes=100_000)
            | ParseConversations(schema="messages")
            | FilterExamples(lambda example: len(example.content.messages) >= least, reason="short")
        )
        if text:
            examples |= MapExamples(lambda example: example)
        (
            examples
            | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
            | Tokenize(str(TOKENIZER))
            | BuildLabels()
            | TruncateOrPack(max_length=512, packing=packing)
            | WriteDataset(str(output), resume_key=key, max_reject_fraction=0.05)
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("own") / "out"
    run(output)
    return output


def test_interrupted_pipeline_resumes_without_duplicate_rows(finished, tmp_path):
    """As if it had been killed after some splits: their receipts and shards are there, and the rest is not."""
    output = tmp_path / "out"
    with stopped_before_the_commit():
        run(output)
    receipts = sorted((work_in(output) / "receipts").iterdir())
    assert len(receipts) > 3
    for receipt in receipts[:2]:
        receipt.unlink()
    before = {path: path.stat().st_mtime_ns for path in output.glob("data/*")}
    run(output)
    assert digests(output) == digests(finished)
    written = {path.name.split("-")[2] for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert written == {f"{int(receipt.name.split('-')[0]):06d}" for receipt in receipts[:2]}
    assert not (output / "_chatmill" / "building").exists()


@pytest.mark.parametrize(
    ("change", "differing"),
    [({"key": "2", "least": 4}, "resume_key"), ({"packing": "bfd"}, "options, steps"), ({"text": "x"}, "steps")],
    ids=["resume_key", "options", "steps"],
)
def test_another_pipeline_on_the_same_output_is_refused_while_it_is_built(finished, change, differing):
    before = digests(finished)
    with pytest.raises(ParameterError, match=rf"it holds the dataset of another pipeline: {differing} differ\."):
        run(finished, **change)
    assert digests(finished) == before


def test_what_functions_do_is_not_compared(finished):
    before = digests(finished)
    run(finished, least=4)
    assert digests(finished) == before


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_a_dataset_is_not_resumed_without_the_key_of_both_runs(tmp_path, is_finished):
    with_key, without_key = tmp_path / "with", tmp_path / "without"
    for folder, key in ((with_key, "1"), (without_key, None)):
        with nullcontext() if is_finished else stopped_before_the_commit():
            run(folder, key=key)
    before = digests(tmp_path)
    for key in (None, "1"):
        with pytest.raises(ParameterError, match=rf"^resume_key={key!r}: .* That run had no resume_key, so it"):
            run(without_key, key=key)
    with pytest.raises(ParameterError, match=r"^resume_key=None: .* Give resume_key, the same as before, only if"):
        run(with_key, key=None)
    assert digests(tmp_path) == before


def test_a_pipeline_that_wrote_nothing_can_be_changed_and_needs_no_key(tmp_path):
    rows_from() | WriteDataset(str(tmp_path))
    run(tmp_path, key=None)
    assert manifest_of(tmp_path)["rows"] == len(rows_of(tmp_path)) > 0
    assert "MapExamples" not in str(manifest_of(tmp_path)["job"]["steps"])


def test_changed_inputs_are_refused(tmp_path):
    chats = tmp_path / "chats"
    chats.mkdir()
    lines = (CHATS / "support.jsonl").read_bytes().splitlines(keepends=True)
    (chats / "support.jsonl").write_bytes(b"".join(lines[:50]))
    run(tmp_path / "out", source=chats)
    (chats / "support.jsonl").write_bytes(b"".join(lines[:60]))
    with pytest.raises(ParameterError, match=r"another pipeline: .*inputs"):
        run(tmp_path / "out", source=chats)


def test_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ParameterError, match="the folder holds other files"):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_dataset_of_the_command_line_is_refused(build, tmp_path):
    chats = CHATS / "arithmetic.jsonl"
    options = ("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / "out", "--max_reject_fraction=0.5")
    assert build(*options).code == 0
    with pytest.raises(ParameterError, match="a dataset of the command line"):
        run(tmp_path / "out")


def test_pattern_that_matches_no_file_is_refused_while_the_pipeline_is_built(tmp_path):
    with pytest.raises(ParameterError, match=r"nowhere\.jsonl"):
        beam.Pipeline("FnApiRunner") | ReadConversations(str(tmp_path / "nowhere.jsonl"))


def test_rows_of_two_sources_are_refused(tmp_path):
    pipeline = beam.Pipeline("FnApiRunner")
    read = [
        pipeline | f"read {name}" >> ReadConversations(str(CHATS / name))
        for name in ("support.jsonl", "arithmetic.jsonl")
    ]
    rows = (
        read
        | beam.Flatten()
        | ParseConversations()
        | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
        | Tokenize(str(TOKENIZER))
        | BuildLabels()
        | TruncateOrPack()
    )
    with pytest.raises(UserError, match="has 2 inputs and 0 side inputs; expected one line of steps"):
        rows | WriteDataset(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_different_tokenizers_for_template_and_ids_are_refused(tmp_path):
    rows = (
        beam.Pipeline("FnApiRunner")
        | ReadConversations(str(CHATS / "support.jsonl"))
        | ParseConversations()
        | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
        | Tokenize(str(ROOT / "tests" / "trl" / "tokenizer"))
        | BuildLabels()
        | TruncateOrPack()
    )
    with pytest.raises(UserError, match="expected one and the same"):
        rows | WriteDataset(str(tmp_path / "out"))


def test_two_datasets_of_one_source_are_refused(tmp_path):
    """The receipts of one of them would say which splits the other one skips."""
    rows = (
        beam.Pipeline("FnApiRunner")
        | ReadConversations(str(CHATS / "support.jsonl"))
        | ParseConversations()
        | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
        | Tokenize(str(TOKENIZER))
        | BuildLabels()
        | TruncateOrPack()
    )
    rows | "one" >> WriteDataset(str(tmp_path / "one"))
    with pytest.raises(UserError, match="feeds another dataset"):
        rows | "two" >> WriteDataset(str(tmp_path / "two"))


def test_changed_formatter_is_refused(tmp_path):
    formatter = tmp_path / "formatter.py"

    def build() -> None:
        with beam.Pipeline("FnApiRunner") as pipeline:
            (
                pipeline
                | ReadConversations(str(CHATS / "support.jsonl"))
                | ParseConversations(formatter=f"{formatter}:as_text")
                | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
                | Tokenize(str(TOKENIZER))
                | BuildLabels()
                | TruncateOrPack()
                | WriteDataset(str(tmp_path / "out"), resume_key="1", max_reject_fraction=0.05)
            )

    formatter.write_text("def as_text(record): return 'one'")
    build()
    formatter.write_text("def as_text(record): return 'two'")
    with pytest.raises(ParameterError, match="another pipeline: formatter differ"):
        build()


def rows_from(*steps: beam.PTransform, config: RenderConfig | None = None) -> beam.PCollection:
    """Rows of a pipeline with steps between parsing and rendering, which is not run."""
    config = config or RenderConfig(tokenizer=str(TOKENIZER))
    examples = beam.Pipeline("FnApiRunner") | ReadConversations(str(CHATS / "support.jsonl")) | ParseConversations()
    for step in steps:
        examples |= step
    texts = examples | ApplyChatTemplate(config) | CheckParity(RenderConfig(tokenizer=str(TOKENIZER)))
    return texts | Tokenize(str(TOKENIZER)) | BuildLabels() | TruncateOrPack()


def test_a_foreign_step_is_named_in_the_job_and_not_compared(tmp_path):
    def to_dataset(label: str) -> None:
        steps = label >> beam.Map(lambda parts: parts).with_output_types(Parts[Examples])
        rows = rows_from(steps) | WriteDataset(str(tmp_path), resume_key="1", max_reject_fraction=0.05)
        rows.pipeline.run().wait_until_finish()

    to_dataset("line 7")
    to_dataset("line 8")
    assert manifest_of(tmp_path)["job"]["steps"][1] == {"step": "line 7", "foreign": True}


def test_steps_that_contradict_each_other_are_refused(tmp_path):
    other = RenderConfig(tokenizer=str(TOKENIZER), loss_on="last_assistant")
    with pytest.raises(UserError, match="have loss_on last_assistant and auto"):
        rows_from(config=other) | WriteDataset(str(tmp_path))


def sources_to(output: Path, patterns: dict[str, list[str]], *sources: dict[str, str]) -> beam.PCollection:
    config = RenderConfig(tokenizer=str(TOKENIZER))
    return (
        beam.Pipeline("FnApiRunner")
        | ReadConversations(patterns)
        | ParseConversations()
        | ApplyChatTemplate(config, sources=sources)
        | CheckParity(config, sources=sources)
        | Tokenize(str(TOKENIZER))
        | BuildLabels()
        | TruncateOrPack()
        | WriteDataset(str(output), resume_key="1", max_reject_fraction=0.05)
    )


SUPPORT, SHAREGPT = str(CHATS / "support.jsonl"), str(CHATS / "sharegpt.json")


def test_sources_have_their_own_options_and_sums(tmp_path):
    both = {"support": [SUPPORT], "sharegpt": [SHAREGPT]}
    sources_to(tmp_path, both, {"loss_on": "last_assistant"}, {"loss_on": "all"}).pipeline.run().wait_until_finish()
    manifest = manifest_of(tmp_path)
    support, sharegpt = manifest["sources"]
    assert (support["name"], sharegpt["name"]) == ("support", "sharegpt")
    assert 0 < support["trained_tokens"] < support["tokens"]
    assert sharegpt["trained_tokens"] == sharegpt["tokens"] > 0
    assert support["rows"] + sharegpt["rows"] == manifest["rows"] == len(rows_of(tmp_path))
    assert_statistics_add_up(manifest)
    with pytest.raises(ParameterError, match="another pipeline: steps differ"):
        sources_to(tmp_path, both, {"loss_on": "last_assistant"}, {})


def test_sources_that_do_not_fit_the_steps_are_refused(tmp_path):
    with pytest.raises(UserError, match="has parameters for 1 sources, and ReadConversations reads 2: a, b"):
        sources_to(tmp_path, {"a": [SUPPORT], "b": [SHAREGPT]}, {})
    with pytest.raises(ParameterError, match=r"support.jsonl': it is in two sources, a and b\."):
        sources_to(tmp_path, {"a": [SUPPORT], "b": [str(CHATS)]}, {}, {})


def test_it_has_no_recipe(finished):
    assert (finished / "README.md").exists() and not (finished / "recipe.yaml").exists()


def test_finished_dataset_is_not_written_again(finished):
    card = finished / "README.md"
    before = card.read_text()
    card.write_text("edited by its owner")
    try:
        run(finished)
        assert card.read_text() == "edited by its owner"
    finally:
        card.write_text(before)


def build_and_wait(output: Path, built: Event) -> None:
    rows_from() | WriteDataset(str(output))
    built.set()
    time.sleep(600)


@contextmanager
def built_elsewhere(output: Path) -> Iterator[BaseProcess]:
    """Another process, which has built a pipeline to an output and is about to run it."""
    fork = multiprocessing.get_context("fork")
    built = fork.Event()
    process = fork.Process(target=build_and_wait, args=(output, built))
    process.start()
    assert built.wait(60)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def test_two_pipelines_do_not_write_one_dataset_to_one_output(finished, tmp_path):
    output = tmp_path / "out"
    with built_elsewhere(output) as other:
        before = sorted(output.rglob("*"))
        with pytest.raises(ParameterError, match=rf"another run is writing to it: process {other.pid} on "):
            rows_from() | WriteDataset(str(output))
        assert sorted(output.rglob("*")) == before
    run(output)  # at once, since the other one is gone
    assert digests(output) == digests(finished)
    assert not (output / "_chatmill" / "lock").exists()


def test_a_pipeline_is_refused_while_a_build_writes_to_its_output(tmp_path):
    output = tmp_path / "out"
    (output / "_chatmill").mkdir(parents=True)
    with open(output / "_chatmill" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a build does
        with pytest.raises(ParameterError, match="another run is writing to it"):
            rows_from() | WriteDataset(str(output))


def test_a_pipeline_fails_if_a_build_commits_first_and_its_work_stays(build, tmp_path):
    output, options = tmp_path / "out", ("--input", CHATS / "arithmetic.jsonl", "--tokenizer", TOKENIZER)
    pipeline = (rows_from() | WriteDataset(str(output), max_reject_fraction=0.05)).pipeline
    work = work_in(output)
    assert build(*options, "--output", output, "--overwrite", "--max_reject_fraction=0.5").code == 0
    with pytest.raises(Exception, match="version 1 was committed meanwhile"):
        pipeline.run().wait_until_finish()
    assert [*work.glob("receipts/*.json")]
    assert manifest_of(output)["snapshot"]["version"] == 1


def test_a_process_may_build_its_pipeline_again(tmp_path):
    """A notebook builds its pipeline again after an error."""
    _, later = (rows_from() | WriteDataset(str(tmp_path), max_reject_fraction=0.05) for _ in range(2))
    later.pipeline.run().wait_until_finish()
    assert manifest_of(tmp_path)["rows"] == len(rows_of(tmp_path)) > 0


class OtherStore(MemoryFileSystem):
    """Of which nobody knows that it creates a file only if there is none."""

    protocol = "otherstore"


def test_a_store_without_exclusive_create_is_refused():
    fsspec.register_implementation("otherstore", OtherStore, clobber=True)
    with pytest.raises(ParameterError, match=r"its store cannot create a file only if there is none"):
        rows_from() | WriteDataset("otherstore://own/out")
