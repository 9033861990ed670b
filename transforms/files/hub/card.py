"""The card of a dataset: the configurations in the metadata of its README.md and .huggingface.yaml, with their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from transforms.files.hub.patterns import MalformedError, Patterns, patterns_of_data_files

# Where the metadata are: those of the second file replace those of the first.
CARD_FILES = ("README.md", ".huggingface.yaml")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Configuration(NamedTuple):
    """A configuration of a card.

    patterns: of each split; None if the names of the files say it. folder: at which they begin; empty for the
    repository.
    """

    patterns: Patterns | None
    folder: str = ""


class Card(NamedTuple):
    """What a card says of the files of its dataset.

    configurations: by name. rows: of each configuration and split. default: the configuration that is meant if none is
    named; None if one has to be.
    """

    configurations: Mapping[str, Configuration]
    rows: Mapping[tuple[str, str], int]
    default: str | None = None


def read_card(readme: str, standalone: str = "") -> Card:
    """Read the metadata of a card: YAML between two lines of three dashes.

    Args:
        readme: the text of README.md.
        standalone: that of .huggingface.yaml, whose keys replace those of the card.

    Raises:
        MalformedError: if `datasets` could not read its configurations either.
    """
    lines = readme.removeprefix("\ufeff").splitlines()
    end = lines.index("---", 1) if lines[:1] == ["---"] and "---" in lines[1:] else 0
    metadata = _mapping("\n".join(lines[1:end])) | _mapping(standalone)
    entries = metadata.get("configs") or []
    return Card(_configurations(entries), dict(_rows(metadata.get("dataset_info"))), _default(entries))


def _mapping(text: str) -> dict[Any, Any]:
    try:
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise MalformedError(f"its metadata are not valid YAML: {' '.join(str(error).split())[:200]}") from None
    return found if isinstance(found, dict) else {}


def _default(entries: list[dict[str, Any]]) -> str | None:
    """The configuration that is called default, or says that it is it."""
    found = [str(each["config_name"]) for each in entries if each["config_name"] == "default" or each.get("default")]
    if len(found) > 1:
        raise MalformedError(f"it has several default configurations, {' and '.join(found)}")
    return found[0] if found else None


def _configurations(entries: Any) -> dict[str, Configuration]:
    if not isinstance(entries, list) or not all(isinstance(each, dict) and "config_name" in each for each in entries):
        raise MalformedError("its configs are not a list of mappings with a config_name")
    found = {}
    for each in entries:
        name, data_files = str(each["config_name"]), each.get("data_files")
        try:
            patterns = None if data_files is None else patterns_of_data_files(data_files)
        except MalformedError as error:
            raise MalformedError(f"of its configuration {name}, {error}") from None
        found[name] = Configuration(patterns, str(each.get("data_dir") or ""))
    return found


def _rows(infos: Any) -> list[tuple[tuple[str, str], int]]:
    """The rows of the splits, as far as `dataset_info` has them. It is for people: what is malformed does not count."""
    infos = infos if isinstance(infos, list) else [infos]
    return [
        ((str(info.get("config_name", "default")), str(split.get("name"))), split["num_examples"])
        for info in infos
        if isinstance(info, dict) and isinstance(info.get("splits"), list)
        for split in info["splits"]
        if isinstance(split, dict) and isinstance(split.get("num_examples"), int)
    ]
