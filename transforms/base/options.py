"""Options: the types of their values, the fields that declare them, and the configurations that have these fields.

A field is declared once. From its type, default and help follow the parameter of a step, the command line, recipes,
job.json, and the comparison when a build is resumed. pydantic checks the values.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, get_args, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MinLen

from transforms.base.errors import ParameterError
from transforms.base.phrases import did_you_mean

# ---- checks


def checked(parameter: str, value: Any, type: Any, is_written: bool = False) -> Any:
    """Return the value of a parameter, as its type has it.

    Args:
        parameter: its name.
        value: what was given for it.
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
    """Check that a value is one of some names.

    Raises:
        ParameterError: if it is not.
    """
    if value not in names:
        raise ParameterError(parameter, value, _expected(value, names))


def check_type(parameter: str, value: Any, type: type) -> None:
    """Check that a value is of a class.

    Raises:
        ParameterError: if it is not.
    """
    if not isinstance(value, type):
        raise ParameterError(parameter, value, f"expected a value of type {type.__name__}.")


@functools.cache
def _validator(type: Any) -> Any:
    from pydantic import TypeAdapter  # --help and a mistyped option do not wait for it

    return TypeAdapter(type, config={"strict": True})


_FOUND = {list: "a list", tuple: "a list", dict: "a mapping"}


def _problem(error: Any, type: Any) -> str:
    """What was expected, after the part of the value that is wrong."""
    found = error.errors(include_url=False)[0]
    part = "".join(f"{each}: " for each in found["loc"])
    if found["type"] == "value_error" and (problem := str(found["ctx"]["error"])):
        return part + problem
    if found["type"] == "string_type":
        given = found["input"].__class__
        return f"{part}expected text, found {_FOUND.get(given, given.__name__)}."
    return f"{part}expected {values_in(type).expected}."


def _expected(name: Any, names: Collection[str]) -> str:
    return f"expected {', '.join(names)}.{did_you_mean(name, names)}"


# ---- types


@dataclass(frozen=True, eq=False)
class Values(GroupedMetadata):
    """What the values of a type are: the metadata of an Annotated type.

    expected: for errors. metavar: what --help calls a value. read: makes a value of what a command line or a recipe
    has. It returns what it cannot read, or raises ValueError with what was expected. bounds: of annotated_types. check:
    returns a value of the type, or raises ValueError; without a text if `expected` says it.
    """

    expected: str
    metavar: str | None
    read: Callable[[Any], Any]
    bounds: tuple[Any, ...] = ()
    check: Callable[[Any], Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        from pydantic import AfterValidator, BeforeValidator

        def prepare(value: Any, info: Any) -> Any:
            value = self.read(value) if info.context else value
            return tuple(value) if isinstance(value, list) else value

        yield from self.bounds
        if self.check:
            yield AfterValidator(self.check)
        yield BeforeValidator(prepare)


def values_in(type: Any) -> Values:
    """Return what the values of a type are."""
    return next(_all_values(type))


def _all_values(type: Any) -> Iterator[Values]:
    if isinstance(type, Values):
        yield type
    for part in reversed(get_args(type)):  # the metadata are after what they are of
        yield from _all_values(part)


def one_of(names: Collection[str]) -> Values:
    """One of some names."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(_expected(name, names))
        return name

    return Values(", ".join(names), "|".join(names), read_text, check=check)


def some_of(names: Collection[str]) -> Values:
    """Some of some names, each once."""

    def check(chosen: tuple[str, ...]) -> tuple[str, ...]:
        for name in chosen:
            if name not in names:
                raise ValueError(f"{name}: {_expected(name, names)}")
        return _check_each_once(chosen)

    return Values(f"a list of {', '.join(names)}, each once", "NAME,..", _read_list, (MinLen(1),), check)


def map_of(names: Collection[str] = (), others: Collection[str] = ()) -> Values:
    """Pairs of a name and another one. names, others: what the left and the right sides may be; anything if empty."""

    def check(pairs: Mapping[str, str]) -> Mapping[str, str]:
        for name, other in pairs.items():
            for side, choices in ((name, names), (other, others)):
                if choices and side not in choices:
                    raise ValueError(f"{name}: {_expected(side, choices)}")
        return pairs

    return Values("a mapping, such as {name: other}", "NAME=YOURS,..", _read_pairs, check=check)


def json_object(reserved: Collection[str]) -> Values:
    """A JSON object. reserved: the keys that it must not have."""

    def check(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if taken := sorted(found.keys() & reserved):
            raise ValueError(f"{', '.join(taken)} cannot be set here: Chatmill sets it for each record.")
        return found

    return Values('a JSON object, such as {"enable_thinking": false}', "JSON", _read_json, check=check)


def read_text(value: Any) -> Any:
    """Return what a command line or a recipe has for a text: numbers and flags of YAML are text, too."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value


def _reader(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Make a function that reads text. read: raises ValueError or KeyError if it cannot."""

    def read_or_return(value: Any) -> Any:
        try:
            return read(value) if isinstance(value, str) else value
        except (ValueError, KeyError):
            return value

    return read_or_return


def _read_list(value: Any) -> Any:
    """A text has commas between the values of a list, and a backslash before a comma that is part of a value."""
    if isinstance(value, list):
        return [*map(read_text, value)]
    if not isinstance(text := read_text(value), str):
        return value
    parts = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
    if not any(parts):
        raise ValueError("expected at least one value; several are separated by commas.")
    return [part for part in parts if part]


def _read_pairs(value: Any) -> Any:
    """A text has the form name=other, with commas between pairs."""
    if isinstance(value, dict):
        return {read_text(name): read_text(other) for name, other in value.items()}
    if not isinstance(value, str):
        return value
    pairs = [[side.strip() for side in part.split("=", 1)] for part in value.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise ValueError("expected the form name=other,name=other.")
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is given twice.")
    return dict(pairs)


def _read_json(value: Any) -> Any:
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return json.loads(json.dumps(found, allow_nan=False))  # json.loads takes numbers that JSON does not have
    except ValueError as error:
        raise ValueError(f"this is not valid JSON ({error}).") from None
    except TypeError as error:
        raise ValueError(f"expected values that JSON has ({error}).") from None


def _read_seconds(text: str) -> int:
    if not re.fullmatch("[0-9]+[smhd]", text):
        raise ValueError
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[text[-1]]


def _check_not_empty(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _check_each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({*names}) < len(names):
        raise ValueError
    return names


def _check_moment(moment: str) -> str:
    if not re.match(r"\d{4}-\d\d-\d\d", moment):  # later Pythons read other forms, too
        raise ValueError
    try:
        return datetime.fromisoformat(moment).isoformat()
    except ValueError:
        raise ValueError from None


def check_match(regex: str) -> Callable[[str], str]:
    """Make a check that a text matches a regular expression."""

    def check(text: str) -> str:
        if not re.fullmatch(regex, text):
            raise ValueError
        return text

    return check


_POSITIVE = "a whole number above 0 and at most 10**18 - 1 (18 digits)"  # for calculations in 64 bits
_read_int, _read_float = _reader(int), _reader(float)

Flag = Annotated[bool, Values("True or False", "true|false", _reader({"true": True, "false": False}.__getitem__))]
Integer = Annotated[int, Values("a whole number", "INT", _read_int)]
PositiveInt = Annotated[int, Values(_POSITIVE, "INT", _read_int, (Gt(0), Lt(10**18)))]
Length = Annotated[
    PositiveInt | None,
    Values(f"{_POSITIVE}, or None", "INT|none", lambda value: None if value == "none" else _read_int(value)),
]
Fraction = Annotated[float, Values("a number from 0 to 1", "FRACTION", _read_float, (Ge(0), Le(1)))]
Weight = Annotated[float, Values("a number from 0.000001 to 1000000", "WEIGHT", _read_float, (Ge(1e-6), Le(1e6)))]
String = Annotated[str, Values("a string that is not empty", None, read_text, check=_check_not_empty)]
Moment = Annotated[
    str,
    Values("a date and time, such as 2026-11-20T12:00:00", "YYYY-MM-DDTHH:MM:SS", read_text, check=_check_moment),
]
Duration = Annotated[  # in seconds
    int, Values("a duration, such as 30s, 10m, 6h or 7d", "DURATION", _reader(_read_seconds), (Ge(0),))
]
Function = Annotated[
    str,
    Values(
        "module:function or file.py:function",
        "MODULE:FUNCTION|FILE.py:FUNCTION",
        read_text,
        check=check_match(".+:.+"),
    ),
]
Names = Annotated[tuple[str, ...], Values("a list of names, each once", "NAME,..", _read_list, check=_check_each_once)]
Urls = Annotated[tuple[str, ...], Values("a list of at least one value", "URL,..", _read_list, (MinLen(1),))]
Elements = Annotated[tuple[Any, ...], Values("a list of at least one element", None, lambda value: value, (MinLen(1),))]


# ---- declarations


def option(
    group: str | None,
    help: str,
    default: Any = None,
    *,
    metavar: str | None = None,
    default_help: str | None = None,
    name: str | None = None,
    common: bool = False,
    of_source: bool = False,
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
        of_source: whether each source may have another value.
    """
    metadata = {
        "group": group,
        "help": help,
        "metavar": metavar,
        "default_help": default_help,
        "name": name,
        "common": common,
        "of_source": of_source,
    }
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def field_types(configuration: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a configuration, by name."""
    return get_type_hints(configuration, include_extras=True)


def options_in(configuration: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a configuration that are options."""
    return [field for field in dataclasses.fields(configuration) if "group" in field.metadata]


def values_of(configuration: Any, source: Any) -> dict[str, Any]:
    """Return the values of the options of a configuration.

    Args:
        configuration: a Configuration, or its class.
        source: an object that has its options, and maybe others.
    """
    return {field.name: getattr(source, field.name) for field in options_in(configuration)}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Values that are checked by the types of their fields when they are set; defaults are not.

    Raises:
        ParameterError: for a value that is not of the type of its field.
    """

    def __post_init__(self) -> None:
        types = field_types(self.__class__)  # type: ignore[arg-type]
        for name, value in vars(self).items():
            if value is not self.__dataclass_fields__[name].default:
                object.__setattr__(self, name, checked(name, value, types[name]))


def check_sources(
    configuration: Any, sources: Sequence[Mapping[str, Any]], names: Collection[str] | None = None
) -> None:
    """Check what is different for each source.

    Args:
        configuration: of all sources.
        sources: for each source the fields that have another value.
        names: those that may; None for the options that are declared so.

    Raises:
        ParameterError: if a value is not one that its field takes.
    """
    if not isinstance(sources, (list, tuple)) or not all(isinstance(source, Mapping) for source in sources):
        raise ParameterError("sources", sources, "expected a list with a mapping for each source.")
    names = names or [field.name for field in options_in(configuration) if field.metadata["of_source"]]
    for source in sources:
        for name in source:
            check_choice("sources", name, names)
        dataclasses.replace(configuration, **source)
