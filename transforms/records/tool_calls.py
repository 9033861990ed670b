"""Tools and tool calls in all the forms that corpora have, as an OpenAI-compatible server gives them to a template."""

from __future__ import annotations

import functools
import re
from itertools import takewhile
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.records.json_text import decode_json, decode_several, decode_whole, kind_of
from transforms.records.reading import ROLE_NAMES, Reading, ReadOptions

_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
# The keys of calls of the OpenAI API, and those of their functions.
_OF_USUAL_CALLS = {"id", "type", "function"}
_OF_USUAL_FUNCTIONS = {"name", "arguments"}
# Where Gemini has tools; where Anthropic and MCP have the parameters of one; where LangChain and others have arguments.
_DECLARATIONS = {"functionDeclarations", "function_declarations"}
_SCHEMAS = ("input_schema", "inputSchema")
_ARGUMENTS = ("arguments", "args", "input")
# The types of calls: of the OpenAI API, of LangChain and of Anthropic.
_CALL_TYPES = (None, "function", "tool_call", "tool_use")
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def tools_of(tools: Any, reading: Reading) -> list[dict[str, Any]] | None:
    """Read tools: a list of objects, or of their JSON, or the JSON of either.

    Returns:
        Each as `{"type": "function", "function": {...}}`; those of another type as they are. None if there are none.

    Raises:
        RecordError: if they are malformed.
    """
    if isinstance(tools, str):
        tools = decode_json(tools, "bad_tools", "tools", reading) if tools.strip() else None
    if not tools:
        return None
    if not isinstance(tools, list):
        raise RecordError("bad_tools", f"tools is {kind_of(tools)}; expected a list of objects, or its JSON")
    if any(isinstance(tool, dict) and None in tool.values() for tool in tools):  # Arrow gives each the keys of all
        tools = [
            {key: value for key, value in tool.items() if value is not None} if isinstance(tool, dict) else tool
            for tool in tools
        ]
    return [_tool(tool, f"tools[{i}]", reading) for i, tool in enumerate(_declared(tools))]


def _declared(tools: list[Any]) -> list[Any]:
    """The tools, also those that Gemini has in lists of function declarations."""
    if not any(isinstance(tool, dict) and not _DECLARATIONS.isdisjoint(tool) for tool in tools):
        return tools
    found: list[Any] = []
    for tool in tools:
        lists = [tool[name] for name in _DECLARATIONS & tool.keys()] if isinstance(tool, dict) else []
        found += lists[0] if len(lists) == len(tool) == 1 and isinstance(lists[0], list) else [tool]
    return found


@functools.lru_cache(256)
def known_tools(json: bytes) -> list[dict[str, Any]] | None:
    """Read tools from their JSON as tools_of does, but once for all records that have the same.

    Returns:
        The same list each time, which is not to be changed.

    Raises:
        ValueError: if the JSON is not valid, or there is something to note.
        RecordError: if they are malformed.
    """
    reading = Reading(ReadOptions(ROLE_NAMES))
    tools = tools_of(msgspec.json.decode(json), reading)
    if reading.notes:
        raise ValueError("there is something to note")
    return tools


def function_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a call in the OpenAI form.

    Args:
        id: of the call; None if it has none.
        name: of the function.
        arguments: an object, or its JSON.
    """
    function = {"name": name, "arguments": {} if arguments is None else arguments}
    return {**({} if id is None else {"id": id}), "type": "function", "function": function}


def _tool(tool: Any, where: str, reading: Reading) -> dict[str, Any]:
    tool = _with_parameters(_object(tool, "bad_tools", where, reading))
    kind = tool.get("type")
    if kind not in (None, "function"):
        return tool
    if tool.get("function") is None:  # bare
        function = {key: value for key, value in tool.items() if key not in ("type", "function")}
        tool = {"type": "function", "function": function}
    function = _object(tool["function"], "bad_tools", f"the function of {where}", reading)
    if not isinstance(function.get("name"), str):
        raise RecordError("bad_tools", f"{where} has no name")
    if isinstance(function.get("parameters"), str):
        parameters = _object(function["parameters"], "bad_tools", f"the parameters of {where}", reading)
        function = {**function, "parameters": parameters}
    if _has_null(function):
        function = _without_nulls(function)
    if function is tool["function"] and kind:
        return tool
    return _wrapped(tool, function)


# The keywords of a JSON schema whose value may be null, and those that have schemas by names.
_MAY_BE_NULL, _BY_NAME = {"default", "const", "example"}, ("properties", "patternProperties", "$defs", "definitions")


def _has_null(value: Any) -> bool:
    """Whether a null is in an object or a list. Most have none, so that nothing need be copied and compared."""
    left = [value] if isinstance(value, (dict, list)) else []
    for each in left:  # which grows
        for inner in each.values() if isinstance(each, dict) else each:
            if inner is None:
                return True
            if isinstance(inner, (dict, list)):
                left.append(inner)
    return False


def _without_nulls(schema: Any) -> Any:
    """A function of a tool, or a JSON schema, without the keys that are null and cannot be: Arrow gives them to all."""
    if isinstance(schema, list):
        found: Any = [_without_nulls(each) for each in schema]
    elif not isinstance(schema, dict):
        return schema
    else:
        found = {
            key: {name: _without_nulls(each) for name, each in value.items() if each is not None}
            if key in _BY_NAME and isinstance(value, dict)
            else value
            if key in _MAY_BE_NULL or key in ("enum", "examples")
            else _without_nulls(value)
            for key, value in schema.items()
            if value is not None or key in _MAY_BE_NULL
        }
    return schema if found == schema else found


def without_padding(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Leave out arguments of calls that are null and that their tool does not have: Arrow gives them to all calls.

    Args:
        messages: with calls in the OpenAI form.
        tools: of tools_of.

    Returns:
        The messages, the same list if nothing is left out; the name of the first argument that is.
    """
    of_calls = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()]
    if not tools or not any(map(_has_null, of_calls)):
        return messages, None
    functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
    schemas = {function["name"]: function.get("parameters") for function in functions}
    left_out: list[str] = []

    def of_call(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = _without_unknown(function["arguments"], schemas.get(function["name"]), left_out)
        return (
            call if arguments is function["arguments"] else {**call, "function": {**function, "arguments": arguments}}
        )

    found = [
        {**message, "tool_calls": [of_call(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]
    return (found, left_out[0]) if left_out else (messages, None)


def _without_unknown(value: Any, schema: Any, left_out: list[str]) -> Any:
    """A value without the keys that are null and that its schema does not have. left_out: gets their names."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        before = len(left_out)
        items = [_without_unknown(item, schema.get("items"), left_out) for item in value]
        return items if len(left_out) > before else value
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict) or schema.get("additionalProperties"):
        return value
    unknown = [key for key, inner in value.items() if inner is None and key not in properties]
    left_out += unknown
    changed = {
        key: found
        for key, inner in value.items()
        if isinstance(inner, (dict, list))
        and (found := _without_unknown(inner, properties.get(key), left_out)) is not inner
    }
    if not unknown and not changed:
        return value
    return {key: changed.get(key, inner) for key, inner in value.items() if key not in unknown}


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool with `parameters`, if it has them under the name of Anthropic or of MCP."""
    schemas = [name for name in _SCHEMAS if isinstance(tool.get(name), dict)]
    if len(schemas) != 1 or "parameters" in tool or tool.get("type") not in (None, "custom", "function"):
        return tool
    names = {schemas[0]: "parameters"}
    return {names.get(key, key): value for key, value in tool.items() if key not in ("type", "cache_control")}


def with_tool_calls(message: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    """Bring the tool calls of a message into the OpenAI form, with arguments that are parsed.

    Args:
        message: the message. OpenAI's older `function_call` becomes a call, too.
        where: its position, for errors.
        reading: the reading of the record; by its option tool_arguments, arguments that are strings are parsed or kept.

    Returns:
        The message; without tool_calls if there are none.

    Raises:
        RecordError: if a call is malformed.
    """
    calls = message.get("tool_calls")
    if isinstance(calls, str):
        calls = decode_json(calls, "bad_tool_calls", f"the tool_calls of {where}", reading) if calls.strip() else None
        calls = [] if calls is None else calls
    call = message.get("function_call")
    if call is not None:
        if calls:
            raise RecordError("bad_tool_calls", f"{where} has both tool_calls and function_call; expected one of them")
        calls = [_object(call, "bad_tool_calls", f"the function_call of {where}", reading)]
    if calls is None:
        return message
    message = {key: value for key, value in message.items() if key != "function_call"}
    if not calls:  # a server leaves an empty list out, since a template may only look whether there is one
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return {**message, "tool_calls": tool_calls_of(calls, f"the tool_calls of {where}", reading)}


def tool_calls_of(calls: Any, where: str, reading: Reading) -> list[dict[str, Any]]:
    """Bring calls into the OpenAI form. Raises RecordError."""
    if not isinstance(calls, list):
        raise RecordError("bad_tool_calls", f"{where} are {kind_of(calls)}; expected a list of objects")
    return [_usual_call(call, reading) or _call(call, f"call {i} of {where}", reading) for i, call in enumerate(calls)]


def _usual_call(call: Any, reading: Reading) -> dict[str, Any] | None:
    """A call that has the OpenAI form, and arguments that are an object or its JSON; None if it is another one."""
    if type(call) is not dict or call.get("type") != "function" or not call.keys() <= _OF_USUAL_CALLS:
        return None
    function = call.get("function")
    if type(function) is not dict or function.keys() != _OF_USUAL_FUNCTIONS or type(function["name"]) is not str:
        return None
    arguments = function["arguments"]
    if type(arguments) is str and reading.options.tool_arguments == "parse":
        arguments = decode_whole(arguments)
        function = {**function, "arguments": arguments}
    return {**call, "function": function} if type(arguments) is dict else None


def _call(call: Any, where: str, reading: Reading) -> dict[str, Any]:
    call = _object(call, "bad_tool_calls", where, reading)
    if call.get("type") not in _CALL_TYPES:
        raise RecordError("bad_tool_calls", f'{where} has the type {call["type"]!r}; expected "function"')
    function, named = call.get("function"), [key for key in _ARGUMENTS if key in call]
    call = {key: value for key, value in call.items() if value is not None or key not in named}
    if function is None:  # bare
        given = [key for key in named if key in call]  # Arrow gives each call the keys of all
        if len(given) > 1 or not named:
            found = f"has {' and '.join(given)}" if given else "has no arguments"
            raise RecordError("bad_tool_calls", f"{where} {found}; expected name and arguments")
        function = {key: call[key] for key in ("name",) if key in call}
        function["arguments"] = call[given[0]] if given else None
        others = {key: value for key, value in call.items() if key not in ("name", *given)}
        if others.get("type") != "function":
            others.pop("type", None)
        call = others | {"function": function}
    function = _object(function, "bad_tool_calls", f"the function of {where}", reading)
    for key in ("name", "arguments"):
        if call.get(key) is not None and call[key] != function.get(key):
            raise RecordError("bad_tool_calls", f"{where} has {key} both in its function and next to it")
    if not function.get("arguments") and (call.get("parameters") or function.get("parameters")):
        raise RecordError("bad_tool_calls", f"{where} has parameters; expected arguments")
    if not isinstance(function.get("name"), str):
        raise RecordError("bad_tool_calls", f"{where} has no name")
    return _wrapped(call, _with_arguments(function, where, reading))


def _with_arguments(function: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    arguments = function.get("arguments")
    if isinstance(arguments, dict) or (isinstance(arguments, str) and reading.options.tool_arguments == "keep"):
        return function
    # vLLM's _postprocess_messages: no arguments are an empty object.
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {**function, "arguments": {}}
    return {**function, "arguments": _object(arguments, "bad_tool_calls", f"the arguments of {where}", reading)}


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
        raise RecordError(reason, f"{where} is {kind_of(value)}; expected an object")
    return value


def read_function_call(value: Any, where: str, reading: Reading) -> tuple[str, list[dict[str, Any]]]:
    """Read ShareGPT's function_call turn: one call or several, as JSON, or in <tool_call> tags as Hermes has them.

    Args:
        value: the turn's value. Reasoning in <think> tags, or text before tags, may precede the calls.
        where: its position, for errors.
        reading: the reading of the record.

    Returns:
        The text that precedes the calls, and the calls in the OpenAI form.

    Raises:
        RecordError: if it has no call, has a malformed one, or has text between or after calls.
    """
    text, calls = "", value
    where = f"the function_call of {where}"
    if isinstance(value, str):
        thought = _THOUGHT.match(value)
        text = thought.group().strip() if thought else ""
        rest = value[thought.end() :].strip() if thought else value.strip()
        if not rest.startswith(("{", "[")) and (tagged := _TOOL_CALL.search(rest)):
            text, rest = "\n\n".join(filter(None, (text, rest[: tagged.start()].strip()))), rest[tagged.start() :]
            if outside := _TOOL_CALL.sub("", rest).strip():
                raise RecordError("bad_tool_calls", f"{where} has text between or after calls: {outside[:60]!r}")
            rest = "\n".join(_TOOL_CALL.findall(rest)).strip()
        values = decode_several(rest, "bad_tool_calls", where, reading)
        calls = [call for one in values for call in (one if isinstance(one, list) else [one])]
    calls = tool_calls_of(calls if isinstance(calls, list) else [calls], where, reading)
    if not calls:
        raise RecordError("bad_tool_calls", f"{where} has no call")
    return text, calls


def with_paired_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls and their answers the same ids, if none of them has one and a turn has several calls.

    Without ids, a template prints the name of another call in an answer. A call that has one answer needs no id. The
    ids have 9 letters and digits, since Mistral's templates accept no others.

    Args:
        messages: of a conversation, with calls in the OpenAI form.

    Returns:
        The messages. Those of a turn stay as they are if its calls are not as many as the answers that follow, or if
        the names of the answers are not those of the calls, in order.
    """
    if _have_ids(messages):
        return messages
    paired, number = list(messages), 0
    for i, message in enumerate(messages):
        calls = _calls(message)
        answers = list(takewhile(lambda message: message["role"] == "tool", messages[i + 1 :]))
        if not 1 < len(calls) == len(answers):
            continue
        names = [call["function"]["name"] for call in calls]
        if any(answer.get("name", name) != name for answer, name in zip(answers, names, strict=True)):
            continue
        ids = [f"call{number + k:05}" for k in range(len(calls))]
        number += len(calls)
        paired[i] = {**message, "tool_calls": [{**call, "id": id_} for call, id_ in zip(calls, ids, strict=True)]}
        for k, (answer, id_) in enumerate(zip(answers, ids, strict=True), start=i + 1):
            paired[k] = {**answer, "tool_call_id": id_}
    return paired


def _have_ids(messages: list[dict[str, Any]]) -> bool:
    for message in messages:
        if "tool_call_id" in message:
            return True
        for call in _calls(message):
            if "id" in call:
                return True
    return False


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []
