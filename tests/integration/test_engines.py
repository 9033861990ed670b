"""The fast engine writes the same bytes as transformers, with tokenizers and chat templates of models."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from support.corpora import CORPORA, line_of
from support.datasets import assert_statistics_add_up, digests, manifest_of
from support.models import MODELS
from support.templates import templates_of_models

pytestmark = pytest.mark.slow

TOKENIZERS = ["deepseek", "qwen", "mistral"]
TEMPLATES = ["deepseek_r1_distill", "gemma4_v3", "glm4moe", "gptoss", "llama3_1", "nemotron_3_nano", "qwen2_5"]
TEMPLATES += ["qwen3_5_think"]

# More than the 2^20 characters from which the fast encoder is loaded.
CHARACTERS = 1_300_000

COUNTS = ("records", "rows", "tokens", "trained_tokens", "sources", "statistics")

CASES = [(corpus, tokenizer, "own", ()) for tokenizer in TOKENIZERS for corpus in CORPORA]
if "TEST_SLOW" in os.environ:
    CASES += [("reasoning", "qwen", "own", (f"--parity={parity}",)) for parity in ("expand", "reject")]
    CASES += [
        (corpus, tokenizer, template, ("--as_chat",))
        for template in TEMPLATES
        for tokenizer in TOKENIZERS
        for corpus in CORPORA
    ]


def corpus_in(corpus: str, path: Path) -> Path:
    """Write as many records as the fast encoder needs."""
    length = 0
    with path.open("w", encoding="utf-8") as file:
        for number in count():
            if length >= CHARACTERS:
                return path
            length += file.write(line_of(corpus, number))
    raise AssertionError


@pytest.mark.parametrize(("corpus", "tokenizer", "template", "more"), CASES)
def test_engines_write_the_same_bytes(
    corpus: str, tokenizer: str, template: str, more: tuple[str, ...], tmp_path: Path, build
):
    options = [f"--input={corpus_in(corpus, tmp_path / 'corpus.jsonl')}", f"--tokenizer={MODELS}/{tokenizer}"]
    options += ["--unprinted=report", "--max_reject_fraction=1", "--provenance", "--direct_num_workers=1"]
    options += ["--now=2026-11-20T12:00:00", *more]
    if template != "own":
        (tmp_path / "template.jinja").write_text(templates_of_models()[template])
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
