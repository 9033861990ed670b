"""Dialogs under another name than `messages`, and those whose answer is in a column of its own."""

from __future__ import annotations

from typing import Any

from transforms.records.names import ANSWERS, DIALOGS, QUESTIONS, REFERENCES
from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape, Values
from transforms.records.shapes.columns import (
    DIALOG,
    FLAG,
    REASONING,
    SWITCH,
    SYSTEM,
    TOOL_LIST,
    assistant,
    decoded,
    further,
    is_dialog,
    is_open,
    is_text,
)
from transforms.records.turns import is_message

_OF_DIALOGS = {"tools": TOOL_LIST, "system": SYSTEM, "reasoning_switch": SWITCH, "enable_thinking": FLAG}
_HISTORY = ("history", "chat_history", "prev_messages", "previous_messages", "conversation_history")
_COMPLETION = (*ANSWERS, "completion", "choices")


def _dialog(values: Values) -> dict[str, Any]:
    return {"messages": values["messages"], **further(values)}


def _is_answer(value: Any) -> bool:
    found = decoded(value)
    if isinstance(found, dict):
        return is_message(found)
    if isinstance(found, list):
        return is_dialog(found) or _choice(found) is not None
    return is_text(found)


def _choice(choices: Any) -> Any:
    """The message of the only choice that a server returned; None if it is something else."""
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        message = choices[0].get("message")
        return message if is_message(message) else None
    return None


def _answered(values: Values) -> dict[str, Any]:
    answer = decoded(values["completion"])
    if isinstance(answer, str):
        answer = [assistant(values["completion"], values.get("reasoning"))]
    elif isinstance(answer, dict):
        answer = [answer]
    elif choice := _choice(answer):
        answer = [choice]
    return {"prompt": decoded(values["prompt"]), "completion": answer, **further(values)}


def _is_open_prompt(values: Values) -> bool:
    return is_open(values["prompt"])


SHAPES = (
    Shape(
        "dialog",
        {"messages": DIALOG},
        _dialog,
        "a conversation",
        "a dialog under one of the names below, with tools and a system message under theirs",
        Sample(
            {
                "conversation_hash": "5d8a",
                "model": "gpt-4",
                "conversation": [
                    {"role": "user", "content": "2+2?", "redacted": False, "toxic": False, "language": "English"},
                    {"role": "assistant", "content": "4", "redacted": False, "toxic": False, "language": "English"},
                ],
                "turn": 1,
                "language": "English",
            },
            "allenai/WildChat-1M, lmsys/lmsys-chat-1m",
            "https://huggingface.co/datasets/allenai/WildChat-1M",
        ),
        optional=_OF_DIALOGS,
        left=("target_tools",),
    ),
    Shape(
        "dialog and answer",
        {
            "prompt": Column((*DIALOGS, *QUESTIONS, *_HISTORY, "context"), is_dialog),
            "completion": Column(_COMPLETION, _is_answer),
        },
        _answered,
        "a prompt and completion; reasoning in a column of its own belongs to the answer",
        "a dialog, or a `prompt`, `input` or `context` of messages, that ends with a question; its answer as "
        "a text, a message, messages, or `choices` of one message",
        Sample(
            {
                "input": [{"role": "user", "content": "2+2?"}],
                "output": "<think>\nA sum.\n</think>\n\n4",
                "category": "math",
                "license": "cc-by-4.0",
                "reasoning": "on",
                "generator": "DeepSeek-R1",
                "used_in_training": "Ultra",
                "version": "v1.1",
                "system_prompt": "detailed thinking on",
            },
            "nvidia/Llama-Nemotron-Post-Training-Dataset, cognitivecomputations/dolphin-r1, logs of servers",
            "https://huggingface.co/datasets/nvidia/Llama-Nemotron-Post-Training-Dataset",
        ),
        schema="prompt_completion",
        optional={**_OF_DIALOGS, "reasoning": REASONING},
        left=REFERENCES,
        fits=_is_open_prompt,
    ),
    Shape(
        "rollout of messages",
        {
            "prompt": Column(("prompt",), is_dialog),
            "completion": Column(("completion",), is_dialog),
        },
        lambda values: {"prompt": values["prompt"], "completion": values["completion"], **further(values)},
        "a prompt and completion; the `answer` is what the rollout was judged by",
        "`prompt` and `completion` of messages, `tool_defs`",
        Sample(
            {
                "example_id": 0,
                "prompt": [{"role": "user", "content": "2+2?"}],
                "completion": [{"role": "assistant", "content": "4"}],
                "answer": "4.0",
                "reward": 1.0,
                "tool_defs": [{"name": "add", "description": "Adds", "parameters": {"type": "object"}}],
            },
            "rollouts of verifiers and prime-rl",
            "https://github.com/PrimeIntellect-ai/verifiers",
        ),
        schema="prompt_completion",
        optional=_OF_DIALOGS,
        left=("answer", *REFERENCES),
    ),
)
