"""The type of an option whose values are tool definitions: their JSON, or the file that has it."""

from __future__ import annotations

import json
from typing import Annotated, Any

from annotated_types import MinLen

from transforms.base.options import Values, Wrong

_EXPECTED = "a list of tool definitions, of at least one"


def _read(text: str) -> Any:
    try:
        if not str.lstrip(text).startswith("["):
            # It imports fsspec, which --help needs not.
            from transforms.storage.files import read_bytes

            return json.loads(read_bytes(text))
        return json.loads(text)
    except (OSError, ValueError) as error:
        raise Wrong(f"expected {_EXPECTED}, as JSON or as a file that has it ({error}).") from None


ToolDefinitions = Annotated[tuple[dict[str, Any], ...], Values(_EXPECTED, "URL|JSON", _read, (MinLen(1),))]
