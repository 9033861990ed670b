"""A user error is one line and exit code 2, and nothing is written. The lines of the two tables are in tests/data:

user_errors.jsonl: arguments, the words that must be in the line, and files to write before. `build` gets the options of
a sound build that the arguments do not have, unless `alone` is before it.
parameter_errors.jsonl: a public name, what it is called with, and the words that must be in the ParameterError.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.display import DisplayData
from apache_beam.typehints.decorators import TypeCheckError

import transforms
from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import ROOT, TOKENIZER
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    CheckParity,
    Chunks,
    ParameterError,
    ParseConversations,
    RenderConfig,
    Tokenize,
    TruncateOrPack,
    UserError,
)

SOUND = {"--input": "chats.jsonl", "--tokenizer": "tokenizer", "--output": "out"}
LONG = {"{long}": "n" * 300, "{brackets}": "{{ " + "(" * 400 + "1" + ")" * 400 + " }}"}
LONG["{blocks}"] = "{% if 1 %}" * 150 + "{% endif %}" * 150


def table(name: str) -> list[Any]:
    return [json.loads(line) for line in (ROOT / "tests" / "data" / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records, tokenizers, links, names that are no text; and datasets: packed, of TFRecord, begun."""
    world = tmp_path_factory.mktemp("world")
    chats = [{"messages": [user(f"Question {i}?"), assistant(f"Answer {i}.")]} for i in range(9)]
    said = assistant("He said.") | {"role": "narrator"}
    narrated = [user("Hi"), said], [said, assistant("Hm.")]
    write_jsonl(world / "chats.jsonl", [*chats, *({"messages": each} for each in (*narrated, "none"))])
    write_jsonl(world / "texts.jsonl", [{"text": f"text {i}"} for i in range(9)])
    (world / "empty.jsonl").touch()
    for name in ("evals", "linked", "folders", "foreign", "broken", "bare", "stops"):
        (world / name).mkdir()
    (world / "linked" / "gone.jsonl").symlink_to("nowhere.jsonl")
    (world / "folders" / "linked").symlink_to(world / "linked")
    (world / "foreign" / "\udcff.jsonl").write_text("{}")
    (world / "whole.parquet.gz").write_bytes(gzip.compress(b"PAR1", mtime=0))
    shutil.copytree(TOKENIZER, world / "tokenizer")
    shutil.copytree(TOKENIZER, world / "other")
    (world / "other" / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    (world / "broken" / "tokenizer.json").write_text("{}")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, world / "bare")
    for number, wrong in enumerate(("[]", "{", '{"eos_token_id": "</s>"}', '{"eos_token_id": [true]}')):
        shutil.copytree(TOKENIZER, world / "stops" / str(number))
        (world / "stops" / str(number) / "generation_config.json").write_text(wrong)
    common = ["build", f"--input={world}/chats.jsonl", f"--tokenizer={world}/tokenizer", "--direct_num_workers=1"]
    packed = ["--packing=bfd", "--max_length=4096", "--max_reject_fraction=0.5"]
    assert chatmill(*common, *packed, f"--output={world}/made") == 0
    assert chatmill(*common, *packed[2:], "--output_format=tfrecord,tfrecord.gz", f"--output={world}/tfrecord") == 0
    assert chatmill(*common, "--max_reject_fraction=0", f"--output={world}/begun") == 1
    return world


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """The size of each file, and when it was written; of a folder only that it is there."""
    found = {str(path): path.lstat() for path in folder.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items() if not S_ISDIR(stat.st_mode)} | {
        path: (0, 0) for path, stat in found.items() if S_ISDIR(stat.st_mode)
    }


def arguments_of(text: str) -> list[str]:
    """The arguments of a line of the table."""
    for name, value in LONG.items():
        text = text.replace(name, value)
    given = shlex.split(text)
    if given[0] == "alone":
        return given[1:]
    missing = {} if given[0] != "build" else SOUND
    names = {argument.partition("=")[0] for argument in given}
    if any(argument.endswith(".yaml") for argument in given):
        names.add("--input")
    return given + [f"{name}={value}" for name, value in missing.items() if name not in names]


ROWS = table("user_errors.jsonl")


@pytest.mark.parametrize("row", ROWS, ids=[f"{at} {row[0][:60]!a}" for at, row in enumerate(ROWS)])
def test_a_user_error_is_one_line_and_writes_nothing(world, tmp_path, monkeypatch, capfd, row):
    text, says, files = [*row, {}][:3]
    folder = Path(shutil.copytree(world, tmp_path / "world", symlinks=True, copy_function=os.link))
    for name, content in files.items():
        (folder / name).write_text(content)
    before = contents(tmp_path)
    monkeypatch.chdir(folder)
    capfd.readouterr()
    code = chatmill(*arguments_of(text))
    out, err = capfd.readouterr()
    assert (code, out, err.count("\n"), err[:10]) == (2, "", 1, "chatmill: "), err
    assert [word for word in says if word not in err] == [], err
    assert not re.search(r"\bhidden\b", err)  # which is a credential in each url that has it
    assert contents(tmp_path) == before


# Which texts an option takes; the table has those that it does not.
TAKEN = json.loads((ROOT / "tests" / "data" / "options_taken.json").read_text())


@pytest.mark.parametrize("option", TAKEN)
def test_an_option_takes_the_texts_of_its_kind(world, capfd, monkeypatch, option):
    """Of two errors, that of an option is shown, and not that of a file."""
    monkeypatch.chdir(world)
    for text in TAKEN[option]:
        value, *more = text.split(" --")
        given = [f"--{option}={value}", *(f"--{each}" for each in more)]
        capfd.readouterr()
        assert chatmill("build", "--input=none.jsonl", "--tokenizer=tokenizer", "--output=out", *given) == 2
        assert capfd.readouterr().err.startswith("chatmill: --input none.jsonl: there is no such file or folder")


@pytest.mark.parametrize("text", ["0s", "30s", "10m", "6h", "7d", "007d"])
def test_a_duration_is_a_number_and_a_unit(world, capfd, text):
    assert chatmill("expire", world / "evals", f"--older_than={text}") == 2
    assert ": there is no dataset." in capfd.readouterr().err


# Of the library: wrong parameters are refused when a pipeline is built, before any worker starts.

CONFIG = RenderConfig(tokenizer=str(TOKENIZER))


@pytest.mark.parametrize(("name", "given", "says"), table("parameter_errors.jsonl"))
def test_wrong_value_is_refused_with_its_parameter_and_what_was_expected(name, given, says):
    make = getattr(transforms, name)
    with pytest.raises(ParameterError) as raised:
        if isinstance(config := given.get("config"), dict):
            given = {**given, "config": RenderConfig(**config)}
        make(*given.pop("*", []), **given)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, UserError)
    assert [word for word in says if word not in str(raised.value)] == [], str(raised.value)


@pytest.mark.parametrize(
    "make",
    [lambda: Tokenize(tokeniser="t"), lambda: RenderConfig("t"), lambda: TruncateOrPack(512)],  # type: ignore[call-arg,misc]
    ids=["a misspelt parameter", "a configuration by position", "a length by position"],
)
def test_unknown_parameter_is_refused(make):
    with pytest.raises(TypeError):
        make()


def test_a_list_is_taken_where_several_texts_are_expected_and_a_text_is_not():
    assert RenderConfig(tokenizer="t", eot_tokens=["a"]) == RenderConfig(tokenizer="t", eot_tokens=("a",))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="eot_tokens='ab': expected a list of names"):
        transforms.render([user("Hi"), assistant("Hm.")], tokenizer=str(TOKENIZER), eot_tokens="ab")


@pytest.mark.parametrize(
    ("step", "required"),
    [
        (ParseConversations, {}),
        (CheckParity, {"config": CONFIG}),
        (Tokenize, {"tokenizer": "t"}),
        (TruncateOrPack, {}),
        (transforms.WriteDataset, {"output": "out", "job": {}, "tokenizer": "t"}),
    ],
)
def test_a_step_checks_each_option_that_its_docstring_names(step, required):
    named = re.search(r" options: .+, by name: ([\w, \n]+)\.", step.__doc__)
    for name in re.findall(r"\w+", named[1]):
        with pytest.raises(ParameterError, match=f"^{name}=<object"):
            step(**required, **{name: object()})


STEPS = {
    "parse": ParseConversations(),
    "render": ApplyChatTemplate(CONFIG),
    "parity": CheckParity(CONFIG),
    "tokenize": Tokenize(str(TOKENIZER)),
    "label": BuildLabels(),
    "pack": TruncateOrPack(),
}
ORDERS = {"parse render", "render parity", "render tokenize", "parity parity", "parity tokenize", "tokenize label"}
ORDERS.add("label pack")


@pytest.mark.parametrize("first", STEPS)
def test_step_accepts_only_its_own_kind_of_batch(first):
    kind = STEPS[first].input
    for second in STEPS:
        batches = beam.Pipeline("FnApiRunner") | beam.Create([]).with_output_types(Chunks[kind]) | STEPS[first]
        if f"{first} {second}" in ORDERS:
            batches | "then" >> STEPS[second]
        else:
            with pytest.raises(TypeCheckError, match=STEPS[second].input.__name__):
                batches | "then" >> STEPS[second]


def test_steps_show_their_options_as_display_data():
    shown = {item.key: item.value for item in DisplayData.create_from(STEPS["pack"]).items}
    assert shown["truncation"] == "keep_start"
