"""chatmill inspect: shows rows of a dataset decoded, and rejected records."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, read_rows, write_jsonl
from support.paths import ROOT, TOKENIZER

QUESTIONS = [
    "What is 2 + 2?",
    "Wo ist \U0001f409 水車?",
    "\x1b[31mred\u202e <b>?",
    *(f"Question {i}?" for i in range(20)),
]
LONG = " ".join(["Wheel"] * 900)
RECORDS = [
    *({"id": f"q{i}", "messages": [user(text), assistant(f"Answer {i}.")]} for i, text in enumerate(QUESTIONS)),
    {"id": "long", "messages": [user(LONG), assistant("After a long question.")]},
    {"id": "talk", "messages": [user("Talk."), assistant(" ".join(["Blah"] * 100))]},
    {"id": "n1", "messages": [user("Hi"), {"role": "narrator", "content": "He said."}]},
    {"id": "n2", "messages": [{"role": "narrator", "content": "He said."}, assistant("Hm.")]},
    {"id": "n3", "messages": "none"},
]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """A packed one with provenance; one with kept columns and shifted labels; one with records that are cut."""
    folder = tmp_path_factory.mktemp("inspected")
    corpus = write_jsonl(folder / "corpus.jsonl", RECORDS)
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5"]
    for name, own in {
        "packed": "--packing=bfd --max_length=4096 --provenance --validation_fraction=0.2",
        "plain": "--keep_columns=id --shift_labels",
        "short": "--packing=bfd --max_length=48 --keep_columns=id --provenance",
    }.items():
        assert chatmill("build", *options, *own.split(), f"--output={folder / name}") == 0
    return folder


def position_of(datasets, id: str) -> int:
    return (datasets / "corpus.jsonl").read_bytes().index(f'{{"id": "{id}"'.encode())


@pytest.fixture
def inspect(datasets, capfd):
    """Run the command in this process; return the exit code, standard output and standard error."""

    def run(dataset: str, *options: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = chatmill("inspect", datasets / dataset, *options)
        return code, *capfd.readouterr()

    return run


def test_overview_and_first_row_without_options(inspect, datasets):
    code, out, err = inspect("packed")
    assert (code, err) == (0, "")
    overview, title, first, *_ = out.splitlines()
    manifest = read_manifest(datasets / "packed")
    assert overview.startswith("records read 28 (as messages 25); kept 25; rejected 3 (unknown_role 2, bad_message 1)")
    assert "rows 2 (in 2 shards: 1 of train and 1 of validation)" in overview
    assert f"tokens {manifest['tokens']:,} ({manifest['trained_tokens']:,} trained on, " in overview
    assert " of rows of 4,096, packed by bfd); " in overview
    assert title == f"row 0 of train ({manifest['shards'][0]['path']}, row 0)"
    assert first.startswith("── example 1 of ") and f"; {datasets}/corpus.jsonl:" in first


def test_examples_of_a_packed_row_are_apart_and_begin_near_what_is_trained_on(inspect, datasets):
    _, out, _ = inspect("packed")
    row = read_rows(datasets / "packed")[0]
    examples = len(row["seq_lengths"])
    assert out.count("── example ") == examples and f"── example {examples} of {examples}: " in out
    assert "<|im_start|>assistant\n⟦Answer 0.<|im_end|>\n⟧" in out
    # The longest example is first. What is before its answer is left out.
    assert "characters before this; inspect --full shows all\n" in out and "⟦After a long question.<|im_end|>\n⟧" in out
    assert out.count("Wheel") < 30
    assert inspect("packed", "--full")[1].count("Wheel") == 900


def test_row_with_its_tokens(inspect, datasets):
    code, out, _ = inspect("plain", "--row=1", "--tokens")
    assert code == 0 and "id: q1" in out
    lines = out.splitlines()
    lines = lines[lines.index("      id    label  token") + 1 :]
    listed = [(line[:8].strip(), line[8:17].strip(), line[19:]) for line in lines if line]
    trained = [(id, label, text) for id, label, text in listed if label != "-100"]
    # Shifted labels are those of their tokens again.
    assert trained and all(id == label and text.startswith("⟦") for id, label, text in trained)
    assert [text for *_, text in trained][-2:] == ["⟦<|im_end|>⟧", "⟦\\n⟧"]
    assert [text for *_, text in listed].count("\U0001f409") > 1  # at each token of its bytes


def test_json_has_all_of_a_row(inspect, datasets):
    code, out, _ = inspect("plain", "--row=1", "--json", "--tokens")
    found = json.loads(out)
    assert code == 0 and (found["rejects"], found["notes"]) == ([], [])
    (row,) = found["rows"]
    (example,) = row["examples"]
    assert (row["split"], row["row"], example["columns"]) == ("train", 1, {"id": "q1"})
    assert "".join(piece["text"] for piece in example["text"]).count("Wo ist \U0001f409 水車?") == 1
    assert [piece["text"] for piece in example["text"] if piece["trained"]] == ["Answer 1.<|im_end|>\n"]
    assert len(example["input_ids"]) == len(example["labels"]) == len(example["token_texts"]) == example["tokens"]


def test_record_is_found_by_its_source(inspect, datasets):
    position = position_of(datasets, "q4")
    found = [inspect("packed", f"--source=corpus.jsonl:{position}", f"--split={s}") for s in ("train", "validation")]
    assert sorted(code for code, *_ in found) == [0, 2]
    (out,) = (out for code, out, _ in found if code == 0)
    assert f"/corpus.jsonl:{position}\n" in out and "Question 1?" in out
    for split in ("train", "validation"):  # the end of a url, but from a slash
        assert inspect("packed", f"--source=pus.jsonl:{position}", f"--split={split}")[0] == 2
    (err,) = (err for code, _, err in found if code == 2)
    assert "nothing in validation or the rejects comes from" in err and "A position is the byte" in err
    reject = f"--source={datasets}/corpus.jsonl:{position_of(datasets, 'n2')}"
    assert "reject 1: unknown_role" in inspect("plain", reject)[1]
    code, _, err = inspect("plain", "--source=corpus.jsonl:0")
    assert code == 2 and "Build with --provenance" in err


@pytest.mark.parametrize(("shift", "is_shown"), [("false", True), ("true", False)])
def test_what_is_trained_on_is_shown_if_the_columns_say_it(tmp_path, capfd, shift, is_shown):
    """A shifted mask has no place for the first token, nor the label of the last one."""
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": [user("Hi"), assistant("Hello")]}])
    given = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--report=none"]
    assert chatmill("build", *given, "--write_columns=input_ids,loss_mask", f"--shift_labels={shift}") == 0
    capfd.readouterr()
    assert chatmill("inspect", tmp_path / "out", "--row=0") == 0
    out = capfd.readouterr().out
    note = "The rows have no labels, so what is trained on is not shown."
    assert (note in out, "⟦Hello<|im_end|>" in out, "⟦" in out) == (not is_shown, is_shown, is_shown)


def test_rejects_are_shown_with_the_place_that_was_wrong(inspect, datasets):
    rejects = read_rejects(datasets / "packed")
    _, out, _ = inspect("packed", "--reject=0")
    origin = f"{datasets}/corpus.jsonl:{rejects[0]['origin_position']}"
    assert out.startswith(f"reject 0: {rejects[0]['reason']}; {origin}\n")
    _, hint, marked, *record = out.splitlines()[1:]
    assert hint.startswith("hint for unknown_role: ")
    assert marked == '▶ messages[1]: {"role": "narrator", "content": "He said."}'
    assert json.loads("\n".join(record)) == RECORDS[-3]
    _, out, _ = inspect("packed", "--reason=unknown_role", "--json")
    found = json.loads(out)["rejects"]
    assert [(reject["reject"], reject["marked"]) for reject in found] == [(0, ["messages[1]"]), (1, ["messages[0]"])]
    assert found[0]["record"] == RECORDS[-3]
    _, out, _ = inspect("packed", "--reason=unknown_role", "--limit=1")
    assert out.count("reject ") == 1 and out.endswith("1 of 2 records are shown; --limit shows more.\n")


def test_json_has_a_reject_with_half_a_character_and_a_number_that_json_does_not_have(tmp_path, capfd):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"messages": "\\ud83d", "score": NaN}\n{"text": "one"}\n')
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=1", "--report=none"]
    assert chatmill("build", *options, f"--output={tmp_path / 'out'}") == 0
    capfd.readouterr()
    assert chatmill("inspect", tmp_path / "out", "--reject=0", "--json") == 0
    [reject] = json.loads(capfd.readouterr().out)["rejects"]
    assert reject["record"] == {"messages": "\ud83d", "score": None}


def test_rejects_are_numbered_through_all_files(tmp_path, capfd):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"text": "one"}, *[{"text": 7}] * 9])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=1", "--split_bytes=50"]
    assert chatmill("build", *options, f"--output={tmp_path / 'out'}", "--report=none") == 0
    rejects = read_rejects(tmp_path / "out")
    assert len(rejects) == 9 and 1 < len(read_manifest(tmp_path / "out")["exceptions"]) < 9
    for number, reject in enumerate(rejects):
        capfd.readouterr()
        assert chatmill("inspect", tmp_path / "out", f"--reject={number}") == 0
        assert capfd.readouterr().out.startswith(f"reject {number}: malformed; {corpus}:{reject['origin_position']}\n")


def test_rejects_of_a_build_that_failed_are_shown(inspect, datasets, tmp_path):
    failed = tmp_path / "failed"
    job = [f"--input={datasets}/corpus.jsonl", f"--tokenizer={TOKENIZER}", f"--output={failed}"]
    assert chatmill("build", *job, "--packing=bfd", "--max_length=4096", "--max_reject_fraction=0") == 1
    for option in ("--reject=1", "--reason=unknown_role", "--reason=unknown_role --limit=1"):
        assert inspect(failed, *option.split()) == inspect("packed", *option.split())
    assert "has 3 rejects, numbered from 0" in inspect(failed, "--reject=3")[2]
    assert "The reasons are: unknown_role (2), bad_message (1)." in inspect(failed, "--reason=other")[2]
    shutil.rmtree(failed / "records")
    code, _, err = inspect(failed, "--reject=0")
    assert code == 2 and "no finished dataset and no rejects are here" in err


def test_examples_of_packed_rows_have_their_origins_and_kept_columns(inspect, datasets):
    found = json.loads(inspect("short", "--sample=99", "--json")[1])["rows"]
    examples = [example for row in found for example in row["examples"]]
    for example in examples:
        id, origin = example["columns"]["id"], (example["origin_file"], example["origin_position"])
        assert origin == (f"{datasets}/corpus.jsonl", position_of(datasets, id))
        record = next(record for record in RECORDS if record["id"] == id)
        assert record["messages"][0]["content"] in "".join(piece["text"] for piece in example["text"])
    assert len({example["columns"]["id"] for example in examples}) == len(RECORDS) - 4
    (talk,) = (example for example in examples if example["columns"]["id"] == "talk")
    assert talk["tokens"] == 48 and talk["tokens_lost"] >= talk["trained_tokens_lost"] > 0


def test_record_of_a_packed_row_is_found_and_what_became_of_one_that_is_in_none(inspect, datasets):
    sources = [f"--source=corpus.jsonl:{position_of(datasets, id)}" for id in ("q1", "long", "n3")]
    codes, (row, dropped, reject), _ = zip(*(inspect("short", source) for source in sources), strict=True)
    assert codes == (0, 0, 0) and "id: q1\n" in row and "Wo ist \U0001f409 水車?" in row
    assert dropped.startswith(f"dropped (no_trained_tokens_left); {datasets}/corpus.jsonl:")
    assert reject.startswith("reject 2: bad_message; ") and "dropped" not in reject and "rejected" not in reject


def test_dropped_and_truncated_records_are_shown(inspect, datasets):
    code, out, _ = inspect("short", "--reason=no_trained_tokens_left")
    position = position_of(datasets, "long")
    line = f"dropped (no_trained_tokens_left); {datasets}/corpus.jsonl:{position}; id: long; "
    assert code == 0 and out.startswith(line) and re.search(r"in no row, \d+ of them to train on\n$", out)
    (record,) = json.loads(inspect("short", "--reason=no_trained_tokens_left", "--json")[1])["records"]
    assert (record["origin_position"], record["outcome"], record["columns"]) == (position, "dropped", {"id": "long"})
    _, out, _ = inspect("short", "--reason=truncated")
    assert out.count("── ") == 1 and "id: talk; " in out and "tokens of the record in no row" in out


def test_sample_is_the_same_each_time(inspect):
    drawn = [inspect("plain", "--sample=4", "--json", f"--seed={seed}")[1] for seed in (0, 0, 1)]
    numbers = [[row["row"] for row in json.loads(out)["rows"]] for out in drawn]
    assert drawn[0] == drawn[1] and len(set(numbers[0])) == 4 and numbers[0] != numbers[2]
    assert len(json.loads(inspect("plain", "--sample=1000", "--json")[1])["rows"]) == len(RECORDS) - 3


@pytest.mark.parametrize("dataset", ["packed", "plain"])
def test_search_finds_each_row_that_has_the_text(inspect, datasets, dataset):
    code, out, _ = inspect(dataset, "--search=Wheel Wheel", "--split=train")
    rows = json.loads(inspect(dataset, "--search=Wheel Wheel", "--json", "--split=train")[1])
    assert code == 0 and len(rows["rows"]) == 1 and out.count("── ") == 1 and out.rstrip().endswith("train have it.")
    _, out, _ = inspect(dataset, "--search=nowhere")
    assert out.startswith("0 of ")


def test_search_stops_after_a_page(inspect):
    _, out, _ = inspect("plain", "--search=assistant\nAnswer", "--limit=3")
    page = f"3 rows shown, of the first 3 of {len(RECORDS) - 3}; --limit shows more.\n"
    assert out.count("row ") == 6 and out.endswith(page)


def test_text_across_two_examples_is_not_found(inspect, datasets):
    assert json.loads(inspect("packed", "--search=<|im_end|>\n<|im_start|>system", "--json")[1])["rows"] == []


@pytest.mark.parametrize("dataset", ["packed", "short"])
def test_nothing_is_imported_that_takes_long(datasets, dataset):
    code = (
        "import sys; from pipeline import main; main(['inspect', sys.argv[1]]); "
        "print({'apache_beam', 'transformers', 'torch', 'pandas'} & sys.modules.keys(), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(datasets / dataset)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stderr == b"set()\n"


def test_output_that_nobody_reads_is_no_error(datasets):
    pipe = f"{sys.executable} -m pipeline inspect {datasets}/packed --sample 50 --full --json | head -c 10"
    done = subprocess.run(pipe, shell=True, cwd=ROOT, capture_output=True, check=False)
    assert (len(done.stdout), done.stderr) == (10, b"")


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
def test_terminal_has_colours_in_a_pager(datasets):
    master, slave = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "PAGER", "LESS")}
    command = [sys.executable, "-m", "pipeline", "inspect", str(datasets / "plain"), "--search=tion 3?"]
    done = subprocess.run(command, cwd=ROOT, stdin=slave, stdout=slave, env=environment | {"TERM": "xterm"}, timeout=60)
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0 and "\x1b[1;32m⟦" in shown
