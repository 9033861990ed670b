"""Recipes: a file with the options of a build, and sources with options of their own in one dataset."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.command_line import chatmill
from support.datasets import digests, name_in_increment, read_manifest, read_rows, write_jsonl
from support.paths import ROOT, TOKENIZER

ONE = "--direct_running_mode=in_memory"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}{{ mark }}]{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}[assistant{{ mark }}]{% endif %}"
)
FORMATTER = """
def as_messages(record):
    return {"messages": [{"role": "user", "content": record["q"]}, {"role": "assistant", "content": record["a"]}]}
"""


def turns(number: int, role: str = "role", answer: str = "assistant") -> list[dict[str, str]]:
    says = [("user", "one?"), (answer, "1"), ("user", "two?"), (answer, f"2 of {number}")]
    return [{role: who, "content": text} for who, text in says]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with the records of three sources, a formatter, and mix.yaml, which lists them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "chats.jsonl", [{"dialog": turns(i, answer="bot")} for i in range(40)])
    write_jsonl(folder / "shared.jsonl", [{"messages": turns(i)} for i in range(30)])
    write_jsonl(folder / "faq.jsonl", [{"q": f"{i}?", "a": f"{i}!"} for i in range(20)])
    (folder / "faq.py").write_text(FORMATTER)
    sources = [
        {"name": "chats", "input": "chats.jsonl", "columns": {"messages": "dialog"}, "roles": {"bot": "assistant"},
         "chat_template_kwargs": {"mark": datetime.date(2026, 1, 2)}, "loss_on": "last_assistant"},
        {"input": ["shared.jsonl"], "loss_on": "all"},
        {"name": "faq", "input": "faq.jsonl", "formatter": "faq.py:as_messages"},
    ]  # fmt: skip
    (folder / "mix.yaml").write_text(yaml.safe_dump({"sources": sources}))
    return folder


def make_options(folder: Path, output: Path, *more: object) -> list[object]:
    return [
        f"{folder}/mix.yaml", f"--output={output}", f"--tokenizer={TOKENIZER}",
        f"--chat_template={TEMPLATE}", "--direct_num_workers=1", *more,
    ]  # fmt: skip


def change(folder: Path, number: int, **options: Any) -> None:
    """Change a source of mix.yaml; None removes an option."""
    sources = yaml.safe_load((folder / "mix.yaml").read_text())["sources"]
    sources[number] = {name: value for name, value in (sources[number] | options).items() if value is not None}
    (folder / "mix.yaml").write_text(yaml.safe_dump({"sources": sources}))


@pytest.mark.slow
def test_rows_of_each_source_are_those_of_a_build_of_its_own(build, corpus, tmp_path):
    common = [f"--tokenizer={TOKENIZER}", f"--chat_template={TEMPLATE}", "--direct_num_workers=1", "--provenance"]
    separate = {
        "chats.jsonl": ["--columns=messages=dialog", "--roles=bot=assistant", "--loss_on=last_assistant",
                        '--chat_template_kwargs={"mark":"2026-01-02"}'],
        "shared.jsonl": ["--loss_on=all"],
        "faq.jsonl": [f"--formatter={corpus}/faq.py:as_messages"],
    }  # fmt: skip
    expected, counts = [], []
    for name, options in separate.items():
        output = tmp_path / f"only {name}"
        ended = build(f"--input={corpus}/{name}", f"--output={output}", *common, *options)
        assert ended.code == 0, ended.err
        expected += read_rows(output)
        manifest = read_manifest(output)
        assert [source["name"] for source in manifest["sources"]] == ["input"]
        counts.append({key: manifest[key] for key in ("records", "rows", "tokens", "trained_tokens")})
    ended = build(*make_options(corpus, tmp_path / "all", "--provenance"))
    assert ended.code == 0, ended.err
    assert read_rows(tmp_path / "all") == expected
    manifest = read_manifest(tmp_path / "all")
    names = ["chats", "2-shared", "faq"]
    assert manifest["sources"] == [{"name": name, **count} for name, count in zip(names, counts, strict=True)]
    assert manifest["rows"] == 90
    table = [line.split()[:2] for line in ended.out.splitlines() if line.split()[0:1] in [[name] for name in names]]
    assert table == [["chats", "40"], ["2-shared", "30"], ["faq", "20"]]
    assert "| 2-shared | 30 | 0 | 0 | 30 |" in (tmp_path / "all" / "README.md").read_text()


def test_unfinished_and_finished_build_name_what_differs_in_a_source(build, corpus, tmp_path):
    output = tmp_path / "out"
    with (corpus / "faq.jsonl").open("a") as file:
        file.write("{}\n")
    options = make_options(corpus, output)

    def error() -> str:
        ended = build(*options)
        assert ended.code == 2 and ended.err.count("\n") == 1
        return ended.err

    assert build(*options, "--max_reject_fraction=0").code == 1  # unfinished
    change(corpus, 0, loss_on="assistant")
    assert "loss_on of the source chats was last_assistant and is assistant. Use" in error()
    change(corpus, 0, loss_on="last_assistant", roles=None)
    assert 'roles of the source chats was {"bot": "assistant"} and is not set' in error()
    change(corpus, 0, roles={"bot": "assistant"}, name="talk")
    assert "the sources were chats,2-shared,faq and are talk,2-shared,faq" in error()
    change(corpus, 0, name="chats")
    (corpus / "faq.py").write_text(FORMATTER + "# another\n")
    assert "the file of the formatter of the source faq differs" in error()
    (corpus / "faq.py").write_text(FORMATTER)
    ended = build(*options, "--max_reject_fraction=0.03")
    assert ended.code == 0, ended.err
    assert "warning: 1 of 21 records of the source faq rejected: formatter 1\n" in ended.err
    change(corpus, 1, loss_on=None)
    assert "loss_on of the source 2-shared was all and is not set. Give" in error()
    change(corpus, 1, loss_on="all")
    assert "is finished already" in build(*options).err


def test_workers_need_neither_the_config_nor_the_formatter_of_a_source(build, corpus, tmp_path, monkeypatch):
    replace = os.replace

    def replace_and_remove(source: str, path: str) -> None:
        replace(source, path)
        if path.endswith("/job.json"):
            for name in ("mix.yaml", "faq.py"):
                (corpus / name).unlink()

    monkeypatch.setattr(os, "replace", replace_and_remove)
    ended = build(*make_options(corpus, tmp_path / "out", "--direct_num_workers=2"))
    assert ended.code == 0, ended.err
    assert read_manifest(tmp_path / "out")["rows"] == 90 and not (corpus / "faq.py").exists()


def test_same_file_in_two_sources_is_read_twice_only_if_the_second_says_so(build, corpus):
    change(corpus, 1, input=["shared.jsonl", "chats.jsonl"])
    ended = build(*make_options(corpus, corpus / "out"))
    assert ended.code == 2
    assert ended.err == (
        f"chatmill: {corpus}/mix.yaml: source 2: input {corpus}/chats.jsonl: the source chats lists "
        "this file, too. To read it twice, write may_repeat: true in the source 2-shared.\n"
    )
    change(corpus, 1, may_repeat=True, columns={"messages": "dialog"}, roles={"bot": "assistant"})
    (corpus / "shared.jsonl").write_bytes((corpus / "chats.jsonl").read_bytes())
    assert build(*make_options(corpus, corpus / "out")).code == 0
    assert [source["records"]["kept"] for source in read_manifest(corpus / "out")["sources"]] == [40, 80, 20]
    stored = yaml.safe_load((corpus / "out" / "recipe.yaml").read_text())
    assert [source.get("may_repeat", False) for source in stored["sources"]] == [False, True, False]


def recipe_with(folder: Path, **options: Any) -> Path:
    (folder / "recipe.yaml").write_text(yaml.safe_dump(options))
    return folder / "recipe.yaml"


def test_names_without_a_name_are_of_the_position_and_the_inputs_without_folders(build, tmp_path):
    (tmp_path / "chats").mkdir()
    (tmp_path / "recipes").mkdir()
    for name in ("chats/1.jsonl", "a.b.jsonl", "chats/x.json", "recipes/2.jsonl", "7.jsonl"):
        write_jsonl(tmp_path / name, [{"text": "one"}])
    inputs = [f"{tmp_path}/chats/", "../a.b.jsonl", "../chats/**/*.json", "*.jsonl"]
    sources = [{"input": name, "may_repeat": True} for name in inputs] + [{"input": "../7.jsonl", "name": 7}]
    recipe = recipe_with(tmp_path / "recipes", sources=sources)
    assert build(f"--recipe={recipe}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", ONE).code == 0
    names = [source["name"] for source in read_manifest(tmp_path / "out")["sources"]]
    assert names == ["1-chats", "2-a", "3-chats", "4-input", "7"]


def test_command_line_has_the_defaults_which_null_resets(build, tmp_path):
    for name, column, text in (("a", "body", "one two three four"), ("b", "text", "five"), ("c", "other", "six seven")):
        write_jsonl(tmp_path / f"{name}.jsonl", [{column: text}])
    sources = [{"input": "a.jsonl"}, {"input": "b.jsonl", "columns": None, "schema": "text"}]
    sources.append({"input": "c.jsonl", "columns": {"text": "other"}, "schema": None})
    recipe = recipe_with(tmp_path, sources=sources)
    options = [f"--tokenizer={TOKENIZER}", "--columns=text=body", "--schema=text", "--max_length=3", ONE]
    assert build(recipe, *options, "--truncation=keep_start", f"--output={tmp_path}/out").code == 0
    manifest = read_manifest(tmp_path / "out")
    records = [source["records"] for source in manifest["sources"]]
    assert [each["kept"] + each["truncated"] for each in records] == [1, 1, 1] and records[0]["truncated"] == 1
    null = recipe_with(tmp_path, sources=[{"input": "b.jsonl", "columns": None, "schema": None}], schema="messages")
    assert build(null, f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/null", ONE).code == 0
    assert build(null, f"--tokenizer={TOKENIZER}", "--max_length=9", f"--output={tmp_path}/null", ONE).code == 2


def test_documentation_names_every_key_of_a_source(build, tmp_path):
    table = (ROOT / "docs" / "sources.md").read_text().partition("\n| key of a source |")[2].partition("\n\n")[0]
    keys = {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    recipe = recipe_with(tmp_path, sources=[{"input": "a", "qqq": 1}])
    expected = build(recipe, "--tokenizer=t", f"--output={tmp_path}/out").err.partition("unknown key qqq. Expected ")[2]
    assert keys == {*re.findall(r"\w+", expected.replace(" or ", ", ").replace(" and ", ", "))} != set()


def test_options_of_the_command_line_replace_those_of_the_recipe(build, tmp_path):
    """Paths in a recipe begin at its folder, and those of the command line where it is run."""
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"q": f"{i}?", "a": f"{i}!"} for i in range(9)])
    (tmp_path / "in" / "f.py").write_text(FORMATTER)
    (tmp_path / "tokenizer").symlink_to(TOKENIZER)
    recipe = recipe_with(
        tmp_path / "in", input="a.jsonl", tokenizer="../tokenizer", output="../out", max_length=64, append=True,
        columns=None, direct_num_workers=1, keep_columns=None, formatter="f.py:as_messages", packing="bfd",
        chat_template_kwargs={"a": [1]}, **{"for": "trl"},
    )  # fmt: skip
    ended = build(recipe, "--max_length=32", "--append=false")
    assert ended.code == 0, ended.err
    job = read_manifest(tmp_path / "out")["job"]
    assert job["options"]["max_length"] == 32 and job["options"]["packing"] == "bfd"
    assert yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())["input"] == [f"{tmp_path}/in/a.jsonl"]
    assert job["recipe"]["chat_template_kwargs"] == {"a": [1]} and job["recipe"]["for"] == "trl"
    write_jsonl(tmp_path / "b.jsonl", [{"q": "?", "a": "!"}])
    inputs = [f"--input={tmp_path}/b.jsonl", f"--input={tmp_path}/in/a.jsonl"]
    assert build(f"--recipe={recipe}", *inputs, f"--output={tmp_path}/other").code == 0
    assert read_manifest(tmp_path / "other")["records"]["kept"] == 10


def test_the_recipe_of_the_documentation_can_be_read(build, tmp_path):
    [text] = re.findall(r"```yaml\n(# \w+\.yaml\n.*?)```", (ROOT / "docs" / "sources.md").read_text(), re.DOTALL)
    (tmp_path / "recipe.yaml").write_text(re.sub(r"\b(s3|gs)://", f"{tmp_path}/", text))
    ended = build(f"{tmp_path}/recipe.yaml", f"--output={tmp_path}/out")
    assert ended.code == 2 and re.search("no such file or folder|has no file of records", ended.err), ended.err


def test_a_recipe_is_the_first_argument_or_the_last_one(build, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}])
    recipe = recipe_with(tmp_path, input="a.jsonl", tokenizer=str(TOKENIZER), append=True, dry_run="True")
    output = f"--output={tmp_path}/out"
    for arguments in (
        [recipe, output],
        [output, recipe],
        ["--output", f"{tmp_path}/out", recipe],
        [output, "--direct_num_workers=2", recipe],
        ["--recipe", recipe, output],
        [recipe, output, "--job_name", "x.yaml"],  # the last one may be the value of an option of Beam
    ):
        ended = build(*arguments)
        assert (ended.code, "a dry run: 1 file would be added" in ended.err) == (0, True), arguments
    assert not (tmp_path / "out").exists()


def data_of(output: Path) -> dict[str, str]:
    """The sha256 of each file of rows and of exceptions, by its name without the increment, of which it is part."""
    found = digests(output).items()
    return {name_in_increment(name): digest for name, digest in found if name.startswith(("data/", "records/"))}


def test_the_recipe_of_sources_makes_the_same_bytes_again(corpus, tmp_path, monkeypatch):
    output = tmp_path / "out"
    monkeypatch.chdir(corpus)
    (corpus / "t.jinja").write_text(TEMPLATE)
    with (corpus / "faq.jsonl").open("a") as file:
        file.write("{}\n" * 3)  # of 93 records: a little more than 0.032
    options = ["--chat_template=t.jinja", "--max_reject_fraction=0.5", "--direct_num_workers=1", "--provenance"]
    assert chatmill("build", "mix.yaml", f"--output={output}", f"--tokenizer={TOKENIZER}", *options) == 0
    for name in ("mix.yaml", "faq.py", "t.jinja"):
        (corpus / name).unlink()
    monkeypatch.chdir(tmp_path)
    moved = output.rename(tmp_path / "moved")  # tokenizer and formatters are named from its folder
    assert chatmill("build", "moved/recipe.yaml", "--output=again", "--direct_num_workers=1") == 0
    assert data_of(tmp_path / "again") == data_of(moved) != {}
    card = (moved / "README.md").read_text()
    assert "\nsources:\n- name: chats\n  input:\n  - chats.jsonl\n" in card and str(corpus) not in card


def test_the_recipe_of_a_dataset_that_grew_is_that_of_its_first_build(corpus, tmp_path):
    options = [f"--tokenizer={TOKENIZER}", "--max_length=64", "--packing=bfd", "--keep_columns=a", "--now=2026-01-02"]
    for name in ("shared", "more"):
        write_jsonl(corpus / "more.jsonl", [{"messages": turns(7)}])
        output = [f"--output={tmp_path}/out", "--append", "--direct_num_workers=1"]
        assert chatmill("build", f"--input={corpus}/{name}.jsonl", *options, *output) == 0
    recipe = (tmp_path / "out" / "recipe.yaml").read_text()
    assert recipe.startswith("# Of the first build. What was appended later has the same options, and other inputs.\n")
    tokenizer = read_manifest(tmp_path / "out")["job"]["tokenizer"][:16]
    assert yaml.safe_load(recipe) == {
        "input": [f"{corpus}/shared.jsonl"], "max_length": 64, "packing": "bfd", "keep_columns": ["a"],
        "now": "2026-01-02T00:00:00", "tokenizer": f"./_chatmill/tokenizers/{tokenizer}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "expected"), [((9, 1), (90, 0), 0.1), ((99, 0), (9, 1), None), ((9, 0), (7, 4), 0.2)]
)
def test_the_recipe_of_a_dataset_that_grew_allows_the_rejects_of_the_first_build_and_of_all(
    build, tmp_path, first, second, expected
):
    options = [f"--input={tmp_path}/in", f"--output={tmp_path}/out", f"--tokenizer={TOKENIZER}", "--append"]
    (tmp_path / "in").mkdir()
    for name, (good, bad) in (("a", first), ("b", second)):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [{"text": "one"}] * good + [{"messages": "?"}] * bad)
        assert build(*options, "--max_reject_fraction=1").code == 0
    assert yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text()).get("max_reject_fraction") == expected
    assert f"max_reject_fraction: {expected}\n" in (tmp_path / "out" / "README.md").read_text() or expected is None
