"""Damage: what happens to a file of a dataset, what verify says of it, and what the other commands do with the rest.

verify names exactly what was harmed. Each other command ends with one line that names it and changes nothing, or with
what is right.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline import main
from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset

pytestmark = pytest.mark.slow
DAYS, RECORDS = 4, 6  # one of which is rejected
OPTIONS = [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]
PLAIN = [*OPTIONS, "--report=none"]
PACKED = [*OPTIONS, "--packing=bfd", "--max_length=24", "--validation_fraction=0.3", "--split_bytes=150"]
PACKED += ["--output_format=parquet,tfrecord"]
FORMATTER = "def same(record):\n    return record\n"
PUBLISHED = ("data/", "tfrecord/", "records/")
VERSIONS, STATE = "_chatmill/versions/", "_chatmill/"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs of days, and datasets: `packed` is one build; `grown` has a build, appends, and before
    the last a build of all: five versions; `expired` is left with its last two versions; `begun` is not finished.
    """
    made = tmp_path_factory.mktemp("made")
    for day in range(DAYS + 1):
        texts: list[Any] = [{"text": f"text {number} of day {day}"} for number in range(RECORDS - 1)]
        write_jsonl(made / f"day-{day}.jsonl", [*texts, {"text": 5}])
    (made / "formatter.py").write_text(FORMATTER)
    inputs = ",".join(f"{made}/day-{day}.jsonl" for day in range(DAYS))
    packed = [*PACKED, f"--formatter={made}/formatter.py:same", f"--output={made}/packed"]
    assert chatmill("build", *packed, f"--input={inputs}") == 0
    for day in range(DAYS):
        if day == DAYS - 1:
            before = inputs.rpartition(",")[0]
            assert chatmill("build", *PLAIN, "--overwrite", f"--input={before}", f"--output={made}/grown") == 0
        kind = ["--append"] if day else []
        assert chatmill("build", *PLAIN, *kind, f"--input={made}/day-{day}.jsonl", f"--output={made}/grown") == 0
    shutil.copytree(made / "grown", made / "expired")
    assert chatmill("expire", made / "expired", "--older_than=0s", "--keep=2") == 0
    assert chatmill(*make_command("resume", made / "begun", made), "--max_reject_fraction=0") == 1
    return made


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*command: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([*map(str, command)])  # without the laws, which would find the damage
        return code, *capfd.readouterr()

    return run


def make_command(name: str, output: Path, made: Path) -> list[object]:
    """A command on a dataset. What it writes elsewhere is next to the dataset."""
    build = ["build", *PLAIN, f"--output={output}", f"--input={made}/day-{DAYS}.jsonl"]
    return {
        "stats": ["stats", output, "--json"],
        "snapshots": ["snapshots", output, "--json"],
        "inspect": ["inspect", output, "--sample=9"],
        "rejects": ["inspect", output, "--reject=0"],
        "diff": ["diff", output, made / "expired", "--json"],
        "input": ["build", *PLAIN, f"--input={output}", f"--output={output.parent}/read"],
        "resume": build,
        "append": [*build, "--append"],
        "overwrite": [*build, "--overwrite"],
        "expire": ["expire", output, "--older_than=0s"],
    }[name]


READS = ("stats", "snapshots", "inspect", "rejects", "diff", "input")
WRITES = ("append", "overwrite", "expire")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What can happen to a file. `lose_end` leaves its size, as a crash does.
CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "truncate": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "flip": lambda content: (
        content[: (at := len(content) * 2 // 5)] + bytes([(content or b"\0")[at] ^ 4]) + content[at + 1 :]
    ),
    "lose_end": lambda content: content[:-4] + bytes(4),
}
HARMS = ("remove", *CONTENTS, "exchange", "copy", "link_to_nothing")


def do_harm(harm: str, path: Path, other: Path) -> list[Path]:
    """Harm a file. Returns the files that are not as they were."""
    if harm == "copy":  # under a name that another one of its kind would have
        number = re.search(r"\d+(?=-000\.|\.json)", path.name)
        begin, end = number.span() if number else (0, 0)
        name = f"{path.name[:begin]}{int(number[0]) + 77 if number else 'copy of ':0{end - begin}}{path.name[end:]}"
        return [Path(shutil.copy(path, path.with_name(name)))]
    content = path.read_bytes()
    if harm == "exchange":
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return [path, other]
    path.unlink()
    if harm == "link_to_nothing":
        path.symlink_to("nowhere")
    elif harm != "remove":
        path.write_bytes(CONTENTS[harm](content))
    return [path]


CHANGED, CUT = "it was changed or damaged: its sha256 is", "it has [0-9,]+ bytes; [0-9,]+ were written"
# What verify says of a file of rows, rejects or exceptions.
OF_PUBLISHED = {
    "truncate": CUT,
    "empty": CUT,
    "link_to_nothing": "it has 0 bytes; ",
    "remove": "the file is missing",
    "copy": "the manifest does not name this file",
    "flip": CHANGED,
    "lose_end": CHANGED,
}


def harmed(made: Path, dataset: str, folder: Path, name: str, harm: str) -> tuple[Path, list[str]]:
    """A copy of a dataset with a harm, and the names of the files that are not as they were."""
    output = Path(shutil.copytree(made / dataset, folder / "out"))
    parts = name.rpartition("/")[0]
    alike = sorted(each for each in contents(output) if each.rpartition("/")[0] == parts)
    other = alike[(alike.index(name) + 1) % len(alike)]
    before = contents(output)
    changed = [str(path.relative_to(output)) for path in do_harm(harm, output / name, output / other)]
    return output, [each for each in changed if before.get(each) != contents(output).get(each)]


def said_by_verify(name: str, harm: str, version: int) -> dict[str, str]:
    """What verify says of a file that was harmed."""
    if name.startswith(PUBLISHED):
        return {name: OF_PUBLISHED.get(harm, f"{CHANGED}|{CUT}")}
    if name.startswith(f"{STATE}tokenizers/"):
        is_read = harm != "copy" or name.endswith(".jinja")
        return {name.rpartition("/")[0]: "."} if is_read else {}
    if name.startswith(f"{STATE}formatters/"):
        return {} if harm == "copy" else {name: "its sha256 is (missing|[0-9a-f]{64}); the job was run with"}
    if harm == "copy" or name == "report.html":
        return {}
    is_missing = harm in ("remove", "link_to_nothing")
    return {name: "it is missing; " if is_missing else f"it is not that of version {version}; "}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("dataset", ["packed", "expired"])
def test_verify_names_exactly_what_was_harmed(made, tmp_path, run, dataset, harm):
    version = Dataset(str(made / dataset)).version
    wrong = []
    for number, name in enumerate(name for name in contents(made / dataset) if not name.startswith(VERSIONS)):
        output, changed = harmed(made, dataset, tmp_path / str(number), name, harm)
        code, out, err = run("verify", output, "--json")
        found = {fault["path"]: fault["problem"] for fault in json.loads(out)["faults"]}
        expected = {path: said for each in changed for path, said in said_by_verify(each, harm, version).items()}
        is_as_expected = found.keys() == expected.keys() and code == bool(found) and not err
        if not is_as_expected or not all(re.match(said, found[path]) for path, said in expected.items()):
            wrong.append((name, changed, found, err))
    assert not wrong, "\n".join(map(str, wrong))


# The other commands.


def assert_named(changed: Sequence[str], ended: tuple[int, str, str], codes: Sequence[int] = (1, 2)) -> None:
    """Assert that a command ended with one line that names what was changed, or its increment."""
    code, _, err = ended
    assert code in codes and err.count("\n") == 1 and "Traceback" not in err and "unexpected error" not in err, ended
    parts = {part for name in changed for part in (name.rpartition("/")[2], *re.findall("[0-9a-f]{16}", name))}
    assert any(part and part in err for part in parts), (changed, err)


def list_versions(folder: Path) -> list[str]:
    return sorted(name for name in contents(folder) if name.startswith(VERSIONS))


def run_or_verify(run: Run, command: str, output: Path, made: Path) -> tuple[int, str, str]:
    """How a command ended. What verify prints of a fault is a line of its own."""
    if command != "verify":
        return run(*make_command(command, output, made))
    code, out, _ = run("verify", output)
    return code, "", out.partition("\n")[0] + "\n"


OF_ALL = ("verify", "snapshots", "expire")  # which read all versions


@pytest.mark.parametrize("harm", HARMS)
def test_version_that_is_not_whole_is_named_by_each_command_that_needs_it_and_nothing_is_changed(
    made, tmp_path, run, harm
):
    """All commands need the newest version; the others have all of theirs without an older one.

    Nothing has the hash of the newest one, so a byte of it may change unseen. The oldest one may have expired.
    """
    names = list_versions(made / "grown")
    for number, name in enumerate(names):
        is_newest = harm == "copy" or name == names[-1] or (harm == "exchange" and name == names[-2])
        if (harm, number) == ("remove", 0) or (harm == "flip" and is_newest):
            continue
        commands: Sequence[str] = OF_ALL
        if is_newest:
            commands = ("verify", *(name for name in (*READS, *WRITES) if name not in ("input", "overwrite")))
        output, changed = harmed(made, "grown", tmp_path / str(number), name, harm)
        before = contents(output)
        for command in commands:
            assert_named(changed, run_or_verify(run, command, output, made))
            assert contents(output) == before, (name, command)
        if not is_newest:
            assert shown(run, made, output, "stats") == shown(run, made, made / "grown", "stats")


def plant(output: Path, made: Path) -> None:
    """Let the newest version be one that others committed on the same version before it."""
    (output / VERSIONS / "00000005.json").unlink()
    (output / "manifest.json").unlink()
    assert main(list(map(str, make_command("append", output, made)))) == 0
    newest = (output / VERSIONS / "00000005.json").read_bytes()
    shutil.copytree(made / "grown" / VERSIONS, output / VERSIONS, dirs_exist_ok=True)
    assert main(list(map(str, make_command("append", output, made)))) == 0
    (output / VERSIONS / "00000005.json").write_bytes(newest)


def test_versions_that_a_disk_does_not_list_or_read_are_not_taken_for_none(made, tmp_path, run, monkeypatch):
    output = Path(shutil.copytree(made / "grown", tmp_path / "out"))
    newest, scandir = output / VERSIONS / "00000005.json", os.scandir
    content = newest.read_bytes()

    def fail(path: Any) -> Any:
        if str(path) == str(newest.parent):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    def assert_none_goes_on() -> None:
        for command in ("stats", *WRITES):
            code, _, err = run(*make_command(command, output, made))
            assert code and "(Input/output error)" in err and err.count("\n") == 1, err

    newest.unlink()
    newest.symlink_to("/proc/self/mem")  # whose first byte gives EIO
    assert_none_goes_on()
    newest.unlink()
    newest.write_bytes(content)
    monkeypatch.setattr(os, "scandir", fail)
    assert_none_goes_on()


def chosen(folder: Path) -> list[str]:
    """The first file of each part of a dataset, all versions, and those that are derived from them."""
    names = sorted(contents(folder))
    of_parts = {name.rpartition("/")[0]: name for name in reversed(names) if "/" in name}
    return [name for name in names if "/" not in name or name.startswith(VERSIONS) or name in of_parts.values()]


def shown(run: Run, made: Path, output: Path, command: str) -> tuple[tuple[int, str, str], Any]:
    """How a command that reads ended, and what it printed or how many rows it wrote."""
    ended = run(*make_command(command, output, made))
    if command == "input" and not ended[0]:
        assert broken_laws(output.parent / "read") == []
        return ended, Dataset(f"{output.parent}/read").manifest["rows"]
    return ended, ended[1].replace(str(output), "OUT")


@pytest.mark.parametrize("command", READS)
def test_command_that_reads_names_what_is_damaged_or_shows_what_is_right(made, tmp_path, run, command):
    sound = Path(shutil.copytree(made / "expired", tmp_path / "sound" / "out"))
    ended, right = shown(run, made, sound, command)
    assert ended[0] == 0, ended
    newest = list_versions(sound)[-1]
    for name in chosen(sound):
        for harm in HARMS if command != "input" else HARMS[:3]:
            if command == "input" and not name.startswith(("data/", "manifest", VERSIONS)):
                continue
            if command == "rejects" and name.startswith("records/"):
                continue  # those of both increments are listed together
            if harm == "remove" and command == "snapshots" and name.startswith(VERSIONS) and name != newest:
                continue  # it may have expired
            output, changed = harmed(made, "expired", tmp_path / name / harm, name, harm)
            ended, found = shown(run, made, output, command)
            if ended[0]:
                assert_named(changed, ended)
            else:
                assert found == right, (name, harm)
            shutil.rmtree(output.parent)


@pytest.mark.parametrize("command", WRITES)
def test_command_that_writes_names_what_is_damaged_or_loses_no_record(made, tmp_path, run, command):
    for name in chosen(made / "expired"):
        for harm in ("remove", "truncate") if name.startswith(VERSIONS) else ("remove",):
            output, changed = harmed(made, "expired", tmp_path / name / harm, name, harm)
            before = contents(output)
            ended = run(*make_command(command, output, made))
            if ended[0]:
                assert_named(changed, ended)
                after = contents(output)  # an append may be committed, and then have a row to show that is damaged
                assert all(after[each] == before[each] for each in before if "/" in each), (name, harm, ended)
                continue
            for each in changed if command != "overwrite" else []:
                if each.startswith((*PUBLISHED, STATE)) and not each.startswith(VERSIONS):
                    (output / each).parent.mkdir(exist_ok=True)
                    shutil.copy(made / "expired" / each, output / each)
            days = {"append": DAYS + 1, "overwrite": 1, "expire": DAYS}[command]
            assert read_manifest(output)["records"]["read"] == RECORDS * days
            faults = [fault["path"] for fault in json.loads(run("verify", output, "--json")[1])["faults"]]
            assert faults == ([name] if harm == "truncate" else []), (name, harm)


# What is in a version, or in a manifest.


def in_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


def edited(number: int, change: Callable[[dict[str, Any]], Any] = lambda version: None) -> Callable[[Path, Path], None]:
    return lambda output, made: in_json(output / VERSIONS / f"{number:08d}.json", change)


def without(*names: str) -> Callable[[Path, Path], None]:
    def remove(output: Path, made: Path) -> None:
        for path in (output / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def of_manifest(content: dict[str, Any]) -> Callable[[Path, Path], None]:
    """Let a dataset have no versions, and a manifest with this content, or with these values."""

    def change(output: Path, made: Path) -> None:
        without(VERSIONS)(output, made)
        in_json(output / "manifest.json", lambda manifest: manifest.update(content) if content else manifest.clear())

    return change


# What is done to a dataset, the commands, and what they say. Of a version that does not follow the one before it, only
# the hash in the next one says so.
DAMAGED, NOT_NEXT = r"it is damaged \(", r"it is damaged \(it is not what version 2 follows"
NO_VERSIONS = "its versions are missing"
WRONG: list[tuple[Callable[[Path, Path], Any], Sequence[str], str]] = [
    (edited(1, lambda of: of.update(time="1999-01-01T00:00:00+00:00")), OF_ALL, rf"00000001.json: {NOT_NEXT}"),
    (edited(1), OF_ALL, rf"00000001.json: {NOT_NEXT}"),
    (edited(2, lambda version: version["total"].update(rows=1)), OF_ALL, rf"00000002.json: {DAMAGED}it is not what"),
    (edited(3, lambda of: of["increments"][0]["counts"].update(rows=1)), OF_ALL, rf"00000003.json: {DAMAGED}"),
    (edited(5, lambda version: version.update(previous="0" * 64)), OF_ALL, rf"00000004.json: {DAMAGED}it is not what"),
    (plant, OF_ALL, rf"00000005.json: {DAMAGED}it is not what version 6 follows"),
    (edited(5, lambda version: version.update(format=9)), ["append"], "00000005.json: it has the format 9; this"),
    (without(VERSIONS, STATE), ["inspect"], "there is no tokenizer"),
    (without(VERSIONS, "data"), ["inspect"], ".parquet: the file is missing"),
    (without(VERSIONS, "manifest.json"), ["stats"], "it is not finished"),
    (without(VERSIONS), ["verify"], "_chatmill/versions: it is missing, and other files of _chatmill/ are there"),
    (without(STATE), ["append", "expire"], NO_VERSIONS),
    (of_manifest({}), ["stats"], "not the manifest of a dataset"),
    (of_manifest({"format": 9}), ["stats"], "a later version of Chatmill wrote this dataset"),
]
# Of the newest version, which no other one follows.
EDITS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda version: version.update(number=3), "it is version 3; expected 5"),
    (lambda version: version.pop("increments"), "increments"),
    (lambda version: version.update(increments=[]), "it adds no increment"),
    (lambda version: version["job"].pop("tasks"), "tasks"),
]
EDITS += [
    (lambda version, id=id: version["increments"][-1].update(id=id), repr(id))
    for id in ("alice", "..", "../../a", "/home/a", "0123456789ABCDEF")
]
EDITS += [
    (lambda version, path=path: version["increments"][0]["files"][0].update(path=path), "")
    for path in ("data/../../alice.parquet", "/etc/passwd", "alice/train-000000-000.parquet", 7)
]
EDITS += [
    (lambda version, name=name: version["increments"][0]["files"][0].update({name: "parqqet"}), "'parqqet'")
    for name in ("format", "split")
]
WRONG += [
    (edited(5, change), ("inspect", *WRITES), rf"00000005.json: {DAMAGED}.*{re.escape(why)}") for change, why in EDITS
]


@pytest.mark.parametrize(("change", "commands", "says"), WRONG)
def test_what_no_build_wrote_is_refused_in_one_line_and_nothing_is_changed(made, tmp_path, run, change, commands, says):
    output = Path(shutil.copytree(made / "grown", tmp_path / "out"))
    (output / STATE / "building" / "alice").mkdir(parents=True)
    (output / STATE / "building" / "alice" / "thesis.txt").touch()
    change(output, made)
    before = contents(output)
    for command in commands:
        code, _, err = run_or_verify(run, command, output, made)
        assert code in (1, 2) and err.count("\n") == 1 and re.search(says, err), (command, err)
    assert contents(output) == before


def test_shard_that_the_newest_version_does_not_name_is_a_fault_and_its_manifest_another_one(made, tmp_path, run):
    output = Path(shutil.copytree(made / "packed", tmp_path / "out"))
    edited(1, lambda version: version["increments"][0]["files"].pop(1))(output, made)
    problems = dict(fault.values() for fault in json.loads(run("verify", output, "--json")[1])["faults"])
    [shard] = [path for path, problem in problems.items() if "the manifest does not name this file" in problem]
    assert shard in read_manifest(output)["shards"][1]["path"] and "manifest.json" in problems


# Datasets of other versions of Chatmill.


def of_earlier_commit(output: Path) -> None:
    """Let a dataset be as earlier commits of 0.3 wrote it: with a log."""
    (output / VERSIONS).rename(output / STATE / "log")
    (output / "records").rename(output / "ledger")
    manifest = json.loads((output / "manifest.json").read_text().replace('"records/', '"ledger/'))
    manifest |= {"format": 2, "rejects": [], "ledger": manifest.pop("exceptions")}
    (output / "manifest.json").write_text(json.dumps(manifest))


def of_0_2(output: Path) -> None:
    """Let a dataset be as 0.2 wrote it."""
    shutil.rmtree(output / VERSIONS)
    (output / STATE / "job.json").write_text("{}")
    (output / "_SUCCESS").touch()
    manifest = json.loads((output / "manifest.json").read_bytes())
    del manifest["version"]
    names = {
        shard["path"]: f"data/train-{number:05d}-of-00002.parquet" for number, shard in enumerate(manifest["shards"])
    }
    for shard in manifest["shards"]:
        (output / shard["path"]).rename(output / names[shard["path"]])
        shard["path"] = names[shard["path"]]
    (output / "records").rename(output / "rejects")
    rejects = [f"rejects/{file['path'].rpartition('/')[2]}" for file in manifest.pop("exceptions")]
    manifest |= {"format": 1, "rejects": rejects}
    (output / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("make", [of_earlier_commit, of_0_2])
def test_dataset_of_an_earlier_version_is_read_as_input_and_built_again_and_all_else_refuses_it(
    made, tmp_path, run, make
):
    output = Path(shutil.copytree(made / "grown", tmp_path / "out"))
    rows = read_manifest(output)["rows"]
    assert run("expire", output, "--older_than=0s")[0] == 0
    make(output)
    (output / "data" / "notes.txt").write_text("of somebody else")
    before = contents(output)
    assert shown(run, made, output, "input")[1] == rows
    for command in ("verify", *(each for each in (*READS, *WRITES, "resume") if each not in ("input", "overwrite"))):
        code, _, err = run(*(["verify", output] if command == "verify" else make_command(command, output, made)))
        assert code == 2 and err.count("\n") == 1 and "an earlier version of Chatmill wrote this dataset" in err, err
    assert contents(output) == before

    assert run(*make_command("overwrite", output, made))[0] == 0

    assert broken_laws(output) == [] and Dataset(str(output)).version == 1
    named = {file["path"] for file in (*read_manifest(output)["shards"], *read_manifest(output)["exceptions"])}
    assert {*published(output)} == {*named, "data/notes.txt"}
    assert not (output / STATE / "log").exists() and not (output / "_SUCCESS").exists()
    assert run(*make_command("expire", output, made))[0] == 0


# Links, and files of somebody else.

LINKS = ("data", "records", "tfrecord", "_chatmill", *(f"_chatmill/{part}" for part in (
    "building", "versions", "tokenizers", "formatters"
)))  # fmt: skip
ID = "0123456789abcdef"


@pytest.mark.parametrize("command", [*WRITES, "resume"])
@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_changed_through_a_link(made, tmp_path, run, link, command):
    output = Path(shutil.copytree(made / ("begun" if command == "resume" else "grown"), tmp_path / "out"))
    elsewhere = tmp_path / "elsewhere"
    if (output / link).exists():
        (output / link).rename(elsewhere)
    for name in ("1.json", "train-000000-000.parquet", "notes.txt", f"{ID}/job.json", "alice/thesis.txt"):
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text("of somebody else")
    (output / link).symlink_to(elsewhere)
    before, here = contents(elsewhere), contents(output)

    code, _, err = run(*make_command(command, output, made))

    assert contents(elsewhere) == before and contents(output) == here
    assert code in (1, 2) and "Traceback" not in err and str(output / link) in err


def test_dataset_behind_a_link_grows_and_what_its_links_lead_to_and_files_of_others_stay(made, tmp_path, run):
    output = tmp_path / "out"
    output.symlink_to(shutil.copytree(made / "grown", tmp_path / "there"))
    shard = next((output / "data").rglob("*.parquet"))
    shard.rename(tmp_path / "shard")
    shard.symlink_to(tmp_path / "shard")
    content = (tmp_path / "shard").read_bytes()
    others = ("data/notes.txt", "_chatmill/notes.json", "_chatmill/building/alice/thesis.txt")
    for path in (output / name for name in others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of somebody else")
    for command in WRITES:
        assert chatmill(*make_command(command, output, made)) == 0
    assert [fault["path"] for fault in json.loads(run("verify", output, "--json")[1])["faults"]] == ["data/notes.txt"]
    assert (tmp_path / "shard").read_bytes() == content
    assert [(output / name).read_text() for name in others] == ["of somebody else"] * 3


def test_overwrite_removes_nothing_and_expire_only_what_builds_wrote(made, tmp_path):
    output = Path(shutil.copytree(made / "grown", tmp_path / "out"))
    increment = next((output / "data").iterdir()).name.split("-")[1]
    shard = f"train-{ID}-000000-000.parquet"
    names = ["data/train.parquet", "data/train-0-1.parquet", "data/train-000000-000.parquet", f"data/mine/{shard}"]
    names += [f"data/{increment}", f"data/{shard}-of-00001", "data/train-00007-of-00009.parquet"]
    names += [f"records/{shard}", f"records/mine-{ID}-000000-000.parquet", "tfrecord/notes", "records/notes"]
    written = [f"data/{shard}", f"data/train-{increment}-000009-000.parquet"]
    written += [f"records/records-{ID}-000000-000.parquet", f"tfrecord/validation-{ID}-000000-000.tfrecord.gz"]
    of_a_killed_process = f"data/{shard}.{ID}{ID}"
    for name in (*names, *written, of_a_killed_process):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("of somebody else")
    days = time.time() - 2 * 86_400
    os.utime(output / of_a_killed_process, (days, days))
    before = published(output)

    assert chatmill(*make_command("overwrite", output, made)) == 0

    del before[of_a_killed_process]
    assert before.items() < published(output).items()
    assert not (output / of_a_killed_process).exists()

    assert chatmill(*make_command("expire", output, made)) == 0

    manifest = json.loads((output / "manifest.json").read_bytes())
    named = {file["path"] for file in (*manifest["shards"], *manifest["exceptions"])}
    assert published(output).keys() == named | {*names}
    assert {(output / name).read_text() for name in names} == {"of somebody else"}


def published(output: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(output).items() if name.startswith(PUBLISHED)}
