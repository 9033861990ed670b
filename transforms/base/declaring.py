"""Options: fields of the configuration of the step that they belong to, each declared once.

The command line and its help, recipes, job.json, the comparison when a build is resumed and the parameters of the
steps are made from these fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from transforms.base.kinds import Kind, any_text

_Class = TypeVar("_Class", bound=type)


def option(
    group: str | None,
    help: str,
    kind: Kind = any_text,
    default: Any = None,
    metavar: str | None = None,
    default_help: str | None = None,
    name: str | None = None,
    common: bool = False,
    of_source: bool = False,
) -> Any:
    """Declare a field of a frozen dataclass as an option.

    Args:
        group: its title in --help; None if only a recipe has the option.
        help: what it does.
        kind: of its values.
        default: if it is not given, also of jobs that were planned before there was the option. If this is None, it may
            be None.
        metavar: what --help calls its value; by default as its kind says.
        default_help: what the default is, if the value does not say it.
        name: on the command line, if it is not that of the field.
        common: whether --help without `all` shows it.
        of_source: whether each source may have another value.
    """
    metadata = {
        "group": group,
        "help": help,
        "kind": kind,
        "metavar": metavar or kind.metavar,
        "default_help": default_help,
        "name": name,
        "common": common,
        "of_source": of_source,
    }
    return dataclasses.field(default=default, metadata=metadata)


def options_in(configuration: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are options."""
    return [field for field in dataclasses.fields(configuration) if "kind" in field.metadata]


def values_of(configuration: Any, source: Any) -> dict[str, Any]:
    """Return the values of the options of a configuration.

    Args:
        configuration: a dataclass.
        source: an object that has its options, and maybe others.
    """
    return {field.name: getattr(source, field.name) for field in options_in(configuration)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The options of a step, checked by their kinds.

    Raises:
        ParameterError: for a value that is not of the kind of its option.
    """

    def __post_init__(self) -> None:
        for field in options_in(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                field.metadata["kind"].check(field.name, value)


def takes(configuration: type) -> Callable[[_Class], _Class]:
    """Let a class whose constructor passes options on say which: in its signature, and as `{options}` in its docstring.

    Args:
        configuration: the dataclass whose options they are.
    """

    def decorate(decorated: _Class) -> _Class:
        lines = [
            textwrap.fill(
                f"{field.name}: {field.metadata['help']}.", 116, initial_indent=" " * 8, subsequent_indent=" " * 12
            )
            for field in options_in(configuration)
        ]
        decorated.__doc__ = (decorated.__doc__ or "").replace("        {options}", "\n".join(lines))
        signature = inspect.signature(decorated)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        options = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in options_in(configuration)
        ]
        decorated.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return decorated

    return decorate
