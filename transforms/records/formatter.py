"""Formatters: a user's function that makes records of a known schema of each record, loaded by its name."""

from __future__ import annotations

import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any, TypeAlias

from transforms.base.errors import ParameterError, StoreError, UserError
from transforms.base.once import once
from transforms.base.stored import check_unchanged
from transforms.storage.files import read_bytes

# What it makes of a record: a record, a text, several of them, or None to drop it.
Formatter: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | str | list[dict[str, Any] | str] | None]


def load_formatter(name: str) -> Formatter:
    """Load a formatter, once for each process and content of its file.

    Args:
        name: `module:function` or `file.py:function`, the file at any url.

    Returns:
        The function.

    Raises:
        ParameterError: if it cannot be loaded.
        UserError: if its file is not the one that a build stored there. Nothing of it is run then.
    """
    module, _, function = name.rpartition(":")
    try:
        source = read_bytes(module) if module.endswith(".py") else None
        if source is not None:
            check_unchanged("formatter", module, hashlib.sha256(source).hexdigest())
        formatter = getattr(_load_module(module, source), function, None)
    except (StoreError, UserError):
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is loaded
        raise ParameterError("formatter", name, f"{module or 'it'} cannot be loaded: {error}") from error
    if not callable(formatter):
        problem = f"{module} has no function {function}. Expected module:function or file.py:function."
        raise ParameterError("formatter", name, problem)
    return formatter


@once
def _load_module(name: str, source: bytes | None) -> types.ModuleType:
    """The module of a source, or the one that Python imports by the name."""
    if source is None:
        return importlib.import_module(name)
    # dataclasses and typing look up the module of a class in sys.modules, so it has to be there while it is run.
    # Each source of records may have a formatter of its own.
    own_name = f"formatter_{hashlib.sha256(source).hexdigest()[:16]}"
    module = sys.modules[own_name] = types.ModuleType(own_name)
    module.__file__ = name
    exec(compile(source, name, "exec"), vars(module))
    return module
