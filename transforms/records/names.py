"""Names that datasets give to the same thing: as data, so that one more name is one more word here."""

from __future__ import annotations

import functools
import re

WORD = re.compile(r"CoT|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

DIALOGS = (
    *("messages", "conversations", "conversation", "dialog", "dialogs", "dialogue", "dialogues", "trajectory"),
    *("turns", "chat", "chats", "message_list", "msgs", "contents"),
)
# Of these, lists of texts are a dialog, too: `turns` may be questions alone, `messages` those of one speaker.
SPOKEN = ("conversation", "conversations", "dialog", "dialogs", "dialogue", "dialogues", "chat")
HISTORIES = ("history", "chat_history", "prev_messages", "previous_messages", "conversation_history")
TOOLS = (
    *("tools", "functions", "available_tools", "available_functions", "tool_defs", "tool_definitions", "tool_schemas"),
    *("function_definitions", "function_schemas", "function_defs", "tool_specs", "tools_json", "tool_list"),
)
SYSTEMS = ("system", "system_prompt", "system_message", "system_instruction", "system_instructions", "instructions")
QUESTIONS = (
    *("question", "instruction", "query", "problem", "prompt", "input", "inputs", "user_prompt", "user_query"),
)
ANSWERS = (
    *("answer", "output", "response", "targets", "target", "solution", "generated_solution", "reply"),
    *("model_answer", "model_response", "model_output"),
)
# Who speaks, as a column.
USERS = ("user", "human", "user_message", "user_input")
ASSISTANTS = ("assistant", "gpt", "bot", "chatbot", "ai", "assistant_response")
CALLS = ("answers", "function_calls", "tool_calls", "calls")
CHOSEN = (
    *("chosen", "chosen_response", "chosen_messages", "chosen_answer", "preferred_output", "preferred", "accepted"),
)
REJECTED = (
    *("rejected", "rejected_response", "rejected_messages", "rejected_answer", "non_preferred_output", "dispreferred"),
)
# Of one message of a tree or a log, whose order a list does not say.
TREE_COLUMNS = ("parent", "parent_id", "replies", "message_id")
# Columns that a message has and a document has not.
ONE_MESSAGE_COLUMNS = ("role", "from", "speaker", "sender", *TREE_COLUMNS)
REASONINGS = (
    *("reasoning", "reasoning_content", "thinking", "thought", "thoughts", "think", "cot", "complex_cot", "long_cot"),
    *("chain_of_thought", "model_reasoning", "reasoning_trace", "thinking_trajectory", "thinking_process"),
)
# The literal token ids of a rollout.
PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "prompt_tokens", "query_ids")
COMPLETION_IDS = (
    *("completion_token_ids", "completion_ids", "completion_tokens", "response_token_ids", "response_ids"),
    *("output_token_ids", "output_ids", "generated_token_ids"),
)
SAMPLED_MASKS = ("completion_mask", "response_mask", "loss_mask", "loss_masks", "action_mask", "assistant_mask")


@functools.lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Return a name in snake_case and small letters: `systemInstruction` and `System Instruction` are the same."""
    return "_".join(word.lower() for word in WORD.findall(name))
