"""The contract with transformers: its private parts that transforms/chat/rendering/transformers_jinja.py uses.

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
from transforms.chat.rendering.transformers_jinja import (
    apply_chat_template,
    compile_template,
    new_environment,
    render,
    render_generation_blocks,
    with_reasoning_aliases,
)
from transforms.tokens.tokenizer import load_tokenizer

ADAPT = f"in transformers {transformers.__version__}: adapt transforms/chat/rendering/transformers_jinja.py"
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


TOKENIZER_OF_TESTS = load_tokenizer(str(TOKENIZER))


def test_generation_blocks_are_those_of_transformers():
    source = "{% for m in messages %}{{ m.role }}:{% generation %}({{ m.content }}){% endgeneration %};{% endfor %}"
    messages = [assistant("é水"), assistant("")]
    text, spans = render_generation_blocks(TOKENIZER_OF_TESTS, source, messages, None, {}, None)
    assert text == "assistant:(é水);assistant:();"
    assert spans == [(10, 14), (25, 27)], f"generation blocks have other positions {ADAPT}"


def test_clock_is_replaced_for_one_rendering_alone():
    source = "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"
    year = datetime.now().strftime("%Y")
    for number in range(200):  # transformers keeps some compiled templates and forgets others
        compile_template(f"{{{{ {number} }}}}")
        clock = datetime(1999, 7, 26).strftime
        text = apply_chat_template(TOKENIZER_OF_TESTS, source, [user("a")], None, False, {}, clock)
        assert text == "1999a", f"strftime_now cannot be replaced {ADAPT}"
    assert TOKENIZER_OF_TESTS.apply_chat_template([user("a")], chat_template=source, tokenize=False) == f"{year}a"


def test_reasoning_is_copied_as_apply_chat_template_copies_it():
    source = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    messages = [user("a"), assistant("b", reasoning="r"), assistant("c", thinking="t", reasoning_content="c")]
    given = with_reasoning_aliases(messages)
    text = render(compile_template(source), {"messages": given})
    assert text == apply_chat_template(TOKENIZER_OF_TESTS, source, messages, None, False, {}, None), ADAPT
    assert given[0] is messages[0]


def test_a_conversation_without_messages_is_rendered_for_what_comes_before_an_answer():
    source = "{{ bos_token }}{% if add_generation_prompt %}<assistant>{% endif %}"
    assert apply_chat_template(TOKENIZER_OF_TESTS, source, [], None, True, {}, None).endswith("<assistant>")
