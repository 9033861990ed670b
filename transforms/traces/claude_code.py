"""Claude Code: ~/.claude/projects/*/SESSION.jsonl, and those of its subagents.

Each line is an event with the uuid of its parent. A message of the model is in as many lines as it has blocks, and an
answer to one of its calls has the line of that call as parent, so that parallel calls look like branches: both are
joined to nodes first. What is left of branches are messages that were edited, and answers that were tried again. A
session that was compacted goes on from a summary, without a parent: the model saw nothing else, so it is a conversation
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.records.turns.apis import CALLS, RESULTS, add_answer, add_results
from transforms.traces import BRANCH, MAIN, SUBAGENT, Trace, TraceConversation, TraceFormat


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


def read(session: Any) -> Trace:
    """Read a session: its events; or, of sessions in the cloud, an object that has them.

    Raises:
        msgspec.ValidationError: if one of them is malformed.
    """
    events = msgspec.convert(session.get("loglines") if isinstance(session, dict) else session, list[_Event])
    session_id = next((event.session_id for event in events if event.session_id), None)
    trace = Trace([_name_kind(event) for event in events], session_id=session_id)
    by_uuid: dict[str | None, int] = {
        event.uuid: i for i, event in reversed([*enumerate(events)]) if event.uuid is not None
    }
    # What is hidden from the user (`isMeta`) is sent to the model, too.
    are_messages = [event.type in ("user", "assistant") and not event.is_api_error_message for event in events]
    values = [(event.message or {}) if is_one else None for event, is_one in zip(events, are_messages, strict=True)]
    converted = enumerate(msgspec.convert(values, list[_Message | None]))
    # Resumed sessions repeat events.
    messages = {i: message for i, message in converted if message and by_uuid.get(events[i].uuid, i) == i}
    nodes = _join_lines(events, messages)
    has_main = any(not events[node].is_sidechain for node in nodes)
    seen: set[int] = set()
    for root, (*branches, main) in _paths(_parents(events, nodes, by_uuid)).items():
        kind = SUBAGENT if has_main and events[root].is_sidechain else MAIN
        for path in (main, *branches):
            conversation = TraceConversation(kind if path is main else BRANCH)
            trace.conversations.append(conversation)
            for node in path:
                for conversation.at in nodes[node]:
                    message = messages[conversation.at]
                    if events[node].type == "assistant":
                        # The program wrote it in the name of the model.
                        conversation.begin(node, **({"weight": 0} if message.model == "<synthetic>" else {}))
                        add_answer(conversation, message.blocks)
                    elif not add_results(conversation, {"role": "user", "content": message.blocks}):
                        trace.kinds[conversation.at] = "user (answer without call)"
                if node in seen:
                    conversation.shared = len(conversation.messages)
            seen.update(path)
    return trace


def _join_lines(events: Sequence[_Event], messages: Mapping[int, _Message]) -> dict[int, list[int]]:
    """Join the lines of a message of the model, and the answers to its calls. A node has the number of its first."""
    nodes: dict[int, list[int]] = {}
    firsts: dict[Any, int] = {}  # the node of what messages have in common
    callers: dict[str, int] = {}  # the node of the call of an id
    for number, message in messages.items():
        if events[number].type == "assistant":
            node = firsts.setdefault(message.id or number, number)
            callers |= dict.fromkeys(message.ids("id", CALLS), node)
        else:
            ids = message.ids("tool_use_id", RESULTS)
            caller = callers.get(ids[0]) if ids else None
            node = number if caller is None else firsts.setdefault(("answers", caller), number)
        nodes.setdefault(node, []).append(number)
    return nodes


def _parents(
    events: Sequence[_Event], nodes: Mapping[int, Sequence[int]], by_uuid: Mapping[str | None, int]
) -> dict[int, int | None]:
    """The parent of each node, None for a root: the nearest ancestor of its first event that is of another node."""
    node_of = {number: node for node, members in nodes.items() for number in members}
    has_parents = any(events[number].parent_uuid for number in node_of)
    last: dict[Any, int] = {}
    parents: dict[int, int | None] = {}
    for node in nodes:
        event, passed = events[node], {node}
        at = by_uuid.get(event.parent_uuid)
        while at is not None and at not in passed and node_of.get(at, node) == node:
            passed.add(at)
            at = by_uuid.get(events[at].parent_uuid)
        parents[node] = None if at is None or at in passed else node_of[at]
        # An answer of the model is no beginning, and some tools write no parents.
        chain = event.is_sidechain, event.agent_id
        if parents[node] is None and (not has_parents or event.type == "assistant"):
            parents[node] = last.get(chain)
        last[chain] = node
    return parents


def _paths(parents: Mapping[int, int | None]) -> dict[int, list[list[int]]]:
    """The paths from each root to its leaves, in the order of the leaves."""
    paths: dict[int, list[list[int]]] = {}
    inner = {*parents.values()}
    for leaf in (node for node in parents if node not in inner):
        path: dict[int, None] = {}  # a set that has an order
        node: int | None = leaf
        while node is not None and node not in path:  # parents may form a circle
            path[node] = None
            node = parents[node]
        from_root = [*reversed(path)]
        paths.setdefault(from_root[0], []).append(from_root)
    return paths


def _name_kind(event: _Event) -> str:
    """The type of an event, and what it is of this type."""
    details = [each.get("type") for each in (event.attachment, event.data) if isinstance(each, dict)]
    detail = event.subtype or next(iter(details), None)
    if event.is_api_error_message or event.is_compact_summary:
        detail = "error of the API" if event.is_api_error_message else "summary of what was compacted"
    return f"{event.type} ({detail})" if isinstance(detail, str) else str(event.type)


def _recognizes(value: Mapping[str, Any]) -> bool:
    kind = value.get("type")
    named = {"summary": "leafUuid", "file-history-snapshot": "messageId"}
    if not isinstance(kind, str) or "loglines" in value:
        return "loglines" in value
    return named[kind] in value if kind in named else "sessionId" in value and "payload" not in value


FORMAT = TraceFormat("a session of Claude Code", _recognizes, read, is_session=lambda value: "loglines" in value)
