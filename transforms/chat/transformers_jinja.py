"""transformers' Jinja environment for chat templates. No other module uses what transformers keeps private.

transformers has no public way to compile a chat template. `_compile_jinja_template` and the environment it makes (its
sandbox, filters, globals, and the tag `generation`) decide what a template prints, so they are used as they are.
tests/unit/test_transformers_jinja.py checks what this module relies on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from transforms.chat.config import MAX_TEXT_BYTES
from transforms.chat.limits import MAX_TEMPLATE_CHARACTERS, TemplateLimit, check_size, collected, limit, limited
from transforms.errors import UserError
from transforms.model.examples import Span
from transforms.once import once

# The generation tracker is a part of the environment, and all threads that render a template share its environment.
# Without a lock, the blocks of one conversation would be recorded for another: runners run bundles in threads.
_RENDERING = threading.Lock()


@once
def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template as transformers' `apply_chat_template` does.

    What it may do is limited (see `limits`), in an environment of its own: that of transformers stays as it is.

    Args:
        source: the text of the template.

    Returns:
        The compiled template; the same object for all callers in a process.

    Raises:
        jinja2.TemplateSyntaxError: if the source is not valid Jinja.
        UserError: if it is too long, or nested too deeply, or does too much before it is rendered.
    """
    from transformers.utils.chat_template_utils import _compile_jinja_template

    if len(source) > MAX_TEMPLATE_CHARACTERS:
        most = f"{MAX_TEMPLATE_CHARACTERS:,}"
        raise UserError(f"the chat template has {len(source):,} characters; expected at most {most}.")
    compile: Any = _compile_jinja_template
    environment: Any = compile.__wrapped__("").environment
    limit(environment)
    try:
        return limited(MAX_TEXT_BYTES, environment.from_string, source)  # which evaluates what is constant
    except TemplateLimit as error:
        raise UserError(f"{error.detail}.") from None
    except (RecursionError, SyntaxError, MemoryError):  # of Jinja's parser, or of Python's
        raise UserError("the chat template is nested too deeply.") from None


def new_environment(source: str) -> SandboxedEnvironment:
    """Copy the environment of a compiled template, so that it can be changed.

    Args:
        source: the text of the template.
    """
    environment: Any = compile_template(source).environment
    with _RENDERING:  # or the copy could take over an active generation tracker
        return environment.overlay()


def render(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    """Render a template that was compiled in transformers' environment, or in a copy of it.

    Raises whatever the template raises.
    """
    with _RENDERING:
        return template.environment.concat(collected(template.generate(values)))  # type: ignore[attr-defined]


def render_with_generation_blocks(template: jinja2.Template, values: Mapping[str, Any]) -> tuple[str, list[Span]]:
    """Render a template and record its generation blocks, as `return_assistant_tokens_mask` of transformers does.

    Args:
        template: a template that `compile_template` compiled.
        values: the variables of the template.

    Returns:
        The text, and the (start, stop) characters of each generation block, in the order in which the blocks close.

    Raises whatever the template raises.
    """
    printed: list[str] = []
    length = 0
    spans: list[Span] = []
    with _RENDERING, template.environment.activate_tracker(printed, spans):  # type: ignore[attr-defined]
        for part in template.generate(values):
            printed.append(part)
            length += len(part)
            check_size(length)
    return "".join(printed), spans
