"""Prism: the same bytes as on Beam's local runner."""

from __future__ import annotations

import pytest

from support.datasets import build_in_process, digests
from support.paths import CHATS, TOKENIZER
from support.programs import PRISM, go_program, why_no_program

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=60000"]


@pytest.mark.parametrize(
    "options", [(), ("--shuffle=global", "--dedup=exact", "--epochs=1.5")], ids=["plain", "exchanged"]
)
def test_prism_writes_the_same_bytes(tmp_path, options):
    program = go_program(PRISM)
    if program is None:
        pytest.skip(why_no_program(PRISM))
    local = build_in_process(*JOB, *options, f"--output={tmp_path}/local")
    assert local.returncode == 0, local.stderr
    prism = f"--prism_location={program}"
    done = build_in_process(*JOB, *options, f"--output={tmp_path}/prism", "--runner=PrismRunner", prism, timeout=300)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "prism") == digests(tmp_path / "local")
