"""Choice: the files of a configuration and of splits, those that `datasets` would load; never all without being asked.

In this order, the configurations and splits of a dataset are those of its card, those that the names of its files show,
and those that the Hub converted to Parquet. If the repository has a script, which `datasets` no longer runs, its files
are what the script reads, and the converted ones come first.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.base.checks import did_you_mean
from transforms.base.errors import ParameterError, StoreError
from transforms.base.phrases import in_bytes
from transforms.inputs.hub.card import Card, Configuration, read_card
from transforms.inputs.hub.names import HubName
from transforms.inputs.hub.patterns import (
    MalformedError,
    files_of_split,
    of_formats_read,
    of_most_frequent_format,
    patterns_of_names,
)
from transforms.inputs.hub.repository import CONVERTED, Commits, Entries, files_at, text_of

_CARD, _DEFAULT, _PARTIAL = "README.md", "default", "partial-"
_SHOWN = 40
_CONVERTED_FILE = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Layout:
    """The configurations of a dataset at a commit.

    card: with its configurations, or those that take their place.
    """

    commit: str
    files: Entries
    card: Card

    def splits(self, config: str) -> Mapping[str, list[str]]:
        """The paths of the files of each split of a configuration."""
        patterns, folder = self.card.configurations[config]
        if patterns is None:
            patterns = patterns_of_names(self.files.keys(), folder)
        found = {split: files_of_split(patterns[split], self.files.keys(), folder) for split in patterns}
        return {split: paths for split, paths in found.items() if paths}

    def described(self, config: str, splits: Mapping[str, Sequence[str]]) -> list[str]:
        """Each split of a configuration, with its rows if the card has them, and the size of its files."""
        return [f"{split} ({', '.join(self._figures([(config, split)], paths))})" for split, paths in splits.items()]

    def described_configurations(self) -> list[str]:
        """Each configuration, with its splits, rows and the size of its files."""
        found = []
        for config in self.card.configurations:
            splits = self.splits(config)
            figures = self._figures(
                [(config, split) for split in splits], [path for of in splits.values() for path in of]
            )
            found.append(f"{config} ({', '.join([_listed([*splits], 5) or 'no files', *figures])})")
        return found

    def _figures(self, parts: Sequence[tuple[str, str]], paths: Sequence[str]) -> list[str]:
        rows = [self.card.rows[part] for part in parts if part in self.card.rows]
        known = [f"{sum(rows):,} rows"] if rows and len(rows) == len(parts) else []
        return [*known, in_bytes(sum(self.files[path]["size"] for path in paths))]


def chosen_files(
    name: HubName, splits: Sequence[str] | None, commits: Commits, parameter: str
) -> tuple[str, Entries, Sequence[str]]:
    """Choose the files of a dataset.

    Args:
        name: of the dataset, or of a folder of it, whose files are taken by their names.
        splits: that are chosen; none if there is only one; None if there is no option for them.
        commits: that revisions stand for.
        parameter: what the caller calls the name, for errors.

    Returns:
        The commit, all of its files, and the paths of those that are chosen.

    Raises:
        ParameterError: if there is a choice and none is made, or of something that does not exist; or if no file can be
            read.
        StoreError: if there is no such repository or revision, or if the Hub refuses or fails.
    """
    shown = name.url.removeprefix("hf://datasets/")
    try:
        layout = _layout(name, commits)
        config = _chosen_configuration(name, shown, layout, parameter)
        found = layout.splits(config)
    except MalformedError as error:
        raise ParameterError(parameter, shown, f"its splits cannot be found: {error}.") from None
    if not found:
        raise ParameterError(parameter, shown, f"it has no file of records{_of_script(name, layout)}.")
    described = _listed(layout.described(config, found))
    if not splits and (len(found) > 1 or next(iter(found)).startswith(_PARTIAL)):
        problem = "it has several splits" if len(found) > 1 else "the Hub converted a part of it only"
        choice = f"Choose with split, such as {next(iter(found))}."
        if splits is None:
            split = "test" if "test" in found else next(iter(found))
            revision = name.revision if layout.commit == commits.of(name.repository, name.revision) else CONVERTED
            urls = [HubName(name.repository, None, revision, path).url for path in found[split]]
            choice = f"Name files, such as those of {split}: {_listed(urls, 3)}."
        raise ParameterError(parameter, shown, f"{problem}: {described}. {choice}")
    if unknown := next((split for split in splits or () if split not in found), None):
        problem = f"{shown} has no split {unknown}; it has {described}."
        raise ParameterError("split", ",".join(splits or ()), problem + did_you_mean(unknown, [*found]))
    paths = [path for split in splits or found for path in found[split]]
    is_named = layout.card.configurations[config].patterns is not None
    chosen, unread = of_formats_read(paths) if is_named else of_most_frequent_format(paths)
    if unread:
        raise ParameterError(parameter, shown, f"its files end in {unread}, which is not a format that is read.")
    if others := sorted({*paths} - {*chosen}):
        _LOGGER.warning("%s: files of other formats are not read (%d): %s", shown, len(others), _listed(others, 3))
    return layout.commit, layout.files, [*dict.fromkeys(chosen)]


def _chosen_configuration(name: HubName, shown: str, layout: _Layout, parameter: str) -> str:
    """The configuration that is named, or the only one. Raises ParameterError."""
    configs = [*layout.card.configurations]
    if name.config is None and len(configs) > 1:
        described = _listed(layout.described_configurations())
        problem = f"it has several configurations: {described}. Name one, such as {name.repository}:{configs[0]}."
        raise ParameterError(parameter, shown, problem)
    if name.config is not None and name.config not in configs:
        problem = f"it has no configuration {name.config}; it has {_listed(configs)}."
        raise ParameterError(parameter, shown, problem + did_you_mean(name.config, configs))
    return name.config or configs[0]


def _layout(name: HubName, commits: Commits) -> _Layout:
    """The configurations of a dataset. Raises MalformedError for a card or names of files that are malformed."""
    commit = commits.of(name.repository, name.revision)
    files = files_at(name.repository, commit)
    if not name.path and (configurations := _converted(files)):
        return _Layout(commit, files, Card(configurations, {}))
    by_names = {_DEFAULT: Configuration(None, name.path)}
    card = Card({}, {}) if name.path else _card_at(name.repository, commit)
    own = _Layout(commit, files, Card(card.configurations or by_names, card.rows))
    has_script = _script(name) in files
    if card.configurations or name.path or (own.splits(_DEFAULT) and not has_script):
        return own
    if name.revision in (None, "main") and (converted := _converted_layout(name, commits, card)):
        return converted
    return own


@functools.lru_cache(16)
def _card_at(repository: str, commit: str) -> Card:
    """The card of a dataset at a commit. Raises MalformedError."""
    return read_card(text_of(repository, commit, files_at(repository, commit), _CARD))


def _converted_layout(name: HubName, commits: Commits, card: Card) -> _Layout | None:
    """What the Hub converted of a dataset to Parquet; None if it has not."""
    try:
        commit = commits.of(name.repository, CONVERTED)
    except StoreError as error:
        if error.is_transient:
            raise
        return None
    files = files_at(name.repository, commit)
    if not (configurations := _converted(files)):
        return None
    _LOGGER.warning("%s: what the Hub converted to Parquet is read (%s)", name.repository, CONVERTED)
    return _Layout(commit, files, Card(configurations, card.rows))


def _converted(files: Entries) -> dict[str, Configuration]:
    """The configurations of files that the Hub converted, CONFIG/SPLIT/0000.parquet and so on; none of other files."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in files:
        if parts := _CONVERTED_FILE.fullmatch(path):
            found.setdefault(parts[1], {}).setdefault(parts[2], []).append(path)
        elif not path.startswith("."):
            return {}
    return {config: Configuration(splits) for config, splits in found.items()}


def _script(name: HubName) -> str:
    return f"{name.repository.partition('/')[2]}.py"


def _of_script(name: HubName, layout: _Layout) -> str:
    """Why a dataset has no files, if it has a script."""
    if name.path or _script(name) not in layout.files:
        return ""
    return (
        f": its script {_script(name)} makes them, which is not run, and the Hub has not converted it to Parquet. "
        "Run the script with datasets<4 and save what it makes as Parquet or JSON lines"
    )


def _listed(texts: Sequence[str], shown: int = _SHOWN) -> str:
    more = f", and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more
