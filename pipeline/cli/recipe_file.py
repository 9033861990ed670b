"""Recipes: YAML files with the options of a build, and its sources."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from pipeline.cli.console import as_typed, shortened
from pipeline.cli.yaml_files import read_yaml
from transforms.base.checks import did_you_mean
from transforms.base.errors import UserError
from transforms.base.kinds import Kind
from transforms.inputs.hub.names import in_full
from transforms.storage.files import exists

# Options whose paths begin at the folder of the recipe if they begin with ./ or ../: other texts may be names.
_PATHS = ("tokenizer", "chat_template", "output")


def read_recipe(url: str, kinds: Mapping[str, Kind]) -> tuple[dict[str, Any], list[str]]:
    """Read a recipe.

    Args:
        url: of the file.
        kinds: of the options, by name.

    Returns:
        The values of options by name, and the other keys as arguments, which may be options of Beam.

    Raises:
        UserError: if the file cannot be read, or an option has a wrong value.
        Unavailable: if its store does not answer.
    """
    content = read_yaml(url)
    if not isinstance(content, dict) or not content:
        raise UserError(
            f"{url}: expected a mapping of options, such as `input: chats/`; found {shortened(repr(content))}."
        )
    values: dict[str, Any] = {}
    arguments: list[str] = []
    for key, value in content.items():
        if key == "datasets":
            raise UserError(f"{url}: unknown option datasets. Did you mean sources?")
        if key not in kinds:
            arguments += _arguments(url, key, value, kinds)
        elif value is not None:  # null is the default
            values[key] = value_of(url, key, value, kinds[key])
    if "input" in values:
        values["input"] = tuple(input_of(url, path) for path in values["input"])
    if "formatter" in values:
        values["formatter"] = formatter_from_folder_of(url, values["formatter"])
    for name in _PATHS:
        if values.get(name, "").startswith(("./", "../")):
            values[name] = from_folder_of(url, values[name])
    return values, arguments


def value_of(place: str, key: str, value: Any, kind: Kind) -> Any:
    """Return the value of a key. place: what errors call the mapping. Raises UserError."""
    try:
        return kind.of_value(value)
    except ValueError as error:
        raise UserError(f"{place}: {key} {shortened(as_typed(value))}: {error}") from None


def from_folder_of(recipe: str, path: str) -> str:
    """Return a path that a recipe has; a relative one begins at the folder of the recipe."""
    if "://" in path or os.path.isabs(os.path.expanduser(path)):
        return path
    scheme, separator, location = recipe.rpartition("://")
    joined = posixpath.join(posixpath.dirname(location), path)
    return f"{scheme}{separator}{posixpath.normpath(joined)}"


def input_of(recipe: str, path: str) -> str:
    """Return an input that a recipe has: a relative path begins at its folder, unless it names a dataset on the Hub."""
    located = from_folder_of(recipe, path)
    full = in_full(path, lambda _: exists(located))
    return located if full == path else full


def formatter_from_folder_of(recipe: str, formatter: str) -> str:
    """Return a formatter that a recipe has; a relative path of its file begins at the folder of the recipe."""
    module, _, function = formatter.rpartition(":")
    return f"{from_folder_of(recipe, module) if module.endswith('.py') else module}:{function}"


def _arguments(url: str, key: Any, value: Any, kinds: Mapping[str, Kind]) -> list[str]:
    """The arguments of an option of Beam: a flag, a value, or one for each element of a list."""
    values = value if isinstance(value, list) else [value]
    if not isinstance(key, str) or not all(isinstance(each, (str, int, float)) for each in values):
        found = shortened(as_typed(value))
        raise UserError(f"{url}: {key} {found}: this is no option.{did_you_mean(str(key), [*kinds])}")
    return [f"--{key}" if each is True else f"--{key}={each}" for each in values if each is not False]
