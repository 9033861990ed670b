"""The tokenizer of a worker, loaded from the files next to the output."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transforms.once import once_per_version
from transforms.storage.files import file_system, join, names_below, read_bytes, versions_below

# The environment variable that is set in a process of ours in which nothing needs torch.
WITHOUT_TORCH = "CHATMILL_WITHOUT_TORCH"


@once_per_version(versions_below)
def load_tokenizer(folder: str) -> Any:
    """Load the tokenizer of a folder with transformers, once for each process and content of the folder.

    Args:
        folder: that holds the tokenizer's files, at any url. Code that comes with them is never run.

    Returns:
        The tokenizer, the same object for all callers. The offsets of its tokens include white space.

    Raises:
        StoreError: if the store of the folder fails.
        Exception: what transformers raises if the files are not those of a tokenizer.
    """
    if os.environ.get(WITHOUT_TORCH):
        _import_without_torch()
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    with _local_folder(folder) as files:
        tokenizer = AutoTokenizer.from_pretrained(files, trust_remote_code=False, local_files_only=True)
    if tokenizer.is_fast:
        _keep_white_space(tokenizer.backend_tokenizer)
    return tokenizer


def _import_without_torch() -> None:
    """Import transformers as if torch were not installed.

    It imports torch if it can, which takes each worker two seconds and 500 MB. Tokenizers and templates do not need it.
    """
    if "transformers" in sys.modules or "torch" in sys.modules:
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from transformers.utils import is_torch_available

        is_torch_available()  # the answer is cached
        import transformers.tokenization_utils_base  # noqa: F401
    finally:
        del sys.modules["torch"]


@contextmanager
def _local_folder(folder: str) -> Iterator[str]:
    """The folder itself if it is on this machine, otherwise a temporary copy."""
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
    """Make the offsets include white space: some post-processors remove it from the offsets, not from the tokens."""
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
