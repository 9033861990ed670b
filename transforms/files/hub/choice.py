"""Choice: the files of a configuration and of splits, those that `datasets` would load; never all without being asked.

In this order, the configurations and splits of a dataset are those of its card, those that the names of its files show,
and those that the Hub converted to Parquet. If the repository has a script, which `datasets` no longer runs, its files
are what the script reads, and the converted ones come first.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence

from transforms.base.errors import ParameterError, StoreError
from transforms.files.hub.card import CARD_FILES, Card, Configuration, read_card
from transforms.files.hub.layout import Layout
from transforms.files.hub.names import HubName
from transforms.files.hub.patterns import MalformedError
from transforms.files.hub.repository import CONVERTED, Commits, Entries, files_at, text_of

_DEFAULT = "default"
_CONVERTED_FILE = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")
_LOGGER = logging.getLogger(__name__)


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
        commit, layout = _layout(name, shown, commits)
        config = layout.configuration(name.config, parameter)
        if not layout.splits(config):
            raise ParameterError(parameter, shown, f"it has no file of records{_of_script(name, layout.files)}.")
        return commit, layout.files, layout.chosen(config, splits, parameter)
    except MalformedError as error:
        raise ParameterError(parameter, shown, f"its splits cannot be found: {error}.") from None


def _layout(name: HubName, shown: str, commits: Commits) -> tuple[str, Layout]:
    """The commit and the configurations of a dataset. Raises MalformedError for a card or names that are malformed."""
    commit = commits.of(name.repository, name.revision)
    files = files_at(name.repository, commit)

    def layout(files: Entries, card: Card, revision: str | None = name.revision) -> Layout:
        def url_of(path: str) -> str:
            return HubName(name.repository, None, revision, path).url

        return Layout(shown, files, card, files.keys(), url_of, name.repository)

    if not name.path and (configurations := _converted(files)):
        return commit, layout(files, Card(configurations, {}))
    by_names = {_DEFAULT: Configuration(None, name.path)}
    card = Card({}, {}) if name.path else _card_at(name.repository, commit)
    own = layout(files, card._replace(configurations=card.configurations or by_names))
    has_script = _script(name) in files
    if card.configurations or name.path or (own.splits(_DEFAULT) and not has_script):
        return commit, own
    if name.revision in (None, "main") and (converted := _converted_files(name, commits)):
        commit, files, configurations = converted
        return commit, layout(files, Card(configurations, card.rows), CONVERTED)
    return commit, own


@functools.lru_cache(16)
def _card_at(repository: str, commit: str) -> Card:
    """The card of a dataset at a commit. Raises MalformedError."""
    files = files_at(repository, commit)
    return read_card(*(text_of(repository, commit, files, name) for name in CARD_FILES))


def _converted_files(name: HubName, commits: Commits) -> tuple[str, Entries, dict[str, Configuration]] | None:
    """What the Hub converted of a dataset to Parquet: the commit, its files and configurations; None if it has not."""
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
    return commit, files, configurations


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


def _of_script(name: HubName, files: Entries) -> str:
    """Why a dataset has no files, if it has a script."""
    if name.path or _script(name) not in files:
        return ""
    return (
        f": its script {_script(name)} makes them, which is not run, and the Hub has not converted it to Parquet. "
        "Run the script with datasets<4 and save what it makes as Parquet or JSON lines"
    )
