"""Messages whose fields have other names: who speaks, and what is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transforms.records.turns import OF_TREES, Messages, TurnForm

_ROLES = ("role", "from", "speaker", "author", "sender")
_TEXTS = ("content", "value", "text", "utterance", "message", "body")
# Those that messages and ShareGPT have.
_KNOWN = (("role", "content"), ("from", "value"), ("role", "value"), ("from", "content"))
# Where nebius has the text of system messages.
_OF_SYSTEM = "system_prompt"


def _names(turn: Any) -> tuple[str, str] | None:
    """The names of the two fields of a turn; None if there are not exactly two."""
    if not isinstance(turn, dict) or any(name in turn for name in (*OF_TREES, "parts")):
        return None
    roles = [name for name in _ROLES if isinstance(turn.get(name), str)]
    texts = _filled(turn, _TEXTS)
    if not texts and roles and turn[roles[0]] == "system":
        texts = _filled(turn, (_OF_SYSTEM,))
    if not texts:
        texts = [name for name in _TEXTS if turn.get(name) == ""]
    return (roles[0], texts[0]) if len(roles) == len(texts) == 1 else None


def _filled(turn: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [name for name in names if isinstance(turn.get(name), str) and turn[name]]


def _recognizes(turns: list[Any]) -> bool:
    names = [_names(turn) for turn in turns]
    texts = {pair[1] for pair in names if pair} - {_OF_SYSTEM}
    return (
        None not in names
        and len({pair[0] for pair in names if pair}) == 1
        and len(texts) <= 1
        and not any(pair in _KNOWN for pair in names)
    )


def _messages(turns: list[Any], column: str) -> Messages:
    messages = []
    for turn in turns:
        role, text = _names(turn) or ("role", "content")
        rest = {key: value for key, value in turn.items() if key not in (role, text) and value not in (None, "")}
        messages.append({"role": turn[role], "content": turn[text], **rest})
    return Messages(messages)


FORMS = (TurnForm("fields", _recognizes, _messages),)
