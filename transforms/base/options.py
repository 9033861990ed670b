"""Options: the types of their values, the fields that declare them, and the configurations that have these fields.

A field is declared once. From its type, default and help follow the parameter of a step, the command line, recipes,
job.json, and the comparison when a build is resumed. pydantic checks the values.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, get_args, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MinLen

from transforms.base.errors import ParameterError
from transforms.base.phrases import did_you_mean


class Wrong(ValueError):
    """What is wrong with a value: what was expected, as a sentence."""


def checked(parameter: str, value: Any, type: Any, is_written: bool = False) -> Any:
    """Return the value of a parameter, as its type has it.

    Args:
        parameter, value: its name, and what was given for it.
        type: one of the types below, or made of them.
        is_written: whether the value is that of a command line or of a recipe, and not that of a program.

    Raises:
        ParameterError: if it is not of the type.
    """
    try:
        return _validator(type).validate_python(value, context=is_written)
    except ValueError as error:  # pydantic's ValidationError
        raise ParameterError(parameter, value, _problem(error, type)) from None


def check_choice(parameter: str, value: Any, names: Collection[str]) -> None:
    """Check that a value is one of some names. Raises ParameterError if it is not."""
    try:
        choose(value, names)
    except Wrong as error:
        raise ParameterError(parameter, value, str(error)) from None


@functools.cache
def _validator(type: Any) -> Any:
    from pydantic import TypeAdapter  # --help and a mistyped option do not wait for it

    return TypeAdapter(type, config={"strict": True})


def _problem(error: Any, type: Any) -> str:
    """What was expected, after the part of the value that is wrong."""
    first = error.errors(include_url=False)[0]
    part = "".join(f"{each}: " for each in first["loc"] if each != "[key]")
    if isinstance(problem := first.get("ctx", {}).get("error"), Wrong):
        return f"{part}{problem}"
    if first["type"] == "string_type":
        given = {list: "a list", tuple: "a list", dict: "a mapping"}.get(first["input"].__class__)
        return f"{part}expected text, found {given or first['input'].__class__.__name__}."
    return f"{part}expected {values_in(type).expected}."


@dataclass(frozen=True, eq=False)
class Values(GroupedMetadata):
    """What the values of a type are: the metadata of an Annotated type.

    expected: for errors. metavar: what --help calls a value. read: makes a value of the text that a command line or a
    recipe has; a TypeError leaves what is no text to the type. bounds: of annotated_types. check: returns a value of
    the type. Both raise Wrong, or another ValueError if `expected` says what is wrong.
    """

    expected: str
    metavar: str | None = None
    read: Callable[[Any], Any] = lambda text: text
    bounds: tuple[Any, ...] = ()
    check: Callable[[Any], Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        from pydantic import AfterValidator, BeforeValidator

        def prepare(value: Any, info: Any) -> Any:
            if info.context:
                is_scalar = isinstance(value, (bool, int, float))  # of YAML: the text that it is on a command line
                with suppress(TypeError):
                    value = self.read(json.dumps(value) if is_scalar else value)
            return tuple(value) if isinstance(value, list) else value

        yield from self.bounds
        if self.check:
            yield AfterValidator(self.check)
        yield BeforeValidator(prepare)


def values_in(type: Any) -> Values:
    """Return what the values of a type are, besides None."""
    annotated = type if hasattr(type, "__metadata__") else get_args(type)[0]
    return annotated.__metadata__[-1]


def one_name(names: Collection[str]) -> Values:
    """One of some names."""
    return Values(", ".join(names), "|".join(names), check=lambda name: choose(name, names))


def some_names(names: Collection[str]) -> Values:
    """Some of some names, each once."""

    def check(chosen: tuple[str, ...]) -> tuple[str, ...]:
        return _EACH_ONCE(tuple(choose(name, names, f"{name}: ") for name in chosen))

    return Values(f"a list of {', '.join(names)}, each once", "NAME,..", read_list, (MinLen(1),), check)


def json_object(reserved: Collection[str]) -> Values:
    """A JSON object. reserved: the keys that it must not have."""

    def check(value: Mapping[str, Any]) -> Mapping[str, Any]:
        if taken := sorted(value.keys() & reserved):
            raise Wrong(f"{', '.join(taken)} cannot be set here: Chatmill sets it for each record.")
        return value

    return Values('a JSON object, such as {"enable_thinking": false}', "JSON", _read_json, check=check)


def that(holds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make the check of a condition."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return check


def choose(name: Any, names: Collection[str], part: str = "") -> Any:
    """Return a name if it is one of some. Raises Wrong, whose text begins with the part of the value that it is."""
    if name not in names:
        raise Wrong(f"{part}expected {', '.join(names)}.{did_you_mean(name, names)}")
    return name


def read_list(text: str) -> list[str]:
    """Read a list of values. Commas are between the values; before one that is part of a value is a backslash."""
    parts = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
    if not any(parts):
        raise Wrong("expected at least one value; several are separated by commas.")
    return [part for part in parts if part]


def _read_pairs(text: str) -> dict[str, str]:
    pairs = [[side.strip() for side in part.split("=", 1)] for part in str.split(text, ",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise Wrong("expected the form name=other,name=other.")
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Wrong(f"{twice[0]} is given twice.")
    return dict(pairs)


def _read_json(written: Any) -> Any:
    try:
        value = json.loads(written) if isinstance(written, str) else written
        return json.loads(json.dumps(value, allow_nan=False))  # json.loads takes numbers that JSON does not have
    except ValueError as error:
        raise Wrong(f"this is not valid JSON ({error}).") from None
    except TypeError as error:
        raise Wrong(f"expected values that JSON has ({error}).") from None


def _in_full(moment: str) -> str:
    if not re.match(r"\d{4}-\d\d-\d\d", moment):  # later Pythons read other forms, too
        raise ValueError
    return datetime.fromisoformat(moment).isoformat()


_EACH_ONCE = that(lambda names: len({*names}) == len(names))
_POSITIVE = "a whole number above 0 and at most 10**18 - 1 (18 digits)"  # for calculations in 64 bits

Flag = Annotated[bool, Values("True or False", "true|false", lambda text: bool(("false", "true").index(text)))]
Integer = Annotated[int, Values("a whole number", "INT", int)]
PositiveInt = Annotated[int, Values(_POSITIVE, "INT", int, (Gt(0), Lt(10**18)))]
Length = Annotated[
    PositiveInt | None, Values(f"{_POSITIVE}, or None", "INT|none", lambda text: None if text == "none" else text)
]
Fraction = Annotated[float, Values("a number from 0 to 1", "FRACTION", float, (Ge(0), Le(1)))]
Weight = Annotated[float, Values("a number from 0.000001 to 1000000", "WEIGHT", float, (Ge(1e-6), Le(1e6)))]
String = Annotated[str, Values("a string that is not empty", check=that(bool))]
Moment = Annotated[str, Values("a date and time, such as 2026-11-20T12:00:00", "YYYY-MM-DDTHH:MM:SS", check=_in_full)]
Word = Annotated[str, Values("text")]
Names = Annotated[tuple[Word, ...], Values("a list of names, each once", "NAME,..", read_list, check=_EACH_ONCE)]
Urls = Annotated[tuple[Word, ...], Values("a list of at least one value", "URL,..", read_list, (MinLen(1),))]
PAIRS = Values("a mapping, such as {name: other}", "NAME=YOURS,..", _read_pairs)


def option(
    group: str | None,
    help: str,
    default: Any = None,
    *,
    metavar: str | None = None,
    default_help: str | None = None,
    name: str | None = None,
    common: bool = False,
    per_source: bool = False,
) -> Any:
    """Declare a field of a Configuration as an option. Its type says which values it takes.

    Args:
        group: its title in --help; None if only a recipe has the option.
        help: what it does.
        default: if it is not given, also of jobs that were planned before there was the option.
        metavar: what --help calls its value; by default as its type says.
        default_help: what the default is, if the value does not say it.
        name: on the command line, if it is not that of the field.
        common: whether --help without `all` shows it.
        per_source: whether each source may have another value.
    """
    metadata = {"group": group, "help": help, "metavar": metavar, "default_help": default_help, "name": name}
    return dataclasses.field(default=default, metadata=metadata | {"common": common, "per_source": per_source})


@functools.cache
def field_types(configuration: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a configuration, by name."""
    return get_type_hints(configuration, include_extras=True)


def options_in(configuration: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a configuration that are options."""
    return [field for field in dataclasses.fields(configuration) if field.metadata]


def option_values(configuration: Any, source: Any) -> dict[str, Any]:
    """Return the values that an object has for the options of a configuration."""
    return {field.name: getattr(source, field.name) for field in options_in(configuration)}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Values that are checked by the types of their fields when they are set. Raises ParameterError."""

    def __post_init__(self) -> None:
        types = field_types(self.__class__)  # type: ignore[arg-type]
        for name, value in vars(self).items():
            if value is not self.__dataclass_fields__[name].default:
                object.__setattr__(self, name, checked(name, value, types[name]))
