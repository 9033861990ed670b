"""chatmill report: makes the report of a finished dataset again."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser
from transforms.base.errors import UserError


def run(arguments: Sequence[str]) -> int:
    """Write the report of a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or there is no finished dataset.
        InputError: if the dataset is damaged.
        StoreError: if a store fails.
    """
    parser = CommandParser(
        "report",
        usage="OUT [--output URL]",
        description="Write the report of a finished dataset: a page to open in a browser.",
        examples=["out/chats", "gs://shards/chats --output chats.html"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset (required)")
    parser.add_argument(
        "--output", metavar="URL", help="the file or url to write (default: report.html in the dataset)"
    )
    options = parser.parse_args(arguments)

    from transforms.publish.report_page import report_of
    from transforms.reading.reader import Dataset, reading, url_and_version
    from transforms.storage.files import full_url
    from transforms.storage.writing import write_atomically

    if url_and_version(options.dataset)[1] is not None and "output" not in options:
        raise UserError(
            f"{options.dataset}: report.html in the dataset always shows the newest version. Give --output."
        )
    dataset = Dataset(full_url(options.dataset))
    output = full_url(getattr(options, "output", dataset.folder.report))
    with reading(dataset.url):
        report = report_of(dataset.folder, dataset.manifest)
    write_atomically(output, report)
    print(f"The report is in {output}.")
    return 0
