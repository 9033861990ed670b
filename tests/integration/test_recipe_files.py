"""Recipes: a file with the options of a build, and sources with options of their own in one dataset."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import yaml

from pipeline.cli.options import parse_options
from pipeline.cli.sources import SOURCE_OPTIONS, read_sources, with_all_inputs
from pipeline.job.graph import build_graph
from pipeline.job.prepare import prepare
from support.command_line import chatmill
from support.datasets import digests, manifest_of, name_in_increment, rows_of, write_jsonl
from support.paths import ROOT, TOKENIZER
from transforms.dataset.budgets import Budgets
from transforms.dataset.layout import Folder

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
         "chat_template_kwargs": {"mark": "!"}, "loss_on": "last_assistant"},
        {"input": ["shared.jsonl"], "loss_on": "all"},
        {"name": "faq", "input": "faq.jsonl", "formatter": "faq.py:as_messages"},
    ]  # fmt: skip
    (folder / "mix.yaml").write_text(yaml.safe_dump({"sources": sources}))
    return folder


def options_of(folder: Path, output: Path, *more: object) -> list[object]:
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
        "chats.jsonl": ["--columns=messages=dialog", "--roles=bot=assistant", '--chat_template_kwargs={"mark":"!"}',
                        "--loss_on=last_assistant"],
        "shared.jsonl": ["--loss_on=all"],
        "faq.jsonl": [f"--formatter={corpus}/faq.py:as_messages"],
    }  # fmt: skip
    expected, counts = [], []
    for name, options in separate.items():
        output = tmp_path / f"only {name}"
        ended = build(f"--input={corpus}/{name}", f"--output={output}", *common, *options)
        assert ended.code == 0, ended.err
        expected += rows_of(output)
        manifest = manifest_of(output)
        assert [source["name"] for source in manifest["sources"]] == ["input"]
        counts.append({key: manifest[key] for key in ("records", "rows", "tokens", "trained_tokens")})
    ended = build(*options_of(corpus, tmp_path / "all", "--provenance"))
    assert ended.code == 0, ended.err
    assert rows_of(tmp_path / "all") == expected
    manifest = manifest_of(tmp_path / "all")
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
    options = options_of(corpus, output)

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


def test_workers_need_neither_the_config_nor_the_formatter_of_a_source(corpus, tmp_path):
    options, _ = parse_options([str(option) for option in options_of(corpus, tmp_path / "out")])
    folder = Folder(str(tmp_path / "out"))
    prepared = prepare(options, folder, read_sources(options))
    assert prepared
    for name in ("mix.yaml", "faq.py"):
        (corpus / name).unlink()
    with beam.Pipeline("FnApiRunner") as pipeline:
        build_graph(pipeline, prepared.job, prepared.folder, Budgets(0.0), "auto", "html", change=prepared.change)
    assert manifest_of(tmp_path / "out")["rows"] == 90


@pytest.mark.slow
def test_example_reads_its_three_sources(build, tmp_path):
    ended = build(
        f"{ROOT}/examples/sources.yaml", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    sources = {source["name"]: source for source in manifest_of(tmp_path / "out")["sources"]}
    assert {name: source["records"]["read"] for name, source in sources.items()} == {
        "support": 400, "general": 120, "arithmetic": 80,
    }  # fmt: skip
    assert sources["general"]["records"]["rejected"] == {}  # narrator is a user here


def test_same_file_in_two_sources_is_read_twice_only_if_the_second_says_so(build, corpus):
    change(corpus, 1, input=["shared.jsonl", "chats.jsonl"])
    ended = build(*options_of(corpus, corpus / "out"))
    assert ended.code == 2
    assert ended.err == (
        f"chatmill: {corpus}/mix.yaml: source 2: input {corpus}/chats.jsonl: the source chats lists "
        "this file, too. To read it twice, write may_repeat: true in the source 2-shared.\n"
    )
    change(corpus, 1, may_repeat=True)
    options, _ = parse_options([str(option) for option in options_of(corpus, corpus / "out")])
    prepared = prepare(options, Folder(str(corpus / "out")), read_sources(options))
    assert prepared and prepared.job.splits == 3  # the two files of the second source are small, and make one


def sources_of(text: str, url: str = "memory://mixes/here/mix.yaml", *more: str) -> list[Any]:
    from transforms.storage.writing import write_atomically

    write_atomically(url, f"sources: {text if text[0] == '[' else f'{chr(10)}{text}'}".encode())
    options, _ = parse_options([url, "--tokenizer=t", "--output=o", *more])
    return read_sources(options)


def test_relative_paths_begin_at_the_folder_of_the_config():
    text = "[{input: [a.jsonl, ../b/, /c, 's3://d/e', './f/*'], formatter: 'f.py:g'}, {input: a, formatter: 'f.x:g'}]"
    first, second = sources_of(text)
    assert first.options.input == (
        "memory://mixes/here/a.jsonl", "memory://mixes/b", "/c", "s3://d/e", "memory://mixes/here/f/*",
    )  # fmt: skip
    assert first.options.formatter == "memory://mixes/here/f.py:g"
    assert second.options.formatter == "f.x:g"


def test_names_without_a_name_are_of_the_position_and_the_inputs_without_folders():
    text = json.dumps(
        [
            {"input": path}
            for path in ("/home/me/chats/", "/home/me/a.b.jsonl.gz", "../x/**/*.jsonl", "*.jsonl", "s3://b/*")
        ]
        + [{"input": "/a", "name": 7}]
    )
    assert [source.name for source in sources_of(text)] == ["1-chats", "2-a", "3-x", "4-input", "5-b", "7"]


def test_values_are_those_of_the_command_line():
    """As lists and mappings, or as text. A date is text, as in JSON."""
    text = {
        "columns": "messages=dialog,tools=functions",
        "roles": "bot=assistant",
        "chat_template_kwargs": '{"enable_thinking": false, "date": "2026-01-01"}',
        "schema": "sharegpt",
        "loss_on": "all",
    }
    structured = """[{
        input: a, columns: {messages: dialog, tools: functions}, roles: {bot: assistant}, schema: sharegpt,
        chat_template_kwargs: {enable_thinking: off, date: 2026-01-01}, loss_on: all
    }]"""
    options = [f"--{key}={value}" for key, value in text.items()]
    expected, _ = parse_options(["--input=a", "--tokenizer=t", "--output=o", *options])
    for written in (yaml.safe_dump([{"input": "a", **text}]), structured):
        [source] = sources_of(written)
        assert {key: getattr(source.options, key) for key in text} == {key: getattr(expected, key) for key in text}


def test_command_line_has_the_defaults_which_null_resets():
    first, second, third = sources_of(
        "[{input: a}, {input: b, columns: null, schema: text}, {input: c, columns: {text: d}, schema: null}]",
        "memory://mixes/mix.yaml", "--columns=text=body", "--schema=messages", "--max_length=9",
    )  # fmt: skip
    assert [source.options.columns for source in (first, second, third)] == [{"text": "body"}, None, {"text": "d"}]
    assert [source.options.schema for source in (first, second, third)] == ["messages", "text", "auto"]
    assert {source.options.max_length for source in (first, second, third)} == {9}


def test_runner_knows_the_stores_of_all_sources_and_whether_one_has_a_formatter():
    """The launcher does not fork workers then: clients have threads, and a formatter may have loaded a model."""
    options, _ = parse_options(["--input=none", "--tokenizer=t", "--output=o"])
    text = "[{input: /a}, {input: 's3://b/c'}, {input: d, formatter: 'e:f'}]"
    whole = with_all_inputs(options, sources_of(text, "memory://mixes/mix.yaml"))
    assert whole.input == ("/a", "s3://b/c", "memory://mixes/d")
    assert whole.formatter == "e:f"
    assert ("input", "s3://b/c") in whole.urls()


def test_documentation_names_every_key_of_a_source():
    table = (ROOT / "docs" / "sources.md").read_text().partition("\n| key |")[2].partition("\n\n")[0]
    keys = {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])} if table else set()
    assert keys == {"name", "may_repeat", "hub", "config", "revision", *SOURCE_OPTIONS}


def recipe_with(folder: Path, **options: Any) -> Path:
    (folder / "recipe.yaml").write_text(yaml.safe_dump(options))
    return folder / "recipe.yaml"


def test_options_of_the_command_line_replace_those_of_the_recipe(tmp_path):
    url = recipe_with(
        tmp_path, input="a.jsonl", tokenizer="./t", output="../o", max_length=9, chat_template_kwargs={"a": [1]},
        append=True, columns=None, direct_num_workers=3, experiments=["x", "y"], save_main_session=True,
        **{"for": "trl", "formatter": "f.py:g", "chat_template": "tool_use"},
    )  # fmt: skip
    options, beam_flags = parse_options([str(url), "--max_length=8", "--direct_num_workers", "2", "--append=false"])
    assert (options.input, options.tokenizer) == ((f"{tmp_path}/a.jsonl",), f"{tmp_path}/t")
    assert (options.output, options.chat_template) == (f"{tmp_path.parent}/o", "tool_use")
    assert (options.max_length, options.append, options.consumer) == (8, False, "trl")
    assert (options.chat_template_kwargs, options.formatter) == ({"a": [1]}, f"{tmp_path}/f.py:g")
    assert beam_flags == ["--experiments=x", "--experiments=y", "--save_main_session", "--direct_num_workers", "2"]
    assert parse_options([f"--recipe={url}", "--input=b", "--input=c"])[0].input == ("b", "c")


def test_the_recipes_of_the_documentation_can_be_read(tmp_path):
    found = re.findall(r"```yaml\n(# \w+\.yaml\n.*?)```", (ROOT / "docs" / "sources.md").read_text(), re.DOTALL)
    assert len(found) == 2
    for text in found:
        (tmp_path / "recipe.yaml").write_text(text)
        options, beam_flags = parse_options([f"{tmp_path}/recipe.yaml", "--output=o"])
        assert (options.max_length, options.packing, beam_flags) == (4096, "bfd", [])
        assert [source.name for source in read_sources(options)] in (["input"], ["support", "general", "3-faq"])


def data_of(output: Path) -> dict[str, str]:
    """The sha256 of each file of rows and of the ledger, by its name without the increment, of which it is part."""
    found = {Path(name): digest for name, digest in digests(output).items()}
    return {
        name_in_increment(str(name)): digest for name, digest in found.items() if name.parts[0] in ("data", "ledger")
    }


def test_the_recipe_of_sources_makes_the_same_bytes_again(corpus, tmp_path, monkeypatch):
    output = tmp_path / "out"
    monkeypatch.chdir(corpus)
    (corpus / "t.jinja").write_text(TEMPLATE)
    with (corpus / "faq.jsonl").open("a") as file:
        file.write("{}\n")
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
    tokenizer = manifest_of(tmp_path / "out")["job"]["tokenizer"][:16]
    assert yaml.safe_load(recipe) == {
        "input": [f"{corpus}/shared.jsonl"], "max_length": 64, "packing": "bfd", "keep_columns": ["a"],
        "now": "2026-01-02T00:00:00", "tokenizer": f"./_chatmill/tokenizers/{tokenizer}",
    }  # fmt: skip


def test_a_recipe_is_the_first_argument_or_the_last_one(tmp_path, capfd):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("input: a\ntokenizer: t\nmax_length: 9")
    for arguments in (
        [str(recipe), "--output=o"],
        ["--output=o", str(recipe)],
        ["--output", "o", str(recipe)],
        ["--output=o", "--direct_num_workers=2", str(recipe)],
        ["--recipe", str(recipe), "--output=o"],
    ):
        options, beam_flags = parse_options(arguments)
        assert (options.recipe, options.max_length, options.output) == (str(recipe), 9, "o")
        assert beam_flags == [flag for flag in arguments if flag.startswith("--direct")]
    # The last one may be the value of an option of Beam.
    options, beam_flags = parse_options([str(recipe), "--output=o", "--runner=FlinkRunner", "--job_name", "x.yaml"])
    assert options.recipe == str(recipe) and beam_flags == ["--job_name", "x.yaml"]
    with pytest.raises(SystemExit):
        parse_options([str(recipe), "--help", "all"])
    assert "--mix_tokens" in capfd.readouterr().out
