"""Tools and tool calls in all the forms that corpora have, as an OpenAI-compatible server gives them to a template."""

from __future__ import annotations

import functools
import re
from itertools import takewhile
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.model.examples import ParsedArguments
from transforms.records.json_text import decode_json, decode_several, json_type
from transforms.records.reading import Reading, ReadOptions

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
# Where Gemini has tools; where Anthropic and MCP have the parameters of one; where LangChain and others have arguments.
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("input_schema", "inputSchema")
_ARGUMENTS = ("arguments", "args", "input")
# The keys of calls of the OpenAI API, and those of their functions.
CALL_KEYS, _FUNCTION_KEYS = {"id", "type", "function"}, {"name", "arguments"}
# The types of calls: of the OpenAI API, of LangChain and of Anthropic.
_CALL_TYPES = (None, "function", "tool_call", "tool_use")
# The keywords of a JSON schema that have values, of which the first may be null, and those that have schemas by names.
_MAY_BE_NULL = ("default", "const", "example")
_VALUE_KEYWORDS = (*_MAY_BE_NULL, "enum", "examples")
_SCHEMA_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions")


def read_tools(tools: Any, reading: Reading) -> list[dict[str, Any]] | None:
    """Read tools: a list of objects, or of their JSON, or the JSON of either. Raises RecordError.

    Returns:
        Each as `{"type": "function", "function": {...}}`; those of another type as they are. None if there are none.
        Records of JSON that have the same tools share them, so they are not to be changed.
    """
    if not reading.is_json:
        return _read_tools(tools, reading)
    definitions, notes = _known_tools(tools if isinstance(tools, str) else msgspec.json.encode(tools))
    for name, note in notes.items():
        reading.notes.setdefault(name, note)
    return definitions


@functools.lru_cache(256)
def _known_tools(json: str | bytes) -> tuple[list[dict[str, Any]] | None, dict[str, str | None]]:
    """The tools in JSON, and what is to be noted of them."""
    reading = Reading(ReadOptions(), {})
    return _read_tools(json if isinstance(json, str) else msgspec.json.decode(json), reading), reading.notes


def _read_tools(tools: Any, reading: Reading) -> list[dict[str, Any]] | None:
    if isinstance(tools, str):
        tools = decode_json(tools, "bad_tools", "tools", reading) if tools.strip() else None
    if not tools:
        return None
    if not isinstance(tools, list):
        raise RecordError("bad_tools", f"tools is {json_type(tools)}; expected a list of objects, or its JSON")
    # Arrow gives each object the keys of all, with nulls.
    tools = [{k: v for k, v in tool.items() if v is not None} if isinstance(tool, dict) else tool for tool in tools]
    definitions: list[Any] = []
    for tool in tools:
        [key, *more] = tool if isinstance(tool, dict) and tool else [""]
        is_gemini = not more and key in _DECLARATIONS and isinstance(tool[key], list)
        definitions += tool[key] if is_gemini else [tool]
    return [_tool(tool, f"tools[{i}]", reading) for i, tool in enumerate(definitions)]


def _tool(tool: Any, where: str, reading: Reading) -> dict[str, Any]:
    tool = _object(tool, "bad_tools", where, reading)
    schemas = [name for name in _SCHEMAS if isinstance(tool.get(name), dict)]
    if len(schemas) == 1 and "parameters" not in tool and tool.get("type") in (None, "custom", "function"):
        names = {schemas[0]: "parameters"}
        tool = {names.get(key, key): value for key, value in tool.items() if key not in ("type", "cache_control")}
    if tool.get("type") not in (None, "function"):
        return tool
    if tool.get("function") is None:  # bare
        tool = {"function": {key: value for key, value in tool.items() if key not in ("type", "function")}}
    function = _object(tool["function"], "bad_tools", f"the function of {where}", reading)
    if not isinstance(function.get("name"), str):
        raise RecordError("bad_tools", f"{where} has no name")
    if isinstance(function.get("parameters"), str):
        parameters = _object(function["parameters"], "bad_tools", f"the parameters of {where}", reading)
        function = {**function, "parameters": parameters}
    return _wrapped(tool, _without_nulls(function))


def _without_nulls(schema: Any, is_by_name: bool = False) -> Any:
    """A function of a tool, or a JSON schema, or schemas by names, without the keys that are null and cannot be."""
    if isinstance(schema, list):
        return [_without_nulls(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_nulls(value, not is_by_name and key in _SCHEMA_KEYWORDS)
        if is_by_name or key not in _VALUE_KEYWORDS
        else value
        for key, value in schema.items()
        if value is not None or (key in _MAY_BE_NULL and not is_by_name)
    }


def leave_out_padding(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str | None:
    """Leave out arguments of calls that are null and that their tool does not have: Arrow gives them to all calls.

    Args:
        messages: as read_messages returns them, whose calls are changed.
        tools: as read_tools returns them.

    Returns:
        The name of the first argument that is left out; None if none is.
    """
    calls = [
        call
        for message in messages
        for call in message.get("tool_calls") or ()
        if _has_null(call["function"]["arguments"])
    ]
    functions = [tool["function"] for tool in tools if tool.get("type") == "function"] if calls else ()
    schemas = {function["name"]: function.get("parameters") for function in functions}
    left_out: list[str] = []
    for call in calls:
        function, already = call["function"], len(left_out)
        arguments = _without_unknown(function["arguments"], schemas.get(function["name"]), left_out)
        if len(left_out) > already:
            call["function"] = {**function, "arguments": arguments}
    return left_out[0] if left_out else None


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return value is None
    return any(map(_has_null, value))


def _without_unknown(value: Any, schema: Any, left_out: list[str]) -> Any:
    """A value without the keys that are null and that its schema does not have. left_out: gets their names."""
    if not isinstance(schema, dict) or not _has_null(value):
        return value
    if isinstance(value, list):
        return [_without_unknown(item, schema.get("items"), left_out) for item in value]
    # xLAM's parameters are the properties themselves.
    properties = schema.get("properties", None if isinstance(schema.get("type"), str) else schema)
    if not isinstance(value, dict) or not isinstance(properties, dict) or schema.get("additionalProperties"):
        return value
    unknown = [key for key, inner in value.items() if inner is None and key not in properties]
    left_out += unknown
    kept = {key: inner for key, inner in value.items() if key not in unknown}
    return {key: _without_unknown(inner, properties.get(key), left_out) for key, inner in kept.items()}


def function_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a call in the OpenAI form. Its arguments are an object, or JSON; an id that is None is left out."""
    function = {"name": name, "arguments": {} if arguments is None else arguments}
    return {**({} if id is None else {"id": id}), "type": "function", "function": function}


def with_tool_calls(message: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    """Bring the tool calls of a message into the OpenAI form; OpenAI's older `function_call` becomes one, too.

    Returns:
        The message; without tool_calls if there are none.

    Raises:
        RecordError: if a call is malformed.
    """
    calls, call = message.get("tool_calls"), message.get("function_call")
    if calls is None and call is None:
        return message
    if isinstance(calls, str):
        calls = decode_json(calls.strip() or "[]", "bad_tool_calls", f"the tool_calls of {where}", reading)
    if call not in (None, ""):
        if calls:
            raise RecordError("bad_tool_calls", f"{where} has both tool_calls and function_call; expected one of them")
        calls = [_object(call, "bad_tool_calls", f"the function_call of {where}", reading)]
    # A server leaves an empty list out, since a template may only look whether there is one.
    left_out = ("function_call",) if calls else ("function_call", "tool_calls")
    message = {key: value for key, value in message.items() if key not in left_out}
    if calls:
        message["tool_calls"] = read_tool_calls(calls, f"the tool_calls of {where}", reading)
    return message


def read_tool_calls(calls: Any, where: str, reading: Reading) -> list[dict[str, Any]]:
    """Bring calls into the OpenAI form. Raises RecordError."""
    if not isinstance(calls, list):
        raise RecordError("bad_tool_calls", f"{where} are {json_type(calls)}; expected a list of objects")
    return [_call(call, f"call {i} of {where}", reading) for i, call in enumerate(calls)]


def _call(call: Any, where: str, reading: Reading) -> dict[str, Any]:
    if not _is_usual(call):
        call = _usual_call(call, where, reading)
    function = call["function"]
    arguments = function["arguments"]
    if type(arguments) is not dict and (type(arguments) is not str or reading.options.tool_arguments == "parse"):
        # vLLM's _postprocess_messages: no arguments are an empty object.
        is_empty = arguments is None or (type(arguments) is str and not arguments.strip())
        parsed = {} if is_empty else _object(arguments, "bad_tool_calls", f"the arguments of {where}", reading)
        is_text = type(arguments) is str and not is_empty
        function = {**function, "arguments": ParsedArguments(parsed, arguments) if is_text else parsed}
    return {**call, "function": function}


def _is_usual(call: Any) -> bool:
    """Whether a call has the OpenAI form, but for its arguments: it takes a third of the time to see that at once."""
    if type(call) is not dict or call.get("type") != "function" or not call.keys() <= CALL_KEYS:
        return False
    function = call.get("function")
    return type(function) is dict and function.keys() == _FUNCTION_KEYS and type(function["name"]) is str


def _usual_call(call: Any, where: str, reading: Reading) -> dict[str, Any]:
    """A call in the OpenAI form, with its arguments as they are. Raises RecordError."""
    call = _object(call, "bad_tool_calls", where, reading)
    if call.get("type") not in _CALL_TYPES:
        raise RecordError("bad_tool_calls", f'{where} has the type {call["type"]!r}; expected "function"')
    named = [key for key in _ARGUMENTS if key in call]
    call = {key: value for key, value in call.items() if value is not None or key not in named}
    function = call.get("function")
    if function is None:  # bare
        given = [key for key in named if key in call]  # Arrow gives each call the keys of all
        if len(given) > 1 or not named:
            problem = f"{where} has {' and '.join(given) or 'no arguments'}; expected name and arguments"
            raise RecordError("bad_tool_calls", problem)
        function = {"name": call.pop("name", None), "arguments": call.pop(given[0]) if given else None}
        if call.get("type") != "function":
            call.pop("type", None)
    function = _object(function, "bad_tool_calls", f"the function of {where}", reading)
    for key in ("name", "arguments"):
        if call.get(key) is not None and call[key] != function.get(key):
            raise RecordError("bad_tool_calls", f"{where} has {key} both in its function and next to it")
    if not function.get("arguments") and (call.get("parameters") or function.get("parameters")):
        raise RecordError("bad_tool_calls", f"{where} has parameters; expected arguments")
    if not isinstance(function.get("name"), str):
        raise RecordError("bad_tool_calls", f"{where} has no name")
    return _wrapped(call, {**function, "arguments": function.get("arguments")})


def _wrapped(item: dict[str, Any], function: dict[str, Any]) -> dict[str, Any]:
    """The call or tool of a function, with the type if it lacks it."""
    if item.get("type") is not None:
        return {**item, "function": function}
    rest = {key: value for key, value in item.items() if key not in ("type", "function")}
    return {**rest, "type": "function", "function": function}


def _object(value: Any, reason: str, where: str, reading: Reading) -> dict[str, Any]:
    """An object, or the JSON of one."""
    if isinstance(value, str):
        value = decode_json(value, reason, where, reading)
    if not isinstance(value, dict):
        raise RecordError(reason, f"{where} is {json_type(value)}; expected an object")
    return value


def read_function_call(value: Any, where: str, reading: Reading) -> tuple[str, list[dict[str, Any]]]:
    """Read ShareGPT's function_call turn: one call or several, as JSON, or in <tool_call> tags as Hermes has them.

    Returns:
        The text that precedes the calls, such as reasoning in <think> tags, and the calls in the OpenAI form.

    Raises:
        RecordError: if it has no call, has a malformed one, or has text between or after calls.
    """
    text, calls = "", value if isinstance(value, list) else [value]
    where = f"the function_call of {where}"
    if isinstance(value, str):
        thought = _THOUGHT.match(value)
        start = thought.end() if thought else 0
        text, rest = value[:start].strip(), value[start:].strip()
        if not rest.startswith(("{", "[")) and (tagged := _TOOL_CALL.search(rest)):
            text, rest = "\n\n".join(filter(None, (text, rest[: tagged.start()].strip()))), rest[tagged.start() :]
            if outside := _TOOL_CALL.sub("", rest).strip():
                raise RecordError("bad_tool_calls", f"{where} has text between or after calls: {outside[:60]!r}")
            rest = "\n".join(_TOOL_CALL.findall(rest)).strip()
        values = decode_several(rest, "bad_tool_calls", where, reading)
        calls = [call for one in values for call in (one if isinstance(one, list) else [one])]
    if not calls:
        raise RecordError("bad_tool_calls", f"{where} has no call")
    return text, read_tool_calls(calls, where, reading)


def with_paired_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls and their answers the same ids, if none of them has one and a turn has several calls.

    Without ids, a template prints the name of another call in an answer. A call that has one answer needs no id. The
    ids have 9 letters and digits, since Mistral's templates accept no others. A turn stays as it is if its calls are
    not as many as the answers that follow, or if the names of the answers are not those of the calls, in order.
    """
    have_calls = [at for at, message in enumerate(messages) if message.get("tool_calls")]
    if any("tool_call_id" in message for message in messages):
        return messages
    if any("id" in call for at in have_calls for call in messages[at]["tool_calls"]):
        return messages
    paired, number = list(messages), 0
    for at in have_calls:
        calls = messages[at]["tool_calls"]
        if len(calls) < 2:
            continue
        answers = [*takewhile(lambda message: message["role"] == "tool", messages[at + 1 :])]
        names = [call["function"]["name"] for call in calls]
        answered = [answer.get("name", name) for answer, name in zip(answers, names, strict=False)]
        if len(answers) != len(calls) or answered != names:
            continue
        for place, (call, answer) in enumerate(zip(calls, answers, strict=True), at + 1):
            call["id"] = f"call{number:05}"
            paired[place] = {**answer, "tool_call_id": call["id"]}
            number += 1
    return paired
