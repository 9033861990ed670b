"""The fast engine writes the same bytes as transformers, on real corpora, with real tokenizers and chat templates."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import pytest
import zstandard

from support.datasets import assert_statistics_add_up, digests, manifest_of
from support.paths import SHARED

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (SHARED / "corpora").exists(), reason="../shared is absent")]

CORPORA = ["sgd", "gsm8k", "kdconv", "sgd_tools", "gsm8k_think"]
TOKENIZERS = ["llama3", "qwen", "mistral"]
TEMPLATES = ["deepseek_r1_distill", "gemma4_v3", "glm4moe", "gptoss", "llama3_1", "nemotron_3_nano", "qwen2_5"]
TEMPLATES += ["qwen3_5_think"]

# More than the 2^20 characters from which the fast encoder is loaded.
CHARACTERS = 1_300_000

COUNTS = ("records", "rows", "tokens", "trained_tokens", "sources", "statistics")

CASES = [(corpus, tokenizer, "own", ()) for tokenizer in TOKENIZERS for corpus in CORPORA]
if "TEST_SLOW" in os.environ:
    CASES += [("gsm8k_think", "qwen", "own", (f"--parity={parity}",)) for parity in ("expand", "reject")]
    CASES += [
        (corpus, tokenizer, template, ("--as_chat",))
        for template in TEMPLATES
        for tokenizer in TOKENIZERS
        for corpus in CORPORA
    ]


def some_of(corpus: str, path: Path) -> Path:
    """Write the first 300 records of a corpus and a random sample of it, as many as the fast encoder needs."""
    with zstandard.open(SHARED / "corpora" / f"{corpus}.jsonl.zst", "rt", encoding="utf-8", newline="\n") as file:
        lines = file.readlines()
    chosen = lines[:300]
    random.Random(15).shuffle(lines)
    length, rest = sum(map(len, chosen)), io.StringIO()
    while length < CHARACTERS:
        for line in lines:
            rest.write(line)
            length += len(line)
            if length >= CHARACTERS:
                break
    path.write_text("".join(chosen) + rest.getvalue(), encoding="utf-8")
    return path


def template_of(name: str) -> str:
    """Return a chat template of the shared oracle."""
    for oracle in sorted((SHARED / "oracle").glob("*.jsonl")):
        for case in map(json.loads, oracle.read_text().splitlines()):
            if case["template"] == name:
                return case["chat_template"]
    raise KeyError(name)


@pytest.mark.parametrize(("corpus", "tokenizer", "template", "more"), CASES)
def test_engines_write_the_same_bytes(
    corpus: str, tokenizer: str, template: str, more: tuple[str, ...], tmp_path: Path, build
):
    options = [f"--input={some_of(corpus, tmp_path / 'corpus.jsonl')}", f"--tokenizer={SHARED}/tokenizers/{tokenizer}"]
    options += ["--unprinted=report", "--max_reject_fraction=1", "--provenance", "--direct_num_workers=1"]
    options += ["--now=2026-11-20T12:00:00", *more]
    if template != "own":
        (tmp_path / "template.jinja").write_text(template_of(template))
        options += [f"--chat_template={tmp_path}/template.jinja"]
    written = {}
    for engine in ("reference", "auto"):
        output = tmp_path / engine
        result = build(*options, f"--engine={engine}", f"--output={output}")
        if result.code:
            # The template refuses all of these records, or parity does. A slow build prints its progress before.
            _, why, reasons = result.err.partition("dropped or rejected")
            assert why
            written[engine] = reasons.replace(str(output), "").replace(f"--engine={engine}", "")
        else:
            manifest = manifest_of(output)
            assert engine == "reference" or "small_input" not in manifest.get("tokenized_by_reference", {})
            assert_statistics_add_up(manifest)
            outcomes = {name: manifest[name] for name in COUNTS}
            # These two count what the reference did.
            written[engine] = {**digests(output, "manifest.json", "report.html"), "outcomes": outcomes}
    assert written["auto"] == written["reference"]
