"""Look-ups of a template's values, as Jinja's sandbox finds them, in half the time.

The sandbox looks for an attribute with an exception first and in a dict afterwards, and checks each access. Here what
cannot be refused is looked up at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

from transforms.chat.rendering.transformers_jinja import new_environment

# What the sandbox allows of each type. Names of a dict's own attributes come before its entries in Jinja.
DICT_NAMES = frozenset(dir(dict))
DICT_METHODS = frozenset(("get", "items", "keys", "values"))
LOOP_NAMES = frozenset(("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"))
_STRING_METHODS = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
PLAIN_TYPES = frozenset((str, int, float, bool, type(None), dict, list))


def look_up_quickly(environment: Any) -> None:
    """Change a Jinja environment, which is a copy, so that it looks up attributes in this way."""
    environment.getattr = functools.partial(_attribute_of, environment.getattr, environment.undefined)


@functools.cache
def quick_template(source: str) -> jinja2.Template:
    """Compile a chat template as transformers does, but for quick look-ups.

    Args:
        source: the text of the template.
    """
    environment: Any = new_environment(source)
    look_up_quickly(environment)
    return environment.from_string(source)


def _attribute_of(otherwise: Callable[..., Any], undefined: Callable[..., Any], value: Any, name: str) -> Any:
    """An attribute of a value, or an entry of it, as `SandboxedEnvironment.getattr` finds it.

    otherwise: that method, for values of other types than a template mostly has. undefined: makes the undefined value.
    """
    kind = type(value)
    if kind is dict:
        if name not in DICT_NAMES:
            return value[name] if name in value else undefined(obj=value, name=name)
        if name in DICT_METHODS:
            return getattr(value, name)
    elif (kind is str and name in _STRING_METHODS) or (isinstance(value, LoopContext) and name in LOOP_NAMES):
        return getattr(value, name)
    elif isinstance(value, Namespace) and name[0] != "_":
        found = getattr(value, name, value)
        if type(found) in PLAIN_TYPES:
            return found
    return otherwise(value, name)
