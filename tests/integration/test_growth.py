"""The versions of a dataset as a state machine: whatever happens to it, each record is there once, and nothing is lost.

Files arrive, are half-written, grow and leave; builds append, overwrite, fail, are killed at any change of the disk, or
meet another one; versions expire. docs/growing.md is what holds; test_damage.py has what is said of damaged files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from support import forks
from support.command_line import chatmill
from support.datasets import digests
from support.drawn import examples
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset, UserError, shards

_DAY = 86_400
_PARTS = ("data", "tfrecord", "records")
_DECODER = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
# Long examples are cut by max_length, split into rows, or dropped.
_LENGTHS = {
    "": "rows",
    "--packing=bfd --max_length=256": "rows",
    "--max_length=48 --truncation=turns": "dropped",
    "--packing=bfd --max_length=48": "rows",
    "--packing=bfd --max_length=48 --truncation=drop": "dropped",
    "--packing=bfd_split --max_length=48": "rows",
    "--packing=wrapped --max_length=48": "rows",
}
_ORDERS = ("", "--shuffle=global", "--dedup=exact", "--shuffle=global --dedup=exact",
           "--shuffle=global --epochs=2 --shards=2")  # fmt: skip
_OTHERS = ("--validation_fraction=0.4", "--keep_columns=id", "--provenance", "--output_format=parquet,tfrecord",
           "--split_bytes=400")  # fmt: skip

# What a line of a file is, and the number of its conversation. A twin has that of an earlier line, and is the same.
Line = tuple[str, int]
# A file as it was once: its name, and its lines.
Taken = tuple[str, tuple[Line, ...]]
_KINDS = st.sampled_from(["short", "short", "short", "long", "twin", "unanswered", "broken"])
# A file that arrives before a command; none if it has no line.
_ARRIVING = st.lists(_KINDS, max_size=3)


def make_content(lines: Sequence[Line]) -> list[bytes]:
    """The lines of a file. The last one of a file that is still being written is cut."""
    written = []
    for kind, number in lines:
        messages: Any = [{"role": "user", "content": f"q{number}q"}]
        if kind != "unanswered":
            messages.append({"role": "assistant", "content": "yes indeed " * (30 if kind == "long" else 1)})
        record = {"id": str(number), "messages": "?" if kind == "broken" else messages}
        line = f"{json.dumps(record)}\n".encode()
        written.append(line[: len(line) // 2] if kind == "half" else line)
    return written


class Version(NamedTuple):
    """What is known of a version: its age in days, and what was read of it when it was made."""

    age: int
    read: str


# What may happen, and the arguments that are drawn for it.
_STEPS: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def step(**drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        _STEPS.append(st.tuples(st.just(function.__name__), st.fixed_dictionaries(drawn)))
        return function

    return register


class Versions:
    """A dataset in a folder, and the files of which it is made."""

    def __init__(self, folder: Path, lengths: str, order: str, others: set[str], kinds: list[str]) -> None:
        self.folder = folder
        self.inputs, self.output = self.folder / "in", self.folder / "out"
        self.inputs.mkdir()
        self.numbers, self.names, self.writes = itertools.count(), itertools.count(), itertools.count(1)
        self.files: dict[str, tuple[Line, ...]] = {}
        # What the newest version is made of, and what a build that failed or was killed had begun to add.
        self.taken: list[Taken] = []
        self.begun: list[Taken] = []
        self.versions: dict[int, Version] = {}
        # For how many days there has been what a build left that was killed or failed, or that another one stopped.
        self.strays: int | None = None
        # Whether what is derived may be of the version before, since a command was killed.
        self.is_stale = False
        self.splits: dict[int, str] = {}
        self.options = [*lengths.split(), *order.split(), *sorted(others), "--report=none", "--direct_num_workers=1"]
        self.options += [f"--tokenizer={TOKENIZER}", f"--input={self.inputs}", f"--output={self.output}"]
        self.long_is_dropped = _LENGTHS[lengths] == "dropped"
        self.has_dedup, self.copies = "--dedup=exact" in self.options, 2 if "--epochs=2" in self.options else 1
        self.arrives(["short", *kinds], False)

    # --- files

    @step(kinds=_ARRIVING, is_half=st.booleans())
    def arrives(self, kinds: list[str], is_half: bool) -> None:
        """A file arrives. Perhaps it is still being written: its last line is cut."""
        if kinds or is_half:
            self._write(f"day-{next(self.names):03d}.jsonl", (), kinds, is_half)

    @step(kinds=st.lists(_KINDS, min_size=1, max_size=2), is_half=st.booleans(), which=st.integers(0, 9))
    def grows(self, kinds: list[str], is_half: bool, which: int) -> None:
        """More is written to a file: the rest of its last line, and other lines."""
        name = [*self.files][which % len(self.files)]
        self._write(name, self.files[name], kinds, is_half)

    @step(which=st.integers(1, 9))
    def leaves(self, which: int) -> None:
        """A file is moved away: its records stay until an overwrite."""
        name = [*self.files][which % len(self.files)]
        if name == next(iter(self.files)):
            return  # one stays, which has a row
        (self.inputs / name).unlink()
        del self.files[name]

    def _write(self, name: str, before: tuple[Line, ...], kinds: Sequence[str], is_half: bool) -> None:
        lines = [("short", number) if kind == "half" else (kind, number) for kind, number in before]
        shorts = [number for kind, number in itertools.chain(*self.files.values(), lines) if kind == "short"]
        for kind in kinds:
            lines.append((kind, shorts[-1] if kind == "twin" and shorts else next(self.numbers)))
        if is_half:
            lines.append(("half", next(self.numbers)))
        (self.inputs / name).write_bytes(b"".join(make_content(lines)))
        stamp = 10**18 + next(self.writes) * 10**9
        os.utime(self.inputs / name, ns=(stamp, stamp))
        self.files[name] = tuple(lines)

    # --- commands

    def command(self, what: str, budget: str = "1", *more: str) -> list[str]:
        changed = ["--on_changed_file=append"] if what == "append" else []
        return ["build", f"--{what}", f"--max_reject_fraction={budget}", *changed, *self.options, *more]

    @step(kinds=_ARRIVING, budget=st.sampled_from(["1", "1", "0"]), is_strict=st.booleans())
    def append(self, kinds: list[str], budget: str, is_strict: bool) -> None:
        """What is new is added; or nothing, if a file changed and that is an error, or more is rejected than may be."""
        self.arrives(kinds, False)
        new, before = self._new(), self._newest()
        names = {name for name, _ in self.taken}
        on_changed = ["--on_changed_file=error"] if is_strict else []
        if is_strict and any(name in names for name, _ in new):
            event("a changed file is refused")
            self._refused(2, "it changed since it was added", *self.command("append", "1", *on_changed))
        elif budget == "0" and not self.begun and any(kind in ("broken", "half") for _, of in new for kind, _ in of):
            event("too many rejects")
            self._refused(1, "were rejected", *self.command("append", "0", *on_changed))
            self.begun, self.strays = new, 0
        else:
            is_same = not new and not self.begun and self.strays is None
            files = _files_with_times(self.output) if is_same else {}
            self._run(*self.command("append", "1", *on_changed))
            assert not is_same or _files_with_times(self.output) == files
            self.taken, self.begun = [*self.taken, *new], []
            self._look()
            assert self._newest() in ((before + 1, before + 2) if new else (before,))

    @step(kinds=_ARRIVING)
    def overwrite(self, kinds: list[str]) -> None:
        """A build of all files takes the place of all that is there."""
        self.arrives(kinds, False)
        before = self._newest()
        self._run(*self.command("overwrite"))
        self.taken, self.begun = [*self.files.items()], []
        self._look()
        assert self._newest() == before + 1

    @step(days=st.integers(1, 3))
    def days_pass(self, days: int) -> None:
        """All files of the dataset are older, and its commits longer ago."""
        self._begin()
        previous = None
        for path in sorted((self.output / "_chatmill" / "versions").glob("*.json")):
            version = json.loads(path.read_bytes())
            time = datetime.fromisoformat(version["time"]) - timedelta(days)
            version |= {"time": time.isoformat(timespec="seconds"), "previous": previous or version["previous"]}
            path.write_text(json.dumps(version))
            previous = hashlib.sha256(path.read_bytes()).hexdigest()
        for path in self.output.rglob("*"):
            if path.is_file():
                os.utime(path, (path.stat().st_mtime - days * _DAY,) * 2)
        self.versions = {number: Version(of.age + days, of.read) for number, of in self.versions.items()}
        self.strays = None if self.strays is None else self.strays + days
        self._look()

    @step(days=st.integers(-1, 4), keep=st.integers(1, 3))
    def expire(self, days: int, keep: int) -> None:
        """Versions go that were replaced long ago, with the files that only they name."""
        self._begin()
        command = self._expiry(days, keep)
        self._run(*command)
        self._expired(days, keep)

    def _expiry(self, days: int, keep: int) -> list[str]:
        older_than = "0s" if days < 0 else f"{days * 24 + 12}h"
        return ["expire", str(self.output), f"--older_than={older_than}", f"--keep={keep}"]

    def _left(self, days: int, keep: int) -> list[int]:
        """The versions that are kept: which were replaced within some days, or are among the newest."""
        numbers = sorted(self.versions)
        return [
            number
            for at, number in enumerate(numbers)
            if at >= len(numbers) - keep or self.versions[numbers[at + 1]].age <= days
        ]

    def _expired(self, days: int, keep: int) -> None:
        left = self._left(days, keep)
        for number in {*self.versions} - {*left}:
            try:
                Dataset(f"{self.output}@{number}")
                raise AssertionError(f"version {number} did not expire")
            except UserError:
                del self.versions[number]
        self._look()
        files = {f"{part}/{path.name}" for part in _PARTS for path in (self.output / part).glob("*")}
        named = {path for number in left for path in self._files(number)}
        if self.strays is not None and self.strays >= 2 and self.strays > days:
            self.strays, self.begun = None, []
        assert files == named or (self.strays is not None and files > named), files ^ named

    # --- what goes wrong

    @step(
        what=st.sampled_from(["append", "append", "overwrite", "expire"]),
        change=st.integers(1, 45),
        kinds=_ARRIVING,
        resumes=st.booleans(),
    )
    def killed(self, what: str, change: int, kinds: list[str], resumes: bool) -> None:
        """A command is killed. The same command ends with the bytes of one that was not killed."""
        self.arrives(kinds, False)
        what = what if self.versions else "append"
        command = self._expiry(-1, 1) if what == "expire" else self.command(what)
        alone = self.folder / "alone"
        if self.output.exists():
            shutil.copytree(self.output, alone)
        new, before = self._new(), self._newest()
        code = forks.kill(change, *command).code
        assert code in (0, forks.KILLED)
        event(f"{what} was killed" if code else f"{what} had fewer changes")
        if code:
            self.strays, self.is_stale = 0, True
        if what == "expire":
            self.versions = {number: of for number, of in self.versions.items() if self._exists(number)}
        else:
            after = {"append": [*self.taken, *new], "overwrite": [*self.files.items()]}[what]
            begun = [*self.taken, *self.begun]
            self._settle(self.taken, begun, after)
            if self._newest() == before:
                self.begun = self.begun or (new if what == "append" else [])
            elif len(self.taken) == len(after):
                self.begun = []
        self._look()
        if resumes or what == "expire":
            self._run(*command)
            if what == "expire":
                self._expired(-1, 1)
            else:
                self.taken, self.begun = after, []
                self._look()
                self._run(*(each.replace(str(self.output), str(alone)) for each in command))
                if what == "append" or self._newest() == before + 1:
                    assert digests(self.output) == digests(alone) | self._strays()
        shutil.rmtree(alone, ignore_errors=True)

    @step(
        first=st.sampled_from(["append", "overwrite"]),
        second=st.sampled_from(["append", "overwrite", "expire"]),
        change=st.integers(1, 40) | st.sampled_from(["link /", "/receipts"]),
        kinds=_ARRIVING,
        later=_ARRIVING,
    )
    def two_write(self, first: str, second: str, change: int | str, kinds: list[str], later: list[str]) -> None:
        """On a disk without locks a build is stopped anywhere, another one commits, and the first one goes on."""
        self.arrives(kinds, False)
        second = second if self.versions else "append"
        new, before = self._new(), self._newest()
        afters = [self.taken, [*self.taken, *self.begun], [*self.taken, *new], [*self.files.items()]]
        stopped = forks.stop(change, *self.command(first))
        self.strays = 0
        try:
            self.arrives(later, False)
            command = self._expiry(-1, 1) if second == "expire" else self.command(second)
            self._run(*command)
        finally:
            ended = stopped.go_on() if isinstance(stopped, forks.Stopped) else stopped
        event(f"{first} and {second}: {ended.code}")
        assert ended.code in (0, 3), ended.printed
        if ended.code == 3:
            assert "was committed meanwhile" in ended.printed.splitlines()[-1]
        self.versions = {number: of for number, of in self.versions.items() if self._exists(number)}
        new = [file for file in self.files.items() if file not in self.taken]
        afters += [[*self.taken, *new], [*self.files.items()]]
        afters += [[*after, *(file for file in self.files.items() if file not in after)] for after in afters]
        self._settle(*afters)
        self.begun = []
        self._look()
        assert self._newest() - before <= 4
        # Whoever was refused goes on.
        new = self._new()
        self._run(*self.command(first))
        self.taken = [*self.taken, *new] if first == "append" else [*self.files.items()]
        self._look()

    # --- what always holds

    def _look(self) -> None:
        """Look at all that is there."""
        newest = self._newest()
        if not newest:
            return
        for number in range(min(self.versions, default=1), newest + 1):
            if number not in self.versions and not self._exists(number):
                continue  # an append that was begun was finished by a build that expired it
            read = self._read(number)
            known = self.versions.setdefault(number, Version(0, read))
            assert known.read == read, f"version {number} has changed"
            if number in (newest, min(self.versions)):
                assert [path for path in self._faults(number) if path.startswith(_PARTS) or not self.is_stale] == []
        assert self._wrong(self.taken) == []
        if not self.is_stale:
            assert broken_laws(self.output) == []

    def _wrong(self, taken: Sequence[Taken]) -> list[str]:
        """What is wrong with the newest version, if it is made of some files: each record must be there once."""
        if not self._newest():
            return ["there is no version"] if taken else []
        positions, expected = dict[tuple[str, int], Line](), Counter[Line]()
        for name, lines in taken:
            for line, start in zip(lines, itertools.accumulate(map(len, make_content(lines)), initial=0), strict=False):
                if line[0] != "half":
                    positions[f"{self.inputs}/{name}", start] = line
                expected[line] += 1
        manifest = Dataset(str(self.output)).manifest
        numbers = Counter[int](number for (kind, number) in expected.elements() if kind in ("short", "long", "twin"))
        dropped, rejected = Counter[int](), 0
        for file in manifest["exceptions"]:
            for line in pq.read_table(self.output / file["path"]).to_pylist():
                rejected += line["record"] is not None
                if line["outcome"] == "dropped":
                    dropped[positions.get((line["origin_file"], line["origin_position"]), ("", -1))[1]] += 1
        found = []
        if rejected != (expected_rejects := sum(count for (kind, _), count in expected.items() if kind in _REJECTED)):
            found.append(f"{rejected} rejects, expected {expected_rejects}")
        rows = {split: Counter[int]() for split in ("train", "validation")}
        for shard in manifest["shards"]:
            if shard["format"] == "parquet":
                rows[shard["split"]].update(self._numbers(self.output / shard["path"]))
        unanswered = Counter({number: count for (kind, number), count in expected.items() if kind == "unanswered"})
        longs = {number for kind, number in expected if kind == "long"}
        for number in {*numbers, *unanswered, *dropped, *rows["train"], *rows["validation"]}:
            trained, validated = rows["train"][number], rows["validation"][number]
            split = "train" if trained else "validation"
            if (trained and validated) or (trained + validated and self.splits.setdefault(number, split) != split):
                found.append(f"{number} is in train and in validation")
            copies = trained / self.copies + validated
            if copies + dropped[number] != numbers[number] + unanswered[number]:
                found.append(f"{number} is in {copies} rows and dropped {dropped[number]} times")
            elif number in unanswered or (number in longs and self.long_is_dropped):
                found += [f"{number} is in the rows"] if copies else []
            elif not copies or (dropped[number] and not self.has_dedup):
                found.append(f"{number} is dropped")
        return found

    def _numbers(self, shard: Path) -> Iterator[int]:
        """The numbers of the conversations in a shard, in whichever rows they are."""
        table = pq.read_table(shard)
        ids = list(itertools.chain(*table["input_ids"].to_pylist()))
        numbers = [int(number) for number in re.findall(r"q(\d+)q", _DECODER.decode(ids))]
        if "id" in table.column_names:
            values = table["id"].to_pylist()
            kept = [*itertools.chain(*(each if isinstance(each, list) else [each] for each in values))]
            assert {*map(int, kept)} == {*numbers}
        return iter(numbers)

    def _settle(self, *candidates: list[Taken]) -> None:
        """Find out of which files the newest version is made, of those of which it may be."""
        self.taken = next((each for each in candidates if not self._wrong(each)), self.taken)

    def _begin(self) -> None:
        """Let there be a version."""
        if not self.versions:
            self.append([], "1", False)

    def _new(self) -> list[Taken]:
        return [file for file in self.files.items() if file not in self.taken]

    def _newest(self) -> int:
        return Dataset(str(self.output)).version if (self.output / "_chatmill" / "versions").exists() else 0

    def _exists(self, number: int) -> bool:
        try:
            return Dataset(f"{self.output}@{number}").version == number
        except UserError:
            return False

    def _files(self, number: int) -> set[str]:
        manifest = Dataset(f"{self.output}@{number}").manifest
        return {file["path"] for file in (*manifest["shards"], *manifest["exceptions"])}

    def _read(self, number: int) -> str:
        """What a reader has of a version."""
        manifest = Dataset(f"{self.output}@{number}").manifest
        content = json.dumps(manifest).encode()
        for url in shards(str(self.output), number):
            content += json.dumps(pq.read_table(url).to_pylist()).encode()
        return hashlib.sha256(content).hexdigest()

    def _faults(self, number: int) -> list[str]:
        code, printed = _chatmill("verify", f"{self.output}@{number}", "--json")
        faults = [fault["path"] for fault in json.loads(printed)["faults"]]
        assert code == bool(faults)
        return faults

    def _strays(self) -> dict[str, str]:
        """The files that no version names."""
        named = {path for number in self.versions for path in self._files(number)}
        return {
            path: digest
            for path, digest in digests(self.output).items()
            if ("/" in path and path not in named) or re.search(r"\.[0-9a-f]{32}$", path)
        }

    def _run(self, *command: str) -> None:
        code, printed = _chatmill(*command)
        assert code == 0, printed
        self.is_stale = False

    def _refused(self, code: int, problem: str, *command: str) -> None:
        before = digests(self.output) if self.output.exists() else {}
        found, printed = _chatmill(*command)
        assert found == code and problem in printed and "Traceback" not in printed, printed
        after = digests(self.output)
        assert self.is_stale or before.items() <= after.items()
        assert all(path.startswith(_PARTS) for path in {*after} - {*before})
        self._look()


_REJECTED = ("broken", "half")


def _chatmill(*command: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        return chatmill(*command), printed.getvalue()


def _files_with_times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


_BEGINNINGS = st.fixed_dictionaries(
    {
        "lengths": st.sampled_from([*_LENGTHS]),
        "order": st.sampled_from(_ORDERS),
        "others": st.sets(st.sampled_from(_OTHERS)),
        "kinds": st.lists(_KINDS, max_size=4),
    }
)


# Versions of several ages, of which the second was the newest one within the time.
_AGES: list[tuple[str, dict[str, Any]]] = [
    ("append", {"kinds": ["long", "broken"], "budget": "1", "is_strict": True}),
    ("days_pass", {"days": 3}),
    ("overwrite", {"kinds": ["short", "twin"]}),
    ("days_pass", {"days": 2}),
    ("append", {"kinds": ["short"], "budget": "1", "is_strict": True}),
    ("days_pass", {"days": 1}),
    ("expire", {"days": 1, "keep": 1}),
    ("expire", {"days": -1, "keep": 1}),
]
# The version that was replaced is kept, and has files that the newest one does not have.
_KEPT: list[tuple[str, dict[str, Any]]] = [
    ("append", {"kinds": ["short"], "budget": "1", "is_strict": True}),
    ("overwrite", {"kinds": ["short"]}),
    ("expire", {"days": -1, "keep": 2}),
]
# A file was half-written when it was added.
_GROWS: list[tuple[str, dict[str, Any]]] = [
    ("append", {"kinds": ["short", "broken"], "budget": "1", "is_strict": True}),
    ("arrives", {"kinds": ["short"], "is_half": True}),
    ("append", {"kinds": [], "budget": "1", "is_strict": True}),
    ("grows", {"kinds": ["twin"], "is_half": False, "which": 2}),
    ("append", {"kinds": [], "budget": "1", "is_strict": True}),
    ("killed", {"what": "append", "change": 24, "kinds": ["long"], "resumes": True}),
]


@pytest.mark.slow
@examples(10, at_length=150)
@given(_BEGINNINGS, st.lists(st.one_of(_STEPS), min_size=6, max_size=9))
@example({"lengths": "", "order": "", "others": set(), "kinds": []}, _KEPT)
@example({"lengths": "", "order": "", "others": {"--validation_fraction=0.4"}, "kinds": ["long"]}, _AGES)
@example({"lengths": "", "order": "--dedup=exact", "others": {"--keep_columns=id"}, "kinds": []}, _GROWS)
def test_each_record_is_there_once_whatever_happens(beginning, steps):
    with tempfile.TemporaryDirectory() as folder:
        versions = Versions(Path(folder), **beginning)
        for name, arguments in steps:
            getattr(versions, name)(**arguments)
