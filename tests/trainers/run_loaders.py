"""Read a dataset in ranks that are killed, and print which rows were used. The Python of the trainers runs this.

    run_loaders.py < REQUEST

REQUEST is JSON: `code`, which defines `loader`, an iterable of batches of rows, from `used`, `rank` and `ranks`;
`batch`, the rows of a batch; `kills`, the number of ranks of each run that is killed, and the step at which it is;
`ranks`, of the run that goes to the end. The result is JSON: the first token of each row that was used, in each run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torchdata.stateful_dataloader  # noqa: F401  takes seconds, in each rank if it is not imported before the fork


def read(code: str, used: int, rank: int, ranks: int, file: Path) -> None:
    """Read the rows of a rank, and write those of each step into a line."""
    names: dict[str, Any] = {}
    exec(re.sub("used, rank, ranks = .*", f"used, rank, ranks = {used}, {rank}, {ranks}", code), names)
    with file.open("w") as lines:
        for batch in names["loader"]:
            print(json.dumps([int(row["input_ids"][0]) for row in batch]), file=lines, flush=True)


def run(code: str, used: int, ranks: int, kill_at: int | None) -> list[int]:
    """Start ranks, and kill them when each has done some steps; None if they go to the end. Returns the used rows."""
    with TemporaryDirectory() as folder:
        files, processes = [Path(folder, str(rank)) for rank in range(ranks)], []
        for rank, file in enumerate(files):
            file.touch()
            processes.append(os.fork())
            if not processes[-1]:
                try:
                    read(code, used, rank, ranks, file)
                    os._exit(0)
                except Exception:
                    traceback.print_exc()
                    os._exit(1)
        deadline = time.monotonic() + 60
        while kill_at and any(file.read_text().count("\n") < kill_at for file in files):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if kill_at:
            for process in processes:
                os.kill(process, signal.SIGKILL)
        codes = {os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes}
        assert codes <= {0, -signal.SIGKILL}, codes
        return [row for file in files for line in file.read_text().splitlines()[:kill_at] for row in json.loads(line)]


def main() -> None:
    request = json.load(sys.stdin)
    code, used = request["code"], []
    for ranks, kill_at in [*request["kills"], [request["ranks"], None]]:
        used.append(run(code, sum(map(len, used)), ranks, kill_at))
    print(json.dumps(used))


if __name__ == "__main__":
    main()
