"""Other runners of Beam's: the same bytes as its local one."""

from __future__ import annotations

import shutil

import pytest
from conftest import CHATS, TOKENIZER, build_apart, digests

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000"]


@pytest.mark.skipif(
    shutil.which("prism") is None,
    reason="prism is not installed (go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0)",
)
def test_prism_writes_the_same_bytes(tmp_path):
    here = build_apart(*JOB, f"--output={tmp_path}/here")
    assert here.returncode == 0, here.stderr
    prism = f"--prism_location={shutil.which('prism')}"
    done = build_apart(*JOB, f"--output={tmp_path}/prism", "--runner=PrismRunner", prism, timeout=300)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "prism") == digests(tmp_path / "here")
