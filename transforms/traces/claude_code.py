"""Claude Code: ~/.claude/projects/*/SESSION.jsonl, and those of its subagents.

Each line is an event with the uuid of its parent. A message of the model is in as many lines as it has blocks, and an
answer to one of its calls has the line of that call as parent, so that parallel calls look like branches: both are
joined first. What is left of branches are messages that were edited, and answers that were tried again. A session that
was compacted goes on from a summary, without a parent: the model saw nothing else, so it is a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.base.errors import RecordError
from transforms.traces import Trace, TraceFormat
from transforms.traces.anthropic_blocks import Blocks, read_blocks
from transforms.traces.conversation import MAIN, SUBAGENT, TraceConversation, list_in
from transforms.traces.trees import conversations_of

_SYNTHETIC = "<synthetic>"


def read(session: Any) -> Trace:
    """Read a session: its events; or, of sessions in the cloud, an object that has them. Raises RecordError."""
    events = session if isinstance(session, list) else list_in(session.get("loglines"), "loglines")
    trace = Trace(session_id=next((e["sessionId"] for e in events if isinstance(e.get("sessionId"), str)), None))
    for event in events:
        trace.event(_kind(event))
    tree = _Tree(trace, events)
    has_main = any(not events[members[0]].get("isSidechain") for members in tree.nodes)

    def kind_of(root: int) -> str:
        is_side = has_main and events[tree.nodes[root][0]].get("isSidechain")
        return SUBAGENT if is_side else MAIN

    trace.conversations = conversations_of(tree.parents, kind_of, tree.add)
    return trace


class _Tree:
    """The messages of a session as nodes of a tree.

    Attributes:
        nodes: the numbers of the events of each node.
        parents: of each node, None for a root.
    """

    def __init__(self, trace: Trace, events: Sequence[Mapping[str, Any]]):
        self._trace = trace
        self._events = events
        self._blocks: dict[int, Blocks] = {}
        self._by_uuid: dict[str, int] = {}
        self._node_of: dict[int, int] = {}
        self.nodes: list[list[int]] = []
        for number, event in enumerate(events):
            uuid = event.get("uuid")
            if uuid in self._by_uuid:  # resumed sessions repeat events
                continue
            if isinstance(uuid, str):
                self._by_uuid[uuid] = number
            if _is_message(event):
                self._blocks[number] = read_blocks(_content(event, number), f"event {number}")
        self._join()
        self.parents = self._parents()

    def add(self, conversation: TraceConversation, node: int) -> None:
        """Add the messages of a node to a conversation."""
        for number in self.nodes[node]:
            event, blocks = self._events[number], self._blocks[number]
            if event["type"] == "assistant":
                is_model = event["message"].get("model") != _SYNTHETIC
                conversation.write(number, blocks.parts, blocks.reasoning, blocks.calls, node, is_model)
                continue
            answered = [conversation.answer(number, id, content) for id, content in blocks.answers]
            if not all(answered):
                self._trace.kinds[number] = "user (answer without call)"
            if blocks.parts or not blocks.answers:
                conversation.say(number, "user", blocks.parts)

    def _join(self) -> None:
        """Make nodes: of the lines of a message of the model, and of the answers to its calls."""
        by_message: dict[str, int] = {}
        caller: dict[Any, int] = {}
        answers: dict[int, int] = {}
        for number, blocks in self._blocks.items():
            event = self._events[number]
            self._trace.unread.update(blocks.unread)
            node = None
            if event["type"] == "assistant":
                message_id = event["message"].get("id")
                node = by_message.get(message_id)
                for each in blocks.calls:
                    caller[each.get("id")] = len(self.nodes) if node is None else node
                if node is None and message_id:
                    by_message[message_id] = len(self.nodes)
            elif blocks.answers and (called := caller.get(blocks.answers[0][0])) is not None:
                node = answers.get(called)
                answers[called] = len(self.nodes) if node is None else node
            if node is None:
                node = len(self.nodes)
                self.nodes.append([])
            self.nodes[node].append(number)
            self._node_of[number] = node

    def _parents(self) -> list[int | None]:
        has_parents = any(self._events[number].get("parentUuid") for number in self._blocks)
        last: dict[Any, int] = {}
        parents: list[int | None] = []
        for node, members in enumerate(self.nodes):
            event = self._events[members[0]]
            chain = event.get("isSidechain"), event.get("agentId")
            parent = self._parent(members[0])
            # An answer of the model is no beginning, and some tools write no parents.
            if parent is None and (not has_parents or event["type"] == "assistant"):
                parent = last.get(chain)
            parents.append(parent)
            last[chain] = node
        return parents

    def _parent(self, number: int) -> int | None:
        """The node of the nearest ancestor of an event that is a message; None if there is none."""
        seen = {number}
        at = self._by_uuid.get(self._events[number].get("parentUuid"))  # type: ignore[arg-type]
        while at is not None and at not in seen:
            seen.add(at)
            if at in self._node_of and self._node_of[at] != self._node_of[number]:
                return self._node_of[at]
            at = self._by_uuid.get(self._events[at].get("parentUuid"))  # type: ignore[arg-type]
        return None


def _is_message(event: Mapping[str, Any]) -> bool:
    """Whether the model wrote or read an event. What is hidden from the user (`isMeta`) is sent to the model, too."""
    return event.get("type") in ("user", "assistant") and not event.get("isApiErrorMessage")


def _content(event: Mapping[str, Any], number: int) -> Any:
    message = event.get("message")
    if not isinstance(message, dict) or "content" not in message:
        raise RecordError("bad_trace", f"event {number} of type {event['type']} has no message with content")
    return message["content"]


def _kind(event: Mapping[str, Any]) -> str:
    """The type of an event, and what it is of this type."""
    kind = str(event.get("type"))
    if event.get("isApiErrorMessage"):
        return f"{kind} (error of the API)"
    if event.get("isCompactSummary"):
        return f"{kind} (summary of what was compacted)"
    detail = event.get("subtype") or next(
        (event[name].get("type") for name in ("attachment", "data") if isinstance(event.get(name), dict)), None
    )
    return f"{kind} ({detail})" if isinstance(detail, str) else kind


def _recognizes(value: Mapping[str, Any]) -> bool:
    if "loglines" in value:
        return True
    kind = value.get("type")
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "messageId" in value
    return isinstance(kind, str) and "sessionId" in value and "payload" not in value


FORMAT = TraceFormat("a session of Claude Code", _recognizes, read, is_session=lambda value: "loglines" in value)
