"""Print histograms of a dataset's lengths, trained share and turns, its schemas, roles and tools, what was not read,
turns without an end of turn, and its parity with inference.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser

SUMMARY = "OUT", "print histograms and counts of a dataset"


def run(arguments: Sequence[str]) -> int:
    """Print the statistics of a dataset: for people, or as JSON."""
    parser = CommandParser("stats", SUMMARY, __doc__, ["out/mine", "gs://bucket/mine --json"])
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")
    options = parser.parse_args(arguments)

    from pipeline.show.printing import print_json
    from pipeline.show.statistics import print_statistics
    from transforms.dataset.reader import Dataset

    manifest = Dataset(options.dataset).manifest
    if options.json:
        print_json(manifest["statistics"])
    else:
        print_statistics(manifest)
    return 0
