"""The contract with transformers: its private parts that transforms/chat/transformers_jinja.py uses.

If one of these tests fails after an upgrade of transformers, that module is the only one to adapt.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import jinja2
import pytest
import transformers
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers.utils import chat_template_utils

from support.chats import assistant, user
from support.paths import TOKENIZER
from transforms.chat.transformers_jinja import compile_template, new_environment, render, render_with_generation_blocks
from transforms.tokens.tokenizer import load_tokenizer

ADAPT = f"in transformers {transformers.__version__}: adapt transforms/chat/transformers_jinja.py"
# Its output depends on the options of the environment: lines of blocks are removed, tojson keeps Unicode and tags.
SHOWS_ENVIRONMENT = """
{%- for message in messages %}
    {% if loop.index > 3 %}{% break %}{% endif %}
{{ message.role }}: {{ message | tojson }}
{% endfor %}
{{ bos_token }} {{ strftime_now is defined }} {{ namespace(a=1).a }} {{ dict(a=1) }}
"""
MESSAGES = [user("Grüße <b>"), assistant("水"), user("c"), assistant("d")]


def test_compile_jinja_template_compiles_as_apply_chat_template_does():
    if not hasattr(chat_template_utils, "_compile_jinja_template"):
        pytest.fail(f"_compile_jinja_template is not {ADAPT}")
    tokenizer = load_tokenizer(str(TOKENIZER))
    expected = tokenizer.apply_chat_template(MESSAGES, chat_template=SHOWS_ENVIRONMENT, tokenize=False)
    values: dict[str, Any] = {"messages": MESSAGES, **tokenizer.special_tokens_map}
    template = compile_template(SHOWS_ENVIRONMENT)
    assert isinstance(template, jinja2.Template), f"_compile_jinja_template does not return a template {ADAPT}"
    assert isinstance(template.environment, ImmutableSandboxedEnvironment), f"templates are not in a sandbox {ADAPT}"
    assert render(template, values) == expected, f"templates render differently {ADAPT}"
    copy = new_environment(SHOWS_ENVIRONMENT).from_string(SHOWS_ENVIRONMENT)
    assert render(copy, values) == expected, f"a copy of the environment renders differently {ADAPT}"
    moment = datetime(2024, 7, 26).strftime
    clock = compile_template("{{ strftime_now('%Y-%m-%d') }}")
    assert render(clock, {"strftime_now": moment}) == "2024-07-26", f"strftime_now cannot be replaced {ADAPT}"
    with pytest.raises(jinja2.TemplateError, match="no roles"):
        render(compile_template("{{ raise_exception('no roles') }}"), {})


def test_activate_tracker_records_the_characters_of_generation_blocks():
    template = compile_template(
        "{% for m in messages %}{{ m.role }}:{% generation %}({{ m.content }}){% endgeneration %};{% endfor %}"
    )
    if not hasattr(template.environment, "activate_tracker"):
        pytest.fail(f"environment.activate_tracker is not {ADAPT}")
    text, spans = render_with_generation_blocks(template, {"messages": [assistant("é水"), assistant("")]})
    assert text == "assistant:(é水);assistant:();"
    assert spans == [(10, 14), (25, 27)], f"generation blocks have other positions {ADAPT}"
