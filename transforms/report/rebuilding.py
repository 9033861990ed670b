"""The recipe of a dataset as text: the YAML from which `chatmill build` makes the same bytes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

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
    about = ""
    if manifest["increments"] > 1:
        about = "# Of the first build. What was appended later has the same options, and other inputs.\n"
    return about + yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def stored_recipe(manifest: Mapping[str, Any]) -> bytes | None:
    """Return the content of recipe.yaml, None if a custom pipeline built the dataset.

    It names the tokenizer and the formatters that are stored with the dataset, by their paths from its folder, and has
    the text of the chat template.
    """
    job = manifest["job"]
    if not (recipe := job.get("recipe")):
        return None
    changes: dict[str, Any] = {"tokenizer": Folder(".").tokenizer(job["tokenizer"]), **_stored_formatter(recipe, job)}
    if job["chat_template"] is not None:
        changes["chat_template"] = job["chat_template"]
    if "sources" in recipe:
        entries = zip(recipe["sources"], job["sources"], strict=True)
        changes["sources"] = [entry | _stored_formatter(entry, described) for entry, described in entries]
    return (recipe_text(manifest, changes) or "").encode()


def _stored_formatter(entry: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    """The option of a formatter by its stored file. described: what the job says of the recipe, or of a source."""
    if not entry.get("formatter"):
        return {}
    return {"formatter": Folder(".").stored_formatter(entry["formatter"], described["formatter"])}
