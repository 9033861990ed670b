"""The stream of `chatmill watch --runner`: the loop of one process as a Beam pipeline that does not end, on a cluster.

    ticks -> look -> splits -> the steps of a build -> receipts -> commit

A look lists the input and decides, as the loop does; the splits of an increment are built by all workers; whoever
writes the last receipt commits. Nothing is grouped, and no step has state: a job that begins again finds in the dataset
what is done, so that it needs neither checkpoints nor savepoints.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline.cli.claims import claim_of, take
from pipeline.cli.console import error_text, show, show_phase
from pipeline.cli.options import Options
from pipeline.cli.sources import Source, with_all_inputs
from pipeline.cli.summary_json import check_summary_json
from pipeline.job.graph import budgets_of, build_splits, fingerprints_of
from pipeline.job.job_json import Job
from pipeline.job.pinning import check_appendable, pin
from pipeline.job.run import end_without_claim, leaves_job, left, parse_beam_options, stopping_all_processes
from pipeline.runners import runner_of
from pipeline.watching.attempts import Attempts
from pipeline.watching.committing import CommitIncrements
from pipeline.watching.deciding import Deciding
from pipeline.watching.figures import Figures, summary_of
from pipeline.watching.new_files import find_arriving
from pipeline.watching.noting import Note, log, log_here
from pipeline.watching.settings import Settings
from pipeline.watching.ticks import EmitTicks, Tick
from transforms.base.errors import Unavailable, UserError
from transforms.base.held import held_to
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Snapshot
from transforms.model.batches import Split
from transforms.steps.metrics import NAMESPACE
from transforms.storage.claim import Claim, ClaimKeeper, kept_by_steps
from transforms.storage.files import full_url

_ADVICE = "Run the same command again to go on with what was begun."


def stream(options: Options, sources: Sequence[Source], beam_flags: Sequence[str], settings: Settings) -> None:
    """Run the stream until it is stopped, or until it is submitted.

    Args:
        options: of the build, with the runner.
        sources: of read_sources.
        beam_flags: options of Beam, as arguments.
        settings: when files are taken.

    Raises:
        UserError: if the options cannot be met, or are not those of the dataset.
        Unavailable: if a store or a cluster does not answer. Other errors are Beam's.
    """
    log_here()
    folder = Folder(full_url(options.output))
    check_appendable(folder, options, sources)
    show_phase("listing the input")
    find_arriving(sources)  # what is wrong with it is found before a cluster is
    for_runner = with_all_inputs(options, sources)
    beam_options = parse_beam_options(for_runner, [*beam_flags, "--streaming"])
    runner = runner_of(options.runner)
    with claim_of(folder.claims, options.output, runner.job_name(beam_options)) as claim:
        take(claim, runner.finds_running_job, waits=True)
        snapshot = check_appendable(folder, options, sources)
        if url := options.summary_json:
            check_summary_json(summary_of(folder, snapshot, "watching", Figures(), 0), url, folder.output)
        job = pin(options, sources, [], None, folder, snapshot)
        note = Note(options)
        try:
            _run(options, sources, settings, job, folder, beam_options, claim, note)
        except BaseException as error:
            note.end("failed", error_text(error))
            raise


def _run(
    options: Options,
    sources: Sequence[Source],
    settings: Settings,
    job: Job,
    folder: Folder,
    beam_options: PipelineOptions,
    claim: Claim,
    note: Note,
) -> None:
    runner = runner_of(options.runner)
    cluster_job = runner.cluster_job(beam_options)
    continues = cluster_job is not None and cluster_job.cancel is None

    def end() -> None:
        if cluster_job and cluster_job.cancel:
            cluster_job.cancel()
        note.end("stopped")

    exit_codes = {signal.SIGINT: 0, signal.SIGTERM: 0}
    with (
        held_to(fingerprints_of(job, folder)),
        stopping_all_processes(None if continues else end, claim, exit_codes, _ADVICE) as handle_signals,
        claim.kept(end_without_claim),
    ):
        pipeline = beam.Pipeline(runner.name, beam_options)
        with kept_by_steps(claim, leaves_job(options, beam_options)):
            build_stream(pipeline, options, sources, settings, job, folder)
        result: Any = pipeline.run()
        if status := left(result, cluster_job, options, beam_options, claim, handle_signals):
            show(status[1])
            return
        show(f"watching; versions of {folder.output} are listed by: chatmill snapshots {folder.output}")
        result.wait_until_finish()
        raise Unavailable(f"the job ended by itself, as {result.state}. {_ADVICE}")


def build_stream(
    pipeline: beam.Pipeline,
    options: Options,
    sources: Sequence[Source],
    settings: Settings,
    job: Job,
    folder: Folder,
) -> None:
    """Build the graph of a stream.

    Args:
        pipeline: to which it is added.
        options: of the build.
        sources: of read_sources.
        settings: when files are taken.
        job: of the dataset.
        folder: of the same.
    """
    splits = (
        pipeline
        | "ticks" >> EmitTicks(settings.every, runner_of(options.runner).defers)
        | "look" >> beam.ParDo(_Look(options, sources, settings, job)).with_output_types(Split)
    )
    # What was published of earlier splits cannot be built again: of an increment in which the engines differ, no split
    # is built.
    engine = "fast" if options.engine == "auto" else options.engine
    receipts = build_splits(splits, job, folder, engine, _Fail(folder.output))
    receipts | "commit" >> CommitIncrements(options, sources, budgets_of(options))


class _Fail:
    """Writes down the error of a split. output: the url of the dataset."""

    def __init__(self, output: str):
        self._output = output

    def __call__(self, split: Split, error: Exception) -> None:
        Attempts(Folder(self._output, split.increment)).fail(split.number, error)


class _Look(beam.DoFn):
    """Decides at each tick what to build. While a store does not answer, it waits."""

    def __init__(self, options: Options, sources: Sequence[Source], settings: Settings, job: Job):
        self._options = options
        self._settings = settings
        self._sources = sources
        self._job = job
        self._keeper = ClaimKeeper()
        self._waits_for = ""

    def setup(self) -> None:
        self._deciding = Deciding(self._options, self._sources, self._settings, log, Note(self._options))

    def process(self, tick: Tick) -> Iterator[Split]:
        self._keeper.show_work()
        with self._keeper.keeping():
            splits = self._look(*tick)
        Metrics.gauge(NAMESPACE, "files_waiting").set(self._deciding.waiting)
        yield from splits or ()

    def _look(self, run: str, number: int) -> list[Split] | None:
        try:
            found = find_arriving(self._sources)
            snapshot = Log(Folder(full_url(self._options.output))).newest() or Snapshot(0)
            splits = self._deciding.look(found, snapshot, self._job, run, number)
        except (UserError, Unavailable, OSError) as error:
            if self._waits_for != (problem := error_text(error)):
                log(f"waiting: {problem}")
            self._waits_for = problem
            return None
        if self._waits_for:
            log("going on")
        self._waits_for = ""
        return splits
