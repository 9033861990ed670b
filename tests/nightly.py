"""Run all that takes hours, and write what came out to tests/nightly.json, which is committed.

    tests/run.sh --nightly

All tests at length (TEST_SLOW: ten times the examples of properties, 200 kills, 50 races, all characters), Flink, the
report in a browser, the recipes with the trainers, and the mutants. Exit code 1 if something failed.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).parent / "nightly.json"
# What each lane runs, after the interpreter. Trainers train one after the other.
LANES = {
    "tests": ["-m", "pytest", "--ignore=tests/trainers"],
    "trainers": ["-m", "pytest", "-n0", "tests/trainers"],
    "mutants": ["tests/run_mutants.py", "-j", str(os.cpu_count() or 1)],
}


def run_lane(name: str, arguments: list[str]) -> dict[str, object]:
    """Run one lane, and return its figures: of pytest the counts of its tests, of the mutants the last line."""
    begin = time.monotonic()
    environment = {**os.environ, "TEST_SLOW": "1", "TEST_TRAINERS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        if "pytest" in arguments:
            arguments = [*arguments, f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE
        )
        print(done.stdout)
        figures: dict[str, object] = {"exit_code": done.returncode, "minutes": round((time.monotonic() - begin) / 60)}
        if report.exists():
            suite = next(ET.parse(report).iter("testsuite"))
            figures |= {count: int(suite.attrib[count]) for count in ("tests", "failures", "errors", "skipped")}
            failed = (case for case in suite.iter("testcase") if case.find("failure") is not None)
            figures["failed"] = [f"{case.attrib['classname']}.{case.attrib['name']}" for case in failed]
        else:
            figures["result"] = done.stdout.strip().rpartition("\n")[2]
    return figures


def main() -> int:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True, capture_output=True, check=True)
    found = {name: run_lane(name, arguments) for name, arguments in LANES.items()}
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    result = {"commit": commit.stdout.strip(), "date": date, "cores": os.cpu_count(), **found}
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{RESULT}: {json.dumps(result)}")
    return int(any(figures["exit_code"] for figures in found.values()))


if __name__ == "__main__":
    sys.exit(main())
