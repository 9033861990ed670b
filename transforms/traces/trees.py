"""Conversations that are paths of a tree, since messages were edited or answers were tried again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from transforms.traces.conversation import BRANCH, TraceConversation


def conversations_of(
    parents: Sequence[int | None],
    kind_of: Callable[[int], str],
    add: Callable[[TraceConversation, int], None],
) -> list[TraceConversation]:
    """Make a conversation of each path from a root to a leaf.

    Args:
        parents: of each node, None for a root.
        kind_of: the kind of the conversations below a root: MAIN, SUBAGENT.
        add: adds the messages of a node to a conversation.

    Returns:
        Of each tree, in the order of the roots, the path to its last leaf, and then the others as branches.

    Raises:
        RecordError: if `add` does.
    """
    paths = _paths(parents)
    seen: set[int] = set()
    found: list[TraceConversation] = []
    for root in dict.fromkeys(path[0] for path in paths):
        *branches, main = [path for path in paths if path[0] == root]
        for path in [main, *branches]:
            conversation = TraceConversation(kind_of(root) if path is main else BRANCH)
            _fill(conversation, path, seen, add)
            found.append(conversation)
            seen.update(path)
    return found


def _fill(
    conversation: TraceConversation,
    path: Sequence[int],
    seen: Collection[int],
    add: Callable[[TraceConversation, int], None],
) -> None:
    for node in path:
        add(conversation, node)
        if node in seen:
            conversation.shared = len(conversation.messages)


def _paths(parents: Sequence[int | None]) -> list[list[int]]:
    """The paths from roots to leaves, in the order of the leaves."""
    inner = {parent for parent in parents if parent is not None}
    paths = []
    for leaf in range(len(parents)):
        if leaf in inner:
            continue
        path, node = [], leaf
        visited: set[int] = set()
        at: int | None = node
        while at is not None and at not in visited:
            visited.add(at)
            path.append(at)
            at = parents[at]
        paths.append(path[::-1])
    return paths
