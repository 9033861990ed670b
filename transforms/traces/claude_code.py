"""Claude Code: ~/.claude/projects/*/SESSION.jsonl, and those of its subagents.

Each line is an event with the uuid of its parent. A message of the model is in as many lines as it has blocks, and an
answer to one of its calls has the line of that call as parent, so that parallel calls look like branches: both are
joined first. What is left of branches are messages that were edited, and answers that were tried again. A session that
was compacted goes on from a summary, without a parent: the model saw nothing else, so it is a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.records.turns.anthropic import CALLS, RESULTS, add_answer, add_results
from transforms.traces import Trace, TraceFormat
from transforms.traces.conversation import MAIN, SUBAGENT, TraceConversation
from transforms.traces.trees import conversations_of

_SYNTHETIC = "<synthetic>"


class _Event(msgspec.Struct, rename="camel"):
    type: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    is_sidechain: bool | None = None
    is_api_error_message: bool | None = None
    is_compact_summary: bool | None = None
    message: Any = None
    # What says of which kind an event of a type is.
    subtype: Any = None
    attachment: Any = None
    data: Any = None


class _Message(msgspec.Struct):
    content: str | list[Any]
    id: str | None = None
    model: str | None = None

    @property
    def blocks(self) -> list[Any]:
        """Its blocks: a text, if it is one."""
        return self.content or [""] if isinstance(self.content, list) else [self.content]

    def ids(self, key: str, kinds: Sequence[str]) -> list[str]:
        """The ids that its blocks of some kinds have under a key."""
        blocks = [block for block in self.blocks if isinstance(block, dict) and block.get("type") in kinds]
        return [id for block in blocks if isinstance(id := block.get(key), str)]


class _Session(msgspec.Struct):
    loglines: list[Any]


def read(session: Any) -> Trace:
    """Read a session: its events; or, of sessions in the cloud, an object that has them.

    Raises:
        msgspec.ValidationError: if one of them is malformed.
    """
    given = session if isinstance(session, list) else msgspec.convert(session, _Session).loglines
    events = msgspec.convert(given, list[_Event])
    trace = Trace(session_id=next((event.session_id for event in events if event.session_id), None))
    for event in events:
        trace.event(_kind(event))
    tree = _Tree(trace, events)
    has_main = any(not events[members[0]].is_sidechain for members in tree.nodes)

    def kind_of(root: int) -> str:
        return SUBAGENT if has_main and events[tree.nodes[root][0]].is_sidechain else MAIN

    trace.conversations = conversations_of(tree.parents, kind_of, tree.add)
    return trace


class _Tree:
    """The messages of a session as nodes of a tree.

    Attributes:
        nodes: the numbers of the events of each node.
        parents: of each node, None for a root.
    """

    def __init__(self, trace: Trace, events: Sequence[_Event]):
        self._trace = trace
        self._events = events
        # What is hidden from the user (`isMeta`) is sent to the model, too.
        found = [event.type in ("user", "assistant") and not event.is_api_error_message for event in events]
        messages = [(event.message or {}) if is_one else None for event, is_one in zip(events, found, strict=True)]
        self._messages: dict[int, _Message] = {}
        self._by_uuid: dict[str | None, int] = {}
        self._node_of: dict[int, int] = {}
        self.nodes: list[list[int]] = []
        for number, message in enumerate(msgspec.convert(messages, list[_Message | None])):
            uuid = events[number].uuid
            if uuid in self._by_uuid:  # resumed sessions repeat events
                continue
            if uuid is not None:
                self._by_uuid[uuid] = number
            if message is not None:
                self._messages[number] = message
        self._join()
        self.parents = self._parents()

    def add(self, conversation: TraceConversation, node: int) -> None:
        """Add the messages of a node to a conversation."""
        for number in self.nodes[node]:
            message = self._messages[number]
            conversation.at = number
            if self._events[number].type == "assistant":
                conversation.begin(node, **({"weight": 0} if message.model == _SYNTHETIC else {}))
                add_answer(conversation, message.blocks)
            elif not add_results(conversation, {"role": "user", "content": message.blocks}):
                self._trace.kinds[number] = "user (answer without call)"

    def _join(self) -> None:
        """Make nodes: of the lines of a message of the model, and of the answers to its calls."""
        by_message: dict[str | None, int] = {}
        caller: dict[Any, int] = {}
        answers: dict[int, int] = {}
        for number, message in self._messages.items():
            node = None
            if self._events[number].type == "assistant":
                node = by_message.get(message.id)
                for id in message.ids("id", CALLS):
                    caller[id] = len(self.nodes) if node is None else node
                if node is None and message.id:
                    by_message[message.id] = len(self.nodes)
            elif (ids := message.ids("tool_use_id", RESULTS)) and (called := caller.get(ids[0])) is not None:
                node = answers.get(called)
                answers[called] = len(self.nodes) if node is None else node
            if node is None:
                node = len(self.nodes)
                self.nodes.append([])
            self.nodes[node].append(number)
            self._node_of[number] = node

    def _parents(self) -> list[int | None]:
        has_parents = any(self._events[number].parent_uuid for number in self._messages)
        last: dict[Any, int] = {}
        parents: list[int | None] = []
        for node, members in enumerate(self.nodes):
            event = self._events[members[0]]
            chain = event.is_sidechain, event.agent_id
            parent = self._parent(members[0])
            # An answer of the model is no beginning, and some tools write no parents.
            if parent is None and (not has_parents or event.type == "assistant"):
                parent = last.get(chain)
            parents.append(parent)
            last[chain] = node
        return parents

    def _parent(self, number: int) -> int | None:
        """The node of the nearest ancestor of an event that is a message; None if there is none."""
        seen = {number}
        at = self._by_uuid.get(self._events[number].parent_uuid)
        while at is not None and at not in seen:
            seen.add(at)
            if at in self._node_of and self._node_of[at] != self._node_of[number]:
                return self._node_of[at]
            at = self._by_uuid.get(self._events[at].parent_uuid)
        return None


def _kind(event: _Event) -> str:
    """The type of an event, and what it is of this type."""
    if event.is_api_error_message:
        return f"{event.type} (error of the API)"
    if event.is_compact_summary:
        return f"{event.type} (summary of what was compacted)"
    details = (each.get("type") for each in (event.attachment, event.data) if isinstance(each, dict))
    detail = event.subtype or next(details, None)
    return f"{event.type} ({detail})" if isinstance(detail, str) else str(event.type)


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
