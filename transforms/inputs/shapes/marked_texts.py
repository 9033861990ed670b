"""Dialogs in one text, with a mark before each turn."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.inputs.samples import Sample
from transforms.inputs.shapes import Column, Shape, Values
from transforms.inputs.tool_calls import function_call
from transforms.inputs.turns.marked import CHATML, GLAIVE, GUANACO, LINES, Marks, beginning_of, messages_in

_CALL = re.compile(r"\s*<functioncall>\s*\{\"name\":\s*\"([^\"]+)\",\s*\"arguments\":\s*'?(.*?)'?\s*\}\s*", re.DOTALL)
_END = "<|endoftext|>"
_FUNCTIONS = re.compile(r"(.*?)\s*-\s*\n(\{.*)", re.DOTALL)


def _begins(start: str) -> Column:
    names = ("text", "dialog", "dialogue", "conversation", "chat")
    return Column(names, lambda value: isinstance(value, str) and beginning_of(value) == start)


def _starts_with(value: Any, start: str) -> bool:
    return isinstance(value, str) and value.lstrip().startswith(start)


def _of_marks(marks: Marks) -> Any:
    return lambda values: {"messages": messages_in(values["text"], marks, "the text")}


def _glaive(values: Values) -> dict[str, Any]:
    system, tools = _system_and_tools(values["system"].strip().removeprefix("SYSTEM:").strip())
    messages = [{"role": "system", "content": system}] if system else []
    for message in messages_in(values["chat"], GLAIVE, "chat"):
        text = message["content"]
        if message["role"] == "assistant":
            message["content"] = text = text.removesuffix(_END).rstrip()
            if "<functioncall>" in text:
                message = _with_call(text)
        messages.append(message)
    return {"messages": messages, **({"tools": tools} if tools else {})}


def _with_call(text: str) -> dict[str, Any]:
    before, _, rest = text.partition("<functioncall>")
    found = _CALL.fullmatch("<functioncall>" + rest)
    if found is None:
        raise RecordError("bad_tool_calls", f"<functioncall> is not followed by a call alone: {rest[:60]!r}")
    arguments = found[2].replace("\\'", "'")
    return {
        "role": "assistant",
        "content": before.strip(),
        "tool_calls": [function_call(None, found[1], arguments)],
    }


def _system_and_tools(system: str) -> tuple[str, list[Any]]:
    """The system message, and the functions that follow it, one JSON object after another."""
    found = _FUNCTIONS.fullmatch(system)
    if found is None:
        return system, []
    tools, rest, decoder = [], found[2], msgspec.json.Decoder()
    for part in re.split(r"\n\s*\n(?=\{)", rest.strip()):
        try:
            tool = decoder.decode(part)
        except msgspec.DecodeError as error:
            raise RecordError("bad_tools", f"the functions in system are not valid JSON: {error}") from None
        if tool:
            tools.append(tool)
    return found[1].strip(), tools


SHAPES = (
    Shape(
        "glaive",
        {
            "system": Column(("system",), lambda value: _starts_with(value, "SYSTEM:")),
            "chat": Column(("chat",), lambda value: _starts_with(value, "USER:")),
        },
        _glaive,
        "a conversation; the functions in `system` are its tools, and `<functioncall>` is a call",
        "`system` that begins with `SYSTEM:`, and `chat` that begins with `USER:`",
        Sample(
            {
                "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if "
                'required -\n{\n    "name": "get_weather",\n    "description": "d",\n    "parameters": {}\n}\n',
                "chat": 'USER: Weather in Paris?\n\n\nASSISTANT: <functioncall> {"name": "get_weather", '
                '"arguments": \'{"city": "Paris"}\'} <|endoftext|>\n\n\nFUNCTION RESPONSE: {"t": 15}\n\n\n'
                "ASSISTANT: 15 C. <|endoftext|>\n\n\n",
            },
            "glaiveai/glaive-function-calling-v2",
            "https://huggingface.co/datasets/glaiveai/glaive-function-calling-v2",
        ),
    ),
    Shape(
        "text of ### Human",
        {"text": _begins("### Human:")},
        _of_marks(GUANACO),
        "a conversation",
        "a text that begins with `### Human:`",
        Sample(
            {"text": "### Human: 2+2?### Assistant: 4"},
            "timdettmers/openassistant-guanaco",
            "https://huggingface.co/datasets/timdettmers/openassistant-guanaco",
        ),
    ),
    Shape(
        "text of Human",
        {"text": _begins("Human:")},
        _of_marks(LINES),
        "a conversation",
        "a text that begins with `Human:`",
        Sample(
            {"text": "Human: 2+2?\n\nAssistant: 4"},
            "Dahoas/full-hh-rlhf and texts like it",
            "https://huggingface.co/datasets/Dahoas/full-hh-rlhf",
        ),
    ),
    Shape(
        "text of ChatML",
        {"text": _begins("<|im_start|>")},
        _of_marks(CHATML),
        "a conversation",
        "a text that begins with `<|im_start|>`",
        Sample(
            {"text": "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"},
            "texts that were rendered by a template of ChatML",
            "https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md",
        ),
    ),
)
