"""The messages of a record: what they must have, in the one form that chat templates and the steps after read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from transforms.base.errors import RecordError
from transforms.model.examples import REASONING_KEYS, plain
from transforms.records.content_parts import is_text, with_text_parts
from transforms.records.json_text import kind_of
from transforms.records.media import check_no_media_fields
from transforms.records.reading import ROLES, Reading
from transforms.records.tool_calls import read_function_call, tool_calls_of, with_paired_ids, with_tool_calls
from transforms.records.train_flags import take_weight
from transforms.records.turns import form_of, without_nulls

# The roles of a turn whose value is a call: ShareGPT's, and that of ms-swift.
_CALL_ROLES = ("function_call", "tool_call")
_SHAREGPT = {"from": "role", "value": "content"}
# The channels of Harmony (gpt-oss) on which a model does not answer: of reasoning, and of calls and what precedes them.
_CHANNELS = ("analysis", "commentary")
# The keys of messages that are not changed if their content is text: no calls, media or flags.
_AS_THEY_ARE = {"role", "content", "name", "tool_call_id", "reasoning_content", "thinking"}
_WITH_CALLS = {*_AS_THEY_ARE, "tool_calls"}


def messages_of(turns: Any, column: str, reading: Reading) -> list[dict[str, Any]]:
    """Check messages, and bring them into one form.

    Args:
        turns: the messages, as the record has them.
        column: the column that has them, for errors.
        reading: the reading of the record.

    Returns:
        The messages; the same list if nothing is to be changed. Turns of another form are made into messages, see
        `transforms.records.turns`; the reading has the name of the form, and the tools in them. Roles have the names
        that templates know, calls the OpenAI form, and `weight` is there only if it is not 1. Keys that are not known
        stay.

    Raises:
        RecordError: if a message is malformed, or has content that is not text.
    """
    if not isinstance(turns, list):
        raise RecordError("bad_message", f"{column} is {kind_of(turns)}; expected a list of messages")
    if (usual := _usual(turns, column, reading)) is not None:
        return usual
    turns = _renamed(turns, column, reading)
    roles, roles_and_texts = reading.options.roles, plain(turns)
    if roles_and_texts and roles.keys() >= {*roles_and_texts[0]}:
        return [{"role": roles[role], "content": text} for role, text in zip(*roles_and_texts, strict=True)]
    given = without_nulls(turns)
    if form := form_of(given, column):
        turns, tools = form.messages(given, column)
        reading.forms.append(form.name)
        reading.tools.extend(tools)
    messages: list[dict[str, Any]] = []
    calls: list[tuple[Any, list[dict[str, Any]]]] = []  # of turns that are calls
    for i, turn in enumerate(turns):
        message, is_call = _message(turn, f"{column}[{i}]", reading)
        if is_call:
            calls.append((message.get("id"), message["tool_calls"]))
        if is_call and messages and _continues(message, messages[-1]):
            messages[-1] = _joined(messages[-1], message, f"{column}[{i}]")
        else:
            messages.append(message)
    _check_who_answers(turns, messages, column)
    _use_ids_of_turns(messages, calls)
    return with_paired_ids(messages)


def _check_who_answers(turns: list[Any], messages: list[dict[str, Any]], column: str) -> None:
    """Check that it is not the system who answers, as in dialogs of tasks. Raises RecordError."""
    roles = [message["role"] for message in messages]
    if "assistant" in roles or "system" not in roles[1:] or len(turns) != len(messages):
        return
    for i, turn in enumerate(turns):
        if i and roles[i] == "system" and roles[i - 1] == "user" and turn["role"] != "system":
            found = f'{column}[{i}] has role "{turn["role"]}", and answers the user'
            raise RecordError("unknown_role", f"{found}; expected an assistant. Map it to one of the roles with roles")


def _usual(turns: list[Any], column: str, reading: Reading) -> list[dict[str, Any]] | None:
    """The messages if they are usual ones, in which only the calls may have to be changed; otherwise None.

    All of it is in one loop, since most messages are usual.
    """
    options = reading.options
    if options.message_fields:
        return None
    unchanged_roles = options.unchanged_roles
    if _are_plain(turns, unchanged_roles):
        return turns
    messages: list[dict[str, Any]] = []
    have_calls = False
    for turn in turns:
        if type(turn) is not dict:
            return None
        role, content = turn.get("role"), turn.get("content")
        if type(role) is not str or role not in unchanged_roles:
            return None
        is_string = type(content) is str
        if is_string and len(turn) == 2:
            messages.append({"role": role, "content": content})
            continue
        calls = turn.get("tool_calls")
        if not (is_string or is_text(turn) or (content is None and calls and role == "assistant")):
            return None
        if not turn.keys() <= _WITH_CALLS or options.train_field in turn:
            return None
        if role == "assistant" and _reasoning_of_another_type(turn):
            return None
        if calls is not None:
            if not calls or type(calls) is not list:
                return None
            have_calls = True
            try:
                calls = tool_calls_of(calls, f"the tool_calls of {column}[{len(messages)}]", reading)
            except RecordError:  # a message after this one may have an error that is reported before it
                return None
            turn = {**turn, "tool_calls": calls}
        messages.append(turn)
    return with_paired_ids(messages) if have_calls else messages


def _are_plain(turns: list[Any], roles: Collection[str]) -> bool:
    """Whether turns have a role, one of some, and a text alone."""
    for turn in turns:
        if type(turn) is not dict or len(turn) != 2 or type(turn.get("content")) is not str:
            return False
        role = turn.get("role")
        if type(role) is not str or role not in roles:
            return False
    return True


def _message(turn: Any, where: str, reading: Reading) -> tuple[dict[str, Any], bool]:
    """The message of a turn, and whether its role says that it is a call."""
    if not isinstance(turn, dict):
        raise RecordError("bad_message", f"{where} is {kind_of(turn)}; expected an object with role and content")
    name = turn.get("role")
    if not isinstance(name, str):
        found = f"the role {name!r}; expected a string" if "role" in turn else "no role"
        raise RecordError("bad_message", f"{where} has {found}")
    roles = reading.options.roles
    role = roles.get(name) or roles.get(name.lower(), name)
    is_call = role in _CALL_ROLES
    if role in ROLES and len(turn) == 2 and isinstance(turn.get("content"), str):
        return {"role": role, "content": turn["content"]}, False
    if (role == "assistant" or is_call) and (key := _reasoning_of_another_type(turn)):
        raise RecordError("bad_content", f"the {key} of {where} is {kind_of(turn[key])}; expected a string")
    is_usual = role == name and role in ROLES and turn.keys() <= _AS_THEY_ARE
    if is_usual and reading.options.train_field not in turn and is_text(turn):
        return turn, False
    check_no_media_fields(turn, where)
    if role == "assistant" and turn.get("channel") in _CHANNELS:
        found = f"{where} is on Harmony's channel {turn['channel']}, and would be trained on as an answer"
        raise RecordError(
            "bad_message", f"{found}; expected reasoning as thinking, and calls as tool_calls, of the answer"
        )
    if is_call:
        if turn.get("tool_calls") or turn.get("function_call"):
            raise RecordError(
                "bad_tool_calls", f"{where} has the role {name} and calls in a field; expected one of them"
            )
        text, calls = read_function_call(turn.get("content"), where, reading)
        others = {key: value for key, value in turn.items() if key != "function_call"}
        message = {**others, "role": "assistant", "content": text, "tool_calls": calls}
    elif role in ROLES:
        message = {**turn, "role": role}
    else:
        raise RecordError(
            "unknown_role",
            f'{where} has role "{name}"; known roles are {", ".join(ROLES)}. Map it to one of these with roles',
        )
    if not is_call and ("tool_calls" in message or "function_call" in message):
        message = with_tool_calls(message, where, reading)
    return _with_weight(with_text_parts(message, where, reading), where, reading), is_call


def _reasoning_of_another_type(turn: dict[str, Any]) -> str | None:
    """The key of reasoning that is not a string, which a template would print in Python's notation; None if none is."""
    return next((key for key in REASONING_KEYS if key in turn and turn[key] and not isinstance(turn[key], str)), None)


def _continues(call: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a turn that is a call belongs to the answer before it, whose text then stands before all calls."""
    return before["role"] == "assistant" and not (call["content"] and before.get("tool_calls"))


def _joined(answer: dict[str, Any], call: dict[str, Any], where: str) -> dict[str, Any]:
    """Join a turn that is a call to the answer before it, as ms-swift does: the model ends its turn after the calls.

    Of its other keys, such as a time, those that the answer has are left out.
    """
    for name in ("weight", *REASONING_KEYS):
        values = [message.get(name) for message in (answer, call)]
        if values[0] != values[1] and (name == "weight" or all(values)):
            reason = "bad_weight" if name == "weight" else "bad_message"
            raise RecordError(reason, f"{where} is a call of the answer before it, and has another {name} than that")
    contents = [content for message in (answer, call) if (content := message.get("content"))]
    if len(contents) == 2:
        as_parts = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
        both_are_texts = all(isinstance(each, str) for each in contents)
        contents = ["\n\n".join(contents)] if both_are_texts else [[*as_parts[0], *as_parts[1]]]
    calls = [*(answer.get("tool_calls") or []), *call["tool_calls"]]
    return {**call, **answer, "content": contents[0] if contents else "", "tool_calls": calls}


def _use_ids_of_turns(messages: list[dict[str, Any]], calls: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    """Give calls without an id, and the answers of tools to them, the id that the turns of both have.

    Args:
        messages: in which turns are joined.
        calls: of each turn that is a call its id, and its calls.
    """
    answers = {
        message["id"]: message
        for message in messages
        if message["role"] == "tool" and isinstance(message.get("id"), str) and "tool_call_id" not in message
    }
    for id, of_turn in calls:
        if isinstance(id, str) and id in answers and len(of_turn) == 1 and "id" not in of_turn[0]:
            of_turn[0]["id"] = answers[id]["tool_call_id"] = id


def _with_weight(message: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    """Replace the flags of a message by its weight, if it is not 1 and the model writes the message.

    Its parts keep a weight of 0 if others have 1.
    """
    if message["role"] != "assistant":
        return take_weight(message, where, reading, trainable=False)[0]
    message, weight = take_weight(message, where, reading, trainable=True)
    content = message.get("content")
    if isinstance(content, list) and (of_parts := {part.get("weight", 1) for part in content}) - {1}:
        if weight and 1 in of_parts:
            return message
        weight = 0
        message["content"] = [{key: part[key] for key in part if key != "weight"} for part in content]
    return message if weight == 1 else {**message, "weight": weight}


def _renamed(turns: list[Any], column: str, reading: Reading) -> list[Any]:
    """Rename the fields of messages that have other names: those of message_fields, and ShareGPT's."""
    fields = reading.options.message_fields
    objects = [turn for turn in turns if isinstance(turn, dict)]
    if not fields and not any("from" in turn or "value" in turn for turn in objects):
        return turns
    for theirs in fields.values():
        if not any(theirs in turn for turn in objects):  # it may be mistyped
            reading.notes[f"records_without_{theirs}"] = None
    names = {theirs: ours for ours, theirs in fields.items()}
    renamed = []
    for i, turn in enumerate(turns):
        if isinstance(turn, dict):
            if fields:
                named = {ours: turn[theirs] for ours, theirs in fields.items() if turn.get(theirs) is not None}
                rest = {key: value for key, value in turn.items() if key not in names}
                for ours in named:
                    if rest.get(ours) not in (None, named[ours]):
                        found = f"{column}[{i}] has {ours} and {fields[ours]}; the latter is read"
                        reading.notes.setdefault("message_fields_replaced", found)
                turn = rest | named
            if "from" in turn or "value" in turn:
                turn = _of_sharegpt(turn, f"{column}[{i}]", reading)
        renamed.append(turn)
    return renamed


def _of_sharegpt(turn: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    """Rename `from` and `value` of a turn. Raises RecordError if it has role or content too, with another value."""
    roles, unread = reading.options.roles, set()
    for theirs, ours in _SHAREGPT.items():
        if theirs in turn and ours in turn:
            found = [turn[name] for name in (theirs, ours) if turn[name] is not None]
            if theirs == "from":
                found = [roles.get(name, name) if isinstance(name, str) else name for name in found]
            if len(found) == 2 and found[0] != found[1]:
                raise RecordError("bad_message", f"{where} has {theirs} and {ours}, with different values")
            unread.add(ours if turn[ours] is None else theirs)
    return {_SHAREGPT.get(key, key): value for key, value in turn.items() if key not in unread}
