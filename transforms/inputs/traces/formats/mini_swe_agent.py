"""mini-swe-agent: *.traj.json, whose messages are those of the API, with more about each in `extra`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.inputs.traces import WHOLE_FILE, Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, list_in, object_in
from transforms.inputs.traces.responses_items import add_item


def read(session: Any) -> Trace:
    """Read a session: its object; or, of the first versions, its messages. Raises RecordError."""
    trace, conversation = Trace(), TraceConversation()
    trace.conversations = [conversation]
    for number, item in enumerate(_messages(session)):
        message = object_in(item, f"messages[{number}]")
        if message.get("object") == "response":
            event = trace.event("response")
            for part in list_in(message.get("output"), f"the output of messages[{number}]"):
                add_item(trace, conversation, event, part)
            continue
        role = message.get("role")
        event = trace.event(str(role or message.get("type")))
        if role is None:
            add_item(trace, conversation, event, message)
        elif role == "assistant":
            reasoning = message.get("reasoning_content") or ""
            conversation.write(event, message.get("content"), reasoning, message.get("tool_calls") or (), event)
        elif role == "tool":
            conversation.answer(event, message.get("tool_call_id"), message.get("content"))
        elif role != "exit":  # the end of the run, which no model reads
            conversation.say(event, str(role), message.get("content"))
    return trace


def _messages(session: Any) -> list[Any]:
    return session if isinstance(session, list) else list_in(session.get("messages"), "messages")


def _recognizes(value: Mapping[str, Any]) -> bool:
    info = value.get("info")
    if str(value.get("trajectory_format")).startswith("mini-swe-agent"):
        return True
    if isinstance(info, dict) and "mini_version" in info:
        return True
    message = value if "role" in value else first_of(value.get("messages"))
    return message.get("role") == "system" and "mswea_bash_command" in str(message.get("content"))


FORMAT = TraceFormat("mini-swe-agent", _recognizes, read, lambda value: WHOLE_FILE if "role" in value else None)
