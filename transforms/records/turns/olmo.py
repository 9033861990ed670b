"""Tools and calls as texts in messages: OLMo's, whose calls are in Python's notation; tools of a system message."""

from __future__ import annotations

import ast
import json
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.json_text import kind_of
from transforms.records.tool_calls import function_call
from transforms.records.turns import Messages, TurnForm

_KEYS = ("functions", "function_calls")
_SYSTEM = ("system", "developer")


def _keys(turn: dict[str, Any]) -> tuple[str, ...]:
    return (*_KEYS, "tools") if turn.get("role") in _SYSTEM else _KEYS


def _recognizes(turns: list[Any]) -> bool:
    return all(isinstance(turn, dict) and "role" in turn for turn in turns) and any(
        turn.get(key) for turn in turns for key in _keys(turn)
    )


def _messages(turns: list[Any], column: str) -> Messages:
    messages, tools = list[Any](), list[Any]()
    for i, turn in enumerate(turns):
        message = {key: value for key, value in turn.items() if key not in _keys(turn)}
        for name in _keys(turn):
            if name != "function_calls":
                given = _json_list(turn.get(name), f"the {name} of {column}[{i}]", "bad_tools")
                tools += [tool for tool in given if tool not in tools]
        if calls := _calls(turn.get("function_calls"), f"the function_calls of {column}[{i}]"):
            if message.get("tool_calls"):
                raise RecordError(
                    "bad_tool_calls", f"{column}[{i}] has tool_calls and function_calls; expected one of them"
                )
            message["tool_calls"] = calls
        messages.append(message)
    return Messages(messages, tools)


def _json_list(value: Any, where: str, reason: str) -> list[Any]:
    """A list, or its JSON; nothing if it is empty."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise RecordError(reason, f"{where} is a string that is not valid JSON: {error}") from None
    if isinstance(value, dict):
        value = [value]
    if value and not isinstance(value, list):
        raise RecordError(reason, f"{where} is {kind_of(value)}; expected a list")
    return value or []


def _calls(value: Any, where: str) -> list[Any]:
    """Calls in Python's notation, one on each line or in a list; or as JSON."""
    if not isinstance(value, str) or value.lstrip().startswith(("[{", "{")):
        return _json_list(value, where, "bad_tool_calls")
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
    return function_call(None, ast.unparse(call.func), arguments)


def _value(node: ast.expr) -> Any:
    """The value of an argument, also with the constants of JSON."""
    constants = {"true": True, "false": False, "null": None}
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and name.id not in constants:
            raise ValueError(f"found the name {name.id!r} in place of a value")
    replaced = ast.fix_missing_locations(_Constants(constants).visit(node))
    return json.loads(json.dumps(ast.literal_eval(replaced)))  # tuples become lists, as in JSON


class _Constants(ast.NodeTransformer):
    def __init__(self, values: dict[str, Any]):
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(self._values[node.id]), node)


FORMS = (TurnForm("olmo", _recognizes, _messages),)
