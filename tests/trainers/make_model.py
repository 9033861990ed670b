"""Save a tiny random model with a tokenizer in a folder. The Python of the trainers runs this.

    make_model.py TOKENIZER FOLDER

Its weights are large, so that a token's loss depends on the tokens before it. Its numbers are float32.
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=2048,
    initializer_range=0.3,
)
LlamaForCausalLM(config).save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
