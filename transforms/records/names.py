"""Names that datasets give to the same thing: as data, so that one more name is one more word here."""

from __future__ import annotations

import functools
import re

WORD = re.compile(r"CoT|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

DIALOGS = (
    *("messages", "conversations", "conversation", "dialog", "dialogs", "dialogue", "dialogues", "trajectory"),
    *("turns", "chat", "chats", "message_list", "msgs"),
)
TOOLS = (
    *("tools", "functions", "available_tools", "available_functions", "tool_defs", "tool_definitions", "tool_schemas"),
    *("function_definitions", "function_schemas", "function_defs", "tool_specs", "tools_json", "tool_list"),
)
SYSTEMS = ("system", "system_prompt", "system_message", "system_instruction", "system_instructions")
QUESTIONS = (
    *("question", "query", "problem", "instruction", "prompt", "input", "inputs", "user_prompt", "user_query"),
)
ANSWERS = (
    *("answer", "response", "output", "targets", "target", "solution", "generated_solution", "reply"),
    *("model_answer", "model_response", "model_output"),
)
REASONINGS = (
    *("reasoning", "reasoning_content", "thinking", "thought", "thoughts", "think", "cot", "complex_cot", "long_cot"),
    *("chain_of_thought", "model_reasoning", "reasoning_trace", "thinking_trajectory", "thinking_process"),
)
# What a record has to compare an answer with, or was made from: nobody is to learn it.
REFERENCES = (
    *("original_question", "target_tools"),
    *("reference_answer", "reference_answers", "expected_answer", "ground_truth", "ground_truth_answer", "gold_answer"),
    *("reference_solution", "expected_output", "reference", "gold"),
)
# The literal token ids of a rollout.
PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "prompt_tokens", "query_ids")
COMPLETION_IDS = (
    *("completion_token_ids", "completion_ids", "completion_tokens", "response_token_ids", "response_ids"),
    *("output_token_ids", "output_ids", "generated_token_ids"),
)


@functools.lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Return a name in snake_case and small letters: `systemInstruction` and `System Instruction` are the same."""
    return "_".join(word.lower() for word in WORD.findall(name))
