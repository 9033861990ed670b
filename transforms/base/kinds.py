"""Kinds of option values: how the text of an option is checked and becomes a value."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from transforms.base.checks import (
    check_choice,
    check_choices,
    check_count,
    check_flag,
    check_fraction,
    check_names,
    check_text,
    check_type,
    check_weight,
    did_you_mean,
)
from transforms.base.errors import ParameterError


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    parse: turns text into a value; raises ValueError with what was expected, as a sentence.
    convert: the same for a list or a mapping of a file; None if the option takes only text.
    check: raises ParameterError, with the name of the parameter that it is given, for a value that is not one of these.
    metavar: what --help calls the value.
    """

    parse: Callable[[str], Any]
    convert: Callable[[Any], Any] | None = None
    check: Callable[[str, Any], None] = check_text
    metavar: str | None = None

    def of_argument(self, text: str) -> Any:
        """Turn the text of an argument into its value: the type of an argument of argparse."""
        try:
            return self.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from None

    def of_value(self, value: Any) -> Any:
        """Turn a value of a YAML file into that of the option.

        Args:
            value: text, a number or a flag, as on the command line; or a list or a mapping.

        Raises:
            ValueError: with what was expected, as a sentence.
        """
        if isinstance(value, (str, int, float)):
            return self.parse(str(value).lower() if isinstance(value, bool) else str(value))
        if self.convert:
            return self.convert(value)
        found = {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), type(value).__name__)
        raise ValueError(f"expected text, found {found}.")


def matching(
    regex: str,
    expected: str,
    convert: Callable[[str], Any] = str,
    check: Callable[[str, Any], None] = check_text,
    metavar: str | None = None,
) -> Kind:
    """Texts that match a regular expression. expected: what they are, for the error. convert: makes the value."""

    def parse(text: str) -> Any:
        try:
            if re.fullmatch(regex, text):
                return convert(text)
        except ValueError:
            pass
        raise ValueError(f"expected {expected}.")

    return Kind(parse, check=check, metavar=metavar)


def one_of(names: Sequence[str]) -> Kind:
    """One of some names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"expected {', '.join(names)}.{did_you_mean(text, names)}")
        return text

    def check(parameter: str, value: Any) -> None:
        check_choice(parameter, value, names)

    return Kind(parse, None, check, "|".join(names))


def list_of(names: Sequence[str] | None = None) -> Kind:
    """Values, separated by commas; a tuple. A comma in a value is written with a backslash before it.

    names: those that the values may be; any if it is None.
    """
    kind = None if names is None else one_of(names)

    def parse(text: str) -> tuple[str, ...]:
        found = (part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text))
        parts = tuple(part for part in found if part)
        if not parts:
            raise ValueError("expected at least one value; several are separated by commas.")
        return tuple(_parse_part(part, kind or any_text, text) for part in parts)

    def convert(values: Any) -> tuple[str, ...]:
        if not values or not isinstance(values, list):
            raise ValueError("expected a list of at least one value.")
        return tuple((kind or any_text).of_value(value) for value in values)

    def check(parameter: str, value: Any) -> None:
        check_names(parameter, value) if names is None else check_choices(parameter, value, names)

    return Kind(parse, convert, check, "NAME,..")


def map_of(names: Kind | None = None, kind: Kind | None = None) -> Kind:
    """Pairs of the form name=other, separated by commas; a dict. names: the kind of the left sides."""

    def parse(text: str) -> dict[str, str]:
        pairs = [tuple(side.strip() for side in part.partition("=")) for part in text.split(",")]
        if not all(left and right for left, _, right in pairs):
            raise ValueError("expected the form name=other,name=other.")
        if twice := [left for left, count in Counter(left for left, _, _ in pairs).items() if count > 1]:
            raise ValueError(f"{twice[0]} is given twice.")
        return {
            _parse_part(left, names or any_text, text): _parse_part(right, kind or any_text, text)
            for left, _, right in pairs
        }

    def convert(pairs: Any) -> dict[str, str]:
        if not isinstance(pairs, dict):
            raise ValueError("expected a mapping, such as {name: other}.")
        return {(names or any_text).of_value(left): _converted_side(right, kind, left) for left, right in pairs.items()}

    def check(parameter: str, value: Any) -> None:
        check_type(parameter, value, Mapping)
        for left, right in value.items():
            if names:
                names.check(parameter, left)
            if kind:
                kind.check(parameter, right)

    return Kind(parse, convert, check, "NAME=YOURS,..")


def _converted_side(right: Any, kind: Kind | None, left: Any) -> Any:
    """The right side of a pair. Raises ValueError, which names the left side."""
    try:
        return (kind or any_text).of_value(right)
    except ValueError as error:
        raise ValueError(f"{left}: {error}") from None


def _parse_part(part: str, kind: Kind, text: str) -> Any:
    """Parse a part of an option's text. Raises ValueError, which names the part if it is not all of the text."""
    try:
        return kind.parse(part)
    except ValueError as error:
        raise ValueError(str(error) if part == text else f"{part}: {error}") from None


def json_object(reserved: Collection[str]) -> Kind:
    """A JSON object. reserved: the keys that it must not have."""

    def parse(text: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
            json.dumps(found, allow_nan=False)  # json.loads takes numbers that JSON does not have
        except ValueError as error:
            raise ValueError(f"this is not valid JSON ({error}).") from None
        if not isinstance(found, dict):
            raise ValueError('expected a JSON object, such as {"enable_thinking": false}.')
        if taken := sorted(found.keys() & reserved):
            raise ValueError(f"{', '.join(taken)} cannot be set here: Chatmill sets it for each record.")
        return found

    def convert(found: Any) -> dict[str, Any]:
        try:
            return parse(json.dumps(found, allow_nan=False))
        except TypeError as error:
            raise ValueError(f"expected values that JSON has ({error}).") from None

    def check(parameter: str, value: Any) -> None:
        check_type(parameter, value, Mapping)
        if taken := sorted(value.keys() & reserved):
            raise ParameterError(parameter, value, f"{', '.join(taken)} cannot be given: the job sets it.")

    return Kind(parse, convert, check, "JSON")


def _parse_no_list(text: str) -> Any:
    raise ValueError("expected a list of at least one element.")


def _convert_list(values: Any) -> tuple[Any, ...]:
    if not values or not isinstance(values, list):
        raise ValueError("expected a list of at least one element.")
    return tuple(values)


def _number_in(least: float, most: float) -> Callable[[str], float]:
    """Make a function that converts text into a number in a range. It raises ValueError for others."""

    def convert(text: str) -> float:
        if not least <= (found := float(text)) <= most:
            raise ValueError
        return found

    return convert


_POSITIVE, _COUNT = "0*[1-9][0-9]{0,17}", "a whole number above 0, of at most 18 digits"
_NUMBER = r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
any_text = Kind(str)
any_list = Kind(_parse_no_list, _convert_list)
flag = matching("true|false", "true or false", lambda text: text == "true", check_flag, "true|false")
integer = matching("-?[0-9]+", "a whole number", int, lambda name, value: check_type(name, value, int), "INT")
positive = matching(_POSITIVE, _COUNT, int, check_count, "INT")
length = matching(
    f"none|{_POSITIVE}",
    f"{_COUNT}, or none",
    lambda text: None if text == "none" else int(text),
    check_count,
    "INT|none",
)
fraction = matching(_NUMBER, "a number from 0 to 1", _number_in(0, 1), check_fraction, "FRACTION")
weight = matching(_NUMBER, "a number from 0.000001 to 1000000", _number_in(1e-6, 1e6), check_weight, "WEIGHT")
moment = matching(
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?",
    "a date and time, such as 2026-11-20T12:00:00",
    lambda text: datetime.fromisoformat(text).isoformat(),
    metavar="YYYY-MM-DDTHH:MM:SS",
)
# Its value is in seconds.
duration = matching(
    "[0-9]+[smhd]", "a duration, such as 30s, 10m, 6h or 7d", lambda text: int(text[:-1]) * _SECONDS_OF[text[-1]]
)
