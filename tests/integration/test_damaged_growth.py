"""An appendable dataset with a damaged file: each command ends with an error that names it, or with the right result.

By default the cases are the files of the log with all commands, and all files with the commands that are quick; with
TEST_SLOW=1 all files with all commands.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from transforms import Dataset
from transforms.audit.verification import verify

OPTIONS = [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5"]
OPTIONS += ["--direct_num_workers=1", "--report=none"]
DAYS, RECORDS = 4, 6  # one of which is rejected
DATASETS = ("grown", "expired", "begun")
LOG, TOKENIZERS = "_chatmill/log/", "_chatmill/tokenizers/"
DERIVED = {
    "README.md",
    "recipe.yaml",
    "manifest.json",
    "report.html",
    "SHA256SUMS",
    "_SUCCESS",
}  # written again from the log
PUBLISHED = ("data", "rejects", "ledger")
NO_LOG = ("input", "overwrite")  # the commands that do not read the log
SLOW = "TEST_SLOW" in os.environ


class Made(NamedTuple):
    """A folder with the input of each day, and the datasets `grown`, `expired` and `begun`, which no case changes."""

    folder: Path
    right: dict[tuple[str, str], Any]  # what commands that read show of the datasets

    def input(self, *days: int) -> str:
        return "--input=" + ",".join(str(self.folder / f"day-{number}.jsonl") for number in days)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """`grown` has a build, appends, and before the last a build of all; `expired` is left with versions 4 and 5."""
    made = Made(tmp_path_factory.mktemp("made"), {})
    for number in range(DAYS + 1):
        texts: list[Any] = [{"text": f"text {i} of day {number}"} for i in range(RECORDS - 1)]
        write_jsonl(made.folder / f"day-{number}.jsonl", [*texts, {"text": 5}])
    output = made.folder / "grown"
    for number in range(DAYS):
        if number == DAYS - 1:
            inputs = made.input(*range(number))
            assert chatmill("build", *OPTIONS, "--overwrite", inputs, f"--output={output}") == 0
        kind = ["--append"] if number else []
        assert chatmill("build", *OPTIONS, *kind, made.input(number), f"--output={output}") == 0
    shutil.copytree(output, made.folder / "expired")
    assert chatmill("expire", f"{made.folder}/expired", "--older_than", "0s", "--keep", "2") == 0
    assert chatmill("build", *OPTIONS, "--append", made.input(0), f"--output={made.folder}/begun") == 0
    return made


# --- what can happen to a file, and to its neighbour


def next_name(path: Path) -> Path:
    """A name next to that of a file, as another one of its kind would have it."""
    numbers = [*re.finditer(r"\d+", path.name)]
    if not numbers or path.suffix == ".html":
        return path.with_name(f"copy of {path.name}")
    first = numbers[0]
    return path.with_name(
        f"{path.name[: first.start()]}{int(first[0]) + 1:0{len(first[0])}d}{path.name[first.end() :]}"
    )


def remove(path: Path, neighbour: Path) -> list[Path]:
    path.unlink()
    return [path]


def truncate(path: Path, neighbour: Path) -> list[Path]:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return [path]


def empty(path: Path, neighbour: Path) -> list[Path]:
    path.write_bytes(b"")
    return [path]


def duplicate(path: Path, neighbour: Path) -> list[Path]:
    copy = next_name(path)
    changed = [path, copy]
    copy.write_bytes(path.read_bytes())
    return changed


def exchange(path: Path, neighbour: Path) -> list[Path]:
    content = path.read_bytes()
    path.write_bytes(neighbour.read_bytes())
    neighbour.write_bytes(content)
    return [path, neighbour]


HARMS = (remove, truncate, empty, duplicate, exchange)


def files_of(output: Path) -> list[str]:
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


def contents(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in files_of(output)}


# --- commands. A folder is free for what they write.

READS: dict[str, Callable[[Path, Path, Path], list[str]]] = {
    "verify": lambda output, free, sound: ["verify", str(output)],
    "stats": lambda output, free, sound: ["stats", str(output), "--json"],
    "snapshots": lambda output, free, sound: ["snapshots", str(output), "--json"],
    "inspect": lambda output, free, sound: ["inspect", str(output), "--sample", "9"],
    "rejects": lambda output, free, sound: ["inspect", str(output), "--reject", "0"],
    "diff": lambda output, free, sound: ["diff", str(output), str(sound), "--json"],
    "input": lambda output, free, sound: [
        "build", *OPTIONS[:1], *OPTIONS[-2:], f"--input={output}", f"--output={free}/out"
    ],
}  # fmt: skip
WRITES: dict[str, Callable[[Path, Made], list[str]]] = {
    "append": lambda output, made: ["build", *OPTIONS, "--append", made.input(DAYS), f"--output={output}"],
    "overwrite": lambda output, made: ["build", *OPTIONS, "--overwrite", made.input(DAYS), f"--output={output}"],
    "expire": lambda output, made: ["expire", str(output), "--older_than", "0s"],
}


def run(capfd: pytest.CaptureFixture[str], command: list[str]) -> tuple[int, str, str]:
    capfd.readouterr()
    code = chatmill(*command)
    return code, *capfd.readouterr()


def harmed(
    made: Made, dataset: str, tmp_path: Path, name: str, harm: Callable[..., list[Path]]
) -> tuple[Path, set[str]]:
    """A copy of a dataset with a harm. Returns it, and the names that were changed."""
    output = Path(shutil.copytree(made.folder / dataset, tmp_path / "out"))
    names = files_of(output)
    neighbour = names[(names.index(name) + 1) % len(names)]
    return output, {str(path.relative_to(output)) for path in harm(output / name, output / neighbour)}


def check_is_named(changed: set[str], ended: tuple[int, str, str]) -> None:
    """Assert that a command that failed ended with one line that names what was changed, its increment, or the log."""
    code, out, err = ended
    assert code in (1, 2) and "Traceback" not in err and "unexpected error" not in err, err
    parts = {part for name in changed for part in (name.rpartition("/")[2], *re.findall("[0-9a-f]{16}", name))}
    parts |= {"_chatmill/log" for name in changed if "_chatmill/log/" in name}
    assert any(part and part in out + err for part in parts), (changed, out, err)


def read(capfd: Any, made: Made, dataset: str, output: Path, free: Path, command: str) -> tuple[Any, str, int]:
    """How a command ended, what it printed, and how many rows it wrote."""
    free.mkdir(parents=True)
    ended = run(capfd, READS[command](output, free, made.folder / dataset))
    text = re.sub(r"note: .* is not a part of the dataset\n", "", ended[1])
    rows = Dataset(f"{free}/out").manifest["rows"] if command == "input" and not ended[0] else 0
    return ended, text.replace(str(output), "OUT").replace(str(free), "FREE"), rows


def check_read(capfd: Any, made: Made, dataset: str, tmp_path: Path, name: str, harm: Any, command: str) -> None:
    output, changed = harmed(made, dataset, tmp_path, name, harm)
    if (dataset, command) not in made.right:
        free = made.folder / "free" / dataset / command
        made.right[dataset, command] = read(capfd, made, dataset, made.folder / dataset, free, command)
    right, right_text, right_rows = made.right[dataset, command]
    ended, text, rows = read(capfd, made, dataset, output, tmp_path / "free", command)
    assert right[0] == 0, right
    if ended[0]:
        check_is_named(changed, ended)
    elif command == "input":
        assert rows == right_rows > 0
    elif text != right_text:  # what diff shows may be the name of a file that is another one
        check_is_named(changed, (1, *ended[1:]))


def check_written(capfd: Any, made: Made, dataset: str, tmp_path: Path, name: str, harm: Any, command: str) -> None:
    output, changed = harmed(made, dataset, tmp_path, name, harm)
    before = contents(output)
    ended = run(capfd, WRITES[command](output, made))
    if ended[0]:
        check_is_named(changed, ended)
        after, sound = contents(output), contents(made.folder / dataset)
        # The tokenizer is written again, with a warning.
        changed_by_it = {each for each in before.keys() - DERIVED if after.get(each) != before[each]}
        assert all(each in sound and after.get(each) == sound[each] for each in changed_by_it), changed_by_it
        return
    # What it did is right, as it shows when the file is there again.
    for each in (
        set() if command == "overwrite" else changed - {next_name(output / name).relative_to(output).as_posix()}
    ):
        if each.startswith((*PUBLISHED, TOKENIZERS, LOG)):
            (output / each).parent.mkdir(exist_ok=True)
            shutil.copy(made.folder / dataset / each, output / each)
    days = 1 if dataset == "begun" else DAYS
    days = {"append": days + 1, "overwrite": 1}.get(command, days)
    manifest = Dataset(str(output)).manifest
    assert manifest["records"]["read"] == RECORDS * days
    for fault in verify(str(output)).faults:
        assert any(each.startswith(fault.path) for each in changed), fault


def check_all(check: Callable[..., None], capfd: Any, made: Made, tmp_path: Path, cases: Any) -> None:
    """Check cases, each of a dataset, the name of a file, a harm and a command, and show all that fail."""
    failed = []
    for number, (dataset, name, harm, command) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            check(capfd, made, dataset, folder, name, harm, command)
        except (AssertionError, Exception) as error:
            problem = f"{type(error).__name__} {str(error)[:700]}"
            failed.append(f"{command} of {dataset} after {harm.__name__} {name}: {problem}")
        shutil.rmtree(folder)
    assert not failed, "\n".join(failed)


def is_chosen(command: str, dataset: str, name: str) -> bool:
    """Whether a case is one of those that are always run."""
    if SLOW or dataset != "expired":
        return SLOW
    some = {"append": (LOG,), "overwrite": (LOG,), "input": ("manifest", "data"), "report": ("data", TOKENIZERS)}
    return name.startswith(some.get(command, ""))


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("command", [name for name in (*READS, *WRITES) if name not in NO_LOG])
def test_log_that_is_not_whole_is_named_by_every_command_and_nothing_is_changed(capfd, made, tmp_path, harm, command):
    """No version of `grown` has expired, so that each of its entries is needed."""
    for number, name in enumerate(name for name in files_of(made.folder / "grown") if name.startswith(LOG)):
        folder = tmp_path / str(number)
        folder.mkdir()
        output, changed = harmed(made, "grown", folder, name, harm)
        before = contents(output)
        if command in READS:
            line = READS[command](output, folder, made.folder / "grown")
        else:
            line = WRITES[command](output, made)
        ended = run(capfd, line)
        check_is_named(changed, ended)
        assert contents(output) == before
        assert command == "verify" or ended[2].count("\n") == 1


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("command", READS)
def test_command_that_reads_names_what_is_damaged_or_shows_what_is_right(capfd, made, tmp_path, harm, command):
    cases = (
        (dataset, name, harm, command)
        for dataset in DATASETS
        for name in files_of(made.folder / dataset)
        if is_chosen(command, dataset, name) and not (command == "rejects" and name.startswith("rejects"))
    )
    check_all(check_read, capfd, made, tmp_path, cases)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("command", WRITES)
def test_command_that_writes_names_what_is_damaged_or_loses_no_record(capfd, made, tmp_path, harm, command):
    cases = (
        (dataset, name, harm, command)
        for dataset in DATASETS
        for name in files_of(made.folder / dataset)
        if is_chosen(command, dataset, name)
    )
    check_all(check_written, capfd, made, tmp_path, cases)
