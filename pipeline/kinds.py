"""Kinds of option values: how the text of an option is checked and becomes a value."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from transforms.checks import did_you_mean
from transforms.model.examples import RESERVED_TEMPLATE_KWARGS


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    parse: turns text into a value; raises ValueError with what was expected, as a sentence.
    convert: the same for a list or a mapping of a file; None if the option takes only text.
    regex: matches every text that parse takes, and few others: a POSIX extended one without backslashes, since
    Dataflow checks it too (deploy/dataflow/metadata.py). None if parse takes any text.
    """

    regex: str | None
    parse: Callable[[str], Any]
    convert: Callable[[Any], Any] | None = None

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


def matching(regex: str, expected: str, convert: Callable[[str], Any] = str) -> Kind:
    """Texts that match a regular expression. expected: what they are, for the error. convert: makes the value."""

    def parse(text: str) -> Any:
        try:
            if re.fullmatch(regex, text):
                return convert(text)
        except ValueError:
            pass
        raise ValueError(f"expected {expected}.")

    return Kind(regex, parse)


def one_of(names: Sequence[str]) -> Kind:
    """One of some names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"expected {', '.join(names)}.{did_you_mean(text, names)}")
        return text

    return Kind("|".join(names).replace(".", "[.]"), parse)


def list_of(kind: Kind | None = None) -> Kind:
    """Values of a kind, separated by commas; a tuple. A comma in a value is written with a backslash before it."""

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

    return Kind(f"[, ]*({kind.regex}) *(,[, ]*({kind.regex}) *)*[, ]*" if kind else ".*[^, ].*", parse, convert)


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

    left = f" *({names.regex}) *" if names else "[^=,]*[^=, ][^=,]*"
    right = f" *({kind.regex}) *" if kind else "[^,]*[^, ][^,]*"
    return Kind(f"{left}={right}(,{left}={right})*", parse, convert)


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


def _parse_template_kwargs(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
        json.dumps(arguments, allow_nan=False)  # json.loads takes numbers that JSON does not have
    except ValueError as error:
        raise ValueError(f"this is not valid JSON ({error}).") from None
    if not isinstance(arguments, dict):
        raise ValueError('expected a JSON object, such as {"enable_thinking": false}.')
    if reserved := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys()):
        raise ValueError(f"{', '.join(reserved)} cannot be set here: Chatmill sets it for each record.")
    return arguments


def _convert_template_kwargs(arguments: Any) -> dict[str, Any]:
    try:
        return _parse_template_kwargs(json.dumps(arguments, allow_nan=False))
    except TypeError as error:
        raise ValueError(f"expected values that JSON has ({error}).") from None


def _parse_no_list(text: str) -> Any:
    raise ValueError("expected a list of at least one element.")


def _convert_list(values: Any) -> tuple[Any, ...]:
    if not values or not isinstance(values, list):
        raise ValueError("expected a list of at least one element.")
    return tuple(values)


_POSITIVE, _COUNT = "0*[1-9][0-9]{0,17}", "a whole number above 0, of at most 18 digits"
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
any_text = Kind(None, str)
any_list = Kind(None, _parse_no_list, _convert_list)
template_kwargs = Kind(" *[{].*[}] *", _parse_template_kwargs, _convert_template_kwargs)
flag = matching("true|false", "true or false", lambda text: text == "true")
integer = matching("-?[0-9]+", "a whole number", int)
positive = matching(_POSITIVE, _COUNT, int)
length = matching(f"none|{_POSITIVE}", f"{_COUNT}, or none", lambda text: None if text == "none" else int(text))
fraction = matching("1([.]0*)?|0?[.][0-9]+|0[.]?|[0-9]([.][0-9]*)?e-[0-9]*[1-9][0-9]*", "a number from 0 to 1", float)
moment = matching(
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?",
    "a date and time, such as 2026-11-20T12:00:00",
    lambda text: datetime.fromisoformat(text).isoformat(),
)
# Its value is in seconds.
duration = matching(
    "[0-9]+[smhd]", "a duration, such as 30s, 10m, 6h or 7d", lambda text: int(text[:-1]) * _SECONDS_OF[text[-1]]
)
