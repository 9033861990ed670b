"""Build messages, and batches of examples and texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from support.paths import TOKENIZER
from transforms import Conversation, Example, Examples, ParseConversations, PlainText, RenderConfig, Slice, Task
from transforms.model.batches import Records, Texts
from transforms.model.examples import Record, Span, Text
from transforms.model.outcomes import Outcomes
from transforms.tokens.fast_encoder import WORTH_LOADING

# Of an input for which it is worth while to load the fast encoder.
TASK = Task(
    number=0,
    slices=(Slice(url="chats.jsonl", format="jsonl", compression=None, start=0, stop=1),),
    input_bytes=WORTH_LOADING,
)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def assistant(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


def make_examples(*contents: Any) -> Examples:
    examples = [
        Example(number, content if not isinstance(content, list) else Conversation(content), {}, False, b"{}")
        for number, content in enumerate(contents)
    ]
    return Examples(TASK, 0, True, Outcomes(read=len(examples)), examples)


def parsed(records: Iterable[Mapping[str, Any]]) -> Examples:
    """The examples of records, as a build reads them. The position of a record is its number."""
    given = [Record(number, json.dumps(record).encode()) for number, record in enumerate(records)]
    return ParseConversations().function()(Records(TASK, 0, True, Outcomes(read=len(given)), given))


def text_of(text: str, spans: Iterable[Span] = ((0, 1),), position: int = 0, **fields: Any) -> Text:
    raw = f"record {position}".encode()
    return Text(Example(position, PlainText(text), {}, False, raw), text, list(spans), **fields)


def make_batch(texts: list[Text]) -> Texts:
    return Texts(task=TASK, chunk=0, last=True, outcomes=Outcomes(read=len(texts)), texts=texts)


def render_config(chat_template: str | None = None, folder: object = TOKENIZER, **options: Any) -> RenderConfig:
    return RenderConfig(tokenizer=str(folder), chat_template=chat_template, **options)
