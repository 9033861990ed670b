"""ATIF, the Agent Trajectory Interchange Format of Harbor: one object, with a list of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.traces import MAIN, SUBAGENT, Trace, TraceConversation, TraceFormat


class _Call(msgspec.Struct):
    tool_call_id: str | None = None
    function_name: str | None = None
    arguments: Any = None


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: Any = None


class _Observation(msgspec.Struct):
    results: list[_Result] | None = None


class _Step(msgspec.Struct):
    source: str
    message: str | list[Any] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None


class _Agent(msgspec.Struct):
    tool_definitions: list[Any] | None = None


class _Trajectory(msgspec.Struct):
    steps: list[_Step]
    agent: _Agent | None = None
    session_id: str | None = None
    trajectory_id: str | None = None
    subagent_trajectories: list[_Trajectory] | None = None


def read(session: Mapping[str, Any]) -> Trace:
    """Read a trajectory, and those of its subagents. Raises msgspec.ValidationError."""
    trajectory = msgspec.convert(session, _Trajectory)
    trace = Trace(session_id=trajectory.session_id or trajectory.trajectory_id)
    _read(trace, trajectory, MAIN)
    return trace


def _read(trace: Trace, trajectory: _Trajectory, kind: str) -> None:
    conversation = TraceConversation(kind)
    trace.conversations.append(conversation)
    conversation.tools = (trajectory.agent and trajectory.agent.tool_definitions) or None
    for step in trajectory.steps:
        # Steps that were copied from another trajectory are trained on there.
        about = " (copied)" if step.is_copied_context else " (without model)" if step.llm_call_count == 0 else ""
        conversation.at = trace.event(f"step of {step.source}{about}")
        calls = (step.tool_calls or []) if step.source == "agent" else []
        if step.source == "agent":
            conversation.begin(conversation.at, **({"weight": 0} if about else {}))
            conversation.think(step.reasoning_content or "")
            conversation.write(step.message)
        else:
            conversation.say_text(step.source, step.message)
        for call in calls:
            conversation.call(call.tool_call_id, call.function_name, call.arguments)
        only_id = calls[0].tool_call_id if len(calls) == 1 else None
        for result in (step.observation and step.observation.results) or ():
            _observe(conversation, only_id if result.source_call_id is None else result.source_call_id, result.content)
    for other in trajectory.subagent_trajectories or ():
        _read(trace, other, SUBAGENT)


def _observe(conversation: TraceConversation, id: str | None, content: Any) -> None:
    """Add what was observed: the answer to a call, or what the model reads next."""
    if conversation.answer(id, content) or content is None:
        return
    if conversation.messages[-1]["role"] in ("system", "developer"):  # no model reads it
        conversation.leave("observation of a system step", content)
    else:
        conversation.say_text("user", content)


FORMAT = TraceFormat(
    "a trajectory in ATIF",
    recognizes=lambda value: str(value.get("schema_version")).startswith("ATIF"),
    read=read,
    is_session=lambda value: True,
)
