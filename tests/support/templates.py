"""Chat templates for the tests: small ones, those of models, odd ones; and records with what becomes of them."""

from __future__ import annotations

import functools
import json
from typing import Any

from support.models import TEMPLATES
from support.paths import ROOT

DATA = ROOT / "tests" / "data"
ORACLES = DATA / "oracles"
# ChatML, of which a token and a line break close a turn; it with generation markers; one that prints the reasoning
# of a turn only if it is the last one, as the templates of many models do; and one whose generation prompt opens a
# reasoning block, which turns in history do not have.
CHATML, MARKED, DROPS_REASONING = (
    (DATA / "templates" / f"{name}.jinja").read_text() for name in ("chatml", "marked", "drops_reasoning")
)
OPENS_REASONING = CHATML.replace(
    "'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>assistant\\n<think>' -}}{%- endif"
)
# Ways to print that hide a text from a search for marks, or from a comparison with it.
PRINTS: dict[str, str] = {"chatml": CHATML, "marked": MARKED, "drops_reasoning": DROPS_REASONING}
PRINTS |= json.loads((DATA / "prints.json").read_text())


def _read_ways() -> dict[str, list[str]]:
    """Read the sections of tests/data/ways.jinja: what templates do to texts."""
    _, *sections = (DATA / "ways.jinja").read_text(encoding="utf-8").split("\n\n## ")
    return {section.partition(":")[0]: section.strip("\n").split("\n")[1:] for section in sections}


WAYS = _read_ways()

# A chat template of each of these: between them they print messages in the ways that the models of today have.
MODELS = ("llama3", "qwen2_5", "qwen3", "qwen3_instruct_2507", "gemma3", "phi3", "gptoss", "cohere", "nemotron_3_nano")
MODELS += ("qwen3_5_think", "qwen3_5_nothink", "llama3_1", "glm4moe", "deepseek_r1_distill", "smolvlm", "llava_next")
MODELS += ("gemma4", "gemma4_v3")
# What they read besides messages and tools. Those of gptoss and llama3_1 print the date.
GIVEN = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
NOW = "2026-11-20T12:00:00"


def read_template(name: str) -> str:
    """Read a template of tests/data/templates."""
    return (DATA / "templates" / f"{name}.jinja").read_text()


@functools.cache
def trl_templates() -> dict[str, str]:
    """Return the chat templates that TRL has, by their names: those of models, and the same with marks of its own."""
    return {file.stem: file.read_text() for file in sorted(TEMPLATES.glob("*.jinja"))}


@functools.cache
def model_templates() -> dict[str, str]:
    """Return the chat templates of MODELS, by their names."""
    return {name: trl_templates()[name] for name in MODELS}


@functools.cache
def odd_templates() -> dict[str, str]:
    """Return chat templates that print messages in ways that are hard to follow, by their names."""
    return json.loads((ORACLES / "templates.json").read_text())


def models_and_odd() -> dict[str, str]:
    return {**model_templates(), **odd_templates()}


@functools.cache
def make_cases(oracle: str) -> list[dict[str, Any]]:
    """Return the cases of an oracle (tests/data/oracles/README.md)."""
    return [json.loads(line) for line in (ORACLES / f"{oracle}.jsonl").read_text().splitlines()]
