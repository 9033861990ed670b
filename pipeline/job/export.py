"""Export: the pipeline that writes a dataset in the layout of a trainer, on one of Beam's runners."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.cli.claims import claim_of, take
from pipeline.cli.console import show_phase
from pipeline.cli.options import Options
from pipeline.job.beam_import import import_beam
from pipeline.job.launch import check_output, check_stores, environment
from pipeline.job.progress import Counts, Expected
from pipeline.runners import runner_of
from transforms.base.errors import UserError
from transforms.catalog.layout import Folder
from transforms.exports import export_of
from transforms.storage.files import full_url, join

if TYPE_CHECKING:
    import apache_beam as beam

_ADVICE = "Run the same command again to go on from here."


@dataclass(frozen=True)
class _Work:
    """What a runner must know of an export: its workers load no tokenizer."""

    input_bytes: int
    splits: int
    tokenizer: str = ""


def export(
    consumer: str, options: Options, how: Mapping[str, Any], beam_flags: Sequence[str]
) -> tuple[str, dict[str, Any] | str]:
    """Export a dataset.

    Args:
        consumer: one of EXPORTS.
        options: with the url of the dataset as the one input, that of the export as the output, the runner, detach.
        how: further arguments of plan_export.
        beam_flags: options of Beam, as arguments.

    Returns:
        The status: `done`, or `done_before`, with the content of export.json; or that of a job that does not end in
        this process, with a message about it: `submitted` or `dry_run`.

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
        from pipeline.job.run import parse_beam_options, run_pipeline
        from transforms.exporting.finish import FinishExport, read_summary
        from transforms.exporting.plan import CLAIMS, STATE, SUMMARY, begin, is_finished, plan_export
        from transforms.exporting.shards import WriteExport
        from transforms.reading.reader import Dataset

        dataset, output = Dataset(options.input[0]), full_url(options.output)
        plan = plan_export(dataset, consumer, **how)
        beam_options = parse_beam_options(options, beam_flags)
        if is_finished(output, dataset, plan):
            return "done_before", read_summary(output)
        runner = runner_of(options.runner)
        with claim_of(join(output, CLAIMS), options.output, runner.job_name(beam_options)) as claim:
            take(claim, runner.finds_running_job)
            if not begin(output, dataset, plan):
                return "done_before", read_summary(output)
            show_phase(f"exporting {dataset.name}")
            # The version is named, so that a commit in between changes nothing.
            url = f"{full_url(dataset.url)}@{dataset.version}"

            def build(pipeline: beam.Pipeline) -> None:
                import apache_beam as beam

                receipts = pipeline | "shards" >> beam.Create(plan.shards) | "export" >> WriteExport(url, output, plan)
                receipts | "finish" >> FinishExport(url, output, plan, dataset.name)

            work = _Work(sum(shard["bytes"] for shard in dataset.readable()), len(plan.shards))
            failures = join(output, STATE, "failures")
            expected = _expected(work, output)
            status, message = run_pipeline(
                build, work, Folder(output), failures, expected, beam_options, options, server, claim, _ADVICE
            )
        if status == "submitted":
            message += f"\nThe export is complete when {join(output, SUMMARY)} exists."
        return (status, read_summary(output)) if status == "done" else (status, message)


def _expected(work: _Work, output: str) -> Expected:
    from transforms.exporting.plan import RECEIPTS
    from transforms.exporting.shards import read_receipt

    def read(name: str) -> Counts | None:
        with suppress(ValueError):
            receipt = read_receipt(join(output, RECEIPTS, name))
            return Counts(1, receipt.rows, receipt.tokens)
        return None

    def unit_of(name: str) -> str:
        return name if name.endswith(".json") else ""

    receipts = join(output, RECEIPTS)
    return Expected(
        work.splits, work.input_bytes, receipts, unit_of, read, unit="shards", record="rows", is_reported=False
    )
