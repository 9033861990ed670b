"""Turn tokens: what a chat template prints where a turn ends and another one begins, such as `<|im_end|>`."""

from __future__ import annotations

import re

from transforms.chat.spans.template_facts import Template
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Conversation

_MARKER = r"(?:<[^<>\s]{1,40}>|\[/?[A-Za-z_]{1,40}\])"
# Templates open and close the reasoning before an answer. A model writes these itself.
_OF_REASONING = re.compile("think|thought|reason", re.IGNORECASE)


def find_turn_tokens(template: Template, special_token: re.Pattern[str]) -> frozenset[str]:
    """Find what a chat template prints where turns end and begin.

    Args:
        template: the chat template.
        special_token: matches the special tokens of the tokenizer.

    Returns:
        The special tokens, and markers of ordinary text such as `[INST]`, between the contents of a dialogue; and the
        special tokens around the answer of a tool.
    """
    facts = TurnFinder(template).facts(Conversation([]))
    between, around = facts.between_contents(), facts.around_result()
    found = {*special_token.findall(between), *re.findall(_MARKER, between), *special_token.findall(around)}
    return frozenset(token for token in found if not _OF_REASONING.search(token))
