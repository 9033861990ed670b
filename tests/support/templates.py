# ruff: noqa: E501
"""Chat templates for the tests: small ones, those of models, odd ones; and records with what becomes of them."""

from __future__ import annotations

import functools
import json
from typing import Any

from support.models import TEMPLATES
from support.paths import ROOT

ORACLES = ROOT / "tests" / "data" / "oracles"


# ChatML without generation markers. A token and a line break close a turn.
CHATML = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

# ChatML with generation markers.
MARKED = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}{{- message.content + '<|im_end|>\\n' -}}{%- endgeneration -%}
    {%- else -%}
        {{- message.content + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


# The reasoning of a turn is printed only if it is the last turn, as in the templates of many models.
DROPS_REASONING = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.reasoning_content and loop.last -%}
        {{- '<think>' + message.reasoning_content + '</think>' -}}
    {%- endif -%}
    {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


# The generation prompt opens a reasoning block, but turns in history have none.
OPENS_REASONING = CHATML.replace(
    "'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>assistant\\n<think>' -}}{%- endif"
)


# Ways to print that hide a text from a search for marks, or from a comparison with it.
PRINTS = {
    "chatml": CHATML,
    "marked": MARKED,
    "drops_reasoning": DROPS_REASONING,
    "in_namespace": "{%- set ns = namespace(all='') -%}{%- for m in messages -%}"
    "{%- set ns.all = ns.all + m.role + m.content -%}{%- endfor -%}{{- ns.all | trim -}}",
    "in_a_block": "{%- set all -%}{%- for m in messages -%}{{ m.role }}{{ m.content }}\n{% endfor -%}{%- endset -%}"
    "{{- all | upper | lower -}}",
    "in_a_macro": "{%- macro said(m) -%}{{ '%s: %s' % (m.role, m.content) }}{%- endmacro -%}"
    "{%- for m in messages -%}{{- said(m) | indent(2) -}}{%- endfor -%}",
    "by_number": "{%- for i in range(messages | length) -%}{{- messages[i].content.split('~')[0] + '\\n' -}}{%- endfor -%}",
    "as_json": "{{- messages | tojson(indent=2) -}}{{- tools | tojson | safe -}}",
    "as_python": "{%- for m in messages -%}{{- m -}}{%- endfor -%}{{- tools -}}",
    "joined": "{{- messages | map(attribute='content') | join('\\n') -}}",
    "joined_by_a_method": "{%- set all = [] -%}{%- for m in messages -%}{%- set all = all + [m.content] -%}"
    "{{- m.role -}}{%- endfor -%}{{- ', '.join(messages | map(attribute='content')) -}}",
    "formatted": "{%- for m in messages -%}{{- '{}: {}'.format(m.role, m.content) -}}{%- endfor -%}",
    "escaped": "{%- for m in messages -%}{{- (m.content | e) + '\\n' -}}{%- endfor -%}",
    "only_users": "{%- for m in messages if m.role == 'user' -%}{{- m.content -}}{%- endfor -%}",
    "only_once": "{%- for m in messages -%}{%- if loop.first or m.content != loop.previtem.content -%}{{- m.content + '\\n' -}}"
    "{%- endif -%}{%- endfor -%}",
    "values_of_calls": "{%- for m in messages -%}{{- m.content + '\\n' -}}{%- for c in m.tool_calls -%}{{- c.function.name -}}"
    "{%- for k, v in c.function.arguments.items() -%}{{- v | string -}}{%- endfor -%}{%- endfor -%}{%- endfor -%}",
    "looks_for_it": "{%- for m in messages -%}{%- if m.content in messages[-1].content -%}{{- m.content -}}"
    "{%- endif -%}{%- endfor -%}",
}


# A chat template of each of these: between them they print messages in the ways that the models of today have.
MODELS = ("llama3", "qwen2_5", "qwen3", "qwen3_instruct_2507", "gemma3", "phi3", "gptoss", "cohere", "nemotron_3_nano")
MODELS += ("qwen3_5_think", "qwen3_5_nothink", "llama3_1", "glm4moe", "deepseek_r1_distill", "smolvlm", "llava_next")
MODELS += ("gemma4", "gemma4_v3")
# What they read besides messages and tools. Those of gptoss and llama3_1 print the date.
GIVEN = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
NOW = "2026-11-20T12:00:00"


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
