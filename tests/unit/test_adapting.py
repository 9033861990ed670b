"""What a conversation says in a way that its template does not read is said in one that it reads, and counted."""

from __future__ import annotations

from typing import Any

import pytest

from support.chats import assistant, examples_of, render_config, user
from support.templates import CHATML
from transforms import Conversation
from transforms.steps.render import Renderer

CHAT = [user("Hi"), assistant("Hello")]
TOOL = '{"type": "function", "function": {"name": "find", "parameters": {}}}'
WITH_TOOLS = "{%- if tools -%}{{- tools | tojson -}}{%- endif -%}" + CHATML
NO_DEVELOPER = "{%- if messages[0].role == 'developer' -%}{{- raise_exception('unknown role') -}}{%- endif -%}" + CHATML


def rendered(content: Any, template: str) -> tuple[str, dict[str, int]]:
    texts = Renderer(render_config(template))(examples_of(content))
    [text] = texts.texts
    return text.text, texts.outcomes.notes


@pytest.mark.parametrize(
    ("template", "role", "notes"),
    [(NO_DEVELOPER, "system", {"developer_as_system": 1}), (CHATML, "developer", {})],
    ids=["refused", "printed"],
)
def test_a_developer_is_the_system_only_where_the_template_has_no_developer(template, role, notes):
    found, counted = rendered([{"role": "developer", "content": "Be brief."}, *CHAT], template)
    assert f"{role}\nBe brief." in found
    assert {name: count for name, count in counted.items() if name.startswith("developer")} == notes


@pytest.mark.parametrize(
    ("template", "notes"), [(CHATML, 1), ("{%- if enable_thinking -%}{%- endif -%}" + CHATML, 0)], ids=["no", "yes"]
)
def test_whether_to_reason_is_counted_where_the_template_does_not_read_it(template, notes):
    _, counted = rendered(Conversation(CHAT, None, {"enable_thinking": False}), template)
    assert counted.get("enable_thinking_not_read", 0) == notes


def test_xml_tools_are_tools_where_the_template_does_not_read_them():
    content = Conversation(CHAT, None, {"xml_tools": [TOOL]})
    text, counted = rendered(content, WITH_TOOLS)
    assert '"name": "find"' in text and counted["xml_tools_as_tools"] == 1
    text, counted = rendered(content, "{%- for tool in xml_tools -%}{{- tool -}}{%- endfor -%}" + WITH_TOOLS)
    assert text.startswith(TOOL) and "xml_tools_as_tools" not in counted
