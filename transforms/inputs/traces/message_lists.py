"""Messages of OpenAI's chat API, of which the results of several projects consist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.inputs.tool_calls import function_call
from transforms.inputs.traces.conversation import TraceConversation, object_in
from transforms.model.examples import REASONING_KEYS


def add_message(conversation: TraceConversation, event: int, message: Any, trained: bool = True) -> None:
    """Add a message to a conversation.

    Args:
        conversation: takes it. An answer to no call is not added.
        event: the number of the message.
        message: in the form of the API.
        trained: whether the model wrote it, if it is the assistant's.

    Raises:
        RecordError: if it is not an object.
    """
    message = object_in(message, f"message {event}")
    role = message.get("role")
    if role == "assistant":
        reasoning = next((message[key] for key in REASONING_KEYS if isinstance(message.get(key), str)), "")
        calls = [_call(each) for each in message.get("tool_calls") or ()]
        conversation.write(event, message.get("content"), reasoning, calls, event, trained)
    elif role == "tool":
        conversation.answer(event, message.get("tool_call_id"), message.get("content"))
    else:
        conversation.say(event, str(role), message.get("content"))


def _call(item: Any) -> Any:
    """A call with its function; verifiers and tau2 have no object of its own for that."""
    if isinstance(item, Mapping) and "function" not in item and "name" in item:
        return function_call(item.get("id"), item["name"], item.get("arguments", item.get("args")))
    return item
