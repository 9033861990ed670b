"""Packages whose `__init__` takes long: it can be deferred until one of its names is used."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """A package whose `__init__` has not run."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def defer_init(package: str, **names: Any) -> None:
    """Let submodules of a package be imported without its `__init__`, which runs when another of its names is used.

    It has no effect if the package is imported already.

    Args:
        package: its name. It must be installed.
        names: those that its submodules import from it.
    """
    if package in sys.modules:
        return
    spec = find_spec(package)
    assert spec
    module = sys.modules[package] = module_from_spec(spec)
    module.__class__ = _Deferred
    vars(module).update(names)
