"""chatmill recipe: prints the recipe of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.cli.console import CommandParser
from transforms.base.errors import UserError


def run(arguments: Sequence[str]) -> int:
    """Print the recipe that makes a dataset again, with the tokenizer and the formatters that are stored with it.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, there is no dataset, or a custom pipeline built it.
        InputError: if its log is damaged.
        StoreError: if its store fails.
    """
    parser = CommandParser(
        "recipe",
        "OUT",
        "Print the recipe of a dataset, from which `chatmill build` makes the same bytes again.",
        ["out/mine > mine.yaml && chatmill build mine.yaml --output out/again"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder of a dataset, at any url")
    options = parser.parse_args(arguments)

    from transforms.publish.rebuilding import recipe_text
    from transforms.reading.reader import Dataset
    from transforms.storage.files import full_url

    dataset = Dataset(full_url(options.dataset))
    job = dataset.manifest["job"]
    if not (recipe := job.get("recipe")):
        raise UserError(f"{dataset.url}: a custom pipeline built it, so it has no recipe.")
    changes: dict[str, Any] = {"tokenizer": dataset.tokenizer_folder}
    stored = dataset.folder.stored_formatter
    if job["chat_template"] is not None:
        changes["chat_template"] = job["chat_template"]
    if "formatter" in recipe:
        changes["formatter"] = stored(recipe["formatter"], job["formatter"])
    if "sources" in recipe:
        changes["sources"] = [
            entry | ({"formatter": stored(entry["formatter"], of_job["formatter"])} if entry.get("formatter") else {})
            for entry, of_job in zip(recipe["sources"], job["sources"], strict=True)
        ]
    print(recipe_text(dataset.manifest, changes), end="")
    return 0
