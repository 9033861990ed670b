"""The command line: a user's mistake is one line and exit code 2, told before anything is written."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from pipeline.options import Options, parse_options
from support.datasets import build_apart, digests, manifest_of
from support.places import CHATS, ROOT, TOKENIZER

GIVEN = {"--input": CHATS, "--tokenizer": TOKENIZER, "--output": "OUT"}


def with_options(output: object, **changed: object) -> list[str]:
    """The options of a build that works, some of them changed; None leaves one out."""
    options = GIVEN | {"--output": output} | {f"--{name}": value for name, value in changed.items()}
    return [f"{name}={value}" for name, value in options.items() if value is not None]


MISTAKES = [
    (["--input=x", "--tokenizer=y"], "--output is missing"),
    (["--inptu=x"], "there is no option --inptu. Did you mean --input?"),
    (["--max-length=3"], "Did you mean --max_length?"),
    (["--direct_num_worker=3"], "Did you mean --direct_num_workers?"),
    (["corpus.jsonl"], "--input corpus.jsonl"),
    (["--packing=bdf"], "Did you mean bfd?"),
    (with_options("o", packing="bfd"), "--packing bfd needs a --max_length"),
    (with_options("o", max_length="0"), "'0' is not a whole number above 0"),
    (with_options("o", validation_fraction="2"), "'2' is not a number from 0 to 1"),
    (with_options("o", chat_template_kwargs="{"), "is not JSON"),
    (with_options("o", chat_template_kwargs='{"tools": 1}'), "tools cannot be given"),
    (with_options("o", roles="narrator=storyteller"), "'storyteller' is not one of system"),
    (with_options("o", columns="messages"), "name=other"),
    (with_options("o", columns="mesages=dialog"), "Did you mean messages?"),
    (with_options("o", now="tomorrow"), "is not a moment"),
    (with_options("o", packing="bfd", max_length="9", keep_columns="id"), "--keep_columns needs --packing none"),
    (with_options("o", keep_columns="labels"), "a column of that name is written already"),
    ([*with_options("o", keep_columns="source"), "--provenance"], "a column of that name is written already"),
    (with_options("o", formatter="here"), "'here' is not of the form module:function or file.py:function"),
    ([*with_options("o"), "--provenance=yes"], "'yes' is not true or false"),
    (with_options("o", write_columns="ids"), "'ids' is not one of input_ids"),
]


@pytest.mark.parametrize(("options", "said"), MISTAKES)
def test_a_mistake_in_the_options_is_one_line(options, said, build):
    ended = build(*options)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err and ended.err.startswith("chatmill: ") and ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"input": "missing.jsonl"}, "--input missing.jsonl: there is no such file or folder"),
        ({"input": "{tmp}/*.nothing"}, "it has no file of records"),
        ({"input": "{tmp}/empty.jsonl"}, "all files are empty"),
        ({"input": "{tmp}/linked"}, "/linked/gone.jsonl: it is not a regular file (a broken link"),
        ({"input": "{tmp}/linked/*"}, "/linked/gone.jsonl: it is not a regular file (a broken link"),
        ({"input": "what://x/y"}, "Protocol not known: what"),
        ({"tokenizer": CHATS}, "there is no tokenizer there; expected a folder with tokenizer.json"),
        ({"tokenizer": "./nowhere"}, "there is no tokenizer there"),
        ({"tokenizer": "{tmp}/broken"}, "it cannot be loaded"),
        ({"output": "{tmp}/empty.jsonl"}, "there is a file of that name"),
        ({"output": "{tmp}/empty.jsonl/below"}, "cannot be written"),
        ({"output": "{tmp}"}, "the folder holds other files"),
        (
            {"chat_template": "{tmp}/no.jinja"},
            "there is no such file, nor does the tokenizer hold a template of that name",
        ),
        ({"chat_template": "{{% for m in messages %}}"}, "line 1: Unexpected end of template"),
        ({"chat_template": "{{% if 'https://a.b' %}}"}, "line 1: Unexpected end of template"),
        ({"formatter": "no_such_module:f"}, "cannot be loaded"),
        ({"formatter": "json:no_such_function"}, "has no function no_such_function"),
        ({"runner": "WalkRunner"}, "Unexpected pipeline runner: WalkRunner"),
        ({"direct_num_workers": "many"}, "invalid int value: 'many'"),
        ({"direct_num_workers": "-3"}, "--direct_num_workers -3: expected 1 or more"),
        ({"summary_json": "{tmp}/broken/tokenizer.json"}, "there is a file that is no summary"),
        ({"summary_json": "{tmp}/out/summary.json"}, "it lies in --output"),
    ],
)
def test_a_mistake_in_what_they_name_is_one_line_and_leaves_nothing(changed, said, build, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "gone.jsonl").symlink_to("nowhere.jsonl")
    before = digests(tmp_path)
    changed = {name: str(value).format(tmp=tmp_path) for name, value in changed.items()}
    ended = build(*with_options(**{"output": tmp_path / "out"} | changed))
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err and ended.err.startswith("chatmill: ") and ended.err.count("\n") == 1
    assert digests(tmp_path) == before
    assert not list(tmp_path.glob("out/_chatmill/*"))


def test_a_conversation_without_a_template_is_told_before_the_work(build, tmp_path):
    (tmp_path / "tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "tokenizer" / name).write_bytes((TOKENIZER / name).read_bytes())
    ended = build(*with_options(tmp_path / "out", tokenizer=tmp_path / "tokenizer"))
    assert ended.code == 0 or "no chat template" in ended.err
    chats = build(*with_options(tmp_path / "chats", tokenizer=tmp_path / "tokenizer", input=CHATS / "support.jsonl"))
    assert chats.code == 2
    assert "the tokenizer has no chat template, and a conversation needs one: give it with --chat_template" in chats.err
    plain = build(
        *with_options(
            tmp_path / "plain",
            tokenizer=tmp_path / "tokenizer",
            input=CHATS / "arithmetic.jsonl",
            max_reject_fraction=0.1,
        )
    )
    assert plain.code == 0, plain.err


def test_a_template_without_masks_is_told_once_before_the_work(build, tmp_path):
    twice = "{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    ended = build(*with_options(tmp_path / "out", chat_template=twice, input=CHATS / "support.jsonl"))
    assert ended.code == 1
    warning, *rest = ended.err.splitlines()
    assert warning.startswith(f"chatmill: warning: the chat template {twice} has no mask for the first conversation")
    assert f"({CHATS}/support.jsonl, 0): the template " in warning
    assert "spans_not_established (" in rest[1] and "were rejected" in rest[0]


def test_help_and_mistyped_options_import_nothing_heavy():
    probe = (
        "import sys; from pipeline.cli import build; code = build(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
    )
    for options, code in ((["--inptu=x"], 2), (["--packing=bdf"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", probe, *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        loaded = set(done.stdout.split())
        assert not loaded & {"apache_beam", "transformers", "jinja2", "pyarrow", "fsspec", "rich"}


def test_help_lists_each_option_in_a_group():
    done = build_apart("--help")
    assert done.returncode == 0
    for field in dataclasses.fields(Options):
        assert re.search(rf"^  --{field.name}\b", done.stdout, re.MULTILINE)
    for group in ("Input:", "Tokenizer and template:", "Rows:", "Output:", "Running:"):
        assert f"\n{group}\n" in done.stdout


def test_inputs_may_be_repeated_and_separated_by_commas():
    options, beams = parse_options(
        ["--input", "a,b", "--input=c", "--tokenizer=t", "--output=o", "--direct_num_workers", "3", "--temp_location=x"]
    )
    assert options.input == ("a", "b", "c")
    assert beams == ["--direct_num_workers", "3", "--temp_location=x"]


def test_a_flag_may_have_a_value_as_schedulers_give_one():
    given = with_options("o")
    assert parse_options([*given, "--provenance"])[0] == parse_options([*given, "--provenance=true"])[0]
    assert parse_options([*given, "--provenance", "--provenance=false"])[0] == parse_options(given)[0]


def test_the_console_command_is_the_same_program():
    chatmill = os.path.join(os.path.dirname(sys.executable), "chatmill")
    done = subprocess.run([chatmill, "build", "--packing=bdf"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == build_apart("--packing=bdf").stderr
    assert subprocess.run([chatmill, "grind"], capture_output=True, check=False).returncode == 2
    assert "chatmill build" in subprocess.run([chatmill], capture_output=True, text=True, check=False).stdout


def test_run_local_mills_the_examples_and_then_says_that_they_are_there(tmp_path):
    command = [ROOT / "run_local.sh"]
    subprocess.run(command, capture_output=True, check=True)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "is finished already" in again.stderr
    for said in ("records read      600", "rejected          5", "padding left", "load_dataset(", "⟦"):
        assert said in again.stdout
    passed_on = subprocess.run([*command, "--packing=bdf"], capture_output=True, text=True, check=False)
    assert passed_on.returncode == 2 and "Did you mean bfd?" in passed_on.stderr


def test_a_tokenizer_of_the_hub_is_taken_from_its_cache_without_the_network(tmp_path):
    repository = tmp_path / "home" / "hub" / "models--mill--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(TOKENIZER, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    options = with_options(tmp_path / "out", tokenizer="mill/tiny")
    done = build_apart(*options, env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    assert manifest_of(tmp_path / "out")["job"]["tokenizer_name"] == "mill/tiny"
    missing = build_apart(
        *with_options(tmp_path / "no", tokenizer="mill/none"), env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert missing.returncode == 2
    assert missing.stderr.startswith(
        "chatmill: --tokenizer mill/none: there is no such folder, and the hub does not give it"
    )
    assert missing.stderr.count("\n") == 1


def test_how_a_run_ended_is_written_for_schedulers(build, tmp_path):
    place, output = tmp_path / "logs" / "summary.json", tmp_path / "out"
    ended = build(*with_options(output, max_reject_fraction=0.5, summary_json=place))
    assert ended.code == 0, ended.err
    manifest, summary = manifest_of(output), json.loads(place.read_text())
    assert summary["status"] == "done"
    assert summary["output"] == str(output)
    assert {name: summary[name] for name in ("records", "rows", "tokens")} == {
        name: manifest[name] for name in ("records", "rows", "tokens")
    }
    assert summary["shards"] == len(manifest["shards"])
    again = build(*with_options(output, max_reject_fraction=0.5, summary_json="-"))
    assert again.code == 0
    assert json.loads(again.out.splitlines()[-1]) == summary | {"status": "done_before"}


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [({"max_reject_fraction": 0}, 1, "records were rejected"), ({"tokenizer": "/nowhere"}, 2, "--tokenizer /nowhere")],
)
def test_a_run_that_fails_says_so_for_schedulers(build, tmp_path, changed, code, said):
    place = tmp_path / "summary.json"
    ended = build(*with_options(tmp_path / "out", summary_json=place, **changed))
    assert ended.code == code
    summary = json.loads(place.read_text())
    assert summary["status"] == "failed"
    assert said in summary["error"]


def test_mistaken_options_are_told_to_schedulers_too(build, tmp_path):
    mistake = "--packing bfd needs a --max_length, such as --max_length 4096."
    told, place = {"status": "failed", "error": mistake}, tmp_path / "summary.json"
    ended = build(*with_options("o", packing="bfd", summary_json="-"))
    assert (ended.code, ended.err) == (2, f"chatmill: {mistake}\n")
    assert json.loads(ended.out) == told
    assert build(*with_options("o", packing="bfd", summary_json=place)).code == 2
    assert json.loads(place.read_text()) == told
    # Nor does a place that is mistaken too hide the mistake.
    ended = build(*with_options("o", packing="bfd", summary_json=place / "below"))
    assert (ended.code, ended.err) == (2, f"chatmill: {mistake}\n")


def test_summary_that_cannot_be_written_is_told_before_the_work(build, tmp_path):
    (tmp_path / "file").write_text("")
    ended = build(*with_options(tmp_path / "out", summary_json=tmp_path / "file" / "summary.json"))
    assert ended.code == 2
    assert ended.err.startswith("chatmill: --summary_json ")
    assert len(ended.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
