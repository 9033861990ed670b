"""verifiers and prime-rl: traces.jsonl, whose messages are the nodes of a graph.

The results of earlier versions have a prompt and a completion, which is a schema of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.conversation import MAIN, TraceConversation, first_of, list_in, object_in
from transforms.inputs.traces.message_lists import add_message
from transforms.inputs.traces.trees import conversations_of


def read(session: Mapping[str, Any]) -> Trace:
    """Read a trace: each path of the graph is a conversation. Raises RecordError."""
    trace = Trace(session_id=session.get("id"))
    nodes = [object_in(node, "a node") for node in list_in(session.get("nodes"), "nodes")]
    messages = [object_in(node.get("message"), "the message of a node") for node in nodes]
    for message in messages:
        trace.event(f"node ({message.get('role')})")
    parents = [node.get("parent") for node in nodes]
    if not all(parent is None or (isinstance(parent, int) and parent in range(i)) for i, parent in enumerate(parents)):
        raise RecordError("bad_trace", "a node has a parent that does not precede it")

    def add(conversation: TraceConversation, number: int) -> None:
        # What the model did not sample is context, whatever its role.
        add_message(conversation, number, messages[number], bool(nodes[number].get("sampled", True)))

    trace.conversations = conversations_of(parents, lambda root: MAIN, add)
    for conversation in trace.conversations:
        conversation.tools = session.get("tools") or None
    return trace


def _recognizes(value: Mapping[str, Any]) -> bool:
    return "message" in first_of(value.get("nodes"))


FORMAT = TraceFormat("verifiers", _recognizes, read)
