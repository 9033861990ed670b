"""Layouts: the configurations and splits of a dataset, on the Hub or in a folder, and the files of those chosen.

There is one rule for all: the splits are those that `datasets` sees, and none of several is read without being chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from transforms.base.errors import ParameterError
from transforms.base.phrases import did_you_mean, in_bytes
from transforms.files.hub.card import Card
from transforms.files.hub.patterns import (
    files_of_split,
    of_formats_read,
    of_most_frequent_format,
    patterns_of_names,
)
from transforms.files.hub.repository import Entries

PARTIAL = "partial-"  # how the name begins of a split that the Hub converted a part of
_SHOWN = 40
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """The configurations of a dataset.

    shown: what errors call it. files: all, by their paths. card: with its configurations, or those that take their
    place. named: the files whose names show splits. url_of: how one names a file. repository: with which a
    configuration is named; None if it cannot be named.
    """

    shown: str
    files: Entries
    card: Card
    named: Collection[str]
    url_of: Callable[[str], str]
    repository: str | None = None

    def configuration(self, config: str | None, parameter: str) -> str:
        """Return a configuration: the one that is named, the default, or the only one. Raises ParameterError."""
        configs = [*self.card.configurations]
        if config is None and len(configs) > 1 and self.card.default is not None:
            others = listed([each for each in configs if each != self.card.default], 3)
            _LOGGER.warning("%s: its configuration %s is read, not %s", self.shown, self.card.default, others)
            return self.card.default
        if config is None and len(configs) > 1:
            choice = f"Name one, such as {self.repository}:{configs[0]}."
            if self.repository is None:
                split, paths = next(iter(self.splits(configs[0]).items()), ("no split", []))
                choice = self._files_to_name(f"{split} of {configs[0]}", paths)
            described = listed(self._described_configurations())
            raise ParameterError(parameter, self.shown, f"it has several configurations: {described}. {choice}")
        if config is not None and config not in configs:
            problem = f"it has no configuration {config}; it has {listed(configs)}."
            raise ParameterError(parameter, self.shown, problem + did_you_mean(config, configs))
        return config or configs[0]

    def splits(self, config: str) -> Mapping[str, list[str]]:
        """Return the paths of the files of each split of a configuration. Raises MalformedError."""
        patterns, folder = self.card.configurations[config]
        paths = self.named if patterns is None else self.files.keys()
        if patterns is None:
            patterns = patterns_of_names(paths, folder)
        found = {split: files_of_split(patterns[split], paths, folder) for split in patterns}
        return {split: paths for split, paths in found.items() if paths}

    def described(self, config: str, splits: Mapping[str, Sequence[str]]) -> str:
        """Describe each split of a configuration: its rows if the card has them, and the size of its files."""
        return listed(
            [f"{split} ({', '.join(self._figures([(config, split)], paths))})" for split, paths in splits.items()]
        )

    def chosen(self, config: str, splits: Sequence[str] | None, parameter: str) -> list[str]:
        """Return the paths of the files of the splits that are chosen.

        Args:
            config: of configuration.
            splits: that are chosen; none if there is only one; None if there is no option for them.
            parameter: what the caller calls the dataset, for errors.

        Raises:
            MalformedError: if the splits cannot be found.
            ParameterError: if there is a choice and none is made, or of something that does not exist; or if no file
                can be read.
        """
        found = self.splits(config)
        if not splits and (len(found) > 1 or next(iter(found)).startswith(PARTIAL)):
            problem = "it has several splits" if len(found) > 1 else "the Hub converted a part of it only"
            choice = f"Choose with split, such as {next(iter(found))}."
            if splits is None:
                split = "test" if "test" in found else next(iter(found))
                choice = self._files_to_name(split, found[split])
            raise ParameterError(parameter, self.shown, f"{problem}: {self.described(config, found)}. {choice}")
        if unknown := next((split for split in splits or () if split not in found), None):
            problem = f"{self.shown} has no split {unknown}; it has {self.described(config, found)}."
            raise ParameterError("split", ",".join(splits or ()), problem + did_you_mean(unknown, [*found]))
        paths = [path for split in splits or found for path in found[split]]
        is_named = self.card.configurations[config].patterns is not None
        chosen, unread = of_formats_read(paths) if is_named else of_most_frequent_format(paths)
        if unread:
            raise ParameterError(
                parameter, self.shown, f"its files end in {unread}, which is not a format that is read."
            )
        if others := sorted({*paths} - {*chosen}):
            _LOGGER.warning(
                "%s: files of other formats are not read (%d): %s", self.shown, len(others), listed(others, 3)
            )
        return [*dict.fromkeys(chosen)]

    def _files_to_name(self, what: str, paths: Sequence[str]) -> str:
        return f"Name files, such as those of {what}: {listed([*map(self.url_of, paths)], 3)}."

    def _described_configurations(self) -> list[str]:
        """Each configuration, with its splits, rows and the size of its files."""
        found = []
        for config in self.card.configurations:
            splits = self.splits(config)
            figures = self._figures(
                [(config, split) for split in splits], [path for of in splits.values() for path in of]
            )
            found.append(f"{config} ({', '.join([listed([*splits], 5) or 'no files', *figures])})")
        return found

    def _figures(self, parts: Sequence[tuple[str, str]], paths: Sequence[str]) -> list[str]:
        rows = [self.card.rows[part] for part in parts if part in self.card.rows]
        known = [f"{sum(rows):,} rows"] if rows and len(rows) == len(parts) else []
        return [*known, in_bytes(sum(self.files[path]["size"] or 0 for path in paths))]


def listed(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return texts with commas between them; of many, the first ones."""
    more = f", and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more
