"""Tools and calls as texts in messages: OLMo's, whose calls are in Python's notation; tools of a system message."""

from __future__ import annotations

import ast
import json
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder
from transforms.records.json_text import decode_json, json_type
from transforms.records.tool_calls import function_call

_TOOLS, _CALLS = ("functions",), "function_calls"
_CONSTANTS = {"true": True, "false": False, "null": None}


def recognizes(turns: list[Any]) -> bool:
    """Return whether messages have such keys."""
    have_keys = any(turn.get(key) for turn in turns for key in (*_tool_keys(turn), _CALLS))
    return have_keys and all("role" in turn for turn in turns)


def add(builder: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add such a message, with calls in the OpenAI form, and its tools. Raises RecordError."""
    keys = _tool_keys(turn)
    message = {key: value for key, value in turn.items() if key not in (*keys, _CALLS)}
    for key in keys:
        known = builder.tools or []
        tools = _decode_list(turn.get(key), "bad_tools", f"the {key} of {builder.where}")
        builder.tools = known + [tool for tool in tools if tool not in known]
    if calls := _read_calls(turn.get(_CALLS), f"the {_CALLS} of {builder.where}"):
        if message.get("tool_calls"):
            raise RecordError("bad_tool_calls", f"{builder.where} has tool_calls and {_CALLS}; expected one of them")
        message["tool_calls"] = calls
    builder.say(message)


def _tool_keys(turn: dict[str, Any]) -> tuple[str, ...]:
    """The keys of a message that may have tools."""
    return (*_TOOLS, "tools") if turn.get("role") in ("system", "developer") else _TOOLS


def _decode_list(value: Any, reason: str, where: str) -> list[Any]:
    """A list, or its JSON; nothing if it is empty."""
    if isinstance(value, str) and value.strip():
        value = decode_json(value, reason, where)
    if isinstance(value, dict):
        value = [value]
    if value and not isinstance(value, list):
        raise RecordError(reason, f"{where} is {json_type(value)}; expected a list")
    return value or []


def _read_calls(value: Any, where: str) -> list[Any]:
    """Calls in Python's notation, one on each line or in a list; or as JSON."""
    if not isinstance(value, str) or value.lstrip().startswith(("[{", "{")):
        return _decode_list(value, "bad_tool_calls", where)
    try:
        body = ast.parse(value.strip()).body
        lines = [statement.value if isinstance(statement, ast.Expr) else statement for statement in body]
        return [_read_call(call) for line in lines for call in (line.elts if isinstance(line, ast.List) else [line])]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = f"{where} are not calls in Python's notation, with values for named arguments: {error}"
        raise RecordError("bad_tool_calls", problem) from None


def _read_call(call: ast.AST) -> dict[str, Any]:
    """A call, also with the constants of JSON. Raises ValueError."""
    try:
        if isinstance(call, ast.Call) and not call.args:
            arguments = {keyword.arg: ast.literal_eval(_Constants().visit(keyword.value)) for keyword in call.keywords}
            if None not in arguments:
                # Tuples become lists, and keys strings.
                return function_call(None, ast.unparse(call.func), json.loads(json.dumps(arguments, allow_nan=False)))
    except (TypeError, ValueError):  # whose words may have an address in memory
        pass
    raise ValueError(f"found {ast.unparse(call)[:60]!r}")


class _Constants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node
