"""Run: from what is asked for to a version of a dataset, and the summary of the run.

A build, an overwrite and an append are one thing: a change to a dataset. Beam is imported only if there is something to
build. A failed or stopped run can be resumed.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator
from contextlib import closing, nullcontext
from typing import Any

from pipeline.cli.console import import_beam, show
from pipeline.existing import begun_since_commit, finish, is_unclean, output_errors, planned_files, read_base
from pipeline.inputs import list_files, select_new
from pipeline.job import Outcome, Request
from pipeline.runners.runner import is_dry_run, parse_flags
from pipeline.show.summary import print_summary
from pipeline.stopping import temporary_folder
from transforms.base.errors import UserError, before_the_work
from transforms.base.phrases import counted
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Increment
from transforms.files.listing import Accepts, InputFile, Key
from transforms.storage.files import check_reachable
from transforms.tokens.tokenizer import ONLY_TOKENIZERS

# What --json has of an append, and of a manifest.
_COUNTS = ("rows", "tokens", "trained_tokens")
_SUMS = ("records", *_COUNTS, "trained_tokens_lost", "notes", "sources", "version", "increments")


def run(request: Request) -> dict[str, Any]:
    """Build a dataset, or append to it, unless that is done already.

    Returns:
        The outcome, with the sums of the manifest, as --json has it.

    Raises:
        UserError: if the options cannot be met; most such errors are found before any worker starts.
        InputError: if an input cannot be read, or too many records are rejected. What was committed before stays.
        Unavailable: if a store or a cluster does not answer.
    """
    if not request.has_formatter:  # which may be a model
        os.environ.setdefault(ONLY_TOKENIZERS, "1")
    # A cluster may need what is there after this process has ended.
    with temporary_folder() if request.runner.has_our_workers else nullcontext():
        outcome = _run(request)
    result: dict[str, Any] = {"status": outcome.status}
    if outcome.version:
        manifest = outcome.version.manifest()
        result |= {name: manifest[name] for name in _SUMS} | {"shards": len(manifest["shards"])}
        if request.options.append:
            result["appended"] = _sums(outcome.added)
    return result


def _sums(increments: tuple[Increment, ...]) -> dict[str, Any]:
    """The sums of the increments that an append added, as --json has them."""
    counts = [each.counts for each in increments]
    return {
        "increments": len(increments),
        "files": sum(len(each.inputs) for each in increments),
        "records": sum(each.records.read for each in counts),
        **{name: sum(getattr(each, name) for each in counts) for name in _COUNTS},
    }


def _run(request: Request) -> Outcome:
    """Change the dataset, and print what became of it."""
    options = request.options
    _check_stores(request)
    if options.every:
        outcome, added = Outcome("nothing_new"), list[Increment]()
        with closing(_looks(options.every, request.folder)) as each_look:
            for accepts in each_look:
                outcome = _change(request, accepts)
                added += outcome.added
                if outcome.added:
                    _print_added(outcome)
                if outcome.status not in ("done", "nothing_new"):
                    break
        if added and outcome.status == "nothing_new":  # of the last look alone
            outcome = outcome._replace(status="done")
        return outcome._replace(added=tuple(added))
    outcome = _change(request)
    if outcome.version and (outcome.added or not options.append):
        if options.expire_replaced and outcome.status == "done":
            from transforms.dataset.expiry import expire

            expire(request.folder.output, older_than=0)
        print_summary(request.folder, outcome.version.manifest(), options.max_reject_fraction)
    if outcome.version and options.append:
        _print_added(outcome)
    return outcome


def _looks(seconds: int, folder: Folder) -> Generator[Accepts, None, None]:
    """Yield for each look at the inputs which files have settled since the one before, until SIGTERM.

    All that lasts is in the dataset: its versions, and an increment that was begun, which the next run finishes first.
    """
    before: dict[Key, str] = {}
    now = {file.key: file.version for id in folder.begun() for file in planned_files(Folder(folder.output, id))}
    signals: list[int] = []

    def has_settled(key: Key, version: str) -> bool:
        now[key] = version
        return before.get(key) == version

    def stop(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        show("stopping after the current increment")

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        while not signals:
            next_look, before, now = time.monotonic() + seconds, now, {}
            yield has_settled
            gc.collect()  # a graph is full of cycles, and holds what it read
            while not signals and time.monotonic() < next_look:
                time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print_added(outcome: Outcome) -> None:
    new, what = _sums(outcome.added), "nothing is new in the inputs"
    if outcome.added:
        what = (
            f"{counted(new['files'], 'file')} with {counted(new['records'], 'record')} "
            f"{'were' if new['files'] != 1 else 'was'} added: {counted(new['rows'], 'row')}, {new['tokens']:,} tokens"
        )
    print(f"Version {outcome.version.number if outcome.version else 0}: {what}.", flush=True)


def _check_stores(request: Request) -> None:
    """Raise UserError or Unavailable if a store that is needed does not answer, before anything is read from it."""
    stores: dict[tuple[str, str], tuple[str, str]] = {}
    for option, url in reversed(request.urls()):
        protocol, _, path = url.partition("://")
        if not path.strip("/"):
            raise UserError(f"--{option} {url}: expected the name of a bucket or a host after this.")
        stores[protocol, path.partition("/")[0]] = option, url
    for option, url in stores.values():
        with before_the_work(f"--{option} "):
            check_reachable(url)


def _change(request: Request, accepts: Accepts | None = None) -> Outcome:
    """Build a dataset, replace it, or add what is new in the inputs to it.

    accepts: which files may be added, if some may be still to come: then one increment is built, and the others later.
    """
    options, folder = request.options, request.folder
    with output_errors(options):
        version = read_base(request)
    files = new = list[InputFile]()
    if options.append:
        files = list_files(request, version, accepts)
        new = select_new(request, files, version)
        if not (new or is_unclean(folder, version)):
            return Outcome("nothing_new", version)
    elif version and not options.overwrite and all(map(version.has, begun_since_commit(folder, version))):
        return finish(request, version)
    request.runner.prepare(request)
    import_beam()
    from pipeline.increments import build_increments

    if options.append and not request.runner.has_dry_run and is_dry_run(parse_flags(request.flags)):
        if not new:
            return Outcome("nothing_new", version)
        show(f"a dry run: {counted(len(new), 'file')} would be added, the first of them {new[0].url}")
        return Outcome("dry_run")
    return build_increments(request, version, files, accepts)
