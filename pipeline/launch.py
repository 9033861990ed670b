"""Launch: from options to a finished dataset, and what is told of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pipeline.job import Job, differences_of_options, read_job
from pipeline.options import Options
from pipeline.prepare import prepare
from pipeline.run import parse_beam_options, run_job
from pipeline.summary import check_summary, print_summary, sums, write_summary
from pipeline.tokenizer_files import fingerprint, read_tokenizer_files
from transforms.dataset.layout import Folder
from transforms.errors import InputError, StoreError, Unavailable, UserError
from transforms.storage.files import check_reachable, exists, full_url, read_bytes
from transforms.tokens.tokenizer import WITHOUT_TORCH


def launch(options: Options, beam_flags: Sequence[str]) -> None:
    """Build the dataset that the options ask for, or say that it is there; and write how it ended, where that is asked.

    Raises UserError for the user's mistakes before any worker starts, InputError where the run fails over what it read.
    """
    ended: dict[str, Any] = {"status": "running", "output": options.output}
    if options.summary_json:
        check_summary(ended, options.summary_json, full_url(options.output))
    ended["status"] = "failed"
    try:
        status, manifest = _launch(options, beam_flags)
        ended |= {"status": status} | (sums(manifest) if manifest else {})
    except BaseException as error:
        ended["error"] = (
            str(error)
            if isinstance(error, (UserError, InputError, Unavailable))
            else f"{type(error).__name__}: {error}"
        )
        raise
    finally:
        if options.summary_json:
            write_summary(ended, options.summary_json)


def _launch(options: Options, beam_flags: Sequence[str]) -> tuple[str, dict[str, Any] | None]:
    """Build the dataset, or say that it is there. Returns which (done, or done_before), and the manifest.

    Where the job does not end here (submitted, dry_run), that is said, and there is no manifest.
    """
    if options.formatter is None:  # which may be a model
        os.environ.setdefault(WITHOUT_TORCH, "1")
    folder = Folder(full_url(options.output))
    _check_reachable(options)
    if not options.overwrite and exists(folder.success):
        job = read_job(folder)
        if job and (changed := list(_differences(job, options))):
            raise UserError(
                f"{folder.output} holds a finished dataset that was made otherwise: {'; '.join(changed)}. "
                "Give another --output, or --overwrite to replace it."
            )
        print(f"chatmill: {folder.output} is finished already; --overwrite makes it anew.", file=sys.stderr)
        status = "done_before"
    else:
        runner_options = parse_beam_options(options, beam_flags)
        try:
            job = prepare(options, folder)
        except StoreError as error:
            raise error.as_user_error(str(error)) from None
        status, how = run_job(job, folder, runner_options, options)
        if status != "done":
            print(f"chatmill: {how}", file=sys.stderr)
            return status, None
    manifest = msgspec.json.decode(read_bytes(folder.manifest))
    print_summary(folder, manifest)
    return status, manifest


def _differences(job: Job, options: Options) -> Iterator[str]:
    """What a finished job was made with and these options do not ask for, as far as that shows without the inputs."""
    yield from differences_of_options(job.options, options.shaping_rows())
    name = options.tokenizer
    if name != job.tokenizer_name and fingerprint(read_tokenizer_files(name)) != job.tokenizer:
        yield f"--tokenizer was {job.tokenizer_name} and is {name}"
    if (options.chat_template is None) != (job.chat_template is None):
        yield "--chat_template was " + ("given" if job.chat_template else "not given")


def _check_reachable(options: Options) -> None:
    """Raise UserError where a store that is needed gives no answer, before it is asked for more."""
    stores = {urlsplit(url)[:2]: (option, url) for option, url in reversed(options.urls())}
    for option, url in stores.values():
        try:
            check_reachable(url)
        except StoreError as error:
            raise error.as_user_error(f"--{option} {error}") from None
