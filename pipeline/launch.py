"""Launch: from options to a finished dataset, and the summary of the run.

Beam is imported only if there is something to build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

from pipeline.beam_import import import_beam
from pipeline.console import as_typed, error_text
from pipeline.job import Job, JobOptions, job_sources, read_job, source_differences
from pipeline.options import PREFERENCE_ADVICE, Options
from pipeline.runners.fork_server import ForkServer, fork_server
from pipeline.sources import Source, with_all_inputs
from pipeline.summary import check_summary_json, print_summary, sums, write_summary_json
from pipeline.tokenizer_files import read_tokenizer_files
from transforms.dataset.consumers import RowLayout, warnings
from transforms.dataset.layout import Folder
from transforms.dataset.manifest import FORMAT
from transforms.errors import InputError, ParameterError, StoreError, UserError
from transforms.storage.claim import Claim
from transforms.storage.files import check_reachable, exists, full_url, read_bytes
from transforms.storage.writing import remove
from transforms.tokens.files import fingerprint
from transforms.tokens.tokenizer import ONLY_TOKENIZERS


def launch(options: Options, sources: Sequence[Source], beam_flags: Sequence[str]) -> None:
    """Build a dataset, unless it is finished already, and write --summary_json.

    Args:
        options: the options of the build.
        sources: of read_sources.
        beam_flags: options of Beam, as arguments.

    Raises:
        UserError: if the options cannot be met; most such errors are found before any worker starts.
        InputError: if an input cannot be read, or too many records are rejected.
        Unavailable: if a store or a cluster does not answer.
    """
    for_runner = with_all_inputs(options, sources)
    if for_runner.formatter is None:  # a formatter may be a model
        os.environ.setdefault(ONLY_TOKENIZERS, "1")
    with fork_server(for_runner) as server:  # before anything has a client of a store
        summary: dict[str, Any] = {"status": "running", "output": options.output}
        if options.summary_json:
            check_summary_json(summary, options.summary_json, full_url(options.output))
        summary["status"] = "failed"
        try:
            with _no_silent_exit():
                status, manifest = _launch(options, sources, for_runner, beam_flags, server)
            summary |= {"status": status} | (sums(manifest) if manifest else {})
        except BaseException as error:
            summary["error"] = error_text(error)
            raise
        finally:
            if options.summary_json:
                write_summary_json(summary, options.summary_json)


@contextmanager
def _no_silent_exit() -> Iterator[None]:
    """Inside, `os._exit(0)` in this process is reported and ends it with 1: the planning calls formatters, too."""
    launcher, end = os.getpid(), os._exit

    def end_loudly(status: int) -> NoReturn:
        if os.getpid() == launcher and status == 0:
            message = "a formatter or a library ended the launcher by os._exit(0). The dataset is not complete."
            print(f"chatmill: {message}", file=sys.stderr, flush=True)
            status = 1
        end(status)

    os._exit = end_loudly
    try:
        yield
    finally:
        os._exit = end


def _launch(
    options: Options,
    sources: Sequence[Source],
    for_runner: Options,
    beam_flags: Sequence[str],
    server: ForkServer | None,
) -> tuple[str, dict[str, Any] | None]:
    """Build the dataset, unless it is finished. Returns the status, and the manifest if there is one.

    The status is done, done_before, or, if the job does not end in this process, submitted or dry_run.
    """
    folder = Folder(full_url(options.output))
    if options.output.startswith("memory://") and options.runner == "DirectRunner":
        raise UserError(f"--output {options.output}: the memory of a process ends with it. Give a disk or a bucket.")
    _check_reachable(for_runner)
    manifest: dict[str, Any] | None
    if not options.overwrite and exists(folder.success):
        status, manifest = "done_before", _finished_manifest(options, folder, sources)
        _remove_shards(options, folder)
    else:
        status, manifest = _build(options, folder, sources, for_runner, beam_flags, server)
    if manifest is None:
        return status, None
    print_summary(folder, manifest, options.max_reject_fraction)
    if pairs := manifest["records"]["rejected"].get("preference_data"):
        print(f"chatmill: note: {pairs:,} preference_data: {PREFERENCE_ADVICE}.", file=sys.stderr)
    return status, manifest


def _finished_manifest(options: Options, folder: Folder, sources: Sequence[Source]) -> dict[str, Any]:
    """The manifest of a finished dataset. Raises UserError if it was built with other options."""
    try:
        manifest = msgspec.json.decode(read_bytes(folder.manifest), type=dict)
        job = read_job(folder)
        if job is None and manifest.get("format") == FORMAT:
            job = msgspec.convert(manifest["job"], Job)
    except (FileNotFoundError, KeyError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(
            f"{folder.manifest}: it is damaged, although the dataset was finished ({error}). Give another --output, or "
            "--overwrite to build it again."
        ) from None
    if manifest.get("format") != FORMAT:
        raise UserError(
            f"{folder.manifest}: another version of Chatmill wrote this dataset. Give another --output, or "
            "--overwrite to replace it."
        )
    if job and (changed := list(_differences(job, options, sources))):
        raise UserError(
            f"{folder.output} holds a finished dataset that was built with other options: {'; '.join(changed)}. "
            "Give another --output, or --overwrite to replace it."
        )
    print(f"chatmill: {folder.output} is finished already. Use --overwrite to build it again.", file=sys.stderr)
    return manifest


def _build(
    options: Options,
    folder: Folder,
    sources: Sequence[Source],
    for_runner: Options,
    beam_flags: Sequence[str],
    server: ForkServer | None,
) -> tuple[str, dict[str, Any] | None]:
    """Plan the job and run it. Returns the status, and the manifest if the job is done."""
    import_beam(for_runner)
    from apache_beam.options.pipeline_options import DirectOptions

    from pipeline.prepare import prepare
    from pipeline.run import job_on_cluster, parse_beam_options, run_job

    runner_options = parse_beam_options(for_runner, beam_flags)
    for option, text in [] if options.consumer else warnings(RowLayout.of(vars(options))):
        print(f"chatmill: warning: --{option} {as_typed(getattr(options, option))}: {text}", file=sys.stderr)
    has_workers = runner_options.view_as(DirectOptions).direct_num_workers > 1  # 0: the size of the job decides
    with _claim(options, folder, job_on_cluster(runner_options)) as claim:
        try:
            job = prepare(options, folder, sources, server if has_workers else None, claim)
        except StoreError as error:
            raise error.as_user_error(str(error)) from None
        try:
            status, message = run_job(job, folder, runner_options, for_runner, server, claim)
        except InputError as error:
            if "\n  preference_data (" in str(error):
                raise InputError(f"{error}\n{PREFERENCE_ADVICE}.") from None
            raise
    if status != "done":
        print(f"chatmill: {message}", file=sys.stderr)
        return status, None
    return status, msgspec.json.decode(read_bytes(folder.manifest))


def _remove_shards(options: Options, folder: Folder) -> None:
    """Remove what a build that was killed in its very last step left in a finished dataset."""
    if not exists(folder.shards):
        return
    with _claim(options, folder, None) as claim, suppress(ParameterError):  # unless a build replaces the dataset now
        if claim:
            claim.take()
        if exists(folder.success):
            remove(folder.shards)


@contextmanager
def _claim(options: Options, folder: Folder, job: str | None) -> Iterator[Claim | None]:
    """The claim of the output, which `prepare` takes. It is released at the end, unless it is left to the job."""
    if options.no_lock:
        yield None
        return
    claim = Claim(folder.claims, options.output, job)
    try:
        yield claim
    finally:
        if not claim.is_left:
            with suppress(OSError):  # it is taken over as soon as this process is gone, or gives no sign
                claim.release()


def _differences(job: Job, options: Options, sources: Sequence[Source]) -> Iterator[str]:
    """Describe what differs between a finished job and these options, as far as it shows without the inputs."""
    yield from job.options.differences(JobOptions.of(options))
    yield from source_differences(job.sources, job_sources(sources, {}))
    name = options.tokenizer
    if name != job.tokenizer_name and fingerprint(read_tokenizer_files(name)) != job.tokenizer:
        yield f"--tokenizer was {job.tokenizer_name} and is {name}"
    if (options.chat_template is None) != (job.chat_template is None):
        yield "--chat_template was " + ("given" if job.chat_template else "not given")


def _check_reachable(options: Options) -> None:
    """Raise UserError or Unavailable if a store that is needed does not answer, before anything is read from it."""
    stores = {urlsplit(url)[:2]: (option, url) for option, url in reversed(options.urls())}
    for option, url in stores.values():
        try:
            check_reachable(url)
        except StoreError as error:
            raise error.as_user_error(f"--{option} {error}") from None
