"""chatmill stats and the queries of docs/output.md, on a dataset with rejected and long records."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import manifest_of, write_jsonl
from support.harms import edit_version
from support.paths import CHATS, ROOT, TOKENIZER


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stats")
    long = {"messages": [user("Hi"), assistant("word " * 3000)]}
    wrong = {"messages": [{"role": "narrator", "content": "Once"}, assistant("Yes")]}
    corpus = write_jsonl(folder / "corpus.jsonl", [long, wrong])
    output = folder / "out"
    options = [f"--input={CHATS}", f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={output}"]
    assert chatmill("build", *options, "--provenance", "--direct_num_workers=1") == 0
    return output


@pytest.fixture
def stats(dataset, capfd, monkeypatch):
    def run(*options: object) -> str:
        monkeypatch.setenv("COLUMNS", "80")
        capfd.readouterr()
        assert chatmill("stats", dataset, *options) == 0
        out, err = capfd.readouterr()
        assert not err
        return out

    return run


def test_json_is_the_statistics_of_the_manifest(stats, dataset):
    assert json.loads(stats("--json")) == manifest_of(dataset)["statistics"]


def test_histograms_and_counts_fit_80_columns_without_colours(stats, dataset):
    out = stats()
    statistics = manifest_of(dataset)["statistics"]
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    for title in ("messages of a conversation", "tokens of a row", "messages by role", "examples by schema"):
        assert title in out
    limits = next(line for line in out.splitlines() if line.strip().startswith("2,048 "))
    assert [int(number.replace(",", "")) for number in limits.split()[1::2]] == [*statistics["limits"]["2048"].values()]
    assert f"{statistics['roles']['assistant']:,}" in out
    assert f"to {statistics['histograms']['row_tokens']['max']:,};" in out


def test_what_trained_spans_end_with_is_shown_as_it_is(dataset, tmp_path, capfd):
    assert {*manifest_of(dataset)["statistics"]["span_ends"]} == {"<|im_end|>"}
    copy = Path(shutil.copytree(dataset, tmp_path / "out"))
    ends = {"[/bold]\x1b[1m": 1234, "others": 2}
    edit_version(copy, lambda of: of["total"]["statistics"].update(span_ends=ends))
    assert chatmill("stats", copy) == 0
    lines = capfd.readouterr().out.partition("trained spans end with\n")[2].splitlines()[:2]
    assert [line.split() for line in lines] == [["[/bold]\\x1b[1m", "1,234"], ["others", "2"]]


def test_parity_is_of_a_sample_and_says_of_how_many_records(stats, dataset):
    notes = manifest_of(dataset)["notes"]
    checked, left = notes["parity_records_checked"], notes["parity_records_not_checked"]
    assert checked and left
    line = " ".join(stats().partition("parity with inference\n")[2].split())
    compared = f"{notes['parity_turns_checked']:,} turns of {checked:,} of {checked + left:,} records were compared"
    assert line == f"{compared}: {notes.get('parity_turns_differing', 0):,} differ"


def test_each_line_of_a_histogram_is_a_share_and_all_are_everything(stats):
    lines = stats().partition("tokens of a row\n")[2].partition("\n\n")[0].splitlines()[1:]
    shares = re.findall(r"([\d,]+) +([\d.]+)% *\n", "\n".join(lines) + "\n")
    assert len(shares) == len(lines)
    assert 1 < len(shares) <= 12
    assert sum(float(share) for _, share in shares) == pytest.approx(100, abs=1)


def test_the_queries_of_the_documentation_have_results(dataset):
    duckdb = pytest.importorskip("duckdb")
    queries = re.findall(r"```sql\n(.*?)\n```", (ROOT / "docs/output.md").read_text(), re.DOTALL)
    assert len(queries) > 5
    for query in queries:
        assert duckdb.sql(query.replace("out/mine", str(dataset))).fetchall(), query
