"""The inputs of a build: the files of its sources, as they are listed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.recipe import Source
from transforms.base.errors import UserError
from transforms.dataset.layout import PARTS, Folder
from transforms.files.hub.repository import Commits
from transforms.files.listing import Accepts, InputFile, files_of_sources, list_arriving, list_inputs, shared_files
from transforms.storage.files import join, resolved
from transforms.storage.hub.urls import without_commit


def list_sources(
    sources: Sequence[Source],
    folder: Folder | None = None,
    known: Mapping[int, list[InputFile]] | None = None,
    accepts: Accepts | None = None,
) -> list[InputFile]:
    """List the input files of all sources, each with the number of its source.

    Args:
        sources: of the build.
        folder: of the dataset, of which no input may be a part.
        known: the files of sources that are not to be listed again, by the number of the source.
        accepts: which files are listed, if some may be still to come; None if all are there.

    Raises:
        UserError: if a source has none, lists a file of an earlier source although it may not, or one of the dataset.
        Unavailable: if a store does not answer.
    """
    commits = Commits()

    def list_files(number: int, source: Source) -> list[InputFile]:
        options = source.options
        how: Any = {"format": options.input_format, "parameter": "input", "splits": options.split, "commits": commits}
        with source.named_in_errors():
            if accepts is None:
                return (known or {}).get(number) or list_inputs(options.input, **how)
            return list_arriving(
                options.input, lambda url, version: accepts((number, without_commit(url)), version), **how
            )

    files = files_of_sources([*itertools.starmap(list_files, enumerate(sources))])
    for first, again in shared_files(files):
        source = sources[again.source]
        if not source.may_repeat:
            raise UserError(
                f"{source.option('input')} {again.url}: the source {sources[first.source].name} lists this file, too. "
                f"To read it twice, write may_repeat: true in the source {source.name}."
            )
    if folder:
        parts = tuple(join(resolved(join(folder.output, part)), "") for part in PARTS)
        for file in (file for file in files if join(resolved(file.url), "").startswith(parts)):
            option = sources[file.source].option("input")
            raise UserError(f"{option} {file.url}: it is part of the dataset in --output. Give another --output.")
    return files
