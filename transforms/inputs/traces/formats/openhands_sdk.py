"""OpenHands from version 1 on, whose events have a `kind`. What the model wrote is in its actions and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.tool_calls import function_call
from transforms.inputs.traces import WHOLE_FILE, Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, object_in
from transforms.inputs.traces.formats.openhands import events_of
from transforms.inputs.traces.message_lists import add_message


def read(session: Any) -> Trace:
    """Read a session: its events, or an object that has them. Raises RecordError."""
    trace, conversation = Trace(), TraceConversation()
    trace.conversations = [conversation]
    for number, item in enumerate(events_of(session)):
        event = object_in(item, f"event {number}")
        trace.event(str(event.get("kind")))
        _read(conversation, number, event)
    return trace


def _read(conversation: TraceConversation, number: int, event: Mapping[str, Any]) -> None:
    kind = event.get("kind")
    if kind == "SystemPromptEvent":
        conversation.say(number, "system", object_in(event.get("system_prompt"), "the system prompt").get("text"))
        conversation.tools = event.get("tools") or None
    elif kind == "MessageEvent":
        message = object_in(event.get("llm_message"), f"the llm_message of event {number}")
        extended = event.get("extended_content") or []
        add_message(conversation, number, {**message, "content": [*(message.get("content") or []), *extended]})
    elif kind == "ActionEvent":
        made = event.get("tool_call")
        if not isinstance(made, dict):
            found = f"event {number} of kind ActionEvent has no tool_call, and so not what the model wrote"
            raise RecordError("bad_trace", found)
        calls = [function_call(made.get("id"), made.get("name"), made.get("arguments"))]
        reasoning = event.get("reasoning_content") or ""
        turn = event.get("llm_response_id") or number
        conversation.write(number, event.get("thought"), reasoning, calls, turn)
    elif kind == "ObservationEvent":
        observation = object_in(event.get("observation"), f"the observation of event {number}")
        conversation.answer(number, event.get("tool_call_id"), observation.get("content"))
    elif kind in ("AgentErrorEvent", "UserRejectObservation"):
        conversation.answer(number, event.get("tool_call_id"), event.get("error") or event.get("rejection_reason"))


def _recognizes(value: Mapping[str, Any]) -> bool:
    event = value if "kind" in value else first_of(value.get("history"))
    return event.get("kind") in ("SystemPromptEvent", "MessageEvent", "ActionEvent", "ConversationStateUpdateEvent")


FORMAT = TraceFormat("OpenHands 1", _recognizes, read, lambda value: None if "history" in value else WHOLE_FILE)
