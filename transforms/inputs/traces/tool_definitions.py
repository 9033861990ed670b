"""The kind of an option whose value is tool definitions: their JSON, or the file that has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from transforms.base.checks import check_type
from transforms.base.kinds import Kind


def _parse(text: str) -> tuple[Any, ...]:
    if not text.lstrip().startswith("["):
        # It imports fsspec, which --help needs not.
        from transforms.base.errors import StoreError
        from transforms.storage.files import read_bytes

        try:
            text = read_bytes(text).decode()
        except UnicodeDecodeError:
            raise ValueError("the file is not UTF-8 text.") from None
        except StoreError as error:
            raise ValueError(f"it cannot be read ({error.reason}).") from None
        except OSError:
            raise ValueError("expected a JSON list of tool definitions, or a file that has one.") from None
    try:
        return _convert(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not valid JSON ({error}).") from None


def _convert(found: Any) -> tuple[Any, ...]:
    """Take definitions of OpenAI's API, or of Anthropic's."""
    tools = [_as_function(tool) for tool in found] if isinstance(found, list) else []
    if not tools or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("expected a list of tool definitions, of at least one.")
    return tuple(tools)


def _as_function(tool: Any) -> Any:
    if isinstance(tool, dict) and "input_schema" in tool:
        kept = {key: tool[key] for key in ("name", "description") if key in tool}
        return {"type": "function", "function": {**kept, "parameters": tool["input_schema"]}}
    return tool


tool_definitions = Kind(_parse, _convert, lambda name, value: check_type(name, value, Sequence), "URL|JSON")
