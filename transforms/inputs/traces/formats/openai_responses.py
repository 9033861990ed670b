"""Logs of OpenAI's Responses API, and of its chat API: a request and its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, list_in, object_in
from transforms.inputs.traces.message_lists import add_message
from transforms.inputs.traces.responses_items import add_item, kind_of_item


def read(session: Mapping[str, Any]) -> Trace:
    """Read a request and its response, or a response with its input. Raises RecordError."""
    if isinstance(session.get("request"), dict) and isinstance(session.get("response"), dict):
        return read_exchange(session["request"], session["response"])
    return read_exchange(session, session)


def read_exchange(request: Mapping[str, Any], response: Mapping[str, Any] | None) -> Trace:
    """Read a request and its response, of either API.

    Args:
        request: the body that was sent.
        response: the body that came back; None if the request has the answer.

    Raises:
        RecordError: if one of them cannot be understood, or there is no prompt.
    """
    trace, conversation = Trace(session_id=(response or {}).get("id")), TraceConversation()
    trace.conversations = [conversation]
    if "messages" in request:
        for message in list_in(request["messages"], "messages"):
            add_message(conversation, trace.event(f"message ({_role(message)})"), message)
    else:
        _read_input(trace, conversation, request)
    tools = request.get("tools") or (response or {}).get("tools")
    conversation.tools = tools if isinstance(tools, list) and tools else None
    if response is None:
        return trace
    if "choices" in response:
        choices = list_in(response["choices"], "choices")
        if len(choices) > 1:
            trace.unread["further choices"] += sum(len(str(each)) for each in choices[1:])
        message = object_in(first_of(choices).get("message"), "the message of the first choice")
        add_message(conversation, trace.event("response (assistant)"), message)
    else:
        for item in list_in(response.get("output"), "output"):
            _add(trace, conversation, item, "output")
    return trace


def _read_input(trace: Trace, conversation: TraceConversation, request: Mapping[str, Any]) -> None:
    if request.get("previous_response_id"):
        raise RecordError("no_prompt", "the request goes on from previous_response_id, which the log does not have")
    given = request.get("input")
    if not given:
        raise RecordError("no_prompt", "the response has no input; log the request next to it, as request and response")
    if request.get("instructions"):
        conversation.say(trace.event("instructions"), "system", request["instructions"])
    if isinstance(given, str):
        conversation.say(trace.event("input"), "user", given)
        return
    for item in list_in(given, "input"):
        _add(trace, conversation, item, "input")


def _add(trace: Trace, conversation: TraceConversation, item: Any, of: str) -> None:
    item = object_in(item, f"an item of the {of}")
    add_item(trace, conversation, trace.event(f"{of}/{kind_of_item(item)}"), item)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _recognizes(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("request"), dict) and "response" in value:
        return "messages" in value["request"] or "input" in value["request"]
    return value.get("object") == "response" or ("input" in value and "type" in first_of(value.get("output")))


FORMAT = TraceFormat("OpenAI Responses", _recognizes, read)
