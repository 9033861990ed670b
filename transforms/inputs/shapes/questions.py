"""A question and its answer, under any of the names that datasets have for them, with reasoning or without."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.json_text import kind_of
from transforms.inputs.names import REFERENCES
from transforms.inputs.samples import Sample
from transforms.inputs.shapes import Column, Shape, Values
from transforms.inputs.shapes.columns import (
    ANSWER,
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

_FURTHER = {"system": SYSTEM, "tools": TOOL_LIST, "reasoning_switch": SWITCH}


def _question(values: Values) -> dict[str, Any]:
    answer = assistant(values["answer"], values.get("reasoning"))
    return {"messages": [user(values["question"]), answer], **further(values)}


def _calls(values: Values) -> dict[str, Any]:
    calls = decoded(values["answers"])
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    return {"messages": [user(values["question"]), message], **further(values)}


def _are_calls(value: Any) -> bool:
    calls = decoded(value)
    return isinstance(calls, list) and bool(calls) and all(isinstance(call, dict) and "name" in call for call in calls)


def _one_of_responses(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "response" in one for one in value)


def _only_response(values: Values) -> dict[str, Any]:
    responses = values["responses"]
    if len(responses) > 1:
        found = f"responses has {len(responses)} answers; expected one. Choose one of them with a formatter"
        raise RecordError("bad_question_answer", found)
    if not is_text(answer := responses[0]["response"]):
        raise RecordError("bad_question_answer", f"the response is {kind_of(answer)}; expected a text")
    return {"messages": [user(values["question"]), assistant(answer)]}


def _first_thought(values: Values) -> dict[str, Any]:
    thoughts = values["reasoning"]
    if len(thoughts) != 1:
        found = f"thinking_trajectories has {len(thoughts)} texts; expected one. Choose one of them with a formatter"
        raise RecordError("bad_question_answer", found)
    return _question({**values, "reasoning": thoughts[0]})


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_text, value))


SHAPES = (
    Shape(
        "question and answer",
        {"question": QUESTION, "answer": ANSWER},
        _question,
        "a conversation; of several answers, the one that has all the others in it",
        "a question and an answer under one of the names below",
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
        "a question, reasoning and an answer under one of the names below",
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
        optional={"system": SYSTEM},
    ),
    Shape(
        "s1K-1.1",
        {
            "question": QUESTION,
            "reasoning": Column(("deepseek_thinking_trajectory",), is_text),
            "answer": Column(("deepseek_attempt",), is_text),
        },
        _question,
        "a conversation of DeepSeek-R1; what Gemini wrote and the `solution` are counted",
        "`question`, `deepseek_thinking_trajectory`, `deepseek_attempt`",
        Sample(
            {
                "question": "What is 6*7?",
                "solution": "42",
                "cot_type": "math",
                "gemini_thinking_trajectory": "Seven sixes.",
                "gemini_attempt": "The answer is 42.",
                "deepseek_thinking_trajectory": "6 times 7 is 42.",
                "deepseek_attempt": "It is 42.",
            },
            "simplescaling/s1K-1.1",
            "https://huggingface.co/datasets/simplescaling/s1K-1.1",
        ),
        optional=_FURTHER,
        left=("solution", "gemini_thinking_trajectory", "gemini_attempt", "cot"),
    ),
    Shape(
        "s1K",
        {
            "question": QUESTION,
            "reasoning": Column(("thinking_trajectories",), _are_texts),
            "answer": Column(("attempt",), is_text),
        },
        _first_thought,
        "a conversation with the reasoning; the `solution` is counted",
        "`question`, `thinking_trajectories` (a list of one text), `attempt`",
        Sample(
            {
                "question": "What is 6*7?",
                "solution": "42",
                "thinking_trajectories": ["6 times 7 is 42."],
                "attempt": "It is 42.",
            },
            "simplescaling/s1K",
            "https://huggingface.co/datasets/simplescaling/s1K",
        ),
        left=("solution", "cot"),
    ),
    Shape(
        "question and responses",
        {"question": QUESTION, "responses": Column(("responses",), _one_of_responses)},
        _only_response,
        "a conversation; several responses reject the record. `reference_answer` is counted",
        "`question`, `responses` with one `response`",
        Sample(
            {
                "question": "What is 6*7?",
                "reference_answer": "42",
                "responses": [{"response_model": "Llama3.3-70B-Instruct", "response": "6*7 is 42."}],
            },
            "facebook/natural_reasoning",
            "https://huggingface.co/datasets/facebook/natural_reasoning",
        ),
        left=REFERENCES,
    ),
    Shape(
        "camel",
        {"question": Column(("message_1",), is_text), "answer": Column(("message_2",), is_text)},
        _question,
        "a conversation",
        "`message_1`, `message_2`",
        Sample(
            {"role_1": "Teacher", "topic": "Sums", "message_1": "What is 6*7?", "message_2": "It is 42."},
            "camel-ai/math, camel-ai/physics",
            "https://huggingface.co/datasets/camel-ai/math",
        ),
    ),
)
