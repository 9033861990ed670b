"""Chat templates of our own, and the templates of the shared oracle."""

from __future__ import annotations

import json
from typing import Any

from support.places import SHARED

# ChatML without markers, and with them. A token and a line break close a turn.
CHATML = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


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


# As in the templates of many models, the reasoning of a turn is printed only if no other turn follows.
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


# The generation prompt opens a block of reasoning that no turn in history has.
OPENS_REASONING = CHATML.replace(
    "'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>assistant\\n<think>' -}}{%- endif"
)


def oracle_templates() -> dict[str, dict[str, Any]]:
    """One case of the shared oracle for each of its templates, by the name of the template."""
    oracle = SHARED / "oracle" / "masks.jsonl"
    lines = oracle.read_text().splitlines() if oracle.exists() else []
    return {case["template"]: case for case in map(json.loads, lines)}
