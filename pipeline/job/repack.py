"""Repack: other rows of the examples that a build kept, as a build with these options makes them of the records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pipeline.cli.claims import claim_of, take
from pipeline.cli.options import STEPS_OF_REPACK, Options, check_row_options, for_consumer, option_name
from pipeline.growth.increments import forget
from pipeline.job.beam_import import import_beam
from pipeline.job.increment_plan import begin_increment, increment_of
from pipeline.job.job_json import Job, job_of, row_options_of
from pipeline.job.launch import check_output, environment
from pipeline.runners import runner_of
from pipeline.viewing.summary import print_summary
from transforms.base.declaring import options_in, values_of
from transforms.base.errors import UserError
from transforms.catalog.consumers import columns_for
from transforms.catalog.layout import Folder, check_free
from transforms.catalog.log import Log
from transforms.inputs.listing import InputFile
from transforms.model.kept_examples import examples_of
from transforms.publish.increment_commit import Change
from transforms.reading.reader import Dataset
from transforms.rows.parts import PART_COLUMNS
from transforms.steps.row_options import KeepOptions
from transforms.storage.files import full_url, join, read_bytes
from transforms.storage.walking import names_in
from transforms.storage.writing import remove_attempts, write_atomically


class _Kept(NamedTuple):
    """What a dataset has of its examples. job: that built it. files: its inputs. examples: their folder."""

    dataset: Dataset
    job: Job
    files: list[InputFile]
    examples: str


def repack(url: str, given: Mapping[str, Any], beam_flags: Sequence[str]) -> None:
    """Build a dataset from the examples that another one keeps.

    Args:
        url: of the dataset that keeps them.
        given: the fields of Options that are given; the others are as they were for that dataset.
        beam_flags: options of Beam, as arguments.

    Raises:
        UserError: if the dataset keeps no examples, or the options cannot be met.
        InputError: if what it keeps is damaged, or no row is left.
        Unavailable: if a store or a cluster does not answer.
    """
    kept = _kept_of(Dataset(full_url(url)))
    options = _options_of(kept, given)
    job = _job_of(kept, options)
    check_output(options)
    with environment(options) as server:
        import_beam(options)
        from pipeline.job.run import parse_beam_options, run_job

        runner_options = parse_beam_options(options, beam_flags)
        folder = Folder(full_url(options.output))
        job_name = runner_of(options.runner).job_name(runner_options)
        with claim_of(folder, options.output, job_name) as claim:
            check_free(folder)
            take(claim, runner_of(options.runner).finds_running_job)
            remove_attempts(folder.output)
            id, job = increment_of(job, kept.files)
            snapshot = Log(folder).newest()
            if snapshot and not snapshot.has(id):
                raise UserError(f"{folder.output}: it holds another dataset. Give another --output.")
            of_increment = Folder(folder.output, id)
            if snapshot is None:
                forget(folder, [other for other in folder.begun() if other != id])
                _store_what_is_needed(kept, folder)
                begin_increment(of_increment, job, kept.files)
                change = Change(is_build=True)
                status, message = run_job(
                    job, of_increment, runner_options, options, server, claim, change, kept.examples
                )
                if status != "done":
                    print(f"chatmill: {message}", file=sys.stderr)
                    return
                snapshot = Log(folder).newest()
            else:
                print(f"chatmill: {folder.output} is finished already.", file=sys.stderr)
    if snapshot:
        print_summary(folder, snapshot.manifest(), options.max_reject_fraction)


def _kept_of(dataset: Dataset) -> _Kept:
    """What a dataset has of its examples. Raises UserError if it has none."""
    snapshot = dataset.snapshot
    if snapshot is None:
        raise UserError(f"{dataset.name}: there is no finished dataset. Build one with --keep_examples.")
    increments = snapshot.increments
    examples = examples_of(dataset.folder.output, increments[0].id)
    if not names_in(examples):
        raise UserError(f"{dataset.name}: it does not keep its examples. Build it with --keep_examples.")
    if len(increments) > 1:
        raise UserError(
            f"{dataset.name}: it has {len(increments)} increments, and repack takes a dataset of one build. Build all "
            "inputs in one, with --keep_examples."
        )
    return _Kept(dataset, job_of(dataset.folder, snapshot), increments[0].inputs, examples)


def _options_of(kept: _Kept, given: Mapping[str, Any]) -> Options:
    """The options of the build that would make the same rows. Raises UserError if it would make other examples."""
    before = values_of(type(kept.job.options), kept.job.options)
    is_packed = before["packing"] != "none"
    if before["consumer"] and before["write_columns"] == columns_for(before["consumer"], is_packed):
        before["write_columns"] = None  # the trainer chose them
    if not any(field.name in given for field in options_in(KeepOptions)):
        before |= {field.name: field.default for field in options_in(KeepOptions)}
    of_build = {
        "tokenizer": kept.job.tokenizer_name,
        "input": tuple(url for source in kept.job.sources for url in source.input),
        # Those of records, that the build has met.
        **dict.fromkeys(("max_reject_fraction", "max_parity_fraction", "max_unprinted_fraction"), 1.0),
    }
    options = Options(**before | of_build | dict(given))
    options = for_consumer(options)
    check_row_options(options)
    before_and_now = [{*(each.write_columns or ())} for each in (kept.job.options, options)]
    for name in (*PART_COLUMNS, "loss_weights"):
        has = [name in columns for columns in before_and_now]
        if has[0] != has[1]:
            raise UserError(
                f"--write_columns: with {name} records are read in another way than without, and {kept.dataset.name} "
                f"was built {'with' if has[0] else 'without'} it. Build the records again."
            )
    return options


def _job_of(kept: _Kept, options: Options) -> Job:
    """The job of a build with other options of rows."""
    rows = row_options_of(options)
    changes = {field.name for of in STEPS_OF_REPACK for field in options_in(of)} | {"consumer"}
    recipe = dict(kept.job.recipe)
    of_rows = dict[str, Any]()
    for field in options_in(type(rows)):
        name, value = option_name(field.name), getattr(rows, field.name)
        before = recipe.pop(name, field.default)
        if (value if field.name in changes else before) != field.default:
            of_rows[name] = value if field.name in changes else before
    return msgspec.structs.replace(kept.job, options=rows, recipe=msgspec.to_builtins(of_rows | recipe))


def _store_what_is_needed(kept: _Kept, folder: Folder) -> None:
    """Copy the tokenizer and the formatters, which verify, inspect and recipe need."""
    job, before = kept.job, kept.dataset.folder
    tokenizer = before.tokenizer(job.tokenizer)
    copies = {join(tokenizer, name): join(folder.tokenizer(job.tokenizer), name) for name in names_in(tokenizer)}
    formatters = filter(None, [job.formatter, *(source.formatter for source in job.sources)])
    copies |= {before.formatter(sha256): folder.formatter(sha256) for sha256 in formatters}
    for source, target in copies.items():
        write_atomically(target, read_bytes(source))
