"""The shards of a version of a dataset, for readers that take a list of files."""

from __future__ import annotations

from transforms.outputs import most_readable
from transforms.reading.reader import Dataset
from transforms.storage.files import full_url, join


def shards(output: str, version: int | None = None, split: str | None = None) -> list[str]:
    """Return the urls of the shards of a version, in order: those in Parquet, if there are any.

        datasets.load_dataset("parquet", data_files={"train": shards("s3://shards/chats", split="train")})

    Args:
        output: the folder of the dataset.
        version: of the dataset; None for the newest one.
        split: train or validation; None for both.

    Raises:
        UserError: if there is no dataset, or no such version.
        InputError: if it is damaged.
        StoreError: if its store fails.
    """
    dataset = Dataset(output if version is None else f"{output}@{version}")
    folder = full_url(dataset.url)
    entries = dataset.shards(split)
    format = most_readable(shard["format"] for shard in entries) if entries else None
    return [join(folder, shard["path"]) for shard in entries if shard["format"] == format]
