"""What a conversation says in a way that its template does not read is said in one that it reads, and counted."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.chats import assistant, user
from support.datasets import read_manifest, write_jsonl
from support.marked import marked_rows
from support.paths import TOKENIZER
from support.templates import CHATML

CHAT = [user("Hi"), assistant("Hello")]
TOOL = '{"type": "function", "function": {"name": "find", "parameters": {}}}'
WITH_TOOLS = "{%- if tools -%}{{- tools | tojson -}}{%- endif -%}" + CHATML
NO_DEVELOPER = "{%- if messages[0].role == 'developer' -%}{{- raise_exception('unknown role') -}}{%- endif -%}" + CHATML


@pytest.fixture
def rendered(build, tmp_path):
    def run(messages: list[dict[str, Any]], template: str, **columns: Any) -> tuple[str, dict[str, int]]:
        """The text of a record, with what is trained on between ⟦ and ⟧, and the notes of a dataset of it."""
        (tmp_path / "template.jinja").write_text(template)
        record = columns if "prompt" in columns else {"messages": messages, **columns}
        corpus = write_jsonl(tmp_path / "a.jsonl", [{"id": "1", **record}])
        output = tmp_path / f"out-{len(os.listdir(tmp_path))}"
        options = {"input": corpus, "output": output, "tokenizer": TOKENIZER, "keep_columns": "id"}
        options |= {"chat_template": tmp_path / "template.jinja", "special_tokens_in_content": "allow"}
        assert build(*(f"--{name}={value}" for name, value in options.items())).code == 0
        return marked_rows(output)["1"], read_manifest(output)["notes"]

    return run


@pytest.mark.parametrize(
    ("template", "role", "notes"),
    [(NO_DEVELOPER, "system", {"developer_as_system": 1}), (CHATML, "developer", {})],
    ids=["refused", "printed"],
)
def test_a_developer_is_the_system_only_where_the_template_has_no_developer(template, role, notes, rendered):
    found, counted = rendered([{"role": "developer", "content": "Be brief."}, *CHAT], template)
    assert f"{role}\nBe brief." in found
    assert {name: count for name, count in counted.items() if name.startswith("developer")} == notes


@pytest.mark.parametrize(
    ("template", "notes"), [(CHATML, 1), ("{%- if enable_thinking -%}{%- endif -%}" + CHATML, 0)], ids=["no", "yes"]
)
def test_whether_to_reason_is_counted_where_the_template_does_not_read_it(template, notes, rendered):
    _, counted = rendered(CHAT, template, chat_template_kwargs={"enable_thinking": False})
    assert counted.get("enable_thinking_not_read", 0) == notes


def test_xml_tools_are_tools_where_the_template_does_not_read_them(rendered):
    columns = {"chat_template_kwargs": {"xml_tools": [TOOL]}}
    text, counted = rendered(CHAT, WITH_TOOLS, **columns)
    assert '"name": "find"' in text and counted["xml_tools_as_tools"] == 1
    text, counted = rendered(CHAT, "{%- for tool in xml_tools -%}{{- tool -}}{%- endfor -%}" + WITH_TOOLS, **columns)
    assert text.startswith(TOOL) and "xml_tools_as_tools" not in counted


def test_of_a_completion_whose_tools_are_said_otherwise_the_prompt_is_not_trained_on(rendered):
    columns = {"prompt": [*CHAT, user("Bye")], "completion": [assistant("See you")]}
    text, _ = rendered([], WITH_TOOLS, chat_template_kwargs={"xml_tools": [TOOL]}, **columns)
    assert '"name": "find"' in text and text.count("⟦") == 1 and "⟦See you<|im_end|>" in text
