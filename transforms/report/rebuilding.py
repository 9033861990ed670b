"""The recipe of a dataset as text: the YAML from which `chatmill build` makes the same bytes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from transforms.dataset.budgets import Budgets
from transforms.dataset.layout import Folder


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
    if manifest["increments"] > 1:
        about = "# Of the first build. What was appended later has the same options, and other inputs.\n"
    return about + yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def stored_recipe(manifest: Mapping[str, Any]) -> bytes | None:
    """Return the content of recipe.yaml, None if a custom pipeline built the dataset.

    It names the tokenizer and the formatters that are stored with the dataset, by their paths from its folder, and has
    the text of the chat template.

    Args:
        manifest: of the dataset.
    """
    job = manifest["job"]
    recipe, here = job.get("recipe"), Folder(".")
    if not recipe:
        return None
    changes: dict[str, Any] = {"tokenizer": here.tokenizer(job["tokenizer"])}
    if job["chat_template"] is not None:
        changes["chat_template"] = job["chat_template"]
    if "formatter" in recipe:
        changes["formatter"] = here.stored_formatter(recipe["formatter"], job["formatter"])
    if "sources" in recipe:
        changes["sources"] = [
            entry
            | (
                {"formatter": here.stored_formatter(entry["formatter"], of_job["formatter"])}
                if entry.get("formatter")
                else {}
            )
            for entry, of_job in zip(recipe["sources"], job["sources"], strict=True)
        ]
    return (recipe_text(manifest, changes) or "").encode()
