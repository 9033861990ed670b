"""OpenHands: the events of a session, as its user interface and its evaluations store them.

What the model wrote is in the `tool_call_metadata` of its actions. Without it only the action is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.traces import WHOLE_FILE, Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, list_in, object_in

# What the agent does without the model.
_WITHOUT_MODEL = ("system", "recall", "change_agent_state", "condensation", "condensation_request", "null")


def read(session: Any) -> Trace:
    """Read a session: its events, or an object that has them. Raises RecordError."""
    trace, conversation = Trace(), TraceConversation()
    trace.conversations = [conversation]
    for number, event in enumerate(events_of(session)):
        if isinstance(event, list):  # of the first versions: the action, and what was observed
            raise RecordError("bad_trace", f"event {number} is a pair; expected events of OpenHands 0.9 or later")
        _read(trace, conversation, object_in(event, f"event {number}"))
    return trace


def events_of(session: Any) -> list[Any]:
    """Return the events of a session: a list, or the history of an object. Raises RecordError."""
    events = session if isinstance(session, list) else list_in(session.get("history"), "history")
    if len(events) == 1:  # OpenHands stores each event in a file of its own
        join = "jq -s 'sort_by(.timestamp)' events/*.json > session.json"
        raise RecordError("bad_trace", f"it is one event; expected all events of a session in a file: {join}")
    return events


def _read(trace: Trace, conversation: TraceConversation, event: Mapping[str, Any]) -> None:
    action, observation, source = event.get("action"), event.get("observation"), event.get("source")
    what = f"action {action}" if action else f"observation {observation}"
    number = trace.event(f"{source}, {what}")
    metadata = event.get("tool_call_metadata") or {}
    arguments = event.get("args") or {}
    if observation:
        if metadata:
            conversation.answer(number, metadata.get("tool_call_id"), event.get("content"))
    elif metadata:
        _write(conversation, number, metadata)
    elif action == "system":
        conversation.say(number, "system", arguments.get("content"))
        conversation.tools = arguments.get("tools") or None
    elif action == "message" and source == "user":
        images = [{"type": "image_url", "image_url": {"url": url}} for url in arguments.get("image_urls") or ()]
        conversation.say(number, "user", [arguments.get("content"), *images])
    elif action == "message":
        conversation.write(number, arguments.get("content"), turn=number)
    elif action == "finish" and source == "agent" and not arguments.get("thought"):
        pass  # by the user, or after the last message
    elif source == "agent" and action and action not in _WITHOUT_MODEL:
        raise RecordError(
            "bad_trace",
            f"event {number}, the action {action}, has no tool_call_metadata, and so not what the model wrote",
        )


def _write(conversation: TraceConversation, number: int, metadata: Mapping[str, Any]) -> None:
    """Add what the model wrote; an answer with several calls is in the metadata of each."""
    response = object_in(metadata.get("model_response"), f"the model_response of event {number}")
    message = object_in(first_of(response.get("choices")).get("message"), f"the message of event {number}")
    turn = response.get("id") or number
    if turn in conversation.turns:
        conversation.events.add(number)
        return
    reasoning = message.get("reasoning_content") or ""
    conversation.write(number, message.get("content"), reasoning, message.get("tool_calls") or (), turn)


def _recognizes(value: Mapping[str, Any]) -> bool:
    event = value if "source" in value else first_of(value.get("history"))
    return event.get("source") in ("agent", "user", "environment") and ("action" in event or "observation" in event)


FORMAT = TraceFormat("OpenHands", _recognizes, read, lambda value: None if "history" in value else WHOLE_FILE)
