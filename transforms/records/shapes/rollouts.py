"""Rollouts with the literal token ids that a model read and wrote, which are kept as they are."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.names import COMPLETION_IDS, PROMPT_IDS
from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape, Values

_MASKS = ("completion_mask", "response_mask", "loss_mask", "loss_masks", "action_mask", "assistant_mask")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _are_flags(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, (bool, int)) for one in value)


def _row(values: Values) -> dict[str, Any]:
    prompt, completion = values["prompt_ids"], values["completion_ids"]
    mask = values.get("mask", [1] * len(completion))
    before = [0] * len(prompt)
    if len(mask) == len(completion):
        mask = [*before, *mask]
    elif len(mask) != len(prompt) + len(completion):
        found = (
            f"the mask has {len(mask):,} values for {len(prompt):,} tokens of the prompt and {len(completion):,} of "
        )
        raise RecordError(
            "bad_tokens", f"{found}the completion; expected one for each token of the completion, or of both"
        )
    return {"input_ids": [*prompt, *completion], "completion_mask": mask}


SHAPES = (
    Shape(
        "rollout of token ids",
        {"prompt_ids": Column(PROMPT_IDS, _are_ids), "completion_ids": Column(COMPLETION_IDS, _are_ids)},
        _row,
        "a row with these ids; the completion is trained on, or what the mask says of it",
        "`prompt_token_ids` and `completion_token_ids` (or `prompt_ids`, `response_ids` ..), with "
        "`completion_mask`, `response_mask` or `loss_mask`",
        Sample(
            {
                "prompt_token_ids": [151644, 872, 198],
                "completion_token_ids": [19, 151645],
                "completion_mask": [1, 1],
                "completion_logprobs": [-0.1, -0.01],
                "reward": 1.0,
            },
            "rollouts of verifiers, prime-rl, SkyRL and vLLM",
            "https://github.com/PrimeIntellect-ai/prime-rl",
        ),
        schema="tokenized",
        optional={"mask": Column(_MASKS, _are_flags)},
        left=("prompt", "completion", "messages", "response", "output", "text", "answer", "trajectory", "tools"),
    ),
)
