"""Repack: other rows of the examples that a build kept, as a build with these options makes them of the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pipeline.cli.claims import claim_of, take
from pipeline.cli.console import error_text, import_beam, show
from pipeline.cli.options import OPTIONS_OF_REPACK, Options, RowOptions, check_row_options, for_consumer, option_name
from pipeline.growth.increments import forget
from pipeline.job.increment_plan import begin_increment, increment_of, plan_of
from pipeline.job.job_json import Job, job_of, mix_of, row_options_of
from pipeline.job.launch import check_output, check_stores, environment
from pipeline.local.fork_server import ForkServer
from pipeline.runners import runner_of
from pipeline.viewing.summary import print_summary
from transforms.base.declaring import options_in, values_of
from transforms.base.errors import UserError
from transforms.catalog.consumers import columns_for
from transforms.catalog.layout import Folder, check_free
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Increment, Snapshot
from transforms.inputs.listing import InputFile
from transforms.model.kept_examples import examples_of
from transforms.publish.claimed import repair
from transforms.publish.increment_commit import Change
from transforms.reading.reader import Dataset
from transforms.rows.parts import PART_COLUMNS
from transforms.steps.row_options import KeepOptions
from transforms.storage.claim import Claim
from transforms.storage.files import full_url, join, read_bytes
from transforms.storage.walking import names_in
from transforms.storage.writing import remove_attempts, write_atomically


class _Kept(NamedTuple):
    """What a dataset has of its examples. job: that it began with. increments: those that have rows, in order."""

    dataset: Dataset
    job: Job
    increments: list[Increment]


class _Planned(NamedTuple):
    """An increment to be made. folder: of it. files: its inputs. examples: the folder of those that are kept."""

    folder: Folder
    job: Job
    files: list[InputFile]
    examples: str


def repack(url: str, given: Mapping[str, Any], beam_flags: Sequence[str]) -> None:
    """Build a dataset from the examples that another one keeps, each increment of it as one.

    Args:
        url: of the dataset that keeps them.
        given: the fields of Options that are given; the others are as they were for that dataset.
        beam_flags: options of Beam, as arguments.

    Raises:
        UserError: if the dataset keeps no examples, or the options cannot be met.
        InputError: if what it keeps is damaged, or no row is left.
        Unavailable: if a store or a cluster does not answer.
    """
    of_run = Options(input=(url,), output=given["output"], runner=given.get("runner", Options.runner))
    check_output(of_run)
    with environment(of_run) as server:
        check_stores(of_run)
        kept = _kept_of(Dataset(full_url(url)))
        options = _options_of(kept, given)
        import_beam()
        from pipeline.job.run import parse_beam_options

        runner, folder = runner_of(options.runner), Folder(full_url(options.output))
        job, job_name = _job_of(kept, options), runner.job_name(parse_beam_options(options, beam_flags))
        if (mix := mix_of(job.options, job.sources)) and mix.shares_out and len(kept.increments) > 1:
            raise UserError(
                f"{kept.dataset.name}: weight, max_examples, max_tokens and mix_tokens count the records of one build, "
                f"and it has {len(kept.increments)} increments. Build the records again, in one, or leave them out."
            )
        with claim_of(folder.claims, options.output, job_name) as claim:
            check_free(folder)
            take(claim, False)
            remove_attempts(folder.output)
            snapshot = Log(folder).newest() or Snapshot()
            for there, increment in zip(snapshot.increments, kept.increments, strict=False):
                if there.id != _planned(kept, job, folder, increment).folder.increment:
                    raise UserError(f"{folder.output}: it holds another dataset. Give another --output.")
            left = kept.increments[len(snapshot.increments) :]
            if snapshot.version:
                repair(folder, snapshot, options.report)
                show(f"{folder.output} {'goes on' if left else 'is finished already'}.")
            else:
                _store_what_is_needed(kept, folder)
            for increment in left:
                planned = _planned(kept, job, folder, increment)
                if not _build(planned, options, beam_flags, server, claim, is_last=increment is left[-1]):
                    return
    newest = Log(folder).newest()
    assert newest
    print_summary(folder, newest.manifest(), options.max_reject_fraction)


def _planned(kept: _Kept, job: Job, folder: Folder, increment: Increment) -> _Planned:
    """What to make of an increment. folder: of the output."""
    id, of_increment = increment_of(job, increment.inputs)
    of_examples = plan_of(kept.job.options, job.sources, increment.inputs)["split_bytes"]
    if of_increment.split_bytes != of_examples:
        raise UserError(
            f"--shuffle {job.options.shuffle} --dedup {job.options.dedup}: this needs splits of "
            f"{of_increment.split_bytes:,} bytes, and {kept.dataset.name} was built in splits of {of_examples:,}. "
            f"Build the records again, with --split_bytes {of_increment.split_bytes}."
        )
    examples = examples_of(kept.dataset.folder.output, increment.id)
    return _Planned(Folder(folder.output, id), of_increment, increment.inputs, examples)


def _build(
    planned: _Planned,
    options: Options,
    beam_flags: Sequence[str],
    server: ForkServer | None,
    claim: Claim,
    is_last: bool,
) -> bool:
    """Build an increment after those that are there. Returns whether it is done. Raises as repack does."""
    from pipeline.job.run import parse_beam_options, run_job

    folder, job, files, examples = planned
    beam_options = parse_beam_options(options, beam_flags)  # a run sets its number of workers there
    whole, snapshot = Folder(folder.output), Log(Folder(folder.output)).newest() or Snapshot()
    forget(whole, [other for other in whole.begun() if other != folder.increment])
    begin_increment(folder, job, files)
    status, message = run_job(job, folder, beam_options, options, server, claim, Change(snapshot.version), examples)
    if message:
        show(message)
    return status == "done"


def _kept_of(dataset: Dataset) -> _Kept:
    """What a dataset has of its examples. Raises UserError if it has not all of them."""
    snapshot = dataset.snapshot
    if snapshot is None:
        raise UserError(f"{dataset.name}: there is no finished dataset. Build one with --keep_examples.")
    job, increments = job_of(dataset.folder, snapshot), [*snapshot.increments]
    if not job.options.keep_examples:
        raise UserError(f"{dataset.name}: it does not keep its examples. Build it with --keep_examples.")
    for each in increments:
        if each.sums["records"]["read"] and not names_in(examples_of(dataset.folder.output, each.id)):
            raise UserError(f"{dataset.name}: the increment {each.id} has no examples. Build the records again.")
    return _Kept(dataset, job, increments)


def _options_of(kept: _Kept, given: Mapping[str, Any]) -> Options:
    """The options of the build that would make the same rows. Raises UserError if it would make other examples."""
    before = values_of(type(kept.job.options), kept.job.options)
    is_packed = before["packing"] != "none"
    if before["consumer"] and before["write_columns"] == columns_for(before["consumer"], is_packed):
        before["write_columns"] = None  # the trainer chose them
    if not any(field.name in given for field in options_in(KeepOptions)):
        before |= {field.name: field.default for field in options_in(KeepOptions)}
    of_run = {
        "input": (kept.dataset.url,),
        # Those of records, that the build has met.
        **dict.fromkeys(("max_reject_fraction", "max_parity_fraction", "max_unprinted_fraction"), 1.0),
    }
    options = Options(**before | of_run | dict(given))
    options = for_consumer(options)
    check_row_options(options)
    _check_parts(kept, options)
    _check_validation(kept, options)
    return options


def _check_parts(kept: _Kept, options: Options) -> None:
    """Raise UserError if the parts of turns must be known now and were not for the build, or the reverse."""
    for source in kept.job.sources:
        place = "" if len(kept.job.sources) == 1 else f"source {source.name}: "
        of_source = dataclasses.replace(options, **source.options)
        try:
            check_row_options(of_source)
        except UserError as error:
            raise UserError(f"{place}{error_text(error)}") from None
        knew = _knows_parts(dataclasses.replace(kept.job.options, **source.options))
        if knew != _knows_parts(of_source):
            columns, how = ",".join(PART_COLUMNS), "with" if knew else "without"
            advice = "Give one of them" if knew else f"Build the records again, with {columns} in --write_columns"
            raise UserError(
                f"{place}--train_parts and the columns {columns} need the parts of turns, which are "
                f"found when records are rendered, and {kept.dataset.name} was built {how} them. {advice}."
            )


def _knows_parts(options: RowOptions) -> bool:
    """Whether a build with the options finds the parts of turns."""
    return bool(options.train_parts or {*PART_COLUMNS} & {*(options.write_columns or ())})


def _check_validation(kept: _Kept, options: Options) -> None:
    """Raise UserError if it is not known which records a build with the options has for validation."""
    job, name = kept.job, kept.dataset.name
    before, fraction = job.options.validation_fraction, options.validation_fraction
    if options.seed != job.options.seed and (fraction or options.keep_examples):
        raise UserError(
            f"--seed {options.seed}: {name} has the hashes for a validation split of seed {job.options.seed} alone. "
            "Leave it out, or give --validation_fraction 0 without --keep_examples."
        )
    has_formatter = any([job.options.formatter, *(source.options.get("formatter") for source in job.sources)])
    if has_formatter and bool(before) != bool(fraction):
        raise UserError(
            f"--validation_fraction {fraction:g}: with a formatter, a build with a validation split also rejects "
            f"records that are not valid JSON, and {name} was built {'with' if before else 'without'} one. Build "
            "the records again."
        )


def _job_of(kept: _Kept, options: Options) -> Job:
    """The job of a build with other options of rows."""
    rows = row_options_of(options)
    recipe = dict(kept.job.recipe)
    of_rows = dict[str, Any]()
    for field in options_in(type(rows)):
        name, value = option_name(field.name), getattr(rows, field.name)
        before = recipe.pop(name, field.default)
        if (value if field.name in OPTIONS_OF_REPACK else before) != field.default:
            of_rows[name] = value if field.name in OPTIONS_OF_REPACK else before
    return msgspec.structs.replace(kept.job, options=rows, recipe=msgspec.to_builtins(of_rows | recipe))


def _store_what_is_needed(kept: _Kept, folder: Folder) -> None:
    """Copy the tokenizer, the formatters and evaluation sets, which verify, inspect and recipe need."""
    job, before = kept.job, kept.dataset.folder
    tokenizer = before.tokenizer(job.tokenizer)
    copies = {join(tokenizer, name): join(folder.tokenizer(job.tokenizer), name) for name in names_in(tokenizer)}
    formatters = filter(None, [job.formatter, *(source.formatter for source in job.sources)])
    copies |= {before.formatter(sha256): folder.formatter(sha256) for sha256 in formatters}
    if job.evaluations:
        copies[before.evaluations(job.evaluations.sha256)] = folder.evaluations(job.evaluations.sha256)
    for source, target in copies.items():
        write_atomically(target, read_bytes(source))
