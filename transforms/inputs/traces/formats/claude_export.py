"""Claude's export: conversations.json, with the chat_messages of each conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.anthropic_blocks import read_blocks
from transforms.inputs.traces.conversation import MAIN, TraceConversation, first_of, list_in, object_in, parts_of
from transforms.inputs.traces.trees import conversations_of


def read(session: Mapping[str, Any]) -> Trace:
    """Read a conversation; edits and answers that were generated again are branches. Raises RecordError."""
    trace = Trace(session_id=session.get("uuid"))
    messages = [object_in(each, "a message") for each in list_in(session.get("chat_messages"), "chat_messages")]
    by_uuid = {message.get("uuid"): number for number, message in enumerate(messages)}
    for message in messages:
        trace.event(str(message.get("sender")))
    # Older exports have no parents: there each message follows the one before it.
    has_parents = any(message.get("parent_message_uuid") in by_uuid for message in messages)
    parents = [
        by_uuid.get(message.get("parent_message_uuid")) if has_parents else number - 1 if number else None
        for number, message in enumerate(messages)
    ]
    unread = [dict[str, int]() for _ in messages]

    def add(conversation: TraceConversation, number: int) -> None:
        unread[number] = _add(conversation, number, messages[number])

    leaf = by_uuid.get(session.get("current_leaf_message_uuid"))
    trace.conversations = conversations_of(parents, lambda root: MAIN, add, leaf)
    for counts in unread:
        trace.unread.update(counts)
    return trace


def _add(conversation: TraceConversation, number: int, message: Mapping[str, Any]) -> dict[str, int]:
    """Add a message. Returns the characters of what was not read of it, by name."""
    content = message.get("content") or message.get("text")
    unread = Counter[str]()
    if message.get("sender") != "assistant":
        blocks = read_blocks(content, f"message {number}")
        conversation.say(number, "user", [*_attached(message), *blocks.parts])
        unread += blocks.unread
    else:
        for part, some in enumerate(_turns(content)):
            blocks = read_blocks(some, f"message {number}")
            conversation.write(number, blocks.parts, blocks.reasoning, blocks.calls, (number, part))
            for id, answer in blocks.answers:
                conversation.answer(number, id, answer)
            unread += blocks.unread
    files = [file for file in message.get("files") or () if isinstance(file, dict)]
    unread["files"] += sum(len(file.get("file_name") or "") for file in files)
    return unread


def _turns(content: Any) -> list[Any]:
    """The blocks of each turn: a message has the answers to its calls, and what the model wrote after them."""
    turns: list[list[Any]] = [[]]
    was_answer = False
    for block in parts_of(content):
        is_answer = isinstance(block, dict) and block.get("type") == "tool_result"
        if was_answer and not is_answer:
            turns.append([])
        turns[-1].append(block)
        was_answer = is_answer
    return turns


def _attached(message: Mapping[str, Any]) -> list[str]:
    """The texts of the files that the user attached, which the model read."""
    return [
        f"{each.get('file_name')}\n{each['extracted_content']}"
        for each in message.get("attachments") or ()
        if isinstance(each, dict) and each.get("extracted_content")
    ]


def _recognizes(value: Mapping[str, Any]) -> bool:
    return "sender" in first_of(value.get("chat_messages")) or (
        isinstance(value.get("chat_messages"), list) and "uuid" in value
    )


FORMAT = TraceFormat("Claude's export", _recognizes, read)
