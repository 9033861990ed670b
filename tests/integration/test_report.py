"""The report of a build."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.command_line import chatmill
from support.datasets import manifest_of, rows_of, write_jsonl
from support.paths import CHATS, TOKENIZER
from transforms import Dataset
from transforms.dataset.layout import Folder
from transforms.publish.report_page import report_of
from transforms.reading.excerpts import read_excerpts
from transforms.tokens.tokenizer import load_tokenizer

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--split_bytes=30000", "--max_length=256", "--packing=bfd"]
JOB += ["--chat_template_kwargs", '{"note": "it\'s"}', "--max_reject_fraction=0.5", "--direct_num_workers=1"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("report") / "out"
    assert chatmill(*JOB, f"--output={output}") == 0
    return output


class Figures(HTMLParser):
    """The figures of a page: each number as it is printed, and where it is in the manifest."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._pointer: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._pointer = dict(attrs).get("data-of")

    def handle_data(self, data: str) -> None:
        if self._pointer is not None:
            self.found.append((self._pointer, data))
            self._pointer = None


def test_each_figure_of_the_page_is_that_of_the_manifest(dataset):
    manifest, figures = manifest_of(dataset), Figures((dataset / "report.html").read_text()).found
    assert len(figures) > 20
    for pointer, text in figures:
        value = manifest
        for key in pointer.split("/")[1:]:
            value = value[int(key) if isinstance(value, list) else key.replace("~1", "/").replace("~0", "~")]
        assert f"{value:,}" == text, pointer


def test_report_that_is_made_again_has_the_same_bytes(dataset):
    assert report_of(Folder(str(dataset)), manifest_of(dataset)) == (dataset / "report.html").read_bytes()


def test_commit_without_a_report_removes_that_of_an_earlier_commit(dataset, tmp_path):
    """The page would be that of the replaced version."""
    output = Path(shutil.copytree(dataset, tmp_path / "out"))
    assert chatmill(*JOB, f"--output={output}", "--overwrite", "--report=none") == 0
    assert (output / "_SUCCESS").exists() and not (output / "report.html").exists()
    assert Dataset(str(output)).version == 2
    assert rows_of(output) == rows_of(dataset)


@pytest.mark.parametrize("options", [(), ("--shift_labels",), ("--packing=none",)])
def test_excerpts_are_rows_of_the_dataset_with_their_trained_tokens(tmp_path, options):
    output = tmp_path / "out"
    assert chatmill(*JOB, f"--output={output}", "--report=none", "--output_format=parquet,tfrecord", *options) == 0
    manifest = manifest_of(output)
    excerpts = read_excerpts(Folder(str(output)), manifest)
    assert len(excerpts) == 10 and len({excerpt.shard for excerpt in excerpts}) == min(10, _shards(manifest))
    decode = load_tokenizer(str(TOKENIZER)).decode
    trained = {
        decode(row["input_ids"]): decode([label for label in row["labels"] if label != -100]) for row in rows_of(output)
    }
    for excerpt in excerpts:
        text = "".join(piece.text for piece in excerpt.pieces)
        # Of a row with shifted labels, the last token is in the labels alone.
        (row,) = [row for row in trained if text == row or ("--shift_labels" in options and text.startswith(row))]
        assert "".join(piece.text for piece in excerpt.pieces if piece.trained) == trained[row]
        assert (excerpt.before, excerpt.after) == (0, 0) and 0 < excerpt.trained_tokens < excerpt.tokens <= 257
        assert [piece.starts for piece in excerpt.pieces if piece.starts] == [*range(1, excerpt.examples + 1)]


def _shards(manifest: dict) -> int:
    return len({shard["path"].partition(".")[0].partition("/")[2] for shard in manifest["shards"]})


def test_report_of_a_job_without_a_recipe_shows_none(dataset):
    """As of a custom pipeline."""
    manifest = manifest_of(dataset)
    del manifest["job"]["recipe"]
    assert b"chatmill build" not in report_of(Folder(str(dataset)), manifest)


def test_first_record_of_each_outcome_is_in_the_manifest(tmp_path):
    """The last record of the first file, and the first ones of the second, which a worker reads at the same time."""
    good = {"messages": [{"role": "user", "content": "a b c"}, {"role": "assistant", "content": "one"}]}
    long = {"messages": [{"role": "user", "content": "a b c"}, {"role": "assistant", "content": "two " * 40}]}
    untrained = {"messages": [{"role": "user", "content": "nobody answers"}]}
    write_jsonl(tmp_path / "1.jsonl", [good, untrained])
    write_jsonl(tmp_path / "2.jsonl", [long, untrained, long])
    options = [f"--input={tmp_path / '*.jsonl'}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}"]
    assert chatmill(*options, "--max_length=32", "--direct_num_workers=1") == 0
    manifest, after_good = manifest_of(tmp_path / "out"), len(json.dumps(good)) + 1
    first = manifest["first_drops"]["no_trained_tokens"]
    assert (first["source"], first["position"]) == (str(tmp_path / "1.jsonl"), f"byte {after_good:,}")
    assert first["detail"].endswith("tokens, 0 of them to be trained on")
    truncated = manifest["first_examples"]["truncated"]
    lost = manifest["trained_tokens_lost"] // 2
    assert (truncated["source"], truncated["position"]) == (str(tmp_path / "2.jsonl"), "byte 0")
    assert f"{lost} of them to be trained on, are in no row" in truncated["detail"]
