"""The type of an option whose values are tool definitions: their JSON, or the file that has it."""

from __future__ import annotations

import json
from typing import Annotated, Any

from annotated_types import MinLen

from transforms.base.options import Values, Wrong


def _read(text: str) -> Any:
    if not str.lstrip(text).startswith("["):
        # It imports fsspec, which --help needs not.
        from transforms.base.errors import StoreError
        from transforms.storage.files import read_bytes

        try:
            text = read_bytes(text).decode()
        except UnicodeDecodeError:
            raise Wrong("the file is not UTF-8 text.") from None
        except OSError as error:
            reason = f"it cannot be read ({error.reason})" if isinstance(error, StoreError) else "there is no such file"
            raise Wrong(f"expected a JSON list of tool definitions, or a file that has one; {reason}.") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Wrong(f"this is not valid JSON ({error}).") from None


ToolDefinitions = Annotated[
    tuple[dict[str, Any], ...],
    Values("a list of tool definitions, of at least one", "URL|JSON", _read, (MinLen(1),)),
]
