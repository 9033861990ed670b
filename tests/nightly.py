"""Run all that takes hours, and write what came out to tests/nightly.json, which is committed.

    tests/run.sh --nightly [LANE ..]

Lanes: `marked` (Flink, the report in a browser, the largest files), `length` (all other tests with TEST_SLOW: ten times
the examples of properties, 200 kills, 50 races, all characters), `trainers` (the recipes with the trainers), `mutants`;
all of them if none is named. Each has its own entry, with the commit that it was run on. Exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
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
    "marked": ["-m", "pytest", "-m", "nightly", "--ignore=tests/trainers"],
    "length": ["-m", "pytest", "-m", "not nightly", "--ignore=tests/trainers"],
    "trainers": ["-m", "pytest", "-n0", "tests/trainers"],
    "mutants": ["tests/run_mutants.py", "-j", str(os.cpu_count() or 1)],
}


def run_lane(name: str) -> dict[str, object]:
    """Run one lane, and return its figures: of pytest the counts of its tests, of the mutants the last line."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True, capture_output=True, check=True)
    begin, date = time.monotonic(), datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    arguments, environment = LANES[name], {**os.environ, "TEST_TRAINERS": "1"}
    if name != "mutants":  # which are to die by what the suite draws
        environment["TEST_SLOW"] = "1"
    figures: dict[str, object] = {"commit": commit.stdout.strip(), "date": date, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        if "pytest" in arguments:
            arguments = [*arguments, f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE
        )
        print(done.stdout)
        figures |= {"exit_code": done.returncode, "minutes": round((time.monotonic() - begin) / 60)}
        if report.exists():
            suite = next(ET.parse(report).iter("testsuite"))
            figures |= {count: int(suite.attrib[count]) for count in ("tests", "failures", "errors", "skipped")}
            failed = (case for case in suite.iter("testcase") if case.find("failure") is not None)
            figures["failed"] = [f"{case.attrib['classname']}.{case.attrib['name']}" for case in failed]
        else:
            figures["result"] = done.stdout.strip().rpartition("\n")[2]
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=", ".join(LANES))
    lanes = parser.parse_args().lanes or [*LANES]
    if unknown := [name for name in lanes if name not in LANES]:
        parser.error(f"{unknown[0]}: expected {', '.join(LANES)}")
    result = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    for name in lanes:
        result[name] = run_lane(name)
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"{RESULT}: {name}: {json.dumps(result[name])}")
    return int(any(result[name]["exit_code"] for name in lanes))


if __name__ == "__main__":
    sys.exit(main())
