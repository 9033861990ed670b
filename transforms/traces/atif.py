"""ATIF, the Agent Trajectory Interchange Format of Harbor: one object, with a list of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.records.tool_calls import function_call
from transforms.traces import Trace, TraceFormat
from transforms.traces.conversation import MAIN, SUBAGENT, TraceConversation, list_in, object_in


def read(session: Mapping[str, Any]) -> Trace:
    """Read a trajectory, and those of its subagents. Raises RecordError."""
    trace = Trace(session_id=session.get("session_id") or session.get("trajectory_id"))
    _read(trace, session, MAIN)
    return trace


def _read(trace: Trace, session: Mapping[str, Any], kind: str) -> None:
    conversation = TraceConversation(kind)
    trace.conversations.append(conversation)
    agent = session.get("agent")
    conversation.tools = (agent.get("tool_definitions") or None) if isinstance(agent, dict) else None
    for number, item in enumerate(list_in(session.get("steps"), "steps")):
        _add(trace, conversation, object_in(item, f"steps[{number}]"))
    for part in session.get("subagent_trajectories") or ():
        _read(trace, object_in(part, "a subagent's trajectory"), SUBAGENT)


def _add(trace: Trace, conversation: TraceConversation, step: Mapping[str, Any]) -> None:
    source = step.get("source")
    # Steps that were copied from another trajectory are trained on there.
    is_copied, is_model = step.get("is_copied_context"), step.get("llm_call_count") != 0
    event = trace.event(f"step of {source}{' (copied)' if is_copied else '' if is_model else ' (without model)'}")
    calls = [
        function_call(each.get("tool_call_id"), each.get("function_name"), each.get("arguments"))
        for each in step.get("tool_calls") or ()
    ]
    if source == "agent":
        reasoning = step.get("reasoning_content") or ""
        conversation.write(event, step.get("message"), reasoning, calls, event, is_model and not is_copied)
    else:
        conversation.say(event, str(source), step.get("message"))
    for result in (step.get("observation") or {}).get("results") or ():
        _answer(trace, conversation, event, result, calls)


def _answer(
    trace: Trace,
    conversation: TraceConversation,
    event: int,
    result: Mapping[str, Any],
    calls: list[dict[str, Any]],
) -> None:
    """Add what was observed: the answer to a call, or what the model reads next."""
    id, content = result.get("source_call_id"), result.get("content")
    if id is None and len(calls) == 1:
        id = calls[0].get("id")
    if conversation.answer(event, id, content) or content is None:
        return
    if conversation.messages[-1]["role"] in ("system", "developer"):  # no model reads it
        trace.unread["observation of a system step"] += len(content) if isinstance(content, str) else 1
    else:
        conversation.say(event, "user", content)


def _recognizes(value: Mapping[str, Any]) -> bool:
    return str(value.get("schema_version")).startswith("ATIF")


FORMAT = TraceFormat("a trajectory in ATIF", _recognizes, read, is_session=lambda value: True)
