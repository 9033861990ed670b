"""Export: the pipeline that writes a dataset in the layout of a trainer, on one of Beam's runners."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.cli.console import show_phase
from pipeline.cli.options import Options
from pipeline.job.beam_import import import_beam
from pipeline.job.launch import check_output, check_stores, environment
from pipeline.runners import runner_of
from transforms.base.errors import UserError
from transforms.catalog.layout import Folder
from transforms.exports import export_of
from transforms.storage.files import full_url, join

_ADVICE = "Run the same command again to go on from here."


@dataclass(frozen=True)
class _Work:
    """What a runner must know of an export: its workers load no tokenizer."""

    input_bytes: int
    splits: int
    tokenizer: str = ""


def export(
    consumer: str, options: Options, how: Mapping[str, Any], beam_flags: Sequence[str]
) -> tuple[dict[str, Any], bool]:
    """Export a dataset.

    Args:
        consumer: one of EXPORTS.
        options: with the url of the dataset as the one input, that of the export as the output, and the runner.
        how: further arguments of plan_export.
        beam_flags: options of Beam, as arguments.

    Returns:
        The content of export.json, and whether something was done.

    Raises:
        UserError: if an option is wrong, there is no finished dataset, or its rows are not for the trainer.
        InputError: if the dataset is damaged.
        Unavailable: if a store or a cluster does not answer.
        StoreError: if a store fails.
    """
    package = export_of(consumer).package
    if package and importlib.util.find_spec(package.replace("-", "_")) is None:
        raise UserError(f"--for {consumer}: the Python package {package} is not installed: pip install {package}")
    check_output(options)
    with environment(options) as server:
        check_stores(options)
        import_beam(options)
        from transforms.exporting.finish import finish, read_summary
        from transforms.exporting.plan import begin, plan_export
        from transforms.reading.reader import Dataset

        dataset, output = Dataset(options.input[0]), full_url(options.output)
        plan = plan_export(dataset, consumer, **how)
        if not begin(output, dataset, plan):
            return read_summary(output), False
        show_phase(f"exporting {dataset.name}")
        # The version is named, so that a commit in between changes nothing.
        _run(f"{full_url(dataset.url)}@{dataset.version}", output, dataset, plan, options, beam_flags, server)
        return finish(dataset, output, plan), True


def _run(
    url: str, output: str, dataset: Any, plan: Any, options: Options, beam_flags: Sequence[str], server: Any
) -> None:
    """Write the shards of a plan."""
    import apache_beam as beam

    from pipeline.job.run import failure_of, leaves_job, parse_beam_options, stopping_all_processes
    from transforms.exporting.plan import STATE
    from transforms.exporting.shards import WriteExport
    from transforms.steps.failures import failures_written_to
    from transforms.steps.reports import reports_written_to
    from transforms.storage.writing import remove

    beam_options = parse_beam_options(options, beam_flags)
    runner = runner_of(options.runner)
    cluster_job = runner.cluster_job(beam_options)
    if leaves_job(options, beam_options):
        raise UserError("--template_location: an export waits for its job. Leave the option out.")
    work = _Work(sum(shard["bytes"] for shard in dataset.readable()), len(plan.shards))
    failures = join(output, STATE, "failures")
    remove(failures)
    with (
        TemporaryDirectory() if runner.has_our_workers else nullcontext() as reports,
        runner.started(work, Folder(output), beam_options, options, server, reports) as beam_runner,
        stopping_all_processes(cluster_job.cancel if cluster_job else None, None, advice=_ADVICE) as handle_signals,
    ):
        pipeline = beam.Pipeline(beam_runner, beam_options)
        with failures_written_to(failures), reports_written_to(reports):
            pipeline | "shards" >> beam.Create(plan.shards) | "export" >> WriteExport(url, output, plan)
        try:
            result: Any = pipeline.run()
            handle_signals(None)
            result.wait_until_finish()
        except Exception as error:
            if failure := failure_of(error, failures):
                raise failure from None
            raise
