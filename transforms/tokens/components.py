"""The components of a tokenizer: its normalizers and its pre-tokenizers, as in tokenizer.json."""

from __future__ import annotations

import json
from typing import Any


def components_of(component: Any) -> list[dict[str, Any]]:
    """Return the components of a sequence in their order, of one alone, or none.

    Args:
        component: a normalizer or a pre-tokenizer of tokenizers, or None.

    Returns:
        Each one as a dict, as in tokenizer.json. A sequence in a sequence is opened.
    """
    return [] if component is None else _opened(json.loads(component.__getstate__()))


def _opened(state: dict[str, Any]) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    children = state.get("normalizers", state.get("pretokenizers", []))
    return [component for child in children for component in _opened(child)]
