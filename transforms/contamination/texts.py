"""Which texts are compared: all strings of evaluation records, and what is said in examples, without system prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from transforms.contamination.words import normalized
from transforms.model.examples import REASONING_KEYS, Content, PlainText, PromptCompletion, TokenRow

# Of those who write the instructions of a conversation, which a whole corpus may share.
_NOT_COMPARED = ("system", "developer")


class Evaluation(msgspec.Struct, frozen=True):
    """A record of an evaluation set.

    Attributes:
        place: its file and its position there, as `FILE:POSITION`.
        texts: its texts, normalized, with one space between two words.
    """

    place: str
    texts: tuple[str, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Evaluation).decode


def encode_evaluations(evaluations: Iterable[Evaluation]) -> bytes:
    """Return the content of the file: JSON lines."""
    return b"".join(_encode(evaluation) + b"\n" for evaluation in evaluations)


def decode_evaluations(content: bytes) -> list[Evaluation]:
    """Return the records that the content of a file has."""
    return [_decode(line) for line in content.splitlines()]


def evaluation_text(place: str, record: Any) -> Evaluation:
    """Return what is looked for of a record of an evaluation set: all its strings, however deep, but no keys."""
    texts = (b" ".join(normalized(text).split()).decode() for text in _strings(record))
    return Evaluation(place, tuple(dict.fromkeys(filter(None, texts))))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def compared_texts(content: Content) -> Sequence[str]:
    """Return the text of each message of an example, with its reasoning; none of token ids, which are not compared."""
    if isinstance(content, PlainText):
        return (content.text,)
    if isinstance(content, PromptCompletion):
        return content.prompt, content.completion
    if isinstance(content, TokenRow):
        return ()
    if plain := content.plain:
        return ["" if role in _NOT_COMPARED else text for role, text in zip(*plain, strict=True)]
    return ["\n".join(_list_texts(message)) for message in content.messages]


def _list_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """The reasoning and the texts of a message."""
    if message["role"] in _NOT_COMPARED:
        return
    for key in (*REASONING_KEYS, "content"):
        value = message.get(key)
        for part in value if isinstance(value, list) else [value]:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
