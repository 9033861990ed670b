"""A question and its answer, under any of the names that datasets have for them, with reasoning or without."""

from __future__ import annotations

from typing import Any

from transforms.records.messages import are_exchanges, turns_of
from transforms.records.names import REFERENCES
from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape, Values
from transforms.records.shapes.columns import (
    ANSWER,
    FLAG,
    QUESTION,
    REASONING,
    SWITCH,
    SYSTEM,
    TOOL_LIST,
    assistant,
    decoded,
    further,
    is_text,
    is_tools,
    user,
)

_BEFORE = {
    "system": SYSTEM,
    "context": Column(("context",), is_text),
    "history": Column(("history",), lambda value: are_exchanges(decoded(value))),
}
_FURTHER = {**_BEFORE, "tools": TOOL_LIST, "reasoning_switch": SWITCH, "enable_thinking": FLAG}


def _question(values: Values) -> dict[str, Any]:
    answer = assistant(values["answer"], values.get("reasoning"))
    return {"messages": [*_asked(values), answer], **further(values)}


def _calls(values: Values) -> dict[str, Any]:
    calls = decoded(values["answers"])
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    return {"messages": [*_asked(values), message], **further(values)}


def _asked(values: Values) -> list[dict[str, Any]]:
    """The question, with its context below it and earlier exchanges before it, as in schema question_answer."""
    question = values["question"]
    texts = [question] if isinstance(question, str) else [*question]
    texts += [values["context"]] if "context" in values else []
    return [*turns_of(decoded(values.get("history", []))), user(texts)]


def _are_calls(value: Any) -> bool:
    calls = decoded(value)
    return isinstance(calls, list) and bool(calls) and all(isinstance(call, dict) and "name" in call for call in calls)


SHAPES = (
    Shape(
        "question and answer",
        {"question": QUESTION, "answer": ANSWER},
        _question,
        "a conversation; of several answers, the one that has all the others in it",
        "a question and an answer under one of the names below; `context`, `history`",
        Sample(
            {
                "problem": "What is 6*7?",
                "generated_solution": "6*7 = 42, so \\boxed{42}.",
                "expected_answer": "42",
                "problem_type": "has_answer_extracted",
                "generation_model": "DeepSeek-R1",
                "inference_mode": "cot",
            },
            "nvidia/OpenMathReasoning, AI-MO/NuminaMath-CoT (solution), CohereLabs/aya_dataset (inputs, targets)",
            "https://huggingface.co/datasets/nvidia/OpenMathReasoning",
        ),
        optional=_FURTHER,
        left=REFERENCES,
    ),
    Shape(
        "speakers as columns",
        {
            "question": Column(("user", "human", "user_message", "user_input"), is_text),
            "answer": Column(("assistant", "gpt", "bot", "chatbot", "ai", "assistant_response"), is_text),
        },
        _question,
        "a conversation",
        "`user` or `human`, and `assistant`, `gpt`, `bot` ..",
        Sample(
            {"system": "Be brief.", "user": "What is 6*7?", "assistant": "42"},
            "user-assistant datasets of Axolotl",
            "https://docs.axolotl.ai/docs/dataset-formats/conversation.html",
        ),
        optional={**_FURTHER, "reasoning": REASONING},
    ),
    Shape(
        "question, reasoning and answer",
        {"question": QUESTION, "reasoning": REASONING, "answer": ANSWER},
        _question,
        "a conversation; the reasoning is `reasoning_content` of the answer",
        "a question, reasoning and an answer under one of the names below; `context`, `history`",
        Sample(
            {"Question": "What is 6*7?", "Complex_CoT": "6 times 7 is 42.", "Response": "It is 42."},
            "FreedomIntelligence/medical-o1-reasoning-SFT, GeneralReasoning/GeneralThought-430K",
            "https://huggingface.co/datasets/FreedomIntelligence/medical-o1-reasoning-SFT",
        ),
        optional=_FURTHER,
        left=REFERENCES,
    ),
    Shape(
        "question and calls",
        {
            "question": QUESTION,
            "answers": Column(("answers", "function_calls", "tool_calls", "calls"), _are_calls),
            "tools": Column(TOOL_LIST.names, is_tools),
        },
        _calls,
        "a conversation; the answer is a message with these calls",
        "a question, `answers` with calls (or their JSON) and tools",
        Sample(
            {
                "id": 1,
                "query": "Weather in Paris?",
                "answers": '[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
                "tools": '[{"name": "get_weather", "description": "d", "parameters": {"city": {"type": "str"}}}]',
            },
            "Salesforce/xlam-function-calling-60k",
            "https://huggingface.co/datasets/Salesforce/xlam-function-calling-60k",
        ),
        optional=_BEFORE,
    ),
)
