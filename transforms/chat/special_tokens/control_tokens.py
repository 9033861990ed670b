"""Control tokens: what the chat templates of known families of models print around turns."""

from __future__ import annotations

# Left out are those that other text has as well, such as `<s>`.
CONTROL_TOKENS = frozenset(
    token
    for tokens in (
        "<|im_start|> <|im_end|> <|im_sep|> <|im_system|> <|im_user|> <|im_assistant|> <|im_middle|>",  # ChatML, Kimi
        "<|endoftext|>",
        "<|start|> <|message|> <|channel|> <|return|> <|call|> <|end|>",  # gpt-oss
        "[INST] [/INST]",  # Llama 2, Mistral
        "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|>",  # Llama 3
        "<|header_start|> <|header_end|> <|eot|> <|eom|>",  # Llama 4
        "<start_of_turn> <end_of_turn>",  # Gemma
        "<|system|> <|user|> <|assistant|> <|observation|> <|prompter|>",  # Phi 3, Zephyr, GLM, Open Assistant
        "<|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|SYSTEM_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|>",  # Cohere
        "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>",  # DeepSeek
        "<|start_of_role|> <|end_of_role|>",  # Granite
    )
    for token in tokens.split()
)
