"""chatmill push: uploads a dataset to the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser, show_phase
from transforms.base.errors import UserError
from transforms.base.phrases import counted

SUMMARY = "OUT ORG/NAME", "upload a dataset to the Hugging Face Hub"


def run(arguments: Sequence[str]) -> int:
    """Push a dataset: all of it that the repository does not have."""
    parser = CommandParser(
        "push",
        usage="OUT ORG/NAME [--private] [--revision BRANCH] [--with_rejects] [--overwrite]",
        description="Upload a dataset to a repository of the Hugging Face Hub, with its card, manifest and report, so "
        'that datasets.load_dataset("ORG/NAME") loads it. The token is that of HF_TOKEN or of `hf auth login`. Files '
        "that are there are not sent again: run the same command after a kill, or after an append.",
        examples=["out/mine me/mine --private", "gs://shards/mine@6 my-org/mine --revision v6"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset; OUT@6 is its version 6")
    parser.add_argument("name", metavar="ORG/NAME", help="the repository; it is made if it does not exist")
    parser.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    parser.add_argument(
        "--private", action="store_true", help="make a new repository private; refuse an existing one that is public"
    )
    parser.add_argument(
        "--with_rejects", action="store_true", help="also upload records/, which has the rejected records"
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace what the repository has, also if it is not an earlier version of this dataset",
    )
    options = parser.parse_args(arguments)
    show_phase(f"reading {options.dataset}")

    from transforms.pushing.planning import NotReplaceable
    from transforms.pushing.push import push

    try:
        found = push(
            options.dataset,
            options.name,
            branch=options.revision,
            private=options.private,
            with_rejects=options.with_rejects,
            overwrite=options.overwrite,
            progress=show_phase,
        )
    except NotReplaceable as error:
        raise UserError(f"{error} --overwrite replaces what is there.") from None
    if not found.commits:
        print(f"{found.url} has version {found.version} already.")
        return 0
    print(
        f"{found.url} has version {found.version}: {counted(found.sent, 'file')} sent in "
        f"{counted(found.commits, 'commit')}, {found.there:,} there already, {found.deleted:,} deleted."
    )
    return 0
