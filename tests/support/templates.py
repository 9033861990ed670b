"""Chat templates of our own, and the templates of the shared oracle."""

from __future__ import annotations

import json
from typing import Any

from support.places import SHARED

# ChatML, without markers and with them; what closes a turn is a token and a line break.
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


# As many models' templates do: the reasoning of a turn is printed only while no other turn follows it.
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


# The generation prompt opens a block of reasoning that no turn has.
OPENS_REASONING = CHATML.replace(
    "'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>assistant\\n<think>' -}}{%- endif"
)


def oracle_templates() -> dict[str, dict[str, Any]]:
    """A case of the shared oracle for each of its templates."""
    oracle = SHARED / "oracle" / "masks.jsonl"
    lines = oracle.read_text().splitlines() if oracle.exists() else []
    return {case["template"]: case for case in map(json.loads, lines)}
