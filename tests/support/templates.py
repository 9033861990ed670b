"""Chat templates for the tests, and the templates of the shared oracle."""

from __future__ import annotations

import json
from typing import Any

from support.paths import SHARED
from transforms import Conversation
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Span


def masked(
    template: ChatTemplate, conversation: Conversation, loss_on: str = "assistant", turns: TurnFinder | None = None
) -> tuple[str, list[Span]]:
    """What the reference renders, and the spans that are trained on. turns: of the template, if there is one."""
    rendering = template.rendering(conversation)
    return rendering.text, (turns or TurnFinder(template)).trained_spans(rendering, loss_on)


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


def oracle_templates() -> dict[str, dict[str, Any]]:
    """Return one case of the shared oracle for each template, by the name of the template."""
    oracle = SHARED / "oracle" / "masks.jsonl"
    lines = oracle.read_text().splitlines() if oracle.exists() else []
    return {case["template"]: case for case in map(json.loads, lines)}


def templates_of_oracles() -> dict[str, str]:
    """Return the chat templates of the shared oracles, those of models and odd ones, by their names."""
    oracles = sorted((SHARED / "oracle").rglob("*.jsonl"))
    cases = [json.loads(line) for oracle in oracles for line in oracle.read_text().splitlines()]
    return {case["template"]: case["chat_template"] for case in cases if "chat_template" in case}
