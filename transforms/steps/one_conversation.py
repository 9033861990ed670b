"""Render one conversation as a build does: its text, what each piece of it is, its token ids and its labels."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from transforms.base.errors import RecordError
from transforms.base.options import Names, checked
from transforms.chat.config import RenderConfig, TemplateKwargs
from transforms.chat.spans.loss import assistant_turns
from transforms.chat.spans.turn_parts import Segment, segment_messages
from transforms.model.batches import Task, Texts
from transforms.model.examples import Conversation, Example, Record, attempt
from transforms.model.outcomes import Outcomes, Reject
from transforms.records.input_options import ParseOptions
from transforms.records.reader import RecordReader
from transforms.rows import IGNORED
from transforms.steps.render import Rendered, Renderer
from transforms.steps.tokenize import Encoder
from transforms.tokens.tokenizer import load_tokenizer

_READER = RecordReader(ParseOptions())


@dataclass(frozen=True)
class RenderedExample:
    """A conversation as a model is trained on it.

    Attributes:
        text: what the chat template prints.
        segments: its pieces, adjacent: which message each was printed for, and what of the message it is.
        input_ids: the tokens of the text.
        labels: the id of each token that is trained on, and -100 for any other.
    """

    text: str
    segments: list[Segment]
    input_ids: list[int]
    labels: list[int]


def render(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    tokenizer: Any,
    chat_template: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    now: datetime | str | None = None,
    loss_on: str = "assistant",
    eot_tokens: Sequence[str] = (),
    after_end: str = "train",
    unprinted: str = "reject",
    special_tokens_in_content: str = "report",
) -> RenderedExample:
    """Render a conversation, and find what of it is trained on.

    It gives the tokens and the labels of a build with the same options, before rows are truncated or packed. The first
    call with a tokenizer and options finds out what its template does; the next ones are faster.

    Args:
        messages: in the OpenAI format. A message of `weight` 0 is not trained on.
        tools: the tool definitions.
        tokenizer: of transformers, loaded; or the folder of one, at any url that fsspec opens. With a folder, stop
            tokens are read from its generation_config.json.
        chat_template: the text of a Jinja template; None is the tokenizer's own.
        chat_template_kwargs: what the template reads besides messages and tools, as a record gives it.
        now: the moment that the template's `strftime_now` prints. A template that prints the date needs it.
        loss_on: `assistant`, `last_assistant` or `all`.
        eot_tokens, after_end, unprinted, special_tokens_in_content: as of RenderConfig.

    Returns:
        The text, its segments, its token ids and its labels.

    Raises:
        RecordError: if a build would reject the conversation; its `reason` and `detail` say why.
        ParameterError: if a parameter is not one of those.
    """
    folder = tokenizer if isinstance(tokenizer, str) else None
    config = RenderConfig(
        tokenizer="loaded" if folder is None else folder,
        chat_template=chat_template,
        now=now.isoformat() if isinstance(now, datetime) else now,
        loss_on=loss_on,
        eot_tokens=checked("eot_tokens", eot_tokens, Names),
        after_end=after_end,
        unprinted=unprinted,
        special_tokens_in_content=special_tokens_in_content,
        engine="reference",
    )
    checked("chat_template_kwargs", chat_template_kwargs, TemplateKwargs | None)
    loaded = tokenizer if folder is None else load_tokenizer(folder)
    state = repr((loaded.chat_template, loaded.special_tokens_map, len(loaded)))
    renderer, encoder = _steps(loaded, state, config, folder is None)
    given = {"messages": messages, "tools": tools, "chat_template_kwargs": chat_template_kwargs}
    [content] = _accepted(*attempt([Record(0, b"")], lambda _: _content(given)))
    [rendered] = _accepted(*attempt([Example(0, content, {}, False, b"")], renderer.render))
    tokens = encoder(Texts(Task(0, ()), 0, True, Outcomes(), [rendered.text]))
    _accepted([], tokens.outcomes.rejects)
    labels = np.where(tokens.trained, tokens.ids, np.int32(IGNORED))
    return RenderedExample(rendered.text.text, _segments(rendered, renderer), tokens.ids.tolist(), labels.tolist())


def _accepted(results: list[Any], rejects: Sequence[Reject]) -> list[Any]:
    """The results of a step. Raises RecordError if it rejects the record."""
    for reject in rejects:
        raise RecordError(reject.reason, reject.detail)
    return results


def _segments(rendered: Rendered, renderer: Renderer) -> list[Segment]:
    text, rendering = rendered.text, rendered.rendering
    assert rendering is not None  # no engine but the reference renders a conversation without one
    length, messages = len(rendering.text), rendering.conversation.messages
    try:
        segments = segment_messages(rendering, renderer.turns.turns(rendering, assistant_turns(rendering.conversation)))
    except RecordError:  # everything is trained on, or the turns that are not cannot be established
        segments = [Segment(0, length, None, None)] if length else []
    appended = [Segment(length, len(text.text), len(messages) - 1, "end")] if length < len(text.text) else []
    return [*segments, *appended]


def _content(columns: Mapping[str, Any]) -> Conversation:
    """The content of a record with some columns, as a build reads it. Raises RecordError."""
    record = {name: _as_json(value) for name, value in columns.items() if value is not None}
    (read,) = _READER.read(record, {}).contents
    if not isinstance(read, Conversation):
        raise RecordError("bad_message", "messages is a text; expected a list of messages")
    return read


def _as_json(value: Any) -> Any:
    return [*value] if isinstance(value, tuple) else {**value} if isinstance(value, Mapping) else value


@functools.lru_cache(4)
def _steps(tokenizer: Any, state: str, config: RenderConfig, is_loaded: bool) -> tuple[Renderer, Encoder]:
    """state: what a user may change of a tokenizer, which is not the key of a cache by itself."""
    encoder = Encoder(tokenizer, engine="reference")  # which first finds what a tokenizer lacks
    return Renderer(config, tokenizer if is_loaded else None), encoder
