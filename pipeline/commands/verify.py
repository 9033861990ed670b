"""Read all files of a dataset: each has the size and the sha256 that were written, none is missing, and none is
more. `sha256sum -c SHA256SUMS` in its folder does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser, show_phase
from transforms.base.phrases import counted

SUMMARY = "OUT", "compare all files of a dataset with their checksums"
_FAULTS_SHOWN = 50


def run(arguments: Sequence[str]) -> int:
    """Verify a dataset. Returns 0 if it is sound, otherwise 1."""
    parser = CommandParser("verify", SUMMARY, __doc__, ["out/mine", "out/mine@6", "gs://shards/mine --json"])
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument("--json", action="store_true", help="print JSON, with all faults")
    options = parser.parse_args(arguments)
    show_phase(f"reading {options.dataset}")

    from pipeline.show.printing import print_json
    from transforms.base.hidden import visible
    from transforms.dataset.verification import verify

    verification = verify(options.dataset)
    if options.json:
        faults = [fault._asdict() for fault in verification.faults]
        document = {"url": verification.url, "ok": not faults, "files": verification.files, "bytes": verification.bytes}
        print_json(document | {"faults": faults, "notes": verification.notes})
        return int(bool(faults))
    for fault in verification.faults[:_FAULTS_SHOWN]:
        print(visible(f"{fault.path}: {fault.problem}"))
    if len(verification.faults) > _FAULTS_SHOWN:
        print(f"and {len(verification.faults) - _FAULTS_SHOWN:,} more, which --json lists")
    for note in verification.notes:
        print(f"note: {note}")
    result = counted(len(verification.faults), "fault") if verification.faults else "OK"
    print(f"{options.dataset}: {result} ({counted(verification.files, 'file')}, {counted(verification.bytes, 'byte')})")
    return int(bool(verification.faults))
