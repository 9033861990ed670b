"""The command line: a user error is one line and exit code 2, shown before anything is written."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from pipeline.cli.console import as_typed, error_text
from pipeline.cli.options import Options, RowOptions, command_line_fields, option_name, parse_options
from support.datasets import build_in_process, digests, manifest_of, name_in_increment, write_jsonl
from support.paths import CHATS, ROOT, TOKENIZER
from support.templates import CHATML
from transforms import ParameterError, __version__
from transforms.base.declaring import values_of
from transforms.catalog.budgets import Budgets

OPTIONS = {"--input": CHATS, "--tokenizer": TOKENIZER, "--output": "OUT"}
_POOL = "ARROW_DEFAULT_MEMORY_POOL"


def with_options(output: object, **changed: object) -> list[str]:
    """The options of a valid build, with some changed; None leaves one out."""
    options = OPTIONS | {"--output": output} | {f"--{name}": value for name, value in changed.items()}
    return [f"{name}={value}" for name, value in options.items() if value is not None]


USER_ERRORS = [
    (["--input=x", "--tokenizer=y"], "--output is missing: give one, such as --output out/chats."),
    (["--inptu=x"], "unknown option --inptu. Did you mean --input? chatmill build --help lists the options."),
    (["--max-length=3"], "Did you mean --max_length?"),
    (["--direct_num_worker=3"], "Did you mean --direct_num_workers?"),
    (["corpus.jsonl"], "Each input needs its option: --input corpus.jsonl"),
    (["--packing"], "--packing: expected one argument. chatmill build --help lists the options."),
    (["--packing=bdf"], "--packing bdf: expected none, bfd, bfd_split, ffd, wrapped. Did you mean bfd?"),
    (with_options("o", packing="bfd"), "--packing bfd: it needs a max_length, such as 4096."),
    (
        with_options("o", max_length="0"),
        "--max_length 0: expected a whole number above 0, of at most 18 digits, or none.",
    ),
    (with_options("o", validation_fraction="2"), "--validation_fraction 2: expected a number from 0 to 1."),
    (with_options("o", chat_template_kwargs="{"), "--chat_template_kwargs {: this is not valid JSON ("),
    (with_options("http://localhost/o"), "--output http://localhost/o: web servers are only read from. Give a disk"),
    (with_options("o", input="gs://"), "--input gs://: expected the name of a bucket or a host after this."),
    (with_options("o", input="http://[::1/x"), "http://[::1/x: it is not a url (Invalid IPv6 URL)."),
    (with_options("/proc/o"), "--output /proc/o: it cannot be written ("),
    (with_options("o", max_length=str(2**63)), "expected a whole number above 0, of at most 18 digits, or none."),
    (with_options("o", chat_template_kwargs='{"a": NaN}'), "this is not valid JSON (Out of range float values"),
    (with_options("o", roles="a=user,a=assistant"), "--roles a=user,a=assistant: a is given twice."),
    (with_options("o", keep_columns="id,id"), "--keep_columns id,id: expected a list of names, each once."),
    (with_options("o", write_columns="labels,labels"), "--write_columns labels,labels: expected a list of input_ids"),
    (with_options("o", chat_template_kwargs='{"tools": 1}'), "tools cannot be set here: Chatmill sets it"),
    (with_options("o", roles="narrator=storyteller"), "narrator=storyteller: storyteller: expected system, developer"),
    (with_options("o", columns="messages"), "--columns messages: expected the form name=other,name=other."),
    (with_options("o", columns="mesages=dialog"), "Did you mean messages?"),
    (with_options("o", now="tomorrow"), "--now tomorrow: expected a date and time, such as 2026-11-20T12:00:00."),
    (with_options("o", keep_columns="labels"), "--keep_columns labels: Chatmill writes a column of that name."),
    ([*with_options("o", keep_columns="source"), "--provenance"], "source: Chatmill writes a column of that name."),
    (with_options("o", formatter="here"), "--formatter here: expected the form module:function or file.py:function."),
    ([*with_options("o"), "--provenance=yes"], "--provenance yes: expected true or false."),
    (with_options("o", write_columns="ids"), "--write_columns ids: expected input_ids, labels"),
    (with_options("o", write_columns="labels,ids"), "--write_columns labels,ids: ids: expected input_ids, labels"),
]


@pytest.mark.parametrize(("options", "message"), USER_ERRORS)
def test_an_error_in_the_options_is_one_line(options, message, build, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an option that is not refused builds into a relative folder
    ended = build(*options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err and ended.err.startswith("chatmill: ") and ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "message"),
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
        ({"output": "{tmp}/empty.jsonl"}, "--output {tmp}/empty.jsonl: there is a file of that name"),
        ({"output": "{tmp}/empty.jsonl/below"}, "cannot be written"),
        ({"output": "{tmp}"}, "--output {tmp}: the folder holds other files"),
        (
            {"chat_template": "{tmp}/no.jinja"},
            "there is no such file, and the tokenizer has no template of that name (only default)",
        ),
        ({"chat_template": "{{% for m in messages %}}"}, "line 1: Unexpected end of template"),
        ({"chat_template": "{{% if 'https://a.b' %}}"}, "line 1: Unexpected end of template"),
        ({"formatter": "no_such_module:f"}, "cannot be loaded"),
        ({"formatter": "json:no_such_function"}, "has no function no_such_function"),
        ({"chat_template": "{{{{ " + "(" * 400 + "1" + ")" * 400 + " }}}}"}, "nested too deeply"),
        ({"chat_template": "{{% if 1 %}}" * 150 + "{{% endif %}}" * 150}, "nested too deeply"),
        ({"input": "{tmp}/" + "n" * 300}, "File name too long"),
        ({"output": "{tmp}/" + "n" * 300}, "File name too long"),
        ({"tokenizer": "{tmp}/" + "n" * 300}, "there is no tokenizer there"),
        ({"chat_template": "{tmp}/" + "n" * 300}, "File name too long"),
        ({"input": "{tmp}/\udcff.jsonl"}, "the name is not UTF-8 text"),
        ({"input": "{tmp}/foreign"}, "/foreign/\\udcff.jsonl': the name is not UTF-8 text"),
        ({"output": "{tmp}/\udcff"}, "/\\udcff': the name is not UTF-8 text"),
        ({"output": "memory://out"}, "--output memory://out: memory:// is lost when the process ends"),
        ({"output": "memory://out", "runner": "FlinkRunner"}, "memory:// is lost when the process ends"),
        ({"output": "hf://datasets/org/name"}, "upload the dataset with `chatmill push OUT ORG/NAME`"),
        ({"output": "zip://out"}, "zip://out: files on zip:// are not opened"),
        ({"input": "zip://a.jsonl::{tmp}/a.zip"}, "files on zip:// are not opened"),
        ({"input": "ftp://host/a.jsonl"}, "ftp://host/a.jsonl: files on ftp:// are not opened"),
        ({"tokenizer": "simplecache::s3://models/x"}, "files on simplecache::s3:// are not opened"),
        ({"runner": "WalkRunner"}, "Unexpected pipeline runner: WalkRunner"),
        ({"direct_num_workers": "many"}, "invalid int value: 'many'"),
        ({"direct_num_workers": "-3"}, "--direct_num_workers -3: expected 1 or more"),
        (
            {"direct_num_workers": "4", "direct_running_mode": "in_memory"},
            "--direct_num_workers 4: --direct_running_mode in_memory has one worker.",
        ),
    ],
)
def test_an_error_in_the_value_of_an_option_is_one_line_and_writes_nothing(changed, message, build, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "gone.jsonl").symlink_to("nowhere.jsonl")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "\udcff.jsonl").write_text("{}")
    before = digests(tmp_path)
    changed = {name: str(value).format(tmp=tmp_path) for name, value in changed.items()}
    ended = build(*with_options(**{"output": tmp_path / "out"} | changed))
    assert (ended.code, ended.out) == (2, "")
    assert message.replace("{tmp}", str(tmp_path)) in ended.err
    assert ended.err.startswith("chatmill: ") and ended.err.count("\n") == 1
    assert digests(tmp_path) == before
    assert not list(tmp_path.glob("out/_chatmill/*"))


def test_a_parameter_of_the_library_is_shown_as_its_option():
    assert error_text(ParameterError("packing", "bdf", "expected bfd.")) == "--packing bdf: expected bfd."
    assert error_text(ParameterError("write_columns", ("a", "b"), "?")) == "--write_columns a,b: ?"
    assert error_text(ParameterError("max_length", None, "?")) == "--max_length none: ?"
    template = "{% for message in messages %}\n" * 99
    shown = error_text(ParameterError("chat_template", template, "?"))
    assert shown.startswith("--chat_template {% for message in messages %} {% for") and shown.endswith("...: ?")
    assert len(shown) < 250


def test_values_are_shown_as_they_are_typed():
    given = [f"{name}={as_typed(value)}" for name, value in OPTIONS.items()]
    given += ["--provenance=true", "--write_columns=input_ids,labels", '--chat_template_kwargs={"a": 1}']
    options, _ = parse_options(given)
    typed = {field.name: as_typed(getattr(options, field.name)) for field in dataclasses.fields(Options)}
    for option in given:
        name, _, text = option.removeprefix("--").partition("=")
        assert typed[name] == text
    assert typed["seed"] == "0" and typed["strip_bos"] == "false" and typed["keep_columns"] == "none"


def test_every_option_is_either_a_part_of_the_job_or_known_not_to_change_rows():
    # The files of these options are compared by their content, or the option changes only how and where the job runs.
    by_content = {"input", "recipe", "sources", "tokenizer", "chat_template", "now"}
    how = {
        "output",
        "overwrite",
        "expire_replaced",
        "append",
        "every",
        "on_changed_file",
        "engine",
        "json",
        "runner",
        "report",
    }
    how |= {field.name for field in dataclasses.fields(Budgets)}
    assert {field.name for field in dataclasses.fields(Options)} == {
        *values_of(RowOptions, Options()),
        *by_content,
        *how,
    }


def test_a_missing_template_is_an_error_before_the_work(build, tmp_path):
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


def test_a_template_without_masks_is_a_warning_before_the_work(build, tmp_path):
    twice = "{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    ended = build(*with_options(tmp_path / "out", chat_template=twice, input=CHATS / "support.jsonl"))
    assert ended.code == 1
    warning, *rest = ended.err.splitlines()
    assert warning.startswith(f"chatmill: warning: with the chat template {twice}, the first conversation (")
    assert f"({CHATS}/support.jsonl, byte 0) would be rejected: the template " in warning
    assert "spans_not_established (" in rest[1] and "were rejected" in rest[0]


def test_a_tokenizer_whose_regular_expression_transformers_warns_of_is_named(build, tmp_path):
    folder = tmp_path / "tokenizer"
    shutil.copytree(TOKENIZER, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"no text has it {number}": 100_000 + number for number in range(100_001)}
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
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "4"}]
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": messages}] * 3)
    options = with_options(tmp_path / "out", chat_template=CHATML, input=chats)
    ended = build(*options)
    assert ended.err == (
        "chatmill: note: the chat template does not print contents of user in the form that the records have, so it is "
        "given strings, with a line break between two parts.\n"
    )


COMMANDS = sorted(path.stem for path in (ROOT / "pipeline" / "commands").glob("[!_]*.py"))
HEAVY = {"apache_beam", "transformers", "pyarrow", "fsspec", "rich"}
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
        *(([command, "--help"], 0) for command in COMMANDS),
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
    assert not set(done.stderr.split()) & HEAVY


@pytest.mark.parametrize(
    ("program", "given", "pool"),
    [
        ("pipeline", {}, "system"),
        ("pipeline.runners.worker", {}, "system"),
        ("pipeline", {_POOL: "jemalloc"}, "jemalloc"),
    ],
)
def test_arrow_takes_its_memory_from_the_system_unless_another_pool_is_chosen(program, given, pool):
    probe = f"import {program}, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    environment = {name: value for name, value in os.environ.items() if name != _POOL} | given
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [pool]


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


@pytest.mark.parametrize("columns", ["80", "110"])
def test_help_shows_each_option_with_its_default_two_examples_and_the_place_of_the_docs(columns):
    done = build_in_process("build", "--help", "all", env={**os.environ, "COLUMNS": columns})
    assert done.returncode == 0
    for group in ("Input:", "Tokenizer and template:", "Rows:", "Output:", "Running:"):
        assert f"\n{group}\n" in done.stdout
    options, _, end = done.stdout.partition("\nexamples:\n")
    entries = [" ".join(entry.split()) for entry in re.split(r"\n\n|\n(?=  --)", options)]
    for field in command_line_fields():
        [entry] = [entry for entry in entries if entry.startswith(f"--{option_name(field.name)} ")]
        assert re.search(r"\((default: .+|required)\)$", entry), entry
    assert end.count("  chatmill build ") == 4
    assert "documentation: README.md and the docs/ folder" in end
    assert max(map(len, done.stdout.splitlines())) <= int(columns)


def test_help_shows_the_options_that_most_builds_need_and_names_the_way_to_the_others():
    shown = build_in_process("build", "--help").stdout
    names = {option_name(field.name) for field in command_line_fields() if field.metadata["common"]}
    assert {*re.findall(r"^  --(\w+) ", shown, re.MULTILINE)} - {"version"} == names
    assert 20 <= len(names) <= 29 and "--help all lists all options" in " ".join(shown.split())


def test_help_without_a_command_lists_the_commands_and_the_options_of_a_build():
    whole, of_build = build_in_process("--help").stdout, build_in_process("build", "--help").stdout
    assert whole.endswith(of_build)
    for command in (*COMMANDS, "--version"):
        assert f" chatmill {command} " in whole.removesuffix(of_build)


def test_version_is_shown():
    for arguments in (["--version"], *([command, "--version"] for command in COMMANDS)):
        done = build_in_process(*arguments)
        assert (done.returncode, done.stdout) == (0, f"chatmill {__version__}\n")


def test_an_unknown_command_is_a_user_error():
    done = build_in_process("bild", *with_options("o"))
    assert (done.returncode, done.stdout) == (2, "")
    first, _, usage = done.stderr.partition("\n")
    named = re.fullmatch(r"chatmill: unknown command bild: expected (.+)\. Did you mean build\?", first)
    assert named and sorted(named[1].split(", ")) == COMMANDS
    assert usage.startswith("usage: chatmill build [RECIPE] OPTIONS")
    assert build_in_process().returncode == 2 and "chatmill build [RECIPE] OPTIONS" in build_in_process().stderr


def test_build_is_the_command_if_none_is_given():
    for error in (["--packing=bdf"], ["--inptu=x"]):
        assert build_in_process(*error).stderr == build_in_process("build", *error).stderr


def test_inputs_may_be_repeated_and_separated_by_commas():
    options, beam_flags = parse_options(
        ["--input", "a,b", "--input=c", "--tokenizer=t", "--output=o", "--direct_num_workers", "3", "--temp_location=x"]
    )
    assert options.input == ("a", "b", "c")
    assert beam_flags == ["--direct_num_workers", "3", "--temp_location=x"]


def test_a_flag_may_have_a_value_as_schedulers_write_it():
    given = with_options("o")
    assert parse_options([*given, "--provenance"])[0] == parse_options([*given, "--provenance=true"])[0]
    assert parse_options([*given, "--provenance", "--provenance=false"])[0] == parse_options(given)[0]


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
    options = with_options(tmp_path / "out", tokenizer="mill/tiny")
    done = build_in_process(*options, env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    assert manifest_of(tmp_path / "out")["job"]["tokenizer_name"] == "mill/tiny"
    missing = build_in_process(
        *with_options(tmp_path / "no", tokenizer="mill/none"), env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert missing.returncode == 2
    assert missing.stderr.startswith(
        "chatmill: --tokenizer mill/none: there is no such folder, and it cannot be downloaded from the Hugging Face"
    )
    assert missing.stderr.count("\n") == 1


def test_the_result_of_a_run_is_the_last_line_of_its_output_for_schedulers(build, tmp_path):
    output = tmp_path / "out"
    ended = build(*with_options(output, max_reject_fraction=0.5), "--json")
    assert ended.code == 0, ended.err
    manifest, summary = manifest_of(output), json.loads(ended.out.splitlines()[-1])
    assert summary["status"] == "done"
    assert summary["output"] == str(output)
    assert {name: summary[name] for name in ("records", "rows", "tokens")} == {
        name: manifest[name] for name in ("records", "rows", "tokens")
    }
    assert summary["shards"] == len(manifest["shards"])
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
        of_both = (digests(folder / "data") for folder in (output, tmp_path / "plain"))
        assert len({tuple((name_in_increment(name), sha256) for name, sha256 in each.items()) for each in of_both}) == 1
        assert [piece["path"] for piece in manifest_of(output)["shards"]]
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
    assert summary["status"] == "failed"
    assert message in summary["error"]


def test_an_error_in_the_options_is_in_the_result_too(build):
    message = "--packing bfd: it needs a max_length, such as 4096."
    ended = build(*with_options("o", packing="bfd"), "--json")
    assert (ended.code, ended.err) == (2, f"chatmill: {message}\n")
    assert json.loads(ended.out) == {"status": "failed", "error": message}


def test_finished_dataset_is_not_that_of_other_inputs(build, tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    assert build(*with_options(tmp_path / "out", input=source)).code == 0
    assert "is finished already" in build(*with_options(tmp_path / "out", input=source)).err
    other = build(*with_options(tmp_path / "out", input=f"{source},{tmp_path / 'b.jsonl'}"))
    assert other.code == 2 and f"--input was {source} and is {source},{tmp_path / 'b.jsonl'}" in other.err


def test_stop_tokens_that_cannot_be_read_are_found_before_anything_is_written(build, tmp_path):
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "generation_config.json").write_text('{"eos_token_id": "x"}')
    ended = build(*with_options(tmp_path / "out", tokenizer=tmp_path / "tokenizer"))
    problem = "generation_config.json is not valid (eos_token_id: expected a number, or a list of numbers)."
    assert (ended.code, ended.err) == (2, f"chatmill: --tokenizer {tmp_path / 'tokenizer'}: {problem}\n")
    assert not (tmp_path / "out").exists()
    named = with_options(tmp_path / "out", tokenizer=tmp_path / "tokenizer", eot_tokens="<|im_end|>")
    assert build(*named, "--max_reject_fraction=1").code == 0  # the file is not read then
