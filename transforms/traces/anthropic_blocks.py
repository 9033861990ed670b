"""Blocks of Anthropic's messages, as the parts of messages in the OpenAI form."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.records.tool_calls import function_call
from transforms.traces.conversation import parts_of


class Blocks(NamedTuple):
    """What the blocks of a message are.

    Attributes:
        parts: texts; and blocks that are neither of the others, as they are.
        reasoning: the texts of thinking, joined.
        calls: of tools.
        answers: the ids of calls, and the contents of their answers.
        unread: the characters of what cannot be read: thinking that is encrypted, names of tools that were looked up.
    """

    parts: list[Any]
    reasoning: str
    calls: list[dict[str, Any]]
    answers: list[tuple[Any, Any]]
    unread: Counter[str]


def read_blocks(content: Any, where: str) -> Blocks:
    """Sort the blocks of a message by what they are.

    Args:
        content: a text, or blocks.
        where: what has it, for errors.

    Raises:
        RecordError: if it is neither.
    """
    found = Blocks([], "", [], [], Counter())
    reasoning: list[str] = []
    for block in parts_of(content):
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, dict):
            raise RecordError("bad_trace", f"{where} has a block that is {type(block).__name__}; expected an object")
        kind = block.get("type")
        if kind == "text":
            if block.get("text") != "":
                found.parts.append({"type": "text", "text": block.get("text")})
        elif kind == "thinking":
            if block.get("thinking"):
                reasoning.append(block["thinking"])
            elif block.get("signature"):
                found.unread["thinking (encrypted)"] += len(block["signature"])
        elif kind == "redacted_thinking":
            found.unread["thinking (encrypted)"] += len(block.get("data") or "")
        elif kind == "tool_use":
            found.calls.append(function_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "tool_result":
            answer = read_blocks(block.get("content"), where)
            found.answers.append((block.get("tool_use_id"), answer.parts))
            found.unread.update(answer.unread)
        elif kind == "tool_reference":  # stands for the definition of a tool, which is not there
            found.unread["tool_reference"] += len(block.get("tool_name") or "")
        else:
            found.parts.append(block)
    return found._replace(reasoning="\n\n".join(reasoning))
