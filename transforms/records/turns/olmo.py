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
    have_keys = any(turn.get(key) for turn in turns for key in (*_keys(turn), _CALLS))
    return have_keys and all("role" in turn for turn in turns)


def add(made: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add such a message, with calls in the OpenAI form, and its tools. Raises RecordError."""
    keys = _keys(turn)
    message = {key: value for key, value in turn.items() if key not in (*keys, _CALLS)}
    for name in keys:
        known = made.tools or []
        given = _json_list(turn.get(name), "bad_tools", f"the {name} of {made.where}")
        made.tools = known + [tool for tool in given if tool not in known]
    if calls := _calls(turn.get(_CALLS), f"the {_CALLS} of {made.where}"):
        if message.get("tool_calls"):
            raise RecordError("bad_tool_calls", f"{made.where} has tool_calls and {_CALLS}; expected one of them")
        message["tool_calls"] = calls
    made.say(message)


def _keys(turn: dict[str, Any]) -> tuple[str, ...]:
    """The keys of a message that may have tools."""
    return (*_TOOLS, "tools") if turn.get("role") in ("system", "developer") else _TOOLS


def _json_list(value: Any, reason: str, where: str) -> list[Any]:
    """A list, or its JSON; nothing if it is empty."""
    if isinstance(value, str) and value.strip():
        value = decode_json(value, reason, where)
    if isinstance(value, dict):
        value = [value]
    if value and not isinstance(value, list):
        raise RecordError(reason, f"{where} is {json_type(value)}; expected a list")
    return value or []


def _calls(value: Any, where: str) -> list[Any]:
    """Calls in Python's notation, one on each line or in a list; or as JSON."""
    if not isinstance(value, str) or value.lstrip().startswith(("[{", "{")):
        return _json_list(value, "bad_tool_calls", where)
    try:
        body = ast.parse(value.strip()).body
        expressions = [statement.value for statement in body if isinstance(statement, ast.Expr)]
        found = [one for each in expressions for one in (each.elts if isinstance(each, ast.List) else [each])]
        if len(expressions) != len(body):
            raise ValueError("it has other statements than calls")
        return [_call(call) for call in found]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = f"{where} are not calls in Python's notation, with values for named arguments: {error}"
        raise RecordError("bad_tool_calls", problem) from None


def _call(call: ast.expr) -> dict[str, Any]:
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(f"found {ast.unparse(call)[:60]!r}")
    arguments = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    return function_call(None, ast.unparse(call.func), json.loads(json.dumps(arguments)))  # keys become strings


def _value(node: ast.expr) -> Any:
    """The value of an argument, also with the constants of JSON; tuples become lists, as in JSON."""
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    try:
        return ast.literal_eval(node)
    except ValueError:  # which has an address in memory
        raise ValueError(f"found {ast.unparse(node)[:60]!r} in place of a value") from None
