"""chatmill push: uploads a version of a dataset to the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.cli.console import CommandParser, show_phase
from transforms.base.errors import UserError
from transforms.base.phrases import counted

if TYPE_CHECKING:
    from transforms.dataset.reader import Dataset


class _Shard(msgspec.Struct, frozen=True):
    path: str
    sha256: str


class _Manifest(msgspec.Struct):
    """What says which dataset a repository has, in the manifests of all versions of Chatmill since 0.3."""

    rows: int
    version: int
    shards: list[_Shard]


_decode_manifest = msgspec.json.Decoder(_Manifest).decode
SUMMARY = "OUT ORG/NAME", "upload a dataset to the Hugging Face Hub"


def run(arguments: Sequence[str]) -> int:
    """Push a dataset: all of it that the repository does not have."""
    parser = CommandParser(
        "push",
        SUMMARY,
        description="Upload a dataset to a repository of the Hugging Face Hub, with its card, manifest and report, so "
        'that datasets.load_dataset("ORG/NAME") loads it. The token is that of HF_TOKEN or of `hf auth login`. Files '
        "that are there are not sent again: run the same command after a kill, or after an append.",
        examples=["out/mine me/mine --private", "gs://shards/mine@6 my-org/mine --revision v6"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset; OUT@6 is its version 6")
    parser.add_argument("name", metavar="ORG/NAME", help="the repository; it is made if it does not exist")
    parser.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    for name, what in (
        ("private", "make a new repository private; refuse an existing one that is public"),
        ("with_rejects", "also upload records/, which has the rejected records"),
        ("overwrite", "replace what the repository has, also if it is not an earlier version of this dataset"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    options = parser.parse_args(arguments)
    show_phase(f"reading {options.dataset}")

    from transforms.dataset.reader import Dataset
    from transforms.push import DataFile, NotReplaceable, push
    from transforms.storage.files import full_url, join

    dataset = Dataset(full_url(options.dataset))
    manifest = dataset.manifest
    entries = [*manifest["shards"], *(manifest["exceptions"] if options.with_rejects else ())]
    try:
        pushed = push(
            options.name,
            [
                DataFile(each["path"], join(dataset.url, each["path"]), each["bytes"], each["sha256"])
                for each in entries
            ],
            _texts(dataset, options.name),
            lambda found: _problem_with(found, dataset),
            f"Push version {dataset.version}",
            branch=options.revision,
            private=options.private,
            overwrite=options.overwrite,
            progress=show_phase,
        )
    except NotReplaceable as error:
        raise UserError(f"{error} --overwrite replaces what is there.") from None
    if not (pushed.sent or pushed.deleted):
        print(f"{pushed.url} has version {dataset.version} already.")
        return 0
    print(
        f"{pushed.url} has version {dataset.version}: {counted(pushed.sent, 'file')} sent, {pushed.there:,} there "
        f"already, {pushed.deleted:,} deleted."
    )
    return 0


def _texts(dataset: Dataset, name: str) -> dict[str, bytes]:
    """What is derived from the version of a dataset, by path. name: of the repository that the card loads."""
    from transforms.dataset.derived import NAMED_VERSIONS, encode_manifest
    from transforms.dataset.reader import reading
    from transforms.dataset.versions import named_versions
    from transforms.outputs import datasets_files
    from transforms.push import CARD, MANIFEST, REPORT
    from transforms.report.card import dataset_card
    from transforms.report.page import report_of
    from transforms.storage.files import exists, read_bytes

    manifest, folder, version = dataset.manifest, dataset.folder, dataset.stored_version
    texts = {MANIFEST: encode_manifest(manifest)}
    if exists(folder.report):
        with reading(folder.report):
            texts[REPORT] = report_of(folder, manifest) if version else read_bytes(folder.report)
    shards = _shards_in(manifest["shards"])
    named = named_versions(folder, version, NAMED_VERSIONS) if version and version.number > 1 else ()
    # The card names the versions of which all shards are pushed, since this version has them, too.
    loadable = ((number, entries) for number, entries in named if _shards_in(entries) <= shards)
    is_loaded_by_name = manifest["shards"] and datasets_files(manifest["shards"])
    where = {"folder": name} if is_loaded_by_name else {}
    return texts | {CARD: dataset_card(manifest, loadable, **where).encode()}


def _problem_with(content: str, dataset: Dataset) -> str | None:
    """Why a manifest.json must not be replaced by that of a dataset; None if it is that of an earlier version of it."""
    from transforms.dataset.versions import read_version
    from transforms.push import MANIFEST, OTHER_FILES

    try:
        found = _decode_manifest(content)
    except msgspec.MsgspecError:
        return OTHER_FILES.format(MANIFEST)
    theirs = {*found.shards}
    if theirs <= _shards_in(dataset.manifest["shards"]):
        return None
    with suppress(UserError):  # it has expired, or there is none
        if theirs == _shards_in(read_version(dataset.folder, found.version).shards()):
            if found.version < dataset.version:
                return None
            return (
                f"it has version {found.version} of this dataset, which is newer than version {dataset.version}. Push "
                "to another branch."
            )
    return (
        f"it has another dataset, or a version that this one no longer has (version {found.version}, "
        f"{found.rows:,} rows). Push to another repository."
    )


def _shards_in(entries: Sequence[Any]) -> set[_Shard]:
    """What makes a version the one that it is."""
    return {*msgspec.convert(entries, list[_Shard])}
