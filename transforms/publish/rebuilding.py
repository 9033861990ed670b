"""The recipe of a dataset as text: the YAML from which `chatmill build` makes the same bytes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from transforms.catalog.budgets import Budgets


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines, such as templates, as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def recipe_text(manifest: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> str | None:
    """Return the recipe of a dataset, None if a custom pipeline built it.

    Args:
        manifest: of the dataset.
        changes: values of options that take the place of those of the build.
    """
    recipe = manifest["job"].get("recipe")
    if not recipe:
        return None
    recipe = recipe | dict(changes or {})
    read, rejected = manifest["records"]["read"], sum(manifest["records"]["rejected"].values())
    if rejected > Budgets.max_reject_fraction * read:
        recipe["max_reject_fraction"] = -(-1000 * rejected // read) / 1000
    about = ""
    if manifest.get("snapshot", {}).get("increments", 1) > 1:
        about = "# Of the first build. What was appended later has the same options, and other inputs.\n"
    return about + yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
