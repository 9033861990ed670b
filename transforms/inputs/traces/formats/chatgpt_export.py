"""ChatGPT's export: conversations.json, whose messages are the nodes of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.inputs.tool_calls import function_call
from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import MAIN, TraceConversation, object_in
from transforms.inputs.traces.trees import conversations_of

_THOUGHTS = ("thoughts", "reasoning_recap")


def read(session: Mapping[str, Any]) -> Trace:
    """Read a conversation; edits and answers that were generated again are branches. Raises RecordError."""
    trace = Trace(session_id=session.get("conversation_id") or session.get("id"))
    mapping = object_in(session.get("mapping"), "mapping")
    for node in mapping.values():
        object_in(node, "a node")
    names = [name for name in _in_order(mapping) if mapping[name].get("message")]
    messages = [object_in(mapping[name]["message"], "the message of a node") for name in names]
    for message in messages:
        trace.event(_kind(message))
    read = [number for number, message in enumerate(messages) if _is_read(message)]
    node_of = {names[number]: node for node, number in enumerate(read)}
    parents = [_ancestor(mapping, names[number], node_of) for number in read]

    def add(conversation: TraceConversation, node: int) -> None:
        _add(conversation, read[node], messages[read[node]])

    current = session.get("current_node")
    leaf = node_of.get(current) if current in node_of else _ancestor(mapping, current, node_of)
    trace.conversations = conversations_of(parents, lambda root: MAIN, add, leaf)
    return trace


def _add(conversation: TraceConversation, number: int, message: Mapping[str, Any]) -> None:
    author = message.get("author") or {}
    role, parts = str(author.get("role")), _parts(message)
    if role == "assistant":
        recipient = message.get("recipient") or "all"
        if recipient == "all":
            conversation.write(number, parts, turn=number)
        else:
            text = "\n".join(part for part in parts if isinstance(part, str))
            conversation.write(number, calls=[function_call(f"call{number}", recipient, {"input": text})], turn=number)
    elif role == "tool":
        unanswered = conversation.unanswered_calls
        if not unanswered or not conversation.answer(number, unanswered[-1], parts):
            conversation.say(number, "user", parts)
    else:
        conversation.say(number, role, parts)


def _parts(message: Mapping[str, Any]) -> list[Any]:
    """The texts of a message; parts that are objects have images, audio and files."""
    content = message.get("content") or {}
    parts = content.get("parts")
    if parts is None:
        parts = [content.get("text") or content.get("result")]
    return [
        {"type": "image", **part} if isinstance(part, dict) and "asset_pointer" in part else part
        for part in parts
        if part not in ("", None)
    ]


def _is_read(message: Mapping[str, Any]) -> bool:
    content, metadata = message.get("content") or {}, message.get("metadata") or {}
    if content.get("content_type") in (*_THOUGHTS, "user_editable_context", "model_editable_context"):
        return False
    is_hidden_system = (message.get("author") or {}).get("role") == "system" and not _parts(message)
    return not is_hidden_system and not metadata.get("is_error") and bool(_parts(message))


def _kind(message: Mapping[str, Any]) -> str:
    role = (message.get("author") or {}).get("role")
    return f"{role} ({(message.get('content') or {}).get('content_type')})"


def _ancestor(mapping: Mapping[str, Any], name: Any, node_of: Mapping[str, int]) -> int | None:
    """The node of the nearest ancestor that is read."""
    seen = set()
    while (name := (mapping.get(name) or {}).get("parent")) is not None and name not in seen:
        if name in node_of:
            return node_of[name]
        seen.add(name)
    return None


def _in_order(mapping: Mapping[str, Any]) -> list[str]:
    """The names of the nodes, parents first, and otherwise as the children are listed."""
    order: dict[str, None] = {}
    left = [name for name, node in mapping.items() if node.get("parent") not in mapping][::-1]
    while left:
        name = left.pop()
        if name in mapping and name not in order:
            order[name] = None
            left += reversed(mapping[name].get("children") or ())
    return [*order, *(name for name in mapping if name not in order)]


def _recognizes(value: Mapping[str, Any]) -> bool:
    node = next(iter(value["mapping"].values()), None) if isinstance(value.get("mapping"), dict) else None
    return (isinstance(node, dict) and "children" in node) or ("mapping" in value and "current_node" in value)


FORMAT = TraceFormat("ChatGPT's export", _recognizes, read)
