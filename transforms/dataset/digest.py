"""A digest of a function: equal in each process for the same code and values, other if what it does may differ.

Pickles of one function differ from process to process, so they cannot say whether a pipeline is the same as before.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def digest_of(function: Any) -> str:
    """Digest a function, or an object with methods such as a DoFn.

    Its code counts, its defaults, the values that it has from around it, and so do functions and classes of its own
    module that it refers to; of what other modules hold, the name counts.

    Args:
        function: a function, a method, a partial or an object.

    Returns:
        sha256, in hexadecimal.
    """
    digest = hashlib.sha256()
    for part in _parts(function, getattr(function, "__module__", None), set()):
        digest.update(part.encode(errors="surrogatepass") + b"\0")
    return digest.hexdigest()


def _parts(value: Any, module: str | None, seen: set[int]) -> Iterator[str]:
    if isinstance(value, _SIMPLE):
        yield repr(value)
        return
    yield type(value).__qualname__
    if id(value) in seen:
        return
    seen.add(id(value))
    for part in _inner(value, module):
        yield from _parts(part, module, seen)


def _inner(value: Any, module: str | None) -> list[Any]:
    """What a value consists of, as far as it distinguishes the value from others."""
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_varnames, value.co_freevars, *value.co_consts]
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    if isinstance(value, types.BuiltinFunctionType) or getattr(value, "__module__", None) != module:
        return [getattr(value, "__module__", None), getattr(value, "__qualname__", type(value).__qualname__)]
    if isinstance(value, types.FunctionType):
        around = inspect.getclosurevars(value)
        return [value.__code__, value.__defaults__, value.__kwdefaults__, around.nonlocals, around.globals]
    if isinstance(value, type):
        return [value.__qualname__, {name: part for name, part in vars(value).items() if inspect.isfunction(part)}]
    return [type(value), getattr(value, "__dict__", None)]
