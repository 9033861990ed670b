"""What the tests of trainers share: datasets of the same conversations, and a tiny model."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.datasets import build_in_process, write_jsonl
from support.paths import TOKENIZER
from support.trainers import HERE, conversation, find_python


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Callable[..., Path]:
    """Build a dataset of the same conversations with some options, once for each."""
    folder = tmp_path_factory.mktemp("datasets")
    corpus = write_jsonl(folder / "corpus.jsonl", [conversation(number) for number in range(9)])
    built: dict[tuple[str, ...], Path] = {}

    def build(*options: str) -> Path:
        if options not in built:
            output = folder / str(len(built))
            done = build_in_process(
                f"--input={corpus}",
                f"--tokenizer={TOKENIZER}",
                f"--output={output}",
                "--direct_num_workers=1",
                *options,
            )
            assert done.returncode == 0, done.stderr
            built[options] = output
        return built[options]

    return build


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([find_python("requirements.txt"), HERE / "make_model.py", TOKENIZER, folder], check=True)
    return folder
