"""chatmill diff: names what differs between two datasets by their manifests; the DuckDB recipes show the rows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import write_jsonl
from support.harms import edit_version
from support.paths import ROOT, TOKENIZER

RECORDS: list[dict[str, Any]] = [
    {"messages": [user(f"Frage {i}: 水車 \U0001f409?"), assistant(f"Answer {i}, " + "at length " * (i % 7))]}
    for i in range(40)
]
BASE = ("--provenance", "--validation_fraction=0.3")
PACKED = ("--packing=bfd", "--max_length=256")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Build a dataset of a name, once: with some records, and with options."""
    folder = tmp_path_factory.mktemp("compared")

    def build(name: str, *options: str, records: list[dict[str, Any]] = RECORDS) -> Path:
        output = folder / name
        if not output.exists():
            corpus = write_jsonl(folder / f"{name}.jsonl", records)
            if not (source := folder / "corpus.jsonl").exists() or source.read_bytes() != corpus.read_bytes():
                shutil.copy(corpus, source)  # the same url in each, which is a part of what is compared
            arguments = [f"--input={source}", f"--tokenizer={TOKENIZER}", f"--output={output}", *options]
            assert chatmill("build", *arguments) == 0
        return output

    return build


@pytest.fixture
def diff(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, dict[str, Any]]]:
    """Compare two datasets in this process; return the exit code, what is printed, and the JSON."""

    def run(a: Path | str, b: Path | str) -> tuple[int, str, dict[str, Any]]:
        capfd.readouterr()
        code = chatmill("diff", a, b)
        out, err = capfd.readouterr()
        assert err == "" and "\x1b" not in out
        assert chatmill("diff", a, b, "--json") == code
        return code, out, json.loads(capfd.readouterr().out)

    return run


def test_two_builds_of_the_same_are_equal(built, diff):
    code, out, found = diff(built("base", *BASE), built("same", *BASE))
    assert (code, found) == (
        0, {"equal": True, "job": {}, "records": {}, "sums": {}, "files": {"a": 2, "b": 2, "same": 2}},
    )  # fmt: skip
    assert out.endswith("equal: both have the same outcomes, sums and files\n")


def test_options_and_what_they_change_are_named_with_both_values(built, diff):
    code, out, found = diff(built("base", *BASE), built("short", *BASE, "--max_length=48", "--seed=1"))
    assert (code, found["equal"], found["files"]) == (1, False, {"a": 2, "b": 2, "same": 0})
    assert found["job"] == {"--max_length": {"a": None, "b": 48}, "--seed": {"a": 0, "b": 1}}
    truncated = found["records"]["truncated"]["b"]
    assert truncated > 0 and found["records"] == {
        "kept": {"a": 40, "b": 40 - truncated}, "truncated": {"a": 0, "b": truncated},
    }  # fmt: skip
    assert found["sums"].keys() >= {"tokens", "trained_tokens", "trained_tokens_lost"} and "rows" not in found["sums"]
    assert re.search(r"--seed +0 +1 *\n", out) and "0 files of rows have the same bytes in both.\n" in out


def test_version_template_and_reason_are_named(built, diff, tmp_path):
    other = Path(shutil.copytree(built("base", *BASE), tmp_path / "other"))
    edit_version(other, lambda of: of["job"]["versions"].update(tokenizers="0.1.0"))
    code, out, found = diff(built("base", *BASE), other)
    assert (code, [*found["job"]], found["files"]) == (0, ["version of tokenizers"], {"a": 2, "b": 2, "same": 2})
    assert re.search(r"version of tokenizers +\S+ +0\.1\.0 *\n", out)

    template = (TOKENIZER / "chat_template.jinja").read_text().replace("<|im_end|>\\n", "<|im_end|>\\n\\n")
    records = [*RECORDS[:39], {"messages": "none"}]
    options = (*BASE, f"--chat_template={template}", "--max_reject_fraction=0.5")
    code, _, found = diff(built("base", *BASE), built("template", *options, records=records))
    assert code == 1 and {"chat template", "inputs"} <= found["job"].keys()
    assert found["records"]["rejected: bad_message"] == {"a": None, "b": 1}


def test_other_text_with_the_same_counts_is_not_equal(built, diff):
    records = json.loads(json.dumps(RECORDS))
    records[7]["messages"][1]["content"] = "Answer 8, "
    code, _, found = diff(built("base", *BASE), built("text", *BASE, records=records))
    assert (code, found["records"], found["sums"]) == (1, {}, {}) and found["files"]["same"] == 1


def test_recipes_of_the_documentation_show_the_rows_that_differ(built):
    changed = json.loads(json.dumps(RECORDS))
    changed[7]["messages"][1]["content"] = "answer 7, "  # as long as before, so that other positions are the same
    of_rows, of_records, of_examples = re.findall(
        r"```sql\n(.*?)\n```", (ROOT / "docs/inspect.md").read_text(), re.DOTALL
    )

    def found(query: str, a: Path, b: Path) -> list[tuple[Any, ...]]:
        return duckdb.sql(query.replace("out/a", str(a)).replace("out/b", str(b))).fetchall()

    plain = built("base", *BASE), built("recipe", *BASE, records=changed)
    assert found(of_rows, plain[0], plain[0]) == found(of_records, plain[0], plain[0]) == []
    assert sorted(row[0] for row in found(of_rows, *plain)) == ["a", "b"]
    [(_, position, same_tokens)] = found(of_records, *plain)
    before = sum(len(json.dumps(record, ensure_ascii=False).encode()) + 1 for record in RECORDS[:7])
    assert (position, same_tokens) == (before, False)

    packed = built("packed", *PACKED), built("sharded", *PACKED, "--split_bytes=2000")
    assert found(of_rows, *packed) and found(of_examples, *packed) == []
    [one, other] = found(of_examples, packed[0], built("packed-recipe", *PACKED, records=changed))
    assert {one[0], other[0]} == {"a", "b"} and len(one[1]) == len(one[2]) and one[1] != other[1]
