"""Stored: what a build stores for workers is named by the hash of its content; they refuse what was changed since."""

from __future__ import annotations

import re

from transforms.base.errors import UserError

_NAME = re.compile(r"_chatmill/(?:tokenizers|formatters|evaluations)/([0-9a-f]{16})(?:\.py|/|$)")


def check_unchanged(kind: str, url: str, digest: str) -> None:
    """Raise UserError if something which a build has stored is not what was stored, before it is used.

    kind: what it is: "tokenizer". url: of its file or folder; one that no build has stored may have any content.
    digest: of its content.
    """
    match = _NAME.search(url)
    if match and match[1] != digest[:16]:
        raise UserError(f"{url}: the {kind} was changed since it was stored. Run the same command again.")
