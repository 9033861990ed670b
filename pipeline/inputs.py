"""The inputs of a build: the files of its sources, as they are listed."""

from __future__ import annotations

import itertools
from typing import Any

from pipeline.cli.console import show_phase
from pipeline.existing import output_errors, planned_files
from pipeline.job import Request, read_job
from pipeline.recipe import Source
from transforms.base.errors import UserError, before_the_work
from transforms.dataset.layout import PARTS, Folder
from transforms.dataset.versions import Version
from transforms.files.hub import Commits, hub_name
from transforms.files.listing import Accepts, InputFile, files_of_sources, list_inputs, shared_files
from transforms.storage.files import join, resolved
from transforms.storage.hub import strip_commit


@before_the_work()
def list_files(request: Request, version: Version | None = None, accepts: Accepts | None = None) -> list[InputFile]:
    """List the input files of all sources, each with the number of its source.

    Args:
        request: of a run; without an output, what is to be looked at.
        version: the newest one; None if there is none.
        accepts: which files are listed, if they are new, if some may be still to come; None if all are there.

    Raises:
        UserError: if a source has none, lists a file of an earlier source although it may not, or one of the dataset.
        Unavailable: if a store does not answer.
    """
    options, sources = request.options, request.sources
    begun = dict[int, list[InputFile]]()
    if accepts is None:
        show_phase("listing the input")
        if options.output and not (options.append or options.overwrite):
            with output_errors(options):
                begun = _begun_from_hub(request)
    taken, commits = version.taken() if version else {}, Commits()

    def list_source(number: int, source: Source) -> list[InputFile]:
        def is_to_add(url: str, now: str) -> bool:
            key = number, strip_commit(url)
            return accepts is not None and accepts(key, now) and now not in taken.get(key, ())

        own = source.options
        how: Any = {"format": own.input_format, "parameter": "input", "splits": own.split, "commits": commits}
        with source.named_in_errors():
            return begun.get(number) or list_inputs(own.input, **how, accepts=is_to_add if accepts else None)

    files = files_of_sources([*itertools.starmap(list_source, enumerate(sources))])
    for first, again in shared_files(files):
        source = sources[again.source]
        if not source.may_repeat:
            raise UserError(
                f"{source.option('input')} {again.url}: the source {sources[first.source].name} lists this file, too. "
                f"To read it twice, write may_repeat: true in the source {source.name}."
            )
    if options.output:
        parts = tuple(join(resolved(join(request.folder.output, part)), "") for part in PARTS)
        for file in (file for file in files if join(resolved(file.url), "").startswith(parts)):
            option = sources[file.source].option("input")
            raise UserError(f"{option} {file.url}: it is part of the dataset in --output. Give another --output.")
    return files


def _begun_from_hub(request: Request) -> dict[int, list[InputFile]]:
    """The files of sources on the Hub that an unfinished build has, by the number of the source.

    It goes on with the commits that it was planned with, whatever has been pushed since.
    """
    folder, given = request.folder, [tuple(source.options.input) for source in request.sources]
    for begun in (Folder(folder.output, id) for id in folder.begun()):
        job, planned = read_job(begun), planned_files(begun)
        if job and [source.input for source in job.sources] == given:
            return {
                number: [file for file in planned if file.source == number]
                for number, inputs in enumerate(given)
                if all(map(hub_name, inputs))
            }
    return {}
