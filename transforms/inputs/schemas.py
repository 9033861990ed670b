"""The schemas of chat corpora: how a record with the columns of one becomes the content of an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from transforms.choices import RESERVED_TEMPLATE_KWARGS, ROLES
from transforms.errors import RecordError
from transforms.model.examples import Conversation, PlainText, PromptCompletion, TokenRow, plain

Content: TypeAlias = Conversation | PromptCompletion | PlainText | TokenRow

ROLE_NAMES = {role: role for role in ROLES} | {"human": "user", "gpt": "assistant", "observation": "tool"}
# ShareGPT's own role for an assistant turn whose value is the JSON of a call.
_FUNCTION_CALL = "function_call"
_MEDIA = ("image", "audio", "video")
# What decoding raises for a string that is no JSON, is nested too deeply, or is no Unicode.
_NO_JSON = (msgspec.MsgspecError, RecursionError, UnicodeEncodeError)


def content_of(record: Mapping[str, Any], schema: str, roles: Mapping[str, str]) -> Content:
    """What a record says. Raises RecordError where it does not fit the schema.

    schema: a key of SCHEMAS, or auto: the first whose columns the record has.
    roles: the role that each name stands for.
    """
    if schema == "auto":
        schema = next((name for name, (columns, _) in SCHEMAS.items() if columns <= record.keys()), "")
        if not schema:
            raise RecordError(
                "unknown_schema",
                f"the columns are {', '.join(map(str, record)) or 'none'}; expected "
                + "; or ".join(" and ".join(sorted(columns)) for columns, _ in SCHEMAS.values())
                + ". Name others with --columns messages=dialog, or give a --formatter",
            )
    columns, read = SCHEMAS[schema]
    if missing := sorted(columns - record.keys()):
        raise RecordError("missing_column", f"schema {schema} needs {' and '.join(missing)}, which the record lacks")
    return read(record, roles)


def plain_decoder(roles: Mapping[str, str]) -> Callable[[bytes], Conversation]:
    """Decodes JSON records of plain messages alone, as most are, to what content_of makes of them, in half the time.

    The function raises ValueError for any other record, whatever it is; what columns hold that nobody reads may be out
    of range. roles: as in content_of.
    """
    names = tuple(name for name, role in roles.items() if name == role)
    message = msgspec.defstruct("Message", [("role", Literal[names]), ("content", str)], forbid_unknown_fields=True)
    messages = Annotated[list[message], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]
    absent = [(column, None, None) for column in ("input_ids", "tools", "chat_template_kwargs")]
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(
        msgspec.defstruct("Record", [("messages", messages), *absent])
    ).decode

    def decode_plain(raw: bytes) -> Conversation:
        said = decode(raw).messages
        if not raw.isascii():
            raw.decode()  # columns that are not read are not looked at otherwise
        return Conversation((tuple([turn.role for turn in said]), [turn.content for turn in said], raw))

    return decode_plain


def _messages(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    return _conversation(_turns(record["messages"], "messages", roles), record)


def _prompt_completion(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation | PromptCompletion:
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not prompt + completion:
            raise RecordError("empty", "prompt and completion are both empty")
        return PromptCompletion(prompt, completion)
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise RecordError(
            "bad_prompt_completion",
            f"prompt is {kind_of(prompt)}, completion is {kind_of(completion)}; expected strings, or lists of messages",
        )
    if not completion:
        raise RecordError("empty", "completion has no messages")
    prompt_messages = _turns(prompt, "prompt", roles)
    messages = prompt_messages + _turns(completion, "completion", roles)
    return _conversation(messages, record, completion_start=len(prompt_messages))


def _sharegpt(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    turns = record["conversations"]
    if isinstance(turns, list):
        turns = [_renamed(turn) if isinstance(turn, dict) else turn for turn in turns]
    messages = _turns(turns, "conversations", roles)
    return _conversation(_system(record) + messages, record)


def _renamed(turn: dict[str, Any]) -> dict[str, Any]:
    """A ShareGPT turn under the names of a message."""
    names = {"from": "role", "value": "content"}
    return {names.get(key, key): value for key, value in turn.items() if names.get(key) not in turn}


def _alpaca(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    """As the Alpaca dataset's readers do: the input stands below the instruction, history is earlier turns."""
    for column in ("instruction", "input", "output"):
        if not isinstance(record.get(column, ""), str):
            raise RecordError("bad_alpaca", f"{column} is {kind_of(record[column])}; expected a string")
    history = record.get("history") or []
    if not isinstance(history, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in history
    ):
        raise RecordError("bad_alpaca", "history is not a list of [instruction, output] pairs of strings")
    question = "\n".join(text for text in (record["instruction"], record.get("input", "")) if text)
    pairs = [*history, [question, record["output"]]]
    messages = [
        message
        for asked, answered in pairs
        for message in ({"role": "user", "content": asked}, {"role": "assistant", "content": answered})
    ]
    return _conversation(_system(record) + messages, record)


def _text(record: Mapping[str, Any], roles: Mapping[str, str]) -> PlainText:
    text = record["text"]
    if not isinstance(text, str):
        raise RecordError("bad_text", f"text is {kind_of(text)}; expected a string")
    if not text:
        raise RecordError("empty", "text is empty")
    return PlainText(text)


def _tokenized(record: Mapping[str, Any], roles: Mapping[str, str]) -> TokenRow:
    ids = _integers(record["input_ids"], "input_ids")
    if not len(ids):
        raise RecordError("empty", "input_ids is empty")
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        raise RecordError(
            "bad_tokens", f"input_ids holds {ids[ids < 0][0] if ids.min() < 0 else ids.max()}, no token id"
        )
    trained = np.ones(len(ids), bool)
    if "labels" in record:
        labels = _integers(record["labels"], "labels", len(ids))
        trained = labels != -100
        wrong = np.flatnonzero(trained & (labels != ids))
        if len(wrong):
            at = wrong[0]
            raise RecordError("bad_tokens", f"label {at} is {labels[at]}; expected the token's id {ids[at]}, or -100")
    for name in ("completion_mask", "assistant_masks", "attention_mask"):
        if name in record:
            mask = _integers(record[name], name, len(ids))
            if not np.isin(mask, (0, 1)).all():
                raise RecordError("bad_tokens", f"{name} holds other numbers than 0 and 1")
            if name == "attention_mask" and not mask.all():
                raise RecordError(
                    "bad_tokens", "attention_mask holds 0: the row is padded; expected it without padding"
                )
            trained &= mask.astype(bool)
    return TokenRow(ids.astype(np.int32), trained)


# The columns that tell each schema, in the order in which auto looks for them, and how it is read.
SCHEMAS: dict[str, tuple[set[str], Callable[[Mapping[str, Any], Mapping[str, str]], Content]]] = {
    "tokenized": ({"input_ids"}, _tokenized),
    "messages": ({"messages"}, _messages),
    "prompt_completion": ({"prompt", "completion"}, _prompt_completion),
    "sharegpt": ({"conversations"}, _sharegpt),
    "alpaca": ({"instruction", "output"}, _alpaca),
    "text": ({"text"}, _text),
}


def _system(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    system = record.get("system")
    if system is not None and not isinstance(system, str):
        raise RecordError("bad_message", f"system is {kind_of(system)}; expected a string")
    return [{"role": "system", "content": system}] if system else []


def _conversation(
    messages: list[dict[str, Any]], record: Mapping[str, Any], completion_start: int | None = None
) -> Conversation:
    if not messages:
        raise RecordError("empty", "there are no messages")
    tools = _decoded(record.get("tools"), "tools") or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise RecordError("bad_tools", "tools is not a list of objects, nor the JSON of one")
    arguments = _decoded(record.get("chat_template_kwargs"), "chat_template_kwargs") or {}
    if not isinstance(arguments, dict):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs is {kind_of(arguments)}; expected an object")
    if arguments and (taken := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys())):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs holds {', '.join(taken)}, which the job sets")
    return Conversation(messages, tools, arguments, completion_start)


def _decoded(value: Any, column: str) -> Any:
    """The value, or what it is the JSON of: tables hold what varies from row to row as a string."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value) if value.strip() else None
    except _NO_JSON as error:
        raise RecordError(
            f"bad_{column.removeprefix('chat_')}", f"{column} is a string that is no JSON: {error}"
        ) from None


def _turns(turns: Any, column: str, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    if not isinstance(turns, list):
        raise RecordError("bad_message", f"{column} is {kind_of(turns)}; expected a list of messages")
    said = plain(turns)
    if said and all(roles.get(role) == role for role in {*said[0]}):
        return turns
    return [_message(turn, f"{column}[{i}]", roles) for i, turn in enumerate(turns)]


def _message(message: Any, where: str, roles: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RecordError("bad_message", f"{where} is {kind_of(message)}; expected an object with role and content")
    name = message.get("role")
    if not isinstance(name, str):
        raise RecordError("bad_message", f"{where} has the role {name!r}; expected a string" if "role" in message
                          else f"{where} has no role")  # fmt: skip
    role = roles.get(name, name)
    if role == _FUNCTION_CALL:
        return _function_call(message, where)
    if role not in ROLES:
        raise RecordError(
            "unknown_role",
            f'{where} has role "{name}"; known roles are {", ".join(ROLES)}. Map it with --roles {name}=user',
        )
    message = {**message, "role": role}
    _check_content(message, where)
    _check_tool_calls(message, where)
    _check_weight(message, where)
    return message


def _check_weight(message: dict[str, Any], where: str) -> None:
    if message.get("weight") is not None and message["weight"] not in (0, 1):
        raise RecordError("bad_weight", f"{where} has the weight {message['weight']!r}; expected 0 or 1")


def _check_content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None:
        if message["role"] != "assistant" or not (message.get("tool_calls") or message.get("reasoning_content")):
            raise RecordError("bad_content", f"{where} has no content")
        return
    if not isinstance(content, list):
        raise RecordError(
            "bad_content", f"the content of {where} is {kind_of(content)}; expected a string or text parts"
        )
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        medium = next((medium for medium in _MEDIA if isinstance(kind, str) and medium in kind), None)
        if medium:
            raise RecordError(medium, f"the content of {where} holds a part of type {kind}; only text can be tokenized")
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RecordError(
                "bad_content", f'the content of {where} holds a part that is not {{"type": "text", "text": …}}'
            )


def _check_tool_calls(message: dict[str, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise RecordError("bad_tool_calls", f"the tool_calls of {where} are not a list of objects")


def _function_call(message: dict[str, Any], where: str) -> dict[str, Any]:
    """ShareGPT's function_call turn, whose value is the JSON of one call or of a list of them."""
    _check_weight(message, where)
    calls = message.get("content")
    if isinstance(calls, str):
        try:
            calls = msgspec.json.decode(calls)
        except _NO_JSON as error:
            raise RecordError("bad_tool_calls", f"the function_call of {where} is no JSON: {error}") from None
    calls = calls if isinstance(calls, list) else [calls]
    named = (isinstance(call, dict) and isinstance(call.get("name"), str) and "arguments" in call for call in calls)
    if not calls or not all(named):
        raise RecordError("bad_tool_calls", f"the function_call of {where} lacks name or arguments")
    functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
    tool_calls = [{"type": "function", "function": function} for function in functions]
    return {**message, "role": "assistant", "content": "", "tool_calls": tool_calls}


def _integers(values: Any, column: str, length: int | None = None) -> np.ndarray:
    """int64 (values,). Raises RecordError where the values are not integers, or not as many as there are tokens."""
    if not isinstance(values, list) or not all(type(value) in (int, bool) for value in values):
        raise RecordError("bad_tokens", f"{column} is not a list of integers")
    if length is not None and len(values) != length:
        raise RecordError("bad_tokens", f"{column} has {len(values)} values for {length} tokens")
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise RecordError("bad_tokens", f"{column} holds a number beyond 64 bits") from None


def kind_of(value: Any) -> str:
    """What a JSON value is, in JSON's words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
