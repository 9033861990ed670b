"""tau-bench and tau2-bench: their results, with the conversation of each task and trial.

In tau2 the user has tools, too. The agent does not see their calls and answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import TraceConversation, first_of, list_in, object_in
from transforms.inputs.traces.message_lists import add_message


def read(session: Mapping[str, Any]) -> Trace:
    """Read a result of tau-bench, or all simulations of tau2. Raises RecordError."""
    trace = Trace()
    if "traj" in session:
        _read(trace, session["traj"], None)
        return trace
    for simulation in list_in(session.get("simulations"), "simulations"):
        _read(trace, object_in(simulation, "a simulation").get("messages"), _policy(session))
    return trace


def _policy(session: Mapping[str, Any]) -> str | None:
    info = session.get("info")
    environment = info.get("environment_info") if isinstance(info, dict) else None
    return environment.get("policy") if isinstance(environment, dict) else None


def _read(trace: Trace, messages: Any, policy: str | None) -> None:
    conversation = TraceConversation()
    trace.conversations.append(conversation)
    if policy:  # which is a part of the system prompt, that is not in the results
        trace.unread["policy"] += len(policy)
    for item in list_in(messages, "messages"):
        message = object_in(item, "a message")
        role, of_user = message.get("role"), message.get("requestor") == "user"
        is_call_of_user = role == "user" and message.get("tool_calls")
        number = trace.event(f"{role}{' (of the user)' if of_user or is_call_of_user else ''}")
        if of_user or is_call_of_user:
            continue
        if role == "tool" and "id" in message:
            message = {**message, "tool_call_id": message["id"]}
        if role == "assistant" and (reasoning := _reasoning(message.get("raw_data"))):
            message = {"reasoning_content": reasoning, **message}
        add_message(conversation, number, message)


def _reasoning(answer: Any) -> str:
    """The reasoning in the answer of the model's provider, which tau2 keeps as it was: Anthropic's, or as OpenAI's."""
    if not isinstance(answer, dict):
        return ""
    blocks = answer.get("thinking_blocks")
    found = [block.get("thinking") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    message = answer.get("message")
    found += [message.get("reasoning_content")] if isinstance(message, dict) and not found else []
    return "\n\n".join(text for text in found if isinstance(text, str) and text)


def _recognizes(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("traj"), list):
        return "task_id" in value or "reward" in value
    return "messages" in first_of(value.get("simulations")) or {"timestamp", "info", "tasks"} <= value.keys()


FORMAT = TraceFormat("tau-bench", _recognizes, read)
