"""Show what differs between two datasets by their manifests: options, tokenizer, template, versions, outcomes of
records, sums, and files of rows. Exit code 0 if outcomes, sums and files are the same, 1 if not.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser

SUMMARY = "A B", "show what differs between two datasets"


def run(arguments: Sequence[str]) -> int:
    """Show what differs between two datasets. Returns 0 if they have the same outcomes, sums and files, 1 if not."""
    parser = CommandParser("diff", SUMMARY, __doc__, ["out/monday out/tuesday", "gs://shards/v1 gs://shards/v2 --json"])
    parser.add_argument("a", metavar="A", help="the folder or url of a dataset")
    parser.add_argument("b", metavar="B", help="the folder or url of the other dataset")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)

    from pipeline.show.differences import compare, print_differences
    from pipeline.show.printing import paged, print_json
    from transforms.dataset.reader import Dataset

    datasets = Dataset(options.a), Dataset(options.b)
    differences = compare(*(dataset.manifest for dataset in datasets))
    if options.json:
        print_json(differences)
    else:
        with paged() as console:
            print_differences(console, datasets, differences)
    return int(not differences["equal"])
