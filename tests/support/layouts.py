"""Layouts of datasets, and what `datasets` makes of them: which files each of their splits has."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from support.paths import ROOT

# By a name: the text of README.md, and the paths of the other files.
LAYOUTS: dict[str, str] = json.loads((ROOT / "tests" / "data" / "layouts.json").read_text())
NAMED = LAYOUTS["a card"].rpartition("\n")[0] + "\n"


def read_files(layout: str) -> dict[str, bytes]:
    """Return the files of a layout: paths after the text of README.md."""
    card, _, paths = layout.rpartition("\n")
    return {"README.md": f"{card}\n".encode()} | {path: f"{path}\n".encode() for path in paths.split()}


@functools.cache
def taken_by_datasets(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return the files of each configuration and split that `datasets` loads of a folder."""
    import datasets

    found = {}
    for config in datasets.get_dataset_config_names(str(folder)):
        files = datasets.load_dataset_builder(str(folder), config).config.data_files
        found[config] = {
            str(split): sorted({str(Path(file).relative_to(folder.resolve())) for file in files[split]})
            for split in files
            if files[split]
        }
    return found


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a folder, which is returned."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def write_layout(folder: Path, layout: str) -> Path:
    """Write the files of a layout into a folder, which is returned."""
    return write_files(folder, read_files(layout))
