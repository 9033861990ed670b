"""The messages of a record: what they must have, in the one form that chat templates and the steps after read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from transforms.base.errors import RecordError
from transforms.model.examples import REASONING_KEYS, are_text_parts
from transforms.records.json_text import json_type
from transforms.records.media import MEDIA, check_no_media_fields
from transforms.records.reading import ROLES, Reading, ReadOptions
from transforms.records.tool_calls import (
    CALL_KEYS,
    read_function_call,
    read_tool_calls,
    with_paired_ids,
    with_tool_calls,
)
from transforms.records.train_flags import take_weight
from transforms.records.turns import read_turns

# The roles of a turn whose value is a call: ShareGPT's, and that of ms-swift.
_CALL_ROLES = ("function_call", "tool_call")
_SHAREGPT = {"from": "role", "value": "content"}
# The channels of Harmony (gpt-oss) on which a model does not answer: of reasoning, and of calls and what precedes them.
_CHANNELS = ("analysis", "commentary")
# The keys of messages of which only the calls may have to be changed, if their content is text.
_USUAL = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking"}
# OpenAI's chat API, and its responses API.
_TEXT = ("text", "input_text", "output_text")
# The keys of a tool's answer that has no content, as that of a tool that returns nothing.
_EMPTY_ANSWER_KEYS = {"role", "content", "tool_call_id", "name", "id"}
_AS_JSON = "Write another value as a string, with json.dumps"
_NO_FINER = "only a whole message, or a text of it, can be left out"
# Where the text of a part is. LLaMA-Factory: value.
_TEXT_KEYS = ("text", "value", "content")


def read_messages(turns: Any, column: str, reading: Reading) -> list[dict[str, Any]]:
    """Check the messages of a column, and bring them into one form.

    Returns:
        The messages. Turns of another form are made into messages, see `transforms.records.turns`. Roles have the names
        that templates know, calls the OpenAI form, and `weight` is there only if it is not 1. Other keys stay.

    Raises:
        RecordError: if a message is malformed, or has content that is not text.
    """
    if not isinstance(turns, list):
        raise RecordError("bad_message", f"{column} is {json_type(turns)}; expected a list of messages")
    options = reading.options
    if options.message_fields or not all(_is_usual(turn, options) for turn in turns):
        return with_paired_ids(_read_unusual(turns, column, reading))
    messages = turns
    for i, turn in enumerate(turns):
        if calls := turn.get("tool_calls"):
            messages = messages[:] if messages is turns else messages
            calls = read_tool_calls(calls, f"the tool_calls of {column}[{i}]", reading)
            messages[i] = {**turn, "tool_calls": calls}
            if not all(call.keys() <= CALL_KEYS for call in calls):  # a call may have a flag
                messages[i] = _with_weight(messages[i], 1, f"{column}[{i}]", reading)
    return messages if messages is turns else with_paired_ids(messages)


def _is_usual(turn: Any, options: ReadOptions) -> bool:
    """Whether of a message only the calls may have to be changed. To see that is much faster than the rest."""
    if type(turn) is not dict:
        return False
    role, content, calls = turn.get("role"), turn.get("content"), turn.get("tool_calls")
    if type(role) is not str or role not in options.unchanged_roles:
        return False
    if type(content) is str and len(turn) == 2:
        return True
    if not turn.keys() <= _USUAL or options.train_field in turn or (role == "assistant" and _odd_reasoning(turn)):
        return False
    if calls is not None and (type(calls) is not list or not calls):
        return False
    return type(content) is str or are_text_parts(content) or bool(content is None and calls and role == "assistant")


def _read_unusual(turns: list[Any], column: str, reading: Reading) -> list[dict[str, Any]]:
    """Read messages of other names, forms, roles, contents or keys. Calls that need ids have none yet."""
    turns = read_turns(_renamed(turns, column, reading), column, reading)
    messages: list[dict[str, Any]] = []
    call_turns: list[dict[str, Any]] = []
    for i, turn in enumerate(turns):
        message, is_call = _message(turn, f"{column}[{i}]", reading)
        if is_call:
            call_turns.append(message)
            # The text of a turn that is a call would stand before the calls of the answer before it.
            is_first = message["content"] and messages and messages[-1].get("tool_calls")
            if messages and messages[-1]["role"] == "assistant" and not is_first:
                message = _joined(messages.pop(), message, f"{column}[{i}]")
        messages.append(message)
    roles = [message["role"] for message in messages]
    for i, pair in enumerate(pairwise(roles), 1):
        # It is the system who answers, as in dialogs of tasks.
        if "assistant" not in roles and pair == ("user", "system") and turns[i]["role"] != "system":
            problem = f'{column}[{i}] has role "{turns[i]["role"]}", and answers the user'
            raise RecordError(
                "unknown_role", f"{problem}; expected an assistant. Map it to one of the roles with roles"
            )
    _use_turn_ids(messages, call_turns)
    return messages


def _message(turn: Any, where: str, reading: Reading) -> tuple[dict[str, Any], bool]:
    """The message of a turn, and whether its role says that it is a call."""
    if not isinstance(turn, dict):
        raise RecordError("bad_message", f"{where} is {json_type(turn)}; expected an object with role and content")
    name = turn.get("role")
    if not isinstance(name, str):
        problem = f"the role {name!r}; expected a string" if "role" in turn else "no role"
        raise RecordError("bad_message", f"{where} has {problem}")
    roles = reading.options.roles
    role = roles.get(name) or roles.get(name.lower(), name)
    is_call = role in _CALL_ROLES
    if role in ROLES and len(turn) == 2 and isinstance(turn.get("content"), str):
        return {"role": role, "content": turn["content"]}, False
    if (role == "assistant" or is_call) and (key := _odd_reasoning(turn)):
        raise RecordError("bad_content", f"the {key} of {where} is {json_type(turn[key])}; expected a string")
    check_no_media_fields(turn, where)
    if role == "assistant" and turn.get("channel") in _CHANNELS:
        problem = f"{where} is on Harmony's channel {turn['channel']}, and would be trained on as an answer; expected"
        raise RecordError("bad_message", f"{problem} reasoning as thinking, and calls as tool_calls, of the answer")
    if is_call:
        if turn.get("tool_calls") or turn.get("function_call"):
            raise RecordError("bad_tool_calls", f"{where} has the role {name} and calls in a field; expected one")
        text, calls = read_function_call(turn.get("content"), where, reading)
        others = {key: value for key, value in turn.items() if key != "function_call"}
        message = {**others, "role": "assistant", "content": text, "tool_calls": calls}
    elif role in ROLES:
        message = with_tool_calls({**turn, "role": role}, where, reading)
    else:
        problem = f'{where} has role "{name}"; known roles are {", ".join(ROLES)}'
        raise RecordError("unknown_role", f"{problem}. Map it to one of these with roles")
    return _with_weight(*_with_text_parts(message, where, reading), where, reading), is_call


def _odd_reasoning(turn: dict[str, Any]) -> str | None:
    """The key of reasoning that is not a string, which a template would print in Python's notation; None if none is."""
    return next((key for key in REASONING_KEYS if key in turn and turn[key] and not isinstance(turn[key], str)), None)


def _with_text_parts(message: dict[str, Any], where: str, reading: Reading) -> tuple[dict[str, Any], int]:
    """Check the content of a message, and bring its parts into the form `{"type": "text", "text": ...}`.

    LLaMA-Factory's parts of the types `reasoning` and `tool_call` become fields of the message.

    Returns:
        The message, whose texts and calls have the weight of their parts, if it is not 1; and that of its reasoning.

    Raises:
        RecordError: if content is missing or is not text.
    """
    content = message.get("content")
    if isinstance(content, str) or are_text_parts(content):
        return message, 1
    if content is None:
        if message["role"] == "tool" and not any(message[key] for key in message.keys() - _EMPTY_ANSWER_KEYS):
            return {**message, "content": ""}, 1
        if message["role"] != "assistant" or not any(message.get(key) for key in ("tool_calls", *REASONING_KEYS)):
            raise RecordError("bad_content", f"{where} has no content")
        return message, 1
    if not isinstance(content, list):
        problem = f"the content of {where} is {json_type(content)}; expected a string or text parts"
        raise RecordError("bad_content", f"{problem}. {_AS_JSON}")
    parts: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    of_reasoning = 1
    for i, part in enumerate(content):
        at = f"content[{i}] of {where}"
        if message["role"] == "tool" and part in ({"type": "text"}, {"type": "text", "text": None}):
            part = {"type": "text", "text": ""}  # as a content that is null
        kind, text = _kind_and_text(part, at)
        part, weight = take_weight(part, at, reading, message["role"] == "assistant")
        flags = {} if weight == 1 else {"weight": weight}
        if kind == "text" and "tool_calls" not in fields:
            if part.get("type") != "text" or part.get("text") != text:
                rest = {key: value for key, value in part.items() if key not in ("type", *_TEXT_KEYS)}
                part = {"type": "text", "text": text, **rest}
            parts.append({**part, **flags})
        elif kind == "reasoning" and not parts and (not fields or of_reasoning == weight == 0):
            fields["reasoning_content"] = "\n\n".join(filter(None, (fields.get("reasoning_content"), text)))
            of_reasoning = weight
        elif kind == "tool_call":
            calls = [{**call, **flags} for call in read_tool_calls([text], at, reading)]
            fields["tool_calls"] = fields.get("tool_calls", []) + calls
        else:
            raise RecordError("bad_content", f"{at} is of type {kind}; expected reasoning, then text, then calls")
    if taken := sorted(name for name in fields if message.get(name)):
        if of_reasoning == 0 and "reasoning_content" in taken:
            raise RecordError("bad_weight", f"{where} is trained on in part of its reasoning; {_NO_FINER}")
        raise RecordError("bad_content", f"{where} has {' and '.join(taken)} both as a field and in a part")
    return {**message, "content": parts if parts or not fields else "", **fields}, of_reasoning


def _kind_and_text(part: Any, where: str) -> tuple[str, str]:
    """The type of a part (text, reasoning or tool_call), and its text."""
    if not isinstance(part, dict):
        raise RecordError("bad_content", f"{where} is {json_type(part)}; expected an object with type and text")
    kind = part.get("type") or "text"
    if medium := next((medium for medium in MEDIA if medium in str(kind)), None):
        raise RecordError(medium, f"{where} has {medium} (type {kind}); only text can be tokenized")
    check_no_media_fields(part, where)
    texts = [part[name] for name in _TEXT_KEYS if part.get(name) is not None]
    text = texts[0] if texts and texts.count(texts[0]) == len(texts) else None
    if kind in _TEXT and not isinstance(text, str):
        problem = "a text that is not one string" if texts else "no text"
        raise RecordError("bad_content", f'{where} has {problem}; expected {{"type": "text", "text": …}}. {_AS_JSON}')
    if kind not in (*_TEXT, "reasoning", "tool_call") or not isinstance(text, str):
        raise RecordError("bad_content", f'{where} is not {{"type": "text", "text": …}}; its type is {kind!r}')
    return "text" if kind in _TEXT else kind, text


def _with_weight(message: dict[str, Any], of_reasoning: int, where: str, reading: Reading) -> dict[str, Any]:
    """Replace the flags of a message, and of its calls, by its weight, if it is not 1 and the model writes the message.

    Its texts keep a weight of 0 if another part of it has 1: a text, its reasoning, or its calls. Raises RecordError if
    reasoning or a call has 0, and another part has 1.
    """
    is_answer = message["role"] == "assistant"
    message, weight = take_weight(message, where, reading, is_answer)
    content = message.get("content")
    if isinstance(content, list):
        texts = {part.get("weight", 1) for part in content}
    else:
        texts = {1} if content and content.strip() else set()
    others = {of_reasoning} if any(map(message.get, REASONING_KEYS)) else set()
    if calls := message.get("tool_calls"):
        taken = [take_weight(call, f"call {i} of {where}", reading, is_answer) for i, call in enumerate(calls)]
        message = {**message, "tool_calls": [call for call, _ in taken]}
        others |= {of_call for _, of_call in taken}
    weights = texts | others
    if weight and 0 in others and 1 in weights:
        problem = f"reasoning or a call of {where} is not trained on, and the rest is"
        raise RecordError("bad_weight", f"{problem}; {_NO_FINER}")
    if 0 in weights and not (weight and 1 in weights):
        weight = 0
        if 0 in texts:
            message["content"] = [{key: part[key] for key in part if key != "weight"} for part in content or ()]
    return message if weight == 1 else {**message, "weight": weight}


def _joined(answer: dict[str, Any], call: dict[str, Any], where: str) -> dict[str, Any]:
    """Join a turn that is a call to the answer before it, as ms-swift does: the model ends its turn after the calls.

    Of its other keys, such as a time, those that the answer has are left out.
    """
    for name in ("weight", *REASONING_KEYS):
        values = [message.get(name) for message in (answer, call)]
        if values[0] != values[1] and (name == "weight" or all(values)):
            reason = "bad_weight" if name == "weight" else "bad_message"
            raise RecordError(reason, f"{where} is a call of the answer before it, and has another {name} than that")
    content, text = answer.get("content"), call["content"]
    if isinstance(content, list):
        content = [*content, {"type": "text", "text": text}] if text else content
    else:
        content = "\n\n".join(filter(None, (content, text)))
    calls = [*(answer.get("tool_calls") or []), *call["tool_calls"]]
    return {**call, **answer, "content": content, "tool_calls": calls}


def _use_turn_ids(messages: list[dict[str, Any]], call_turns: list[dict[str, Any]]) -> None:
    """Give calls without an id, and the answers of tools to them, the id that the turns of both have."""
    tools = [message for message in messages if message["role"] == "tool" and "tool_call_id" not in message]
    answers = {message["id"]: message for message in tools if isinstance(message.get("id"), str)}
    for turn in call_turns:
        id, calls = turn.get("id"), turn["tool_calls"]
        if isinstance(id, str) and id in answers and len(calls) == 1 and "id" not in calls[0]:
            calls[0]["id"] = answers[id]["tool_call_id"] = id


def _renamed(turns: list[Any], column: str, reading: Reading) -> list[Any]:
    """Rename the fields of messages that have other names: those of message_fields, and ShareGPT's."""
    fields = reading.options.message_fields
    objects = [turn for turn in turns if isinstance(turn, dict)]
    if not fields and not any("from" in turn or "value" in turn for turn in objects):
        return turns
    for theirs in fields.values():
        if not any(theirs in turn for turn in objects):  # it may be mistyped
            reading.notes[f"records_without_{theirs}"] = None
    return [_with_our_names(turn, f"{column}[{i}]", reading) for i, turn in enumerate(turns)]


def _with_our_names(turn: Any, where: str, reading: Reading) -> Any:
    """Rename the fields of a turn. Raises RecordError if it has those of ShareGPT, and ours with other values."""
    if not isinstance(turn, dict):
        return turn
    if fields := reading.options.message_fields:
        named = {ours: turn[theirs] for ours, theirs in fields.items() if turn.get(theirs) is not None}
        turn = {key: value for key, value in turn.items() if key not in fields.values()}
        if twice := next((ours for ours in named if turn.get(ours) not in (None, named[ours])), None):
            note = f"{where} has {twice} and {fields[twice]}; the latter is read"
            reading.notes.setdefault("message_fields_replaced", note)
        turn |= named
    unread = set()
    for theirs, ours in _SHAREGPT.items():
        if theirs in turn and ours in turn:
            values = [turn[name] for name in (theirs, ours) if turn[name] is not None]
            if theirs == "from":
                values = [reading.options.roles.get(str(name), name) for name in values]
            if len(values) == 2 and values[0] != values[1]:
                raise RecordError("bad_message", f"{where} has {theirs} and {ours}, with different values")
            unread.add(ours if turn[ours] is None else theirs)
    return {_SHAREGPT.get(key, key): value for key, value in turn.items() if key not in unread}
