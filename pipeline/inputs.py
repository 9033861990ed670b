"""The inputs of a run: the files of its sources, which of them are new to a dataset, and which are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.cli.console import show_phase
from pipeline.existing import output_errors, planned_files
from pipeline.job import Request, read_job
from pipeline.recipe import Source
from transforms.base.errors import UserError, before_the_work
from transforms.base.phrases import counted
from transforms.dataset.layout import PARTS, Folder
from transforms.dataset.versions import Version
from transforms.files.hub import Commits
from transforms.files.listing import Accepts, InputFile, list_inputs, shared_files
from transforms.storage.files import join, resolved
from transforms.storage.hub import hub_name, strip_commit


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
        is_listed = is_to_add if accepts else None
        with source.named_in_errors():
            return begun.get(number) or list_inputs(
                own.input, own.input_format, "input", own.split, commits, is_listed, number
            )

    files = [file for number, source in enumerate(sources) for file in list_source(number, source)]
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


def select_new(request: Request, files: Sequence[InputFile], version: Version | None) -> list[InputFile]:
    """Select the files of the next increment, in order: with --append what a dataset does not have yet, otherwise all.

    version: the newest one; None if there is none. Raises UserError if a file changed, and that is to be an error.
    """
    taken = version.taken() if version and request.options.append else {}
    new = [file for file in files if file.version not in taken.get(file.key, ())]
    changed = [file for file in new if file.key in taken]
    if changed and request.options.on_changed_file == "error":
        more = len(changed) - 1
        others = f", and so did {counted(more, 'other')}" if more else ""
        raise UserError(
            f"{request.sources[changed[0].source].option('input')} {changed[0].url}: it changed since it was added"
            f"{others}. --on_changed_file append adds it again; --overwrite builds all inputs again."
        )
    return new


def left_out(version: Version, files: Iterable[InputFile], output: str) -> str | None:
    """Return a warning of the records of a version that a build from scratch does not read, since their files are gone.

    files: the inputs of the build. output: the folder of the dataset, as the user calls it.
    """
    listed = {file.key[1] for file in files}
    gone, records, is_exact = list[str](), 0, True
    for increment in version.increments:
        if missing := [file.url for file in increment.inputs if file.key[1] not in listed]:
            gone += missing
            records += increment.counts.records.read
            is_exact &= len(missing) == len(increment.inputs)
    if not gone:
        return None
    return (
        f"warning: {'' if is_exact else 'up to '}{counted(records, 'record')} of version {version.number} will not "
        f"be in the new one: {counted(len(gone), 'input file')} of it {'is' if len(gone) == 1 else 'are'} no longer "
        f"listed, such as {gone[0]}. {output}@{version.number} can be read until it expires."
    )


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
