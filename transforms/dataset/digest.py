"""A digest of a function: equal in each process for the same code and values, different if what it does may differ.

Pickles of one function differ from process to process, so they cannot say whether a pipeline is the same as before.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_INSTALLED = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    site.getusersitepackages(),
)
# What Python itself puts into a class.
_OF_ALL_CLASSES = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__"}


def digest_of(value: Any) -> str:
    """Digest a function, or any value that steps are made with.

    The code of functions and classes counts, with their defaults, the values from around them, and all that they refer
    to in their module, unless it belongs to Python, to an installed package or to Chatmill: of that the name counts.
    Other values count as pickle takes them apart.

    Args:
        value: a function, a method, a partial, an object such as a DoFn, or a container of such.

    Returns:
        sha256, in hexadecimal.
    """
    digest = hashlib.sha256()
    for part in _parts(value, {}, ()):
        digest.update(part.encode(errors="surrogatepass") + b"\0")
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, Any], around: tuple[int, ...]) -> Iterator[str]:
    """The value, flattened to strings.

    seen: functions, classes and objects that were visited, by id. They are kept, so that no other gets the same id.
    around: the ids of the containers that the value is in.
    """
    yield type(value).__qualname__
    if isinstance(value, _SIMPLE):
        yield repr(value)
        return
    if isinstance(value, (tuple, list, dict, set, frozenset, types.CodeType)):
        if id(value) in around:
            return
        around += (id(value),)
    elif id(value) in seen:
        yield str(list(seen).index(id(value)))
        return
    else:
        seen[id(value)] = value
    if isinstance(value, (set, frozenset)):  # whose order differs from process to process
        yield from sorted(digest_of(element) for element in value)
        return
    inner = _inner(value)
    for part in inner:
        yield from _parts(part, seen, around)


def _inner(value: Any) -> list[Any]:
    """What a value consists of, as far as it distinguishes the value from others."""
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts]
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, types.FunctionType):
        from_around = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
        if _is_installed(value.__module__):
            return [value.__module__, value.__qualname__, from_around]
        names = sorted(_names(value.__code__) & value.__globals__.keys())
        used = {name: value.__globals__[name] for name in names}
        return [value.__code__, value.__defaults__, value.__kwdefaults__, from_around, used]
    if isinstance(value, type):
        if _is_installed(value.__module__):
            return [value.__module__, value.__qualname__]
        own = {name: part for name, part in vars(value).items() if name not in _OF_ALL_CLASSES}
        return [value.__qualname__, value.__bases__, own]
    if isinstance(value, types.BuiltinFunctionType):
        return [value.__module__, value.__qualname__, value.__self__]
    return [type(value), *_state(value)]


def _state(value: Any) -> list[Any]:
    """What pickle would make an object of again; its attributes if it cannot be pickled."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce else value.__reduce_ex__(2)
    except Exception:  # each type that cannot be pickled raises its own
        return [getattr(value, "__dict__", None)]
    if isinstance(reduced, str):
        return [reduced]
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]


def _names(code: types.CodeType) -> set[str]:
    """The names that code refers to, with those of the functions and comprehensions in it."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python, to an installed package or to Chatmill, whose versions are compared."""
    if module is None or module.partition(".")[0] in ("transforms", "pipeline"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and (file is None or file.startswith(_INSTALLED))
