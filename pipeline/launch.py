"""Launch: from options to a finished dataset, and the summary of the run.

Beam is imported only if there is something to build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from pipeline.cli.console import as_typed, error_text, import_beam
from pipeline.cli.result import appended_sums, print_result, sums
from pipeline.config import Options
from pipeline.job import differences_of_inputs, differences_without_inputs, job_of
from pipeline.plan import begun_since_commit, is_unclean
from pipeline.recipe import Source, with_all_inputs
from pipeline.runners import runner_of
from pipeline.show.summary import print_summary
from pipeline.temporary import temporary_folder
from transforms.base.errors import ParameterError, StoreError, Unavailable, UserError
from transforms.base.phrases import counted
from transforms.dataset.derived import finish_commit
from transforms.dataset.layout import Folder, check_format, check_free, check_no_links
from transforms.dataset.versions import Increment, Version, newest
from transforms.inputs.listing import Accepts
from transforms.report.trainers import layout_warnings
from transforms.rows.layout import RowLayout
from transforms.storage.files import check_reachable, exists, full_url
from transforms.storage.lock import Lock
from transforms.storage.writing import remove_attempts
from transforms.tokens.tokenizer import ONLY_TOKENIZERS

_IN_MEMORY, _WEB = "memory://", ("http://", "https://")


def launch(options: Options, sources: Sequence[Source], beam_flags: Sequence[str]) -> None:
    """Build a dataset, unless it is finished already, and print the result with --json.

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
    with environment(for_runner):
        result: dict[str, Any] = {"status": "failed", "output": options.output}
        try:
            result |= _launch(options, sources, for_runner, beam_flags)
        except BaseException as error:
            result["error"] = error_text(error)
            raise
        finally:
            if options.json:
                print_result(result)


@contextmanager
def environment(options: Options) -> Iterator[None]:
    """Inside, temporary files are in a folder of their own, and only what is needed of transformers is imported.

    Args:
        options: with all inputs of the sources, and a formatter if one has one.
    """
    if options.formatter is None:  # a formatter may be a model
        os.environ.setdefault(ONLY_TOKENIZERS, "1")
    # A cluster may need what is there after this process has ended.
    with temporary_folder() if runner_of(options.runner).has_our_workers else nullcontext():
        yield


def _launch(
    options: Options,
    sources: Sequence[Source],
    for_runner: Options,
    beam_flags: Sequence[str],
) -> dict[str, Any]:
    """Build the dataset, unless it is finished. Returns what the result has of it.

    The status is done, done_before, nothing_new, or, if the job does not end in this process, submitted or dry_run.
    """
    folder = Folder(full_url(options.output))
    check_output(options)
    check_stores(for_runner)
    if options.append:
        return _append(options, folder, sources, beam_flags)
    try:
        status, manifest = "done_before", None if options.overwrite else _finished_manifest(options, folder, sources)
    except StoreError as error:
        with suppress(StoreError, OSError):
            check_free(folder, options.overwrite)
        raise error.as_user_error(f"--output {options.output}: it cannot be written ({error.reason}).") from None
    if manifest is None:
        status, manifest = _build(options, folder, sources, for_runner, beam_flags)
    if manifest is None:
        return {"status": status}
    if options.expire_replaced and status == "done":
        from transforms.dataset.expiry import expire

        expire(folder.output, older_than=0)
    print_summary(folder, manifest, options.max_reject_fraction)
    return {"status": status} | sums(manifest)


def _append(options: Options, folder: Folder, sources: Sequence[Source], beam_flags: Sequence[str]) -> dict[str, Any]:
    """Add what is new to the dataset. Returns what the result has of it."""
    from pipeline.append import Appended, append, append_every

    def add(accepts: Accepts | None = None) -> Appended:
        _, manifest, added = appended = append(options, sources, beam_flags, accepts)
        if manifest and added and not options.every:
            print_summary(folder, manifest, options.max_reject_fraction)
        if manifest and (added or not options.every):
            _print_added(manifest["version"], added)
        return appended

    _warn_of_layout(options)
    status, manifest, added = append_every(options.every, folder, add) if options.every else add()
    if manifest is None:
        return {"status": status}
    return {"status": status} | sums(manifest) | {"appended": appended_sums(added)}


def _print_added(version: int, added: Sequence[Increment]) -> None:
    new, what = appended_sums(added), "nothing is new in the inputs"
    if added:
        what = (
            f"{counted(new['files'], 'file')} with {counted(new['records'], 'record')} "
            f"{'were' if new['files'] != 1 else 'was'} added: {counted(new['rows'], 'row')}, {new['tokens']:,} tokens"
        )
    print(f"Version {version}: {what}.", flush=True)


def _finished_manifest(options: Options, folder: Folder, sources: Sequence[Source]) -> dict[str, Any] | None:
    """The manifest of a finished dataset; None if there is none, or if an overwrite of it was begun.

    What is left of a build that was killed after its commit is done.

    Raises:
        UserError: if it was built with other options.
    """
    version = newest(folder)
    if version is None:
        check_format(folder)
        if exists(folder.manifest):
            raise UserError(f"{folder.output}: the dataset has no versions. Copy its folder _chatmill, too.")
        return None
    if not all(map(version.has, begun_since_commit(folder, version))):
        return None
    return _finished(options, folder, sources, version)


def _finished(options: Options, folder: Folder, sources: Sequence[Source], version: Version) -> dict[str, Any]:
    """The manifest of a finished dataset. Raises UserError if it was built with other options."""
    job = job_of(folder, version)
    if changed := [*differences_without_inputs(job, options, sources), *differences_of_inputs(job, sources)]:
        raise UserError(
            f"{folder.output} holds a finished dataset that was built with other options: {'; '.join(changed)}. "
            "Give another --output, or --overwrite to replace it."
        )
    print(
        f"chatmill: {folder.output} is finished already. Use --append to add what is new in the inputs, or --overwrite "
        "to build it again.",
        file=sys.stderr,
    )
    if is_unclean(folder, version):
        check_no_links(folder)
        # Unless a build replaces the dataset now.
        with Lock(folder.lock, options.output) as lock, suppress(ParameterError):
            lock.take()
            remove_attempts(folder.output)
            finish_commit(folder, version, options.report)
    return version.manifest()


def _build(
    options: Options,
    folder: Folder,
    sources: Sequence[Source],
    for_runner: Options,
    beam_flags: Sequence[str],
) -> tuple[str, dict[str, Any] | None]:
    """Plan the job and run it. Returns the status, and the manifest if the job is done."""
    import_beam()
    from pipeline.prepare import prepare
    from pipeline.run import parse_beam_options, run_job

    runner_options = parse_beam_options(for_runner, beam_flags)
    _warn_of_layout(options)
    with Lock(folder.lock, options.output) as lock:
        try:
            prepared = prepare(options, folder, sources, lock)
        except StoreError as error:
            raise error.as_user_error(str(error)) from None
        if prepared is None:
            if (version := newest(folder)) is None:
                raise Unavailable(f"{folder.output}: the dataset was removed meanwhile. Run the same command again.")
            return "done_before", _finished(options, folder, sources, version)
        job, of_increment, change = prepared
        status, message = run_job(job, of_increment, runner_options, for_runner, change)
    if status != "done":
        print(f"chatmill: {message}", file=sys.stderr)
        return status, None
    version = newest(folder)
    return status, version.manifest() if version else None


def _warn_of_layout(options: Options) -> None:
    for option, text in [] if options.consumer else layout_warnings(RowLayout.of(vars(options))):
        print(f"chatmill: warning: --{option} {as_typed(getattr(options, option))}: {text}", file=sys.stderr)


def check_output(options: Options) -> None:
    """Raise UserError if nothing can be written to the output, whatever its store answers."""
    if options.output.startswith(_IN_MEMORY):
        raise UserError(f"--output {options.output}: memory:// is lost when the process ends. Give a disk or a bucket.")
    if options.output.startswith(_WEB):
        raise UserError(f"--output {options.output}: web servers are only read from. Give a disk or a bucket.")


def check_stores(options: Options) -> None:
    """Raise UserError or Unavailable if a store that is needed does not answer, before anything is read from it."""
    stores: dict[tuple[str, str], tuple[str, str]] = {}
    for option, url in reversed(options.urls()):
        protocol, _, path = url.partition("://")
        if not path.strip("/"):
            raise UserError(f"--{option} {url}: expected the name of a bucket or a host after this.")
        stores[protocol, path.partition("/")[0]] = option, url
    for option, url in stores.values():
        try:
            check_reachable(url)
        except StoreError as error:
            raise error.as_user_error(f"--{option} {error}") from None
