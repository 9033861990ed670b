"""The command line: a user error is one line and exit code 2, shown before anything is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.chats import assistant, user
from support.datasets import build_in_process, digests, read_manifest, write_jsonl
from support.paths import CHATS, ROOT, TOKENIZER
from support.templates import CHATML
from transforms import __version__

OPTIONS = {"--input": CHATS, "--tokenizer": TOKENIZER, "--output": "OUT"}
_POOL = "ARROW_DEFAULT_MEMORY_POOL"


def with_options(output: object, **changed: object) -> list[str]:
    """The options of a valid build, with some changed; None leaves one out."""
    options = OPTIONS | {"--output": output} | {f"--{name}": value for name, value in changed.items()}
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def test_texts_alone_need_no_chat_template_and_named_stop_tokens_no_generation_config(build, tmp_path):
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer" / "generation_config.json").write_text('{"eos_token_id": "x"}')
    plain = {"tokenizer": tmp_path / "tokenizer", "input": CHATS / "arithmetic.jsonl", "eot_tokens": "<|im_end|>"}
    ended = build(*with_options(tmp_path / "plain", **plain), "--max_reject_fraction=0.1")
    assert ended.code == 0, ended.err


TWICE = "{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (TWICE, "the template "),
        (
            "{{ messages[0].role }}: {{ messages[0].content }}",
            "the chat template does not print the content of messages[",
        ),
    ],
)
def test_a_template_under_which_the_first_conversation_is_rejected_is_a_warning(build, tmp_path, template, problem):
    ended = build(*with_options(tmp_path / "out", chat_template=template, input=CHATS / "support.jsonl"))
    assert ended.code == 1
    warning, *rest = ended.err.splitlines()
    assert warning.startswith(f"chatmill: warning: with the chat template {template}, the first conversation (")
    assert f"({CHATS}/support.jsonl, byte 0) would be rejected: {problem}" in warning
    assert "were rejected" in rest[0] and (template != TWICE or "spans_not_established (" in rest[1])


def test_a_tokenizer_whose_regular_expression_transformers_warns_of_is_named(build, tmp_path):
    folder = Path(shutil.copytree(TOKENIZER, tmp_path / "tokenizer"))
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] |= {f"no text has it {number}": 100_000 + number for number in range(100_001)}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "config.json").write_text('{"model_type": "mistral3", "transformers_version": "4.50.0"}')
    ended = build(*with_options(tmp_path / "out", tokenizer=folder))
    assert ended.code == 0
    assert f"chatmill: warning: --tokenizer {folder} cuts texts by a regular expression of which" in ended.err
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "fix_mistral_regex": True}))
    assert "regular expression" not in build(*with_options(tmp_path / "fixed", tokenizer=folder)).err


def test_the_form_of_contents_is_named_once_if_it_is_not_that_of_the_records(build, tmp_path):
    parts = [{"type": "text", "text": text} for text in ("2", "+2?")]
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": [user(parts), assistant("4")]}] * 3)
    ended = build(*with_options(tmp_path / "out", chat_template=CHATML, input=chats))
    assert ended.err == (
        "chatmill: note: the chat template does not print contents of user in the form that the records have, so it is "
        "given strings, with a line break between two parts.\n"
    )


COMMANDS = sorted(path.stem for path in (ROOT / "pipeline" / "commands").glob("[!_]*.py"))
HEAVY = {"apache_beam", "transformers", "pyarrow", "fsspec", "rich", "pydantic"}
PROBE = """
import sys
from pipeline import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        *(([command, option], 0) for command in COMMANDS for option in ("--help", "--version")),
        (["--version"], 0),
        (["build", "--inptu=x"], 2),
        (["--packing=bdf"], 2),
        (["masks", "--tokeniser=x"], 2),
        (["bild"], 2),
        ([], 2),
    ],
)
def test_help_and_mistyped_options_import_nothing_heavy(arguments, code):
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("--version" in arguments) == (done.stdout == f"chatmill {__version__}\n")
    needed = {"pydantic"} if "--packing=bdf" in arguments else set()  # it says that the value is wrong
    assert set(done.stderr.split()) & HEAVY == needed


@pytest.mark.parametrize(
    ("program", "chosen"), [("pipeline", None), ("pipeline.runners.worker", None), ("pipeline", "jemalloc")]
)
def test_arrow_takes_its_memory_from_the_system_unless_another_pool_is_chosen(monkeypatch, program, chosen):
    monkeypatch.delenv(_POOL, raising=False)
    if chosen:
        monkeypatch.setenv(_POOL, chosen)
    probe = f"import {program}, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [chosen or "system"]


def modules_after(*arguments: str) -> set[str]:
    """Run a command that succeeds in a new process, and return what it has imported."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


# What takes long to import. transformers imports torch and PIL if they are installed. dependency_versions_check shows
# that its `__init__` ran, which reads the files of all models.
NOT_FOR_A_SMALL_BUILD = {"PIL", "gigatoken", "torch", "transformers.dependency_versions_check"}


def test_a_small_build_on_this_machine_imports_not_all_of_transformers_and_a_finished_one_not_even_beam(tmp_path):
    options = with_options(tmp_path / "out")
    assert not modules_after(*options) & NOT_FOR_A_SMALL_BUILD
    assert "apache_beam" not in modules_after(*options)


def test_texts_that_a_terminal_does_not_have_the_characters_of_are_shown_escaped(tmp_path):
    done = build_in_process(*with_options(tmp_path / "out"), env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "\\u27e6" in done.stdout


DEFAULT = r"\((default: .+|required)\)$"


@pytest.mark.parametrize("columns", ["80", "110"])
def test_help_shows_each_option_with_its_default_two_examples_and_the_place_of_the_docs(columns):
    done = build_in_process("build", "--help", "all", env={**os.environ, "COLUMNS": columns})
    assert done.returncode == 0
    for group in ("Input:", "Tokenizer and template:", "Rows:", "Output:", "Running:"):
        assert f"\n{group}\n" in done.stdout
    options, _, end = done.stdout.partition("\nexamples:\n")
    entries = [" ".join(entry.split()) for entry in re.split(r"\n\n|\n(?=  --)", options)]
    entries = [entry for entry in entries if entry.startswith("--") and not entry.startswith("--version ")]
    assert len(entries) > 60 and [entry for entry in entries if not re.search(DEFAULT, entry)] == []
    named = [line for line in options.splitlines() if line.startswith("  --")]
    assert [line for line in named if not re.match(r"  --\w+( \S+)?(  |$)", line)] == []  # a value is one word
    assert end.count("  chatmill build ") == 4
    assert "documentation: README.md and the docs/ folder" in end
    assert max(map(len, done.stdout.splitlines())) <= int(columns)


def test_help_shows_the_options_that_most_builds_need_and_names_the_way_to_the_others():
    shown = build_in_process("build", "--help").stdout
    names = {*re.findall(r"^  --(\w+) ", shown, re.MULTILINE)} - {"version"}
    assert {"input", "tokenizer", "output", "packing", "max_length"} < names
    assert 20 <= len(names) <= 25 and "--help all lists all options" in " ".join(shown.split())


def test_help_without_a_command_lists_the_commands_and_the_options_of_a_build():
    whole, of_build = build_in_process("--help").stdout, build_in_process("build", "--help").stdout
    assert whole.endswith(of_build)
    for command in (*COMMANDS, "--version"):
        assert f" chatmill {command} " in whole.removesuffix(of_build)


def test_an_unknown_command_is_a_user_error():
    done = build_in_process("bild", *with_options("o"))
    assert (done.returncode, done.stdout) == (2, "")
    first, _, usage = done.stderr.partition("\n")
    named = re.fullmatch(r"chatmill: unknown command bild: expected (.+)\. Did you mean build\?", first)
    assert named and sorted(named[1].split(", ")) == COMMANDS
    assert usage.startswith("usage: chatmill build [RECIPE] OPTIONS")
    assert build_in_process().returncode == 2 and "chatmill build [RECIPE] OPTIONS" in build_in_process().stderr


def test_the_console_command_is_the_same_program():
    chatmill = os.path.join(os.path.dirname(sys.executable), "chatmill")
    for arguments in (["build", "--packing=bdf"], ["masks"], ["bild"], ["--version"]):
        done = subprocess.run([chatmill, *arguments], capture_output=True, text=True, check=False)
        module = build_in_process(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (module.returncode, module.stdout, module.stderr)


def test_run_local_builds_the_examples_once_and_passes_options_on():
    command = [ROOT / "run_local.sh"]
    subprocess.run(command, capture_output=True, check=True)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "is finished already" in again.stderr
    for text in ("records read      600", "rejected          5", "padding left", "load_dataset(", "⟦"):
        assert text in again.stdout
    passed_on = subprocess.run([*command, "--packing=bdf"], capture_output=True, text=True, check=False)
    assert passed_on.returncode == 2 and "Did you mean bfd?" in passed_on.stderr


def test_a_tokenizer_of_the_hub_is_taken_from_its_cache_without_the_network(tmp_path):
    repository = tmp_path / "home" / "hub" / "models--mill--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(TOKENIZER, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = build_in_process(*with_options(tmp_path / "out", tokenizer="mill/tiny"), env=environment)
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "out")["job"]["tokenizer_name"] == "mill/tiny"
    missing = build_in_process(*with_options(tmp_path / "no", tokenizer="mill/none"), env=environment)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    problem = "there is no such folder, and it cannot be downloaded from the Hugging Face"
    assert missing.stderr.startswith(f"chatmill: --tokenizer mill/none: {problem}")


def test_the_result_of_a_run_is_the_last_line_of_its_output_for_schedulers(build, tmp_path):
    output = tmp_path / "out"
    ended = build(*with_options(output, max_reject_fraction=0.5), "--json")
    assert ended.code == 0, ended.err
    manifest, summary = read_manifest(output), json.loads(ended.out.splitlines()[-1])
    expected = {"status": "done", "output": str(output), "shards": len(manifest["shards"])}
    expected |= {name: manifest[name] for name in ("records", "rows", "tokens")}
    assert summary == summary | expected
    again = build(*with_options(output, max_reject_fraction=0.5), "--json")
    assert again.code == 0
    assert json.loads(again.out.splitlines()[-1]) == summary | {"status": "done_before"}


def test_names_with_colons_and_commas_are_those_of_files_on_this_machine(build, tmp_path):
    """fsspec would take the part before `::` for another file, and write there."""
    chats, tokenizer = tmp_path / "a::b" / "c,d::file:", tmp_path / "x::tokenizer"
    chats.mkdir(parents=True)
    shutil.copy(CHATS / "support.jsonl", chats / "e::f,g.jsonl")
    shutil.copytree(TOKENIZER, tokenizer)
    template = shutil.copy(TOKENIZER / "chat_template.jinja", tmp_path / "t::u.jinja")
    plain = build(*with_options(tmp_path / "plain", input=CHATS / "support.jsonl"))
    assert plain.code == 0, plain.err
    names = {"tokenizer": tokenizer, "chat_template": template}
    for number, given in enumerate((chats, chats / "e::f,g.jsonl", f"{tmp_path}/a::b/*,d::*/*.jsonl")):
        output = tmp_path / f"out::{number}"
        ended = build(*with_options(output, input=str(given).replace(",", "\\,"), **names))
        assert ended.code == 0, ended.err
        found, expected = (digests(folder / "data") for folder in (output, tmp_path / "plain"))
        assert [*found.values()] == [*expected.values()] != []
    assert {path.name for path in tmp_path.iterdir()} == {
        "a::b", "x::tokenizer", "t::u.jinja", "plain", "out::0", "out::1", "out::2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [({"max_reject_fraction": 0}, 1, "records were rejected"), ({"tokenizer": "/nowhere"}, 2, "--tokenizer /nowhere")],
)
def test_the_result_of_a_failed_run_has_its_error(build, tmp_path, changed, code, message):
    ended = build(*with_options(tmp_path / "out", **changed), "--json")
    assert ended.code == code
    summary = json.loads(ended.out.splitlines()[-1])
    assert summary["status"] == "failed" and message in summary["error"]


def test_an_error_in_the_options_is_in_the_result_too(build):
    message = "--packing bfd: it needs a max_length, such as 4096."
    ended = build(*with_options("o", packing="bfd"), "--json")
    assert (ended.code, ended.err) == (2, f"chatmill: {message}\n")
    assert json.loads(ended.out) == {"status": "failed", "error": message}
    ended = build(*with_options("o\udcff"), "--json")
    assert ended.code == 2 and ended.err.count("\n") == 1
    assert json.loads(ended.out)["output"] == "o\udcff"


@pytest.mark.parametrize(
    ("missing", "code", "problem"),
    [
        ("psutil", 2, "chatmill: the Python package psutil is not installed for "),
        ("rich.filesize", 1, "chatmill: unexpected error; the traceback is above. "),
    ],
)
def test_a_package_that_is_missing_is_named_and_one_that_lacks_a_module_is_a_defect(tmp_path, missing, code, problem):
    program = f"import sys; sys.modules[{missing!r}] = None; from pipeline import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *with_options(tmp_path / "out")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == code and ended.stderr.splitlines()[-1].startswith(problem), ended.stderr
