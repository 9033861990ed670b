"""Checks of parameters: a wrong value fails where it is given, with the parameter's name and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.base.errors import ParameterError

# Counts are calculated with in 64 bits.
_MOST = 10**18


def check_choice(parameter: str, value: Any, choices: Sequence[str]) -> None:
    """Check that a value is one of some names.

    Raises:
        ParameterError: if it is not.
    """
    if value not in choices:
        raise ParameterError(parameter, value, f"expected {', '.join(choices)}.{did_you_mean(value, choices)}")


def check_choices(parameter: str, values: Any, choices: Sequence[str]) -> None:
    """Check that each of several values is one of some names.

    Raises:
        ParameterError: if one is not, if there is none, if one is there twice, or if they are not a list or a tuple.
    """
    if not isinstance(values, (list, tuple)) or not values or len({*values}) < len(values):
        raise ParameterError(parameter, values, f"expected a list of {', '.join(choices)}, each once.")
    for value in values:
        check_choice(parameter, value, choices)


def check_names(parameter: str, values: Any) -> None:
    """Check that a value is a list or a tuple of names, each of them once.

    Raises:
        ParameterError: if it is not.
    """
    if not isinstance(values, (list, tuple)) or len({*values}) < len(values):
        raise ParameterError(parameter, values, "expected a list of names, each once.")


def check_flag(parameter: str, value: Any) -> None:
    """Check that a value is True or False.

    Raises:
        ParameterError: if it is not.
    """
    if not isinstance(value, bool):
        raise ParameterError(parameter, value, "expected True or False.")


def check_count(parameter: str, value: Any, optional: bool = False) -> None:
    """Check that a value is a whole number from 1 to 10**18, or None if it is optional.

    Raises:
        ParameterError: if it is not.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST
    if not is_count and not (optional and value is None):
        most = " and at most 10**18" if isinstance(value, int) and value > _MOST else ""
        raise ParameterError(
            parameter, value, f"expected a whole number above 0{most}{', or None' if optional else ''}."
        )


def check_fraction(parameter: str, value: Any) -> None:
    """Check that a value is a number from 0 to 1.

    Raises:
        ParameterError: if it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ParameterError(parameter, value, "expected a number from 0 to 1.")


def check_weight(parameter: str, value: Any) -> None:
    """Check that a value is the weight of a source.

    Raises:
        ParameterError: if it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-6 <= value <= 1e6:
        raise ParameterError(parameter, value, "expected a number from 0.000001 to 1000000.")


def check_text(parameter: str, value: Any, optional: bool = False) -> None:
    """Check that a value is a string that is not empty, or None if it is optional.

    Raises:
        ParameterError: if it is not.
    """
    if not ((isinstance(value, str) and value) or (optional and value is None)):
        raise ParameterError(parameter, value, f"expected a string{', or None' if optional else ''}.")


def check_sources(sources: Any, names: Sequence[str]) -> None:
    """Check that a value has, for each source, a mapping of parameters to their values for that source.

    Args:
        sources: the value.
        names: the parameters that a source may have.

    Raises:
        ParameterError: if it has something else.
    """
    if not isinstance(sources, (list, tuple)) or not all(isinstance(source, Mapping) for source in sources):
        raise ParameterError("sources", sources, "expected a list with a mapping for each source.")
    for source in sources:
        for name in source:
            check_choice("sources", name, names)


def check_type(parameter: str, value: Any, kind: type) -> None:
    """Check that a value is of a type.

    Raises:
        ParameterError: if it is not.
    """
    if not isinstance(value, kind):
        raise ParameterError(parameter, value, f"expected a value of type {kind.__name__}.")


def did_you_mean(name: Any, names: Sequence[str]) -> str:
    """A question after the name that is closest to a mistyped one; empty if none is close."""
    close = difflib.get_close_matches(str(name), names, n=1)
    return f" Did you mean {close[0]}?" if close else ""
