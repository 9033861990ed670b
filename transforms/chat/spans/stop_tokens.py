"""Stop tokens: the texts at which a server ends the model's turn, given by the user or by generation_config.json."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from transforms.base.errors import ParameterError
from transforms.chat.config import APPENDED, RenderConfig
from transforms.storage.files import exists, join, read_bytes
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.tokenizer_files import GENERATION_CONFIG, stop_token_ids


@dataclass(frozen=True)
class TurnRules:
    """What is known about turns besides the chat template.

    Attributes:
        stop_tokens: texts with which a model ends its turn.
        named: whether the user named them. Otherwise {% generation %} markers decide alone what is trained on.
        appended: those of them that are appended to a last turn that the template does not close.
        masks_after_end: whether white space that is printed after the end of a turn is not trained on.
    """

    stop_tokens: tuple[str, ...] = ()
    named: bool = False
    appended: tuple[str, ...] = ()
    masks_after_end: bool = False

    @functools.cached_property
    def following(self) -> re.Pattern[str]:
        """Matches a stop token after white space, the longest of several."""
        return re.compile(rf"\s*(?:{longest_match_regex(self.stop_tokens)})")


def load_turn_rules(config: RenderConfig, is_loaded: bool = False) -> TurnRules:
    """Load what a configuration says about turns.

    Args:
        config: its eot_tokens are the stop tokens. If it has none, they are the `eos_token_id` of
            generation_config.json next to the tokenizer, if there is one.
        is_loaded: whether somebody else has loaded the tokenizer, so that it is unknown what is next to it.

    Raises:
        ParameterError: if generation_config.json is not valid.
    """
    named = tuple(text.removeprefix(APPENDED) for text in config.eot_tokens)
    appended = tuple(text.removeprefix(APPENDED) for text in config.eot_tokens if text.startswith(APPENDED))
    stop_tokens = named if named or is_loaded else configured_stop_tokens(config.tokenizer)
    return TurnRules(stop_tokens, bool(named), appended, config.after_end == "mask")


def configured_stop_tokens(folder: str) -> tuple[str, ...]:
    """Return the texts of the stop tokens that generation_config.json names; none if there is no such file.

    Args:
        folder: of the tokenizer.

    Raises:
        ParameterError: if it is not valid.
    """
    url = join(folder, GENERATION_CONFIG)
    if not exists(url):
        return ()
    try:
        ids = stop_token_ids(json.loads(read_bytes(url)))
    except ValueError as error:
        raise ParameterError("tokenizer", folder, f"{GENERATION_CONFIG} is not valid ({error}).") from None
    tokenizer = load_tokenizer(folder)
    texts = (tokenizer.decode([number], skip_special_tokens=False) for number in ids if 0 <= number < len(tokenizer))
    return tuple(text for text in texts if text.strip())


def longest_match_regex(strings: Iterable[str]) -> str:
    """Return a regular expression that matches the longest of some strings that a place begins with.

    The strings share their beginnings, as in a tree: an alternative for each would be tried one after the other.

    Args:
        strings: any number of them; with none, the expression matches nowhere.
    """
    given = sorted(set(strings))
    return _tree(given) if given else "(?!)"


def _tree(strings: Iterable[str]) -> str:
    rests: dict[str, list[str]] = {}
    for string in strings:
        rests.setdefault(string[:1], []).append(string[1:])
    branches = [re.escape(first) + _tree(rest) for first, rest in rests.items() if first]
    if "" in rests:
        return f"(?:{'|'.join(branches)})?" if branches else ""
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
