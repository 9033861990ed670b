"""Prepare: resolve inputs, tokenizer, template and formatter to a job, and store what workers need."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from posixpath import dirname
from typing import NamedTuple

import msgspec

from pipeline.artifacts import read_evaluation_sets, read_tokenizer_files, unknown_stop_tokens
from pipeline.cli.console import show_phase
from pipeline.config import Options
from pipeline.first_records import check_first_records, checked_tokenizer
from pipeline.job import (
    Job,
    JobEvaluations,
    differences,
    job_sources,
    read_job,
    recipe_of,
    row_options_of,
    tokenizer_name,
)
from pipeline.plan import (
    begin_increment,
    begun_since_commit,
    forget,
    increment_of,
    left_out,
    plan_of,
    planned_files,
    warn_of_much_input,
)
from pipeline.recipe import Source, inputs_of, is_on_hub
from transforms.base.errors import StoreError, UserError
from transforms.base.phrases import counted
from transforms.chat.rendering.template import reads_clock
from transforms.contamination.index import MOST_RECORDS, EvaluationIndex
from transforms.contamination.texts import decode_evaluations
from transforms.dataset.commit import Change
from transforms.dataset.description import library_versions
from transforms.dataset.layout import Folder, check_free
from transforms.dataset.versions import builds, newest
from transforms.inputs.formatter import load_formatter
from transforms.inputs.listing import InputFile
from transforms.storage.files import join, read_bytes
from transforms.storage.lock import Lock
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, remove_attempts, write_atomically
from transforms.tokens.tokenizer_files import fingerprint


class Prepared(NamedTuple):
    """An increment that is ready to be built.

    job, folder: of the increment. change: what its commit does.
    """

    job: Job
    folder: Folder
    change: Change


def prepare(
    options: Options,
    folder: Folder,
    sources: Sequence[Source],
    lock: Lock | None = None,
) -> Prepared | None:
    """Plan a build and store it, or find it there unfinished.

    Nothing of a dataset that is there is changed before the commit: it is read until then, and if the build fails.

    Args:
        options: the options of the build.
        folder: the folder of the dataset.
        sources: of read_sources.
        lock: is taken before anything is written.

    Returns:
        What to build; None if there is a finished dataset, which is not to be replaced.

    Raises:
        UserError: if the options cannot be met, or the folder holds another job or something else.
        Unavailable: if a store does not answer.
    """
    show_phase("listing the input")
    with output_errors(options):
        begun_from_hub = {} if options.overwrite else _begun_from_hub(folder, sources)
    files = inputs_of(sources, folder, begun_from_hub)
    materials = read_materials(options, sources)
    with output_errors(options):
        check_free(folder, options.overwrite)
        job, warnings = resolve(options, sources, files, materials)
        if lock:
            lock.take()
        remove_attempts(folder.output)
        version = newest(folder)
        taken = {increment.id for build in builds(folder, version) for increment in build.increments}
        begun = [id for id in begun_since_commit(folder, version) if id not in taken]
        found = None if options.overwrite else _begun(options, folder, begun, job, files, taken)
        if found is None and version and not options.overwrite:
            return None
        if version and (lost := left_out(version, files, options.output)):
            warnings.append(lost)
        if found is None and not options.overwrite:
            _check_not_begun(folder, begun, increment_of(job, files)[1], files)
        for warning in warnings:
            print(f"chatmill: {warning}", file=sys.stderr)
        if found is None:
            found = *increment_of(job, files, taken), files
        id, of_increment, files = found
        of_folder = Folder(folder.output, id)
        store(stored_materials(folder, materials), warns=id in begun)
        forget(folder, [other for other in folder.begun() if other != id])
        begin_increment(of_folder, of_increment, files)
    return Prepared(of_increment, of_folder, Change(version.number if version else 0))


_Planned = tuple[str, Job, list[InputFile]]  # the id of an increment, its job, and its input


def _begun_from_hub(folder: Folder, sources: Sequence[Source]) -> dict[int, list[InputFile]]:
    """The files of sources on the Hub that an unfinished build has, by the number of the source.

    It goes on with the commits that it was planned with, whatever has been pushed since.
    """
    for id in folder.begun():
        of_increment = Folder(folder.output, id)
        job, planned = read_job(of_increment), planned_files(of_increment)
        given = [tuple(source.options.input) for source in sources]
        if job and [source.input for source in job.sources] == given:
            return {
                number: [file for file in planned if file.source == number]
                for number, inputs in enumerate(given)
                if is_on_hub(inputs)
            }
    return {}


def _begun(
    options: Options,
    folder: Folder,
    begun: Sequence[str],
    job: Job,
    files: list[InputFile],
    taken: Collection[str],
) -> _Planned | None:
    """The increment that an earlier run of the same build began; None if there is none."""
    for id in begun:
        of_increment = Folder(folder.output, id)
        same_day = at_the_time_of(read_job(of_increment), job, options)
        planned = planned_files(of_increment)
        in_order = planned if planned and _by_key(planned) == _by_key(files) else files
        found, now = increment_of(same_day, in_order, taken)
        if found == id:
            return id, now, in_order
    return None


def _check_not_begun(folder: Folder, begun: Sequence[str], job: Job, files: Sequence[InputFile]) -> None:
    """Raise UserError if another build was begun in a folder, and is not finished."""
    for id in begun:
        of_increment = Folder(folder.output, id)
        if before := read_job(of_increment):
            changed = [*differences(before, job), *_changed_files(of_increment, before, job, files)]
            raise UserError(
                f"{folder.output} holds an unfinished dataset that was begun with other options or inputs: "
                f"{'; '.join(changed) or 'with --append'}. Use the earlier ones to resume it, give another --output, "
                "or --overwrite to replace it."
            )


def at_the_time_of(before: Job | None, job: Job, options: Options) -> Job:
    """Return a job with the time that an earlier one has for its chat template, unless it is given."""
    return msgspec.structs.replace(job, now=before.now) if before and job.now and options.now is None else job


class Materials(NamedTuple):
    """What a job is made of besides its inputs.

    tokenizer: the content of its files, by name. formatter: the source of the formatter, if it is a file. formatters:
    the same of sources that have one of their own, by their numbers. evaluations: of read_evaluation_sets; None if
    there are none.
    """

    tokenizer: dict[str, bytes]
    formatter: bytes | None
    formatters: Mapping[int, bytes]
    evaluations: bytes | None = None


def read_materials(options: Options, sources: Sequence[Source]) -> Materials:
    """Read the tokenizer, the formatters and the evaluation sets.

    Args:
        options: of the build.
        sources: of read_sources.

    Raises:
        UserError: if one of them is not there, or of no use.
        Unavailable: if a store or the hub does not answer.
    """
    show_phase(f"reading the tokenizer {options.tokenizer}")
    tokenizer = read_tokenizer_files(options.tokenizer)
    evaluations = read_evaluation_sets(options.decontaminate) if options.decontaminate else None
    return Materials(tokenizer, _formatter_source(options.formatter), _formatters_of(sources), evaluations)


@contextmanager
def output_errors(options: Options) -> Iterator[None]:
    """Inside, what the store of the output refuses is an error of --output."""
    try:
        yield
    except StoreError as error:
        raise error.as_user_error(f"--output {options.output}: it cannot be written ({error.reason}).") from None
    except OSError as error:
        raise UserError(f"--output {options.output}: it cannot be written ({error}).") from None


def resolve(
    options: Options, sources: Sequence[Source], files: Sequence[InputFile], materials: Materials
) -> tuple[Job, list[str]]:
    """Resolve options to a job.

    Args:
        options: of the build.
        sources: of read_sources.
        files: the inputs. A source need not have any.
        materials: of read_materials.

    Returns:
        The job, and warnings.

    Raises:
        UserError: if the options cannot be met.
        Unavailable: if a store does not answer.
    """
    with checked_tokenizer(options, materials.tokenizer) as checked:
        tokenizer, template = checked.tokenizer, checked.template
        warnings = [
            f"warning: --eot_tokens {text}: neither the chat template nor the added tokens of the tokenizer have this "
            "text. If no answer is followed by it, it changes nothing."
            for text in unknown_stop_tokens(options.eot_tokens, tokenizer, template)
        ]
        if getattr(tokenizer.backend_tokenizer, "fix_mistral_regex", None) is False:
            warnings.append(
                f"warning: --tokenizer {options.tokenizer} cuts texts by a regular expression of which transformers "
                'says that it is not that of the model. "fix_mistral_regex": true in its tokenizer_config.json '
                "replaces it."
            )
        for number, source in enumerate(sources):
            if first := next((file for file in files if file.source == number), None):
                with source.named_in_errors():
                    warnings += check_first_records(source, first, checked)
    now = options.now
    if now is None and reads_clock(template or tokenizer.chat_template):
        now = datetime.now().replace(microsecond=0).isoformat()
    of_job = job_sources(sources, materials.formatters)
    evaluations = None
    if materials.evaluations is not None:
        evaluations = evaluations_of_job(materials.evaluations, options.decontaminate_words)
        warnings += _of_evaluations(evaluations)
    job = Job(
        options=row_options_of(options),
        now=now,
        tokenizer=fingerprint(materials.tokenizer),
        tokenizer_name=tokenizer_name(options.tokenizer),
        chat_template=template,
        formatter=None if materials.formatter is None else hashlib.sha256(materials.formatter).hexdigest(),
        versions=library_versions(),
        sources=of_job,
        recipe=recipe_of(options, sources, now, files),
        evaluations=evaluations,
        **plan_of(options, of_job, files),
    )
    return job, [*warnings, *warn_of_much_input(options, job.sources, job.split_bytes, files)]


def _of_evaluations(found: JobEvaluations) -> Iterator[str]:
    """Say what of the evaluation sets is not looked for."""
    if found.too_short:
        yield (
            f"note: {counted(found.too_short, 'record')} of {found.records:,} of the evaluation sets cannot be found: "
            "no text of them has enough words. docs/corpus.md"
        )
    if found.in_templates:
        yield (
            f"note: {counted(found.in_templates, 'run')} of words of the evaluation sets are not looked for: more than "
            f"{MOST_RECORDS} of their records have them. docs/corpus.md"
        )


def _formatter_source(name: str | None) -> bytes | None:
    """The source of a formatter that is a file, to be stored next to the output. Workers import one in a module."""
    if name is None:
        return None
    load_formatter(name)
    module = name.rpartition(":")[0]
    return read_bytes(module) if module.endswith(".py") else None


def _formatters_of(sources: Sequence[Source]) -> dict[int, bytes]:
    """For the numbers of the sources that have a formatter of their own which is a file, the content of that."""
    formatters = {}
    for number, source in enumerate(sources):
        if source.own.get("formatter"):
            with source.named_in_errors():
                content = _formatter_source(source.options.formatter)
            if content is not None:
                formatters[number] = content
    return formatters


def stored_materials(folder: Folder, materials: Materials) -> dict[str, bytes]:
    """Return what workers need besides the plan and the job, by the url where it is stored. folder: of the dataset."""
    tokenizer = folder.tokenizer(fingerprint(materials.tokenizer))
    stored = {join(tokenizer, name): content for name, content in materials.tokenizer.items()}
    formatters = [materials.formatter, *materials.formatters.values()]
    if materials.evaluations is not None:
        stored[folder.evaluations(hashlib.sha256(materials.evaluations).hexdigest())] = materials.evaluations
    return stored | {
        folder.formatter(hashlib.sha256(content).hexdigest()): content for content in formatters if content is not None
    }


def store(stored: Mapping[str, bytes], warns: bool) -> None:
    """Store files, except those that are there, and remove others from their folders.

    Args:
        stored: the content of each file, by its url. Each file is alone or among those of its kind in its folder.
        warns: whether to warn of each that is not as it was stored before.
    """
    folders = {dirname(url) for url in stored if not url.endswith(".py")}
    others = [url for of in folders for name in names_below(of) if (url := join(of, name)) not in stored]
    differing = [url for url, content in stored.items() if not _is_stored(url, content)]
    for url in others:
        remove(url)
    for url in differing:
        write_atomically(url, stored[url])
    for url in [*others, *differing] if warns else []:
        print(f"chatmill: warning: {url} was damaged, and is written again", file=sys.stderr)


def _is_stored(url: str, content: bytes) -> bool:
    try:
        # Of some files only a part matters.
        name = url.rpartition("/")[2]
        return fingerprint({name: read_bytes(url)}) == fingerprint({name: content})
    except FileNotFoundError:
        return False


def _by_key(files: Iterable[InputFile]) -> dict[tuple[int, str], InputFile]:
    return {file.key: file for file in files}


def _changed_files(folder: Folder, before: Job, now: Job, files: Sequence[InputFile]) -> Iterator[str]:
    """Describe the first input file that is not as it was when the increment in a folder was planned."""
    if before.inputs == now.inputs:
        return
    if not (planned := _by_key(planned_files(folder))):
        yield f"the inputs differ, and {folder.plan}, which lists the earlier ones, is damaged"
        return
    found = _by_key(files)
    for key in [*planned, *(key for key in found if key not in planned)]:
        if planned.get(key) != found.get(key):
            yield f"{key[1]} was {'added' if key not in planned else 'removed' if key not in found else 'changed'}"
            return


def evaluations_of_job(content: bytes, words: int) -> JobEvaluations:
    """Return what a job says of evaluation sets.

    Args:
        content: of the file to store.
        words: the number of words of a run.
    """
    evaluations = decode_evaluations(content)
    index = EvaluationIndex(evaluations, words)
    return JobEvaluations(
        sha256=hashlib.sha256(content).hexdigest(),
        records=len(evaluations),
        too_short=index.too_short,
        runs=index.runs,
        in_templates=index.in_templates,
    )
