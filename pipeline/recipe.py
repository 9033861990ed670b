"""Recipes: YAML files with the options of a build, and its sources, each with options of its own."""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any

import yaml

from pipeline.cli.console import as_typed, error_text, shortened
from pipeline.config import Options, check_options, named_in_errors, option_name, read_value
from transforms.base.errors import UserError, before_the_work
from transforms.base.options import Flag, Values, field_types, options_in, that
from transforms.base.phrases import did_you_mean
from transforms.files.hub import expand_hub_name
from transforms.storage.files import check_reachable, exists, path_type, read_bytes
from transforms.storage.walking import WILDCARDS

# Options whose paths begin at the folder of the recipe if they begin with ./ or ../: other texts may be names.
_PATHS = ("tokenizer", "chat_template", "output")
# The options that a source may have of its own.
SOURCE_OPTIONS = ("input", *(field.name for field in options_in(Options) if field.metadata["per_source"]))
# Keys of Axolotl's `datasets:`, and what to write here.
_COLUMNS = ("messages", "system", "tools", "instruction", "input", "output")
_AXOLOTL = {
    **dict.fromkeys(("path", "data_files"), "input"),
    **dict.fromkeys(("message_property_mappings", "message_field_role", "message_field_content"), "message_fields"),
    **{f"field_{column}": f"columns: {{{column}: YOURS}}" for column in _COLUMNS},
    "field": "columns: {text: YOURS}",
    "message_field_training": "train_field",
    "ds_type": "input_format",
    "type": "schema",
    "roles_to_train": "loss_on",
    "train_on_inputs": "loss_on: all",
    "chat_template": "--chat_template, for all sources",
}
_MAY_REPEAT = "may_repeat"
_IS_NAME = that(re.compile(r"\w[\w .:+-]*").fullmatch)
_Name = Annotated[str, Values("a name of letters, digits, spaces and . : + - _", check=_IS_NAME)]


def read_recipe(url: str) -> tuple[dict[str, Any], list[str]]:
    """Read a recipe: the values of fields of Options, and the other keys as arguments, which may be options of Beam.

    Raises:
        UserError: if the file cannot be read, or an option has a wrong value.
        Unavailable: if its store does not answer.
    """
    content = _read_yaml(url)
    if not isinstance(content, dict) or not content:
        raise UserError(
            f"{url}: expected a mapping of options, such as `input: chats/`; found {shortened(repr(content))}."
        )
    types = field_types(Options)
    fields = {option_name(name): name for name in types}
    values, arguments = dict[str, Any](), list[str]()
    for key, value in content.items():
        if key == "datasets":
            raise UserError(f"{url}: unknown option datasets. Did you mean sources?")
        if key not in fields:
            arguments += _arguments(url, key, value, fields)
        elif value is not None:  # null is the default
            values[fields[key]] = read_value(key, value, types[fields[key]], url)
    return _located(url, values), arguments


def _located(recipe: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe, with paths that begin at its folder."""
    located = dict(values)
    if "input" in values:
        located["input"] = tuple(_located_input(recipe, path) for path in values["input"])
    if values.get("formatter"):
        module, _, function = values["formatter"].rpartition(":")
        located["formatter"] = f"{_from_folder(recipe, module) if module.endswith('.py') else module}:{function}"
    for name in _PATHS:
        if values.get(name, "").startswith(("./", "../")):
            located[name] = _from_folder(recipe, values[name])
    return located


def _from_folder(recipe: str, path: str) -> str:
    """Return a path that a recipe has; a relative one begins at the folder of the recipe."""
    if "://" in path or os.path.isabs(os.path.expanduser(path)):
        return path
    scheme, separator, location = recipe.rpartition("://")
    joined = posixpath.join(posixpath.dirname(location), path)
    return f"{scheme}{separator}{posixpath.normpath(joined)}"


def _located_input(recipe: str, path: str) -> str:
    """A relative path begins at the folder of the recipe, unless it names a dataset on the Hub."""
    located = _from_folder(recipe, path)
    full = expand_hub_name(path, lambda _: exists(located))
    return located if full == path else full


def _arguments(url: str, key: Any, value: Any, names: Collection[str]) -> list[str]:
    """The arguments of an option of Beam: a flag, a value, or one for each element of a list."""
    values = value if isinstance(value, list) else [value]
    if not isinstance(key, str) or not all(isinstance(each, (str, int, float)) for each in values):
        given = shortened(as_typed(value))
        raise UserError(f"{url}: {key} {given}: this is no option.{did_you_mean(key, names)}")
    return [f"--{key}" if each is True else f"--{key}={each}" for each in values if each is not False]


@dataclass(frozen=True)
class Source:
    """Inputs, and the options with which they are read and rendered.

    name: in the manifest. options: of the build, with those of the source. own: the source's own options but its
    inputs, as the recipe has them. may_repeat: whether it may list files of an earlier source. place: what errors call
    it; empty if the command line names the inputs.
    """

    name: str
    options: Options
    own: Mapping[str, Any] = field(default_factory=dict)
    may_repeat: bool = False
    place: str = ""

    def option(self, name: str) -> str:
        """What errors call an option of this source."""
        return f"{self.place}: {name}" if self.place else f"--{name}"

    def named_in_errors(self) -> AbstractContextManager[None]:
        """Inside, an error about a parameter names this source."""
        return named_in_errors(self.place)


def read_sources(options: Options) -> list[Source]:
    """Return the sources of a build: those of `sources`, in order, or one, `input`, with the inputs of the options.

    Raises UserError if a source has a wrong option.
    """
    url = options.recipe
    if url is None or not options.sources:
        return [Source("input", dataclasses.replace(options, input=tuple(map(expand_hub_name, options.input))))]
    sources = [_source(entry, number, url, options) for number, entry in enumerate(options.sources, start=1)]
    names = [source.name for source in sources]
    for number, name in enumerate(names, start=1):
        if (first := names.index(name) + 1) != number:
            raise UserError(f"{url}: the sources {first} and {number} have the same name, {name}.")
    without = [source.place for source in sources if source.options.weight is None]
    if 0 < len(without) < len(sources):
        raise UserError(f"{without[0]}: weight is missing: it is a share, so that all sources have one or none has.")
    return sources


def _source(entry: Any, number: int, url: str, options: Options) -> Source:
    """One source. number: its position, from 1. url: of the recipe."""
    place = f"{url}: source {number}"
    if not isinstance(entry, dict):
        raise UserError(f"{place}: expected a mapping, such as {{input: chats/}}; found {shortened(repr(entry))}.")
    name = read_value("name", entry["name"], _Name, place) if "name" in entry else None
    place = f"{place} ({name})" if name else place
    types = field_types(Options)
    own: dict[str, Any] = {}
    for key, value in entry.items():
        if key in ("name", _MAY_REPEAT):
            continue
        if key not in SOURCE_OPTIONS:
            raise UserError(f"{place}: unknown key {key}.{_hint(key)}")
        is_reset = value is None and key != "input"  # to what it is if nobody gives the option
        default = Options.__dataclass_fields__[key].default
        own[key] = default if is_reset else read_value(key, value, types[key], place)
    if "input" not in own:
        what = "files, folders, globs or urls, such as input: chats/, or a dataset on the Hub, such as input: ORG/NAME"
        raise UserError(f"{place}: input is missing: give {what}.")
    may_repeat = read_value(_MAY_REPEAT, entry.get(_MAY_REPEAT, False), Flag, place)
    source_options = dataclasses.replace(options, sources=(), **_located(url, own))
    try:
        check_options(source_options)
    except UserError as error:
        raise UserError(f"{place}: {error_text(error)}") from None
    inputs = own.pop("input")
    return Source(name or f"{number}-{_stem(inputs[0])}", source_options, own, may_repeat, place)


def _hint(key: Any) -> str:
    """What to do about a key that is not known."""
    if key in ("hub", "config", "revision"):
        return " A dataset on the Hub is an input: ORG/NAME:CONFIG@REVISION."
    if key in _AXOLOTL:
        return f" Axolotl's {key} is here {_AXOLOTL[key]}."
    if key in Options.__dataclass_fields__:
        return " It is an option of the whole build: write it outside of sources."
    known = ("name", _MAY_REPEAT, *SOURCE_OPTIONS)
    return did_you_mean(key, known) or f" Expected {', '.join(known)}."


def _stem(pattern: str) -> str:
    """What a pattern names, without the folders around it: a file without its suffixes, or the folder of a glob."""
    parts = [part for part in pattern.rpartition("://")[2].split("/") if part not in ("", ".", "..")]
    named = next((part for part in reversed(parts) if not any(wildcard in part for wildcard in WILDCARDS)), "")
    return re.split("[.:@]", named.lstrip("."))[0] or "input"


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice and a value that is inside of itself, and leaves dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: Any):
        super().__init__(stream)
        self.deep_construct = True  # so that a list or mapping that is inside of itself is an error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[Any]()
        for key_node, _ in node.value:
            key = (key_node.tag, str(key_node.value))
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"two keys {key_node.value}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


@before_the_work()
def _read_yaml(url: str) -> Any:
    """Read a YAML file; JSON is YAML, too. Raises UserError or Unavailable."""
    try:
        check_reachable(url)
        if path_type(url) != "file":
            raise UserError(f"{url}: there is no such file.")
        return yaml.load(read_bytes(url), _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{url}: {where}{error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{url}: {str(error).splitlines()[0]}.") from None
