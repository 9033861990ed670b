"""Commands in forks of a process that has imported all that a build needs: they race, or one is killed or stopped."""

from __future__ import annotations

import atexit
import errno
import fcntl
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from support.paths import ROOT, TOKENIZER

KILLED = -signal.SIGKILL
_CHANGES = ("link", "replace", "rename", "remove", "unlink", "rmdir", "mkdir")


class Ended(NamedTuple):
    """How a command ended: its exit code, or KILLED; what it printed; and how often it changed the disk."""

    code: int
    printed: str
    changes: int


class Stopped(NamedTuple):
    """A command that was stopped."""

    process: int

    def go_on(self) -> Ended:
        """Let it go on to its end."""
        [answer] = _ask(go_on=self.process)
        return _ended(answer)


def race(*commands: Sequence[object]) -> list[Ended]:
    """Run commands that begin at the same moment."""
    return [_ended(answer) for answer in _ask(commands=[[*map(str, command)] for command in commands])]


def kill(change: int | str, *command: object) -> Ended:
    """Run a command, and kill it before one of its changes of the disk, if it has that one.

    change: counted from 1; or a text, such as `link /`: the first one of which the name and the path have it.
    """
    [answer] = _ask(commands=[[*map(str, command)]], at=change, signal=signal.SIGKILL)
    return _ended(answer)


def kill_before_the_commit(*options: object) -> None:
    """Build a dataset by one worker, and kill the build when all is written, before its version."""
    assert kill("/_chatmill/versions/", "build", *options, "--direct_num_workers=1").code == KILLED


def stop(change: int | str, *command: object) -> Stopped | Ended:
    """Run a command on a disk without locks, and stop it before a change, as `kill` does."""
    [answer] = _ask(commands=[[*map(str, command)]], at=change, signal=signal.SIGSTOP, has_locks=False)
    return Stopped(answer["process"]) if answer["code"] is None else _ended(answer)


def _ended(answer: dict[str, Any]) -> Ended:
    return Ended(answer["code"], answer["printed"], answer["changes"])


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "support.forks"], cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    atexit.register(server.kill)
    return server


def _ask(**order: Any) -> list[dict[str, Any]]:
    server = _server()
    assert server.stdin and server.stdout
    print(json.dumps(order), file=server.stdin, flush=True)
    answers: list[dict[str, Any]] = json.loads(server.stdout.readline())
    return answers


def _serve() -> None:
    """Answer each order, a line of JSON, with another line. The code of a command that is stopped is null."""
    from pipeline import main

    answers, folder, fork = os.fdopen(os.dup(1), "w"), Path(tempfile.mkdtemp()), multiprocessing.get_context("fork")
    os.chdir(ROOT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    # One that does not build imports what a build needs.
    main(["build", "--append", "--dry_run=True", f"--input={TOKENIZER}/tokenizer_config.json", "--output=/nowhere",
          f"--tokenizer={TOKENIZER}"])  # fmt: skip
    for line in sys.stdin:
        order = json.loads(line)
        if processes := [order["go_on"]] if "go_on" in order else []:
            os.kill(processes[0], signal.SIGCONT)
        start = fork.Barrier(len(order.get("commands", [1])))
        for command in order.get("commands", ()):
            processes.append(os.fork())
            if not processes[-1]:
                _run(functools.partial(main, command), order, folder / str(os.getpid()), start.wait)
        print(json.dumps([_answer(process, folder) for process in processes]), file=answers, flush=True)


def _answer(process: int, folder: Path) -> dict[str, Any]:
    """Wait until a process has ended, or is stopped."""
    _, status = os.waitpid(process, os.WUNTRACED)
    code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
    printed, changes = ((folder / f"{process}{suffix}").read_text() for suffix in ("", ".changes"))
    return {"process": process, "code": code, "printed": printed, "changes": len(changes)}


def _run(main: Callable[[], int], order: dict[str, Any], printed: Path, wait: Callable[[], object]) -> NoReturn:
    code = 70
    try:
        changes = os.open(f"{printed}.changes", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(os.open(printed, os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)

        def counted(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*arguments: Any, **options: Any) -> Any:
                if "chatmill-run-" not in str(arguments[0]):  # the temporary files of a run
                    os.write(changes, b".")
                    at = order.get("at")
                    if at in f"{name} {arguments[0]}" if isinstance(at, str) else at == os.fstat(changes).st_size:
                        order["at"] = None
                        os.kill(os.getpid(), order["signal"])
                return change(*arguments, **options)

            return counting

        for name in _CHANGES:
            setattr(os, name, counted(name, getattr(os, name)))
        if not order.get("has_locks", True):
            fcntl.flock = _no_locks
        wait()
        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _no_locks(*_: Any) -> NoReturn:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


if __name__ == "__main__":
    _serve()
