"""SWE-agent: *.traj. Its history is what the model read and wrote; its trajectory has the same again, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, list_in, object_in

_OF_STEPS = ("action", "observation", "response", "thought")


def read(session: Mapping[str, Any]) -> Trace:
    """Read a session. Raises RecordError."""
    trace, conversation = Trace(), TraceConversation()
    trace.conversations = [conversation]
    for number, item in enumerate(list_in(session.get("history"), "history")):
        message = object_in(item, f"history[{number}]")
        role, content = str(message.get("role")), message.get("content")
        event = trace.event(f"history ({role}{', demonstration' if message.get('is_demo') else ''})")
        if role == "assistant":
            reasoning = "\n\n".join(
                block["thinking"] for block in message.get("thinking_blocks") or () if block.get("thinking")
            )
            calls, trained = message.get("tool_calls") or (), not message.get("is_demo")
            conversation.write(event, content, reasoning, calls, event, trained)
        elif role == "tool":
            ids = message.get("tool_call_ids") or [message.get("tool_call_id")]
            conversation.answer(event, ids[0], content)
        else:
            conversation.say(event, role, content)
    for _ in session.get("trajectory") or ():
        trace.event("trajectory (step)")
    return trace


def _recognizes(value: Mapping[str, Any]) -> bool:
    """Whether a value has steps, or a history of messages of agents."""
    step, item = (first_of(value.get(name)) for name in ("trajectory", "history"))
    return any(name in step for name in _OF_STEPS) or ("role" in item and ("agent" in item or "message_type" in item))


FORMAT = TraceFormat("SWE-agent", _recognizes, read)
