"""The tokenizer of a worker: loaded once for each process, from the files beside the output."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transforms.once import once
from transforms.storage.files import file_system, join, names_below, read_bytes

# The environment variable that tells a process of ours that nothing in it needs transformers with torch.
WITHOUT_TORCH = "CHATMILL_WITHOUT_TORCH"


@once
def load_tokenizer(folder: str) -> Any:
    """The transformers tokenizer whose files lie in a folder, at any url; the same object for all who ask here.

    Raises what transformers raises where there is none. Code that comes with a tokenizer is never run.
    """
    if os.environ.get(WITHOUT_TORCH):
        _import_without_torch()
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    with _on_this_machine(folder) as files:
        tokenizer = AutoTokenizer.from_pretrained(files, trust_remote_code=False, local_files_only=True)
    if tokenizer.is_fast:
        _keep_white_space(tokenizer.backend_tokenizer)
    return tokenizer


def _import_without_torch() -> None:
    """Import transformers as where torch is not installed.

    It would import torch where that is installed beside, which takes each worker two seconds and 500 MB, and which
    neither tokenizers nor templates need.
    """
    if "transformers" in sys.modules or "torch" in sys.modules:
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from transformers.utils import is_torch_available

        is_torch_available()  # which it remembers
        import transformers.tokenization_utils_base  # noqa: F401
    finally:
        del sys.modules["torch"]


@contextmanager
def _on_this_machine(folder: str) -> Iterator[str]:
    """The folder itself where it is on this machine, else a copy of it for as long as it is used."""
    system, path = file_system(folder)
    if os.path.isdir(path) and "file" in system.protocol:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="chatmill-") as copy:
        for name in names_below(folder):
            Path(copy, name).parent.mkdir(exist_ok=True)
            Path(copy, name).write_bytes(read_bytes(join(folder, name)))
        yield copy


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
