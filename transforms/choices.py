"""The names that a user chooses from. Kept apart, since the command line must not wait for what the steps import."""

SCHEMAS = ("auto", "messages", "prompt_completion", "sharegpt", "alpaca", "text", "tokenized")
INPUT_COLUMNS = (
    "messages", "tools", "chat_template_kwargs", "prompt", "completion", "conversations", "system", "instruction",
    "input", "output", "history", "text", "input_ids", "labels", "completion_mask", "assistant_masks", "attention_mask",
)  # fmt: skip
ROLES = ("system", "developer", "user", "assistant", "tool")
ENGINES = ("auto", "reference", "fast")
LOSSES = ("auto", "assistant", "last_assistant", "completion", "all")
PARITIES = ("report", "expand", "reject", "off")
TRUNCATIONS = ("keep_start", "keep_end", "drop")
PACKINGS = ("none", "bfd", "bfd_split", "ffd", "wrapped")

# What a chat template is given by the job itself, so that no chat_template_kwargs may hold it.
RESERVED_TEMPLATE_KWARGS = {"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"}
