"""LangSmith: runs as JSON lines. The runs of a trace that called a model have its input and its output.

A later call mostly has all of the earlier ones in its input, so that the longest ones are the conversations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.inputs.tool_calls import function_call
from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import MAIN, SUBAGENT, TraceConversation, first_of, list_in, object_in
from transforms.inputs.traces.message_lists import add_message

_ROLES = {"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"}
_ROLES |= {"SystemMessage": "system", "ToolMessage": "tool", "HumanMessageChunk": "user", "AIMessageChunk": "assistant"}


def read(runs: Sequence[Mapping[str, Any]]) -> Trace:
    """Read the runs of a trace. Raises RecordError."""
    trace = Trace(session_id=runs[0].get("trace_id"))
    found: list[TraceConversation] = []
    for run in sorted(runs, key=lambda run: (str(run.get("dotted_order") or ""), str(run.get("start_time") or ""))):
        number = trace.event(f"{run.get('run_type')}{' (error)' if run.get('error') else ''}")
        if run.get("run_type") != "llm" or run.get("error"):
            continue
        conversation = TraceConversation()
        for message in _messages(run):
            add_message(conversation, number, message)
        parameters = (run.get("extra") or {}).get("invocation_params") or {}
        conversation.tools = parameters.get("tools") or (run.get("inputs") or {}).get("tools") or None
        found.append(conversation)
    for position, conversation in enumerate(found):
        later = next((each for each in found[position + 1 :] if _is_continued(conversation, each)), None)
        if later:
            later.events |= conversation.events
            later.tools = later.tools or conversation.tools
        else:
            conversation.kind = SUBAGENT if trace.conversations else MAIN
            trace.conversations.append(conversation)
    return trace


def _is_continued(conversation: TraceConversation, later: TraceConversation) -> bool:
    return later.messages[: len(conversation.messages)] == conversation.messages


def _messages(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a run: its input, and what the model wrote."""
    inputs, outputs = (object_in(run.get(name) or {}, f"the {name} of a run") for name in ("inputs", "outputs"))
    messages = list_in(inputs.get("messages") or [], "the messages of a run")
    if messages and isinstance(messages[0], list):  # LangChain's batches of one
        messages = messages[0]
    generations = outputs.get("generations")
    if generations:
        generation = generations[0][0] if isinstance(generations[0], list) else generations[0]
        answer = generation.get("message") or {"role": "assistant", "content": generation.get("text")}
    else:
        answer = first_of(outputs.get("choices")).get("message") or first_of(outputs.get("messages")) or outputs
    return [_message(each) for each in [*messages, answer]]


def _message(message: Any) -> dict[str, Any]:
    """A message in the form of OpenAI's API: as it is, or of LangChain's."""
    message = object_in(message, "a message of a run")
    if "kwargs" in message:  # its class is the last part of `id`
        kind = message["id"][-1] if isinstance(message.get("id"), list) and message["id"] else None
        message = {"type": kind, **message["kwargs"]}
    if isinstance(message.get("data"), dict):
        message = {**message["data"], "type": message.get("type")}
    role = message.get("role") or message.get("type")
    calls = [
        function_call(each.get("id"), each.get("name"), each["args"])
        if isinstance(each, dict) and "args" in each
        else each
        for each in message.get("tool_calls") or (message.get("additional_kwargs") or {}).get("tool_calls") or ()
    ]
    return {**message, "role": _ROLES.get(role, role)} | ({"tool_calls": calls} if calls else {})


def _recognizes(value: Mapping[str, Any]) -> bool:
    return "run_type" in value and ("inputs" in value or "trace_id" in value)


def _trace_of(run: Mapping[str, Any]) -> str:
    return str(run.get("trace_id") or run.get("id"))


FORMAT = TraceFormat("LangSmith", _recognizes, read, _trace_of)
