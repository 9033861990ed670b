"""Messages of Vercel's AI SDK: `parts` with text, reasoning and calls with their results."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.samples import Sample
from transforms.inputs.turns import Messages, TurnForm
from transforms.inputs.turns.assembling import Assembler

# What is shown, and not said.
_NOT_SAID = ("step-start", "source-url", "source-document")


def _recognizes(turns: list[Any]) -> bool:
    if not all(isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in turns):
        return False
    return any("parts" in turn for turn in turns) and all(
        "parts" not in turn
        or (
            isinstance(parts := turn["parts"], list)
            and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
            and _says_the_same(turn.get("content"), parts)
        )
        for turn in turns
    )


def _says_the_same(content: Any, parts: list[Any]) -> bool:
    """Whether the content of a message is its parts of text, or nothing."""
    return not content or content == "".join(str(part.get("text")) for part in parts if part["type"] == "text")


def _messages(turns: list[Any], column: str) -> Messages:
    made = Assembler(column)
    for i, turn in enumerate(turns):
        rest = {
            key: turn[key] for key in turn if key not in ("role", "parts", "content", "toolInvocations", "reasoning")
        }
        if not turn.get("parts"):
            made.add_message({key: value for key, value in turn.items() if key != "parts"})
            continue
        made.end_turn()
        if turn["role"] == "assistant":
            for part in turn["parts"]:
                _add(made, part, f"{column}[{i}]")
            made.add_keys(**rest)
            made.end_turn()
        else:
            parts = [part for part in turn["parts"] if part["type"] not in _NOT_SAID]
            texts = [part.get("text") for part in parts if part["type"] == "text"]
            content = texts[0] if len(texts) == len(parts) == 1 else parts
            made.add_message({"role": turn["role"], "content": content, **rest})
    return Messages(made.messages())


def _add(made: Assembler, part: dict[str, Any], where: str) -> None:
    kind = part["type"]
    call = part.get("toolInvocation") if kind == "tool-invocation" else part
    text = part.get("text", part.get("reasoning"))
    if kind in _NOT_SAID:
        return
    if kind == "text" and isinstance(text, str):
        made.add_text(text)
    elif kind == "reasoning" and isinstance(text, str):
        made.add_reasoning(text)
    elif (kind == "dynamic-tool" or kind.startswith("tool-")) and isinstance(call, dict):
        name = call.get("toolName") or kind.removeprefix("tool-")
        made.add_call(name, call.get("args", call.get("input")), call.get("toolCallId"))
        result = call.get("result", call.get("output", call.get("errorText")))
        if result is not None:
            made.add_result(result, call.get("toolCallId"), name)
    else:
        raise RecordError("bad_content", f"{where} has a part of type {kind!r}; expected text, reasoning or a tool")


FORMS = (
    TurnForm(
        "vercel",
        "`role` and `parts` with a `type` (text, reasoning, tool-invocation, tool-NAME)",
        _recognizes,
        _messages,
        "parts become text, reasoning, calls, and the results of calls messages of the role tool",
        Sample(
            {
                "messages": [
                    {"id": "1", "role": "user", "content": "", "parts": [{"type": "text", "text": "Hi there"}]},
                    {
                        **{"id": "2", "role": "assistant", "content": ""},
                        "parts": [{"type": "reasoning", "text": "I greet."}, {"type": "text", "text": "Hello!"}],
                    },
                ]
            },
            "UIMessage of Vercel's AI SDK",
            "https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message",
        ),
    ),
)
