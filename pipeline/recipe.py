"""Recipes: YAML files with the options of a build, and its sources, each with options of its own."""

from __future__ import annotations

import dataclasses
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from pipeline.cli.console import as_typed, error_text, shortened
from pipeline.config import Options, check_options
from transforms.base import kinds
from transforms.base.checks import did_you_mean
from transforms.base.declaring import options_in
from transforms.base.errors import ParameterError, StoreError, UserError
from transforms.base.kinds import Kind
from transforms.chat.config import RenderOptions
from transforms.dataset.layout import PARTS, Folder
from transforms.inputs.hub.names import hub_name, in_full
from transforms.inputs.hub.repository import Commits
from transforms.inputs.input_options import ParseOptions
from transforms.inputs.listing import Accepts, InputFile, files_of_sources, list_arriving, list_inputs, shared_files
from transforms.storage.files import check_reachable, exists, join, kind_of, read_bytes
from transforms.storage.hub.urls import without_commit
from transforms.storage.same_files import Places

# Options whose paths begin at the folder of the recipe if they begin with ./ or ../: other texts may be names.
_PATHS = ("tokenizer", "chat_template", "output")
# The options that a source may have of its own.
SOURCE_OPTIONS = ("input", *(field.name for field in options_in(Options) if field.metadata["of_source"]))
# Keys of Axolotl's `datasets:`, and what to write here.
_AXOLOTL = {
    "path": "input",
    "data_files": "input",
    "ds_type": "input_format",
    "type": "schema",
    "field": "columns: {text: YOURS}",
    "field_messages": "columns: {messages: YOURS}",
    "field_system": "columns: {system: YOURS}",
    "field_tools": "columns: {tools: YOURS}",
    "field_instruction": "columns: {instruction: YOURS}",
    "field_input": "columns: {input: YOURS}",
    "field_output": "columns: {output: YOURS}",
    "message_property_mappings": "message_fields",
    "message_field_role": "message_fields",
    "message_field_content": "message_fields",
    "message_field_training": "train_field",
    "roles_to_train": "loss_on",
    "train_on_inputs": "loss_on: all",
    "chat_template": "--chat_template, for all sources",
}
_NAME = kinds.matching(r"\w[\w .:+-]*", "a name of letters, digits, spaces and . : + - _")
_MAY_REPEAT = "may_repeat"
# A dataset on the Hub, in the place of input; split is an option of a source.
_HUB = ("hub", "config", "revision")
_TEXT = kinds.matching(".+", "text")


def read_recipe(url: str, by_name: Mapping[str, Kind]) -> tuple[dict[str, Any], list[str]]:
    """Read a recipe.

    Args:
        url: of the file.
        by_name: the kinds of the options.

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
        if key not in by_name:
            arguments += _arguments(url, key, value, by_name)
        elif value is not None:  # null is the default
            values[key] = value_of(url, key, value, by_name[key])
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


def _arguments(url: str, key: Any, value: Any, by_name: Mapping[str, Kind]) -> list[str]:
    """The arguments of an option of Beam: a flag, a value, or one for each element of a list."""
    values = value if isinstance(value, list) else [value]
    if not isinstance(key, str) or not all(isinstance(each, (str, int, float)) for each in values):
        found = shortened(as_typed(value))
        raise UserError(f"{url}: {key} {found}: this is no option.{did_you_mean(str(key), [*by_name])}")
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

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Inside, an error about a parameter names this source."""
        try:
            yield
        except ParameterError as error:
            value = shortened(as_typed(error.value))
            raise UserError(f"{self.option(error.parameter)} {value}: {error.problem}") from None

    def list_files(self, commits: Commits, accepts: Callable[[str, str], bool] | None = None) -> list[InputFile]:
        """List the input files. Raises UserError or Unavailable, as list_inputs and list_arriving do.

        Args:
            commits: that revisions on the Hub stand for, of all sources.
            accepts: as of list_arriving; None to list all files.
        """
        options = self.options
        with self.named_in_errors():
            if accepts is None:
                return list_inputs(options.input, options.input_format, "input", options.split, commits)
            return list_arriving(options.input, accepts, options.input_format, "input", options.split, commits)


def read_sources(options: Options) -> list[Source]:
    """Read the sources of a build.

    Args:
        options: of the build.

    Returns:
        Those of `sources`, in order; or one, `input`, with the inputs of the options.

    Raises:
        UserError: if a source has a wrong option.
    """
    url = options.recipe
    if url is None or not options.sources:
        return [Source("input", dataclasses.replace(options, input=tuple(map(in_full, options.input))))]
    sources = [_source(entry, number, url, options) for number, entry in enumerate(options.sources, start=1)]
    first_named: dict[str, int] = {}
    for number, source in enumerate(sources, start=1):
        if (first := first_named.setdefault(source.name, number)) != number:
            raise UserError(f"{url}: the sources {first} and {number} have the same name, {source.name}.")
    weighed = [source.options.weight is not None for source in sources]
    if any(weighed) and not all(weighed):
        source = sources[weighed.index(False)]
        raise UserError(f"{source.place}: weight is missing: it is a share, so that all sources have one or none has.")
    return sources


def _source(entry: Any, number: int, url: str, options: Options) -> Source:
    """One source. number: its position, from 1. url: of the recipe."""
    place = f"{url}: source {number}"
    if not isinstance(entry, dict):
        raise UserError(f"{place}: expected a mapping, such as {{input: chats/}}; found {shortened(repr(entry))}.")
    name = value_of(place, "name", entry["name"], _NAME) if "name" in entry else None
    place = f"{place} ({name})" if name else place
    all_kinds = {each.name: each.metadata["kind"] for each in dataclasses.fields(Options)}
    own: dict[str, Any] = _input_on_hub(entry, place)
    for key, value in entry.items():
        if key in ("name", _MAY_REPEAT, *_HUB):
            continue
        if key not in SOURCE_OPTIONS:
            raise UserError(f"{place}: unknown key {key}.{_hint(key, all_kinds)}")
        # null resets an option to that of no option at all.
        default = Options.__dataclass_fields__[key].default
        is_reset = value is None and key != "input"
        own[key] = default if is_reset else value_of(place, key, value, all_kinds[key])
    if "input" not in own:
        raise UserError(
            f"{place}: input is missing: give files, folders, globs or urls, such as input: chats/, or a dataset on "
            "the Hub, such as hub: ORG/NAME."
        )
    may_repeat = value_of(place, _MAY_REPEAT, entry.get(_MAY_REPEAT, False), kinds.flag)
    resolved = own | {"input": tuple(input_of(url, path) for path in own["input"])}
    if own.get("formatter"):
        resolved["formatter"] = formatter_from_folder_of(url, own["formatter"])
    of_source = dataclasses.replace(options, sources=(), **resolved)
    try:
        check_options(of_source)
    except UserError as error:
        raise UserError(f"{place}: {error_text(error)}") from None
    name = name or f"{number}-{_stem(own['input'][0])}"
    return Source(name, of_source, {key: own[key] for key in own if key != "input"}, may_repeat, place)


def _input_on_hub(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The input of a source that is a dataset on the Hub, by its option; nothing if it is not one."""
    given = {key: value_of(place, key, entry[key], _TEXT) for key in _HUB if entry.get(key) is not None}
    if not given:
        return {}
    if "hub" not in given or "input" in entry:
        raise UserError(f"{place}: {', '.join(given)}: a dataset on the Hub is named by hub, in the place of input.")
    config = f":{given['config']}" if "config" in given else ""
    revision = f"@{given['revision']}" if "revision" in given else ""
    url = f"hf://datasets/{given['hub']}{config}{revision}"
    hub_name(url)  # checks it
    return {"input": (url,)}


def _hint(key: Any, options: Mapping[str, Any]) -> str:
    """What to do about a key that is not known."""
    if key in _AXOLOTL:
        return f" Axolotl's {key} is here {_AXOLOTL[key]}."
    if key in options:
        return " It is an option of the whole build: write it outside of sources."
    known = ("name", _MAY_REPEAT, *_HUB, *SOURCE_OPTIONS)
    return did_you_mean(key, known) or f" Expected {', '.join(known)}."


def _stem(pattern: str) -> str:
    """What a pattern names, without the folders around it: a file without its suffixes, or the folder of a glob."""
    parts = [part for part in pattern.rpartition("://")[2].split("/") if part not in ("", ".", "..")]
    named = next((part for part in reversed(parts) if not any(sign in part for sign in "*?[")), "")
    return re.split("[.:@]", named.lstrip("."))[0] or "input"


def parse_options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a source's options that are options of ParseConversations."""
    return {field.name: options[field.name] for field in options_in(ParseOptions) if field.name in options}


def render_options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a source's options that are options of rendering."""
    return {field.name: options[field.name] for field in options_in(RenderOptions) if field.name in options}


def files_of(
    sources: Sequence[Source],
    known: Mapping[int, list[InputFile]] | None = None,
    accepts: Accepts | None = None,
) -> list[InputFile]:
    """List the input files of all sources, each with the number of its source.

    Args:
        sources: of the build.
        known: the files of sources that are not to be listed again, by the number of the source.
        accepts: which files are listed, if some may be still to come; None if all are there.

    Raises:
        UserError: if a source has none, or lists a file of an earlier source although it may not.
        Unavailable: if a store does not answer.
    """
    commits, known = Commits(), known or {}

    def list_files(number: int, source: Source) -> list[InputFile]:
        if accepts is None:
            return known.get(number) or source.list_files(commits)
        return source.list_files(commits, lambda url, version: accepts((number, without_commit(url)), version))

    files = files_of_sources([*itertools.starmap(list_files, enumerate(sources))])
    for first, again in shared_files(files):
        source = sources[again.source]
        if not source.may_repeat:
            raise UserError(
                f"{source.option('input')} {again.url}: the source {sources[first.source].name} lists this file, too. "
                f"To read it twice, write {_MAY_REPEAT}: true in the source {source.name}."
            )
    return files


def inputs_of(
    sources: Sequence[Source],
    folder: Folder,
    known: Mapping[int, list[InputFile]] | None = None,
    accepts: Accepts | None = None,
) -> list[InputFile]:
    """List the input files of all sources, which must not be a part of the dataset that is built.

    Args:
        sources: of the build.
        folder: of the dataset.
        known, accepts: as of files_of.

    Raises:
        UserError, Unavailable: as for files_of, and if a file is one of the dataset.
    """
    files = files_of(sources, known, accepts)
    dataset = Places([join(folder.output, part) for part in PARTS])
    for file in files:
        if dataset.have(file.url):
            raise UserError(
                f"{sources[file.source].option('input')} {file.url}: it is part of the dataset in --output. Give "
                "another --output."
            )
    return files


def is_on_hub(inputs: Sequence[str]) -> bool:
    """Return whether all inputs of a source are datasets on the Hub. inputs: of a Source."""
    return all(map(hub_name, inputs))


def with_all_inputs(options: Options, sources: Sequence[Source]) -> Options:
    """The options of a build as a runner needs them: with the inputs of all sources, and a formatter if one has one."""
    return dataclasses.replace(
        options,
        input=tuple(url for source in sources for url in source.options.input),
        formatter=next((source.options.formatter for source in sources if source.options.formatter), None),
    )


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


def read_yaml(url: str) -> Any:
    """Read a YAML file; JSON is YAML, too.

    Args:
        url: of the file.

    Raises:
        UserError: if there is no such file, or it is not YAML.
        Unavailable: if its store does not answer.
    """
    try:
        check_reachable(url)
        if kind_of(url) != "file":
            raise UserError(f"{url}: there is no such file.")
        return yaml.load(read_bytes(url), _Loader)
    except StoreError as error:
        raise error.as_user_error(str(error)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{url}: {where}{error.problem or error.context}.") from None
    except (yaml.YAMLError, OSError, ValueError, ImportError, RecursionError) as error:
        raise UserError(f"{url}: {str(error).splitlines()[0]}.") from None
