"""Custom pipelines: the example of docs/api.md, and what `WriteDataset` records, refuses and leaves."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.command_line import chatmill
from support.datasets import (
    assert_statistics_add_up,
    digests,
    read_manifest,
    read_rejects,
    read_rows,
    stopped_before_the_commit,
)
from support.laws import broken_laws
from support.paths import CHATS, ROOT, TOKENIZER
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    CheckParity,
    Dataset,
    FilterExamples,
    ParameterError,
    ParseConversations,
    ReadConversations,
    RenderConfig,
    Tokenize,
    TruncateOrPack,
    WriteDataset,
)

SUPPORT, SHAREGPT = str(CHATS / "support.jsonl"), str(CHATS / "sharegpt.json")
JOB = {"what": "support without short dialogs", "least": {"messages": 3}, "path": "/home/me/chats"}


def documented_program() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "WriteDataset" in block)


@pytest.mark.slow
def test_the_documented_example_is_short_and_writes_one_dataset_which_a_second_run_leaves_as_it_is(tmp_path):
    _, begin, rest = documented_program().partition("with beam.Pipeline")
    assert len((begin + rest).strip().splitlines()) <= 20
    (tmp_path / "own.py").write_text(documented_program())
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = {"args": [sys.executable, "own.py"], "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(**program, check=False)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "out" / "own"
    before, manifest = digests(output), read_manifest(output)
    assert 'model="YOUR MODEL"' in (output / "README.md").read_text()  # its tokenizer is a folder
    assert manifest["records"]["read"] == 400
    assert manifest["records"]["dropped"]["short"] > 0
    assert sum(shard["rows"] for shard in manifest["shards"]) == manifest["rows"] == len(read_rows(output))
    again = subprocess.run(**program, check=False)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] == (
        "transforms.base.errors.ParameterError: output='out/own': it is not empty. A custom pipeline writes a new "
        "dataset: remove what is there, or give another folder."
    )
    assert digests(output) == before


def rows_from(*patterns: str, **packing: Any) -> beam.PCollection:
    """Rows of a pipeline that reads each pattern by itself, and is not run."""
    pipeline = beam.Pipeline("FnApiRunner")
    read = [
        pipeline | f"read {number}" >> ReadConversations(pattern, split_bytes=100_000)
        for number, pattern in enumerate(patterns or [SUPPORT])
    ]
    return (
        (read[0] if len(read) == 1 else read | beam.Flatten())
        | ParseConversations(keep_columns=["id"])
        | FilterExamples(lambda example: len(example.content.messages) >= 3, reason="short")
        | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
        | Tokenize(str(TOKENIZER))
        | BuildLabels()
        | TruncateOrPack(**{"max_length": 512} | packing)
    )


def write(output: object, *patterns: str, rows: Mapping[str, Any] | None = None, **options: Any) -> beam.Pipeline:
    """A pipeline that writes a dataset. It is not run. rows: how they are packed."""
    options = {"max_length": 512, "keep_columns": ["id"], "max_reject_fraction": 0.05} | options
    dataset = WriteDataset(str(output), JOB, tokenizer=str(TOKENIZER), **options)
    return (rows_from(*patterns, **(rows or {})) | dataset).pipeline


def run(output: object, *patterns: str, **options: Any) -> None:
    write(output, *patterns, **options).run().wait_until_finish()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("own") / "out"
    run(output, rows={"packing": "bfd"}, packing="bfd")
    return output


def test_job_and_layout_are_recorded(finished):
    manifest = read_manifest(finished)
    job = manifest["job"]
    assert job["custom"] == JOB
    both = {"packing": "bfd", "max_length": 512, "shift_labels": False}
    columns = {"keep_columns": ["id"], "write_columns": None, "provenance": False}
    assert job["options"] == {**both, **columns, "output_format": ["parquet"]}
    assert manifest["layout"] == {**both, "columns": ["input_ids", "labels", "seq_lengths", "id"]}
    assert job["tasks"] > 3
    assert [manifest[name] for name in ("version", "increments")] == [1, 1]
    assert manifest["rows"] == len(read_rows(finished)) > 0
    assert broken_laws(finished) == []
    assert_statistics_add_up(manifest)


def test_it_is_a_dataset_as_any_other(finished, tmp_path, capsys):
    assert chatmill("verify", finished) == 0
    assert chatmill("diff", finished, finished) == 0
    assert Dataset(str(finished)).tokenizer.decode(read_rows(finished)[0]["input_ids"])
    assert not (finished / "recipe.yaml").exists() and not (finished / "_chatmill" / "building").exists()
    card, page = (finished / "README.md").read_text(), (finished / "report.html").read_text()
    assert "| what | support without short dialogs |" in card and "/home/me" not in card
    assert "A custom pipeline built this dataset:" in page and "support without short dialogs" in page
    capsys.readouterr()
    assert chatmill("build", "--input", SUPPORT, "--tokenizer", TOKENIZER, "--output", finished, "--append") == 2
    assert str(finished) in capsys.readouterr().err.splitlines()[-1]
    assert read_manifest(finished)["version"] == 1


@pytest.mark.parametrize("is_there", ["dataset", "file below", "file"])
def test_an_output_that_is_not_empty_is_refused_while_the_pipeline_is_built(finished, tmp_path, is_there):
    output = finished if is_there == "dataset" else tmp_path / "out"
    if is_there != "dataset":
        notes = output / "notes.txt" if is_there == "file below" else output
        notes.parent.mkdir(exist_ok=True)
        notes.write_text("mine")
    before = digests(output.parent)
    with pytest.raises(ParameterError, match=rf"^output='{output}': it is not empty\. .* give another folder\.$"):
        write(output)
    assert digests(output.parent) == before


@pytest.mark.slow
def test_a_pipeline_can_be_built_again_and_of_two_that_run_the_second_fails(tmp_path):
    """A notebook builds its pipeline again after an error: until a pipeline runs, its output stays empty."""
    first, second = write(tmp_path), write(tmp_path)
    first.run().wait_until_finish()
    manifest = read_manifest(tmp_path)
    files = {shard["path"]: shard["sha256"] for shard in manifest["shards"]}
    with pytest.raises(Exception, match="another run has committed a dataset to it meanwhile"):
        second.run().wait_until_finish()
    assert read_manifest(tmp_path) == manifest
    assert {path: digests(tmp_path)[path] for path in files} == files
    assert chatmill("verify", tmp_path) == 0


def test_of_two_that_run_at_once_the_second_fails_and_leaves_the_files_of_the_first(tmp_path):
    """Their files have the same names, and may have other rows. A run that was killed is one that may be alive."""
    first, second = write(tmp_path), write(tmp_path, rows={"max_length": 256})
    with stopped_before_the_commit():
        first.run()
    before = digests(tmp_path)
    with pytest.raises(Exception, match="another run has begun to write a dataset to it"):
        second.run().wait_until_finish()
    assert digests(tmp_path) == before
    first.run().wait_until_finish()
    assert chatmill("verify", tmp_path) == 0


def test_a_task_that_a_step_has_dropped_is_named(tmp_path):
    rows = rows_from()
    rows |= beam.Filter(lambda chunks: chunks.task.number != 1).with_output_types(rows.element_type)
    rows |= WriteDataset(str(tmp_path), JOB, tokenizer=str(TOKENIZER), max_length=512, keep_columns=["id"])
    with pytest.raises(Exception, match=r"task 1 has the receipts \[\(2, 0\)\]; expected each of its shards once"):
        rows.pipeline.run()
    assert not (tmp_path / "manifest.json").exists()


def test_a_run_that_failed_is_not_resumed_and_its_rejects_can_be_read(tmp_path, capsys):
    with pytest.raises(Exception, match=r"records were rejected, more than max_reject_fraction 0"):
        run(tmp_path, max_reject_fraction=0)
    assert read_rejects(tmp_path) and not (tmp_path / "manifest.json").exists()
    assert chatmill("inspect", tmp_path, "--reason", "invalid_json") == 0
    with pytest.raises(ParameterError, match="it is not empty"):
        write(tmp_path)


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ({"packing": "bfd"}, {}, "packing is 'none', and the rows have 'bfd'"),
        ({}, {"max_length": 64}, r"max_length is 64, and the rows have \d+"),
        ({"shift_labels": True}, {}, "shift_labels is False, and the rows have True"),
        ({}, {"keep_columns": ["topic"]}, r"keep_columns is \['topic'\], and the rows have \['id'\]"),
    ],
    ids=["packing", "max_length", "shift_labels", "keep_columns"],
)
def test_rows_that_are_others_than_was_said_end_the_run(tmp_path, rows, options, says):
    with pytest.raises(Exception, match=f"WriteDataset: {says}. Give the same"):
        run(tmp_path, rows=rows, **options)
    assert not (tmp_path / "_chatmill" / "versions").exists()


@pytest.mark.slow
def test_rows_of_several_reads_end_the_run(tmp_path):
    with pytest.raises(Exception, match="its rows come from several ReadConversations; expected one"):
        run(tmp_path, SUPPORT, SHAREGPT)
    assert not (tmp_path / "manifest.json").exists()


def sources_to(output: Path, patterns: dict[str, str], *names: str) -> None:
    config, sources = RenderConfig(tokenizer=str(TOKENIZER)), [{"loss_on": "last_assistant"}, {"loss_on": "all"}]
    with beam.Pipeline("FnApiRunner") as pipeline:
        (
            pipeline
            | ReadConversations(patterns)
            | ParseConversations()
            | ApplyChatTemplate(config, sources=sources)
            | CheckParity(config, sources=sources)
            | Tokenize(str(TOKENIZER))
            | BuildLabels()
            | TruncateOrPack()
            | WriteDataset(str(output), {}, tokenizer=str(TOKENIZER), sources=names, max_reject_fraction=0.05)
        )


@pytest.mark.slow
def test_sources_have_their_own_options_and_sums(tmp_path):
    both = {"support": SUPPORT, "sharegpt": SHAREGPT}
    with pytest.raises(Exception, match="there is a source 2; expected the names of all in sources"):
        sources_to(tmp_path / "unnamed", both, "support")
    sources_to(tmp_path / "out", both, *both)
    manifest = read_manifest(tmp_path / "out")
    support, sharegpt = manifest["sources"]
    assert (support["name"], sharegpt["name"]) == ("support", "sharegpt")
    assert 0 < support["trained_tokens"] < support["tokens"]
    assert sharegpt["trained_tokens"] == sharegpt["tokens"] > 0
    assert support["rows"] + sharegpt["rows"] == manifest["rows"] == len(read_rows(tmp_path / "out"))
    assert_statistics_add_up(manifest)


def test_inputs_are_refused_while_the_pipeline_is_built(tmp_path):
    with pytest.raises(ParameterError, match=r"nowhere\.jsonl"):
        rows_from(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(ParameterError, match=r"support.jsonl': it is in two sources, a and b\."):
        beam.Pipeline("FnApiRunner") | ReadConversations({"a": [SUPPORT], "b": [str(CHATS)]})


class OtherStore(MemoryFileSystem):
    """Of which nobody knows that it creates a file only if there is none."""

    protocol = "otherstore"


def test_a_store_without_exclusive_create_is_refused():
    fsspec.register_implementation("otherstore", OtherStore, clobber=True)
    with pytest.raises(ParameterError, match=r"its store cannot create a file only if there is none"):
        write("otherstore://own/out")
