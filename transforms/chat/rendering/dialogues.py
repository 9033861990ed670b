"""Dialogues: messages of our own, which are rendered to find out what a chat template does with any others."""

from __future__ import annotations

from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

INSTRUCTION: Message = {"role": "system", "content": "Be kind."}
QUESTION: Message = {"role": "user", "content": "Good morning."}
ANSWER: Message = {"role": "assistant", "content": "Hello there."}
SECOND_QUESTION: Message = {"role": "user", "content": "Thank you."}
SECOND_ANSWER: Message = {"role": "assistant", "content": "You are welcome."}
DIALOGUE = [QUESTION, ANSWER, SECOND_QUESTION]
TOOL: Message = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}


def _calls(*places: str) -> Message:
    """A turn with a call for each of some places, without text."""
    calls = [
        {"type": "function", "id": f"call0000{number}", "function": {"name": "look", "arguments": {"at": place}}}
        for number, place in enumerate(places)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


# The arguments of two calls show where each of them ends.
PLACES = FIRST, SECOND = "harbour", "mountain"
CALL, TWO_CALLS = _calls("it"), _calls(*PLACES)
RESULTS: list[Message] = [
    {"role": "tool", "tool_call_id": call["id"], "name": "look", "content": "seen"} for call in TWO_CALLS["tool_calls"]
]
# For each role but those of instructions, a conversation that ends with a message of it.
UP_TO_ROLE = {"user": [QUESTION], "assistant": [QUESTION, ANSWER], "tool": [QUESTION, CALL, RESULTS[0]]}
