"""Put the mutants of tests/mutants.txt into copies of the project, one in each, and run the tests that should see them.

    .venv/bin/python tests/run_mutants.py [--check] [-j N] [NAME ..]

Exit code 0: each mutant died. 1: one survived, no longer applies, or there are fewer than 60; or the tests of one fail
without it. `--check` only applies the mutants, in memory. Names run some of them alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FEWEST = 60
# What no test reads, or each copy makes anew.
_NOT_COPIED = shutil.ignore_patterns(".*", "out", "build", "dist", "*.egg-info")
_KILLER = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)
# A mutant may never end: its tests have this many seconds more than all tests took without a mutant.
_SECONDS_MORE = 120
_IMPORTS = "import pipeline, transforms; print(pipeline.__file__, transforms.__file__)"


class Mutant(NamedTuple):
    """A mistake in one place.

    name: by which it is run. file: in which it is. old: the source text that it replaces, which the file has once.
    new: what is there instead. tests: files of tests, or tests in them, that should see it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


def read_mutant(block: str) -> Mutant:
    """Read a block of tests/mutants.txt."""
    first, second, *lines = block.splitlines()
    file, _, tests = second.partition(" ")
    old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in "-+")
    return Mutant(first.partition(":")[0], file, old, new, tests)


MUTANTS = [
    read_mutant(block)
    for block in (ROOT / "tests" / "mutants.txt").read_text(encoding="utf-8").split("\n\n")
    if not block.startswith("#")
]


class Run(NamedTuple):
    """How a run of tests ended: the exit code of pytest, None if it took too long; its output; and its seconds."""

    code: int | None
    output: str
    seconds: float


def problems(mutants: Sequence[Mutant] = MUTANTS, root: Path = ROOT) -> list[str]:
    """Return why mutants do not apply, in one line each; also if there are too few, or two have one name."""
    found = [f"there are {len(mutants)} mutants; expected at least {FEWEST}"] if len(mutants) < FEWEST else []
    names = [mutant.name for mutant in mutants]
    found += [f"{name}: there are two of that name" for name in sorted({*names}) if names.count(name) > 1]
    for mutant in mutants:
        path = root / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.is_file() else 0
        if count != 1 or mutant.old == mutant.new:
            found.append(f"{mutant.name}: its text is {count} times in {mutant.file}; expected once. Write its like.")
        found += [f"{mutant.name}: there is no {test}" for test in mutant.tests.split() if not _exists(root, test)]
    return found


def _exists(root: Path, test: str) -> bool:
    """Whether there is a file of tests, or a test in it, as pytest names them."""
    name, _, function = test.partition("::")
    path = root / name
    return path.is_file() and (not function or f"def {function}(" in path.read_text(encoding="utf-8"))


def run_tests(folder: Path, tests: str, timeout: float | None = None) -> Run:
    """Run tests in a copy of the project, until one fails."""
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-p", "no:cacheprovider", *tests.split()]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, env=_environment(folder), text=True, timeout=timeout, **_PIPES)
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, output = None, str(error)
    return Run(code, output, time.monotonic() - begin)


_PIPES: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}


def _environment(folder: Path) -> dict[str, str]:
    """The copy comes before what is installed, also in processes that tests start."""
    return {**os.environ, "PYTHONPATH": str(folder), "TEST_MUTANTS": "1"}


def check_imports(folder: Path) -> None:
    """Check that the modules of a copy are those that its tests and their processes import. Raises SystemExit."""
    command = [sys.executable, "-c", _IMPORTS]
    for where in (folder, Path(tempfile.gettempdir())):
        found = subprocess.run(command, cwd=where, env=_environment(folder), text=True, **_PIPES).stdout.split()
        if not all(Path(path).is_relative_to(folder) for path in found) or len(found) != 2:
            raise SystemExit(f"the modules of the copy {folder} are not imported, but {' '.join(found)}")


def tried(mutant: Mutant, unmutated: Path, seconds: float) -> str:
    """Return what became of a mutant: `died`, with the test that saw it, `SURVIVED`, or `BROKEN`.

    Args:
        mutant: the mutant.
        unmutated: a copy of the project.
        seconds: that its tests have.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "project")
        shutil.copytree(unmutated, folder)
        path = folder / mutant.file
        path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
        run = run_tests(folder, mutant.tests, seconds)
    if run.code == 0:
        return "SURVIVED"
    if run.code is None:
        return "died   by the time that its tests took"
    if run.code != 1 or not (killer := _KILLER.search(run.output)):
        return f"BROKEN  {' '.join(run.output.split())[-300:]}"
    return f"died   {killer[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only apply them")
    parser.add_argument("-j", type=int, default=1, metavar="N", help="how many at once (default: 1)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants (default: all)")
    options = parser.parse_args()
    if unknown := {*options.names} - {mutant.name for mutant in MUTANTS}:
        parser.error(f"there is no mutant {min(unknown)}")
    if found := problems():
        print(*found, sep="\n")
        return 1
    if options.check:
        print(f"{len(MUTANTS)} mutants apply")
        return 0
    mutants = [mutant for mutant in MUTANTS if mutant.name in options.names or not options.names]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.j) as pool:
        unmutated = Path(temporary, "project")
        shutil.copytree(ROOT, unmutated, ignore=_NOT_COPIED)
        check_imports(unmutated)
        every = run_tests(unmutated, " ".join(dict.fromkeys(mutant.tests for mutant in mutants)))
        if every.code:
            print("without a mutant, these tests fail:", every.output, sep="\n")
            return 1
        found = []
        every_end = pool.map(partial(tried, unmutated=unmutated, seconds=every.seconds + _SECONDS_MORE), mutants)
        for mutant, became in zip(mutants, every_end, strict=True):
            print(f"{mutant.name:40} {became}", flush=True)
            found.append(became)
    died = sum(each.startswith("died") for each in found)
    print(f"{died} of {len(mutants)} mutants died")
    return int(died < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
