"""Upload a dataset to a repository of the Hugging Face Hub, with its card, manifest and report, so that
datasets.load_dataset("ORG/NAME") loads it. The token is that of HF_TOKEN or of `hf auth login`. Files that are there
are not sent again: run the same command after a kill, or after an append.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser, show_phase

SUMMARY = "OUT ORG/NAME", "upload a dataset to the Hugging Face Hub"


def run(arguments: Sequence[str]) -> int:
    """Push a dataset: all of it that the repository does not have."""
    parser = CommandParser(
        "push", SUMMARY, __doc__, ["out/mine me/mine --private", "gs://shards/mine@6 my-org/mine --revision v6"]
    )
    parser.add_argument("url", metavar="OUT", help="the folder or url of the dataset; OUT@6 is its version 6")
    parser.add_argument("name", metavar="ORG/NAME", help="the repository; it is made if it does not exist")
    parser.add_argument("--revision", dest="branch", metavar="BRANCH", help="the branch to push to (default: main)")
    for name, what in (
        ("private", "make a new repository private; refuse an existing one that is public"),
        ("with_rejects", "also upload records/, which has the rejected records"),
        ("overwrite", "replace what the repository has, also if it is not an earlier version of this dataset"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    options = vars(parser.parse_args(arguments))
    url = options.pop("url")
    show_phase(f"reading {url}")

    from transforms.dataset.reader import Dataset
    from transforms.push import push
    from transforms.storage.files import full_url

    print(push(Dataset(full_url(url)), **options, progress=show_phase))
    return 0
