"""The tokenizer of a worker: loaded once for each process, from the files beside the output."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from transforms.files import file_system, join, names_below, read_bytes


@functools.cache
def load_tokenizer(folder: str) -> Any:
    """The transformers tokenizer whose files lie in a folder, at any url; the same object for all who ask here.

    Raises what transformers raises where there is none. Code that comes with a tokenizer is never run.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(_local_copy(folder), trust_remote_code=False, local_files_only=True)
    if tokenizer.is_fast:
        _keep_white_space(tokenizer.backend_tokenizer)
    return tokenizer


def _local_copy(folder: str) -> str:
    """The folder itself where it is on this machine, else a copy of it."""
    system, path = file_system(folder)
    if os.path.isdir(path) and "file" in system.protocol:
        return path
    copy = Path(tempfile.gettempdir(), "chatmill-" + hashlib.sha256(folder.encode()).hexdigest()[:16], str(os.getpid()))
    copy.mkdir(parents=True, exist_ok=True)
    for name in names_below(folder):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_bytes(read_bytes(join(folder, name)))
    return str(copy)


def _keep_white_space(backend: Any) -> None:
    """Let offsets say where a token lies, white space included: some post-processors trim it off the offsets only."""
    post_processor = backend.post_processor
    if post_processor is None:
        return
    state = json.loads(post_processor.__getstate__())
    parts = state["processors"] if state.get("type") == "Sequence" else [state]
    if any(part.get("trim_offsets") for part in parts):
        for part in parts:
            if "trim_offsets" in part:
                part["trim_offsets"] = False
        post_processor.__setstate__(json.dumps(state).encode())
        backend.post_processor = post_processor
