"""The header of a card on the Hub: what people have added to it there, such as a license, is kept by a push."""

from __future__ import annotations

import re
from typing import Any

import yaml

# What describes the files of the dataset: that of the pushed version takes its place.
_OF_FILES = {"configs", "dataset_info"}
_HEADER = re.compile(r"---[ \t]*\r?\n(.*?)\n---[ \t]*(?:\r?\n|$)", re.DOTALL)


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Return the header of a card, and the text after it. What is not a header of YAML belongs to the text."""
    found = _HEADER.match(text)
    try:
        header = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        header = None
    return (header, text[found.end() :]) if found and isinstance(header, dict) else ({}, text)


def with_header_of(card: str, other: str) -> str:
    """Return a card with what the header of another one has in addition.

    Args:
        card: of a dataset.
        other: the card that it takes the place of.
    """
    header, body = split_card(card)
    added = {name: value for name, value in split_card(other)[0].items() if name not in {*header, *_OF_FILES}}
    if not added:
        return card
    of_other = yaml.safe_dump(added, sort_keys=False, allow_unicode=True)
    own = card[: len(card) - len(body)].rstrip("\n").removesuffix("---")
    return f"{own}{of_other}---\n{body}"
