"""Render one conversation as a build does: its text, what each piece of it is, its token ids and its labels."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.base.options import Names, checked
from transforms.chat.config import RenderConfig, TemplateKwargs
from transforms.chat.rendering.omissions import omissions_of
from transforms.chat.rendering.probes import adapted
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.loss import assistant_turns, trained_turns
from transforms.chat.spans.message_segments import Segment, segments_of
from transforms.chat.spans.stop_tokens import load_turn_rules, turn_rules
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.special_tokens.typed_tokens import TypedTokens
from transforms.model.examples import Conversation, Example, Record, Text, attempt, encodable
from transforms.records.reader import RecordReader
from transforms.records.reading import ROLE_NAMES, ReadOptions
from transforms.rows import IGNORED
from transforms.tokens.plain import PlainEncoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer, with_white_space
from transforms.tokens.trained import is_trained

_READER = RecordReader(ReadOptions(ROLE_NAMES))


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
    return _renderer(loaded, state, config, folder is None).render(
        messages=messages, tools=tools, chat_template_kwargs=chat_template_kwargs and {**chat_template_kwargs}
    )


class _Renderer:
    def __init__(self, tokenizer: Any, config: RenderConfig, rules: Any):
        moment = datetime.fromisoformat(config.now) if config.now else None
        self._config, self._tokenizer = config, with_white_space(tokenizer)
        self._template = ChatTemplate(tokenizer, config.chat_template, None, moment, is_reference=True)
        self._turns = TurnFinder(self._template, rules)
        mode = config.special_tokens_in_content
        self._typed_tokens = None if mode == "allow" else TypedTokens(mode, tokenizer, self._template, rules)

    def render(self, **columns: Any) -> RenderedExample:
        """Render the record of some columns, as the steps of a build do. Raises RecordError."""
        contents, rejects = attempt([Record(0, b"")], lambda _: _content(columns))
        if rejects:
            raise RecordError(rejects[0].reason, rejects[0].detail)
        try:
            return self._rendered(contents[0])
        except RecursionError as error:
            raise RecordError("nested_too_deeply", f"{error}") from None

    def _rendered(self, conversation: Conversation) -> RenderedExample:
        conversation = adapted(conversation, self._template)[0]
        example = Example(0, conversation, {}, False, b"")
        text, rendering = self._turns.trained_text(example, conversation, self._config.loss_on)
        checked = self._checked(encodable(text), rendering)
        turns = trained_turns(conversation, self._config.loss_on)
        ended = self._turns.with_end(checked, conversation, turns)
        segments = self._segments(rendering)
        if ended is not checked:
            segments.append(Segment(len(text.text), len(ended.text), len(conversation.messages) - 1, "end"))
            if checked.with_stand_ins is not None and self._typed_tokens:
                added = self._typed_tokens.with_stand_ins(ended.text[len(text.text) :])
                ended = msgspec.structs.replace(ended, with_stand_ins=checked.with_stand_ins + added)
        return RenderedExample(ended.text, segments, *self._encoded(ended))

    def _checked(self, text: Text, rendering: Rendering) -> Text:
        """The text after the checks of a build. Raises RecordError."""
        omissions = omissions_of(rendering)
        if omissions.not_printed and self._config.unprinted == "reject":
            raise RecordError("not_printed", omissions.detail())
        text = self._typed_tokens.check(text)[0] if self._typed_tokens else text
        return text

    def _segments(self, rendering: Rendering) -> list[Segment]:
        try:
            turns = self._turns.turns(rendering, assistant_turns(rendering.conversation))
        except RecordError:  # everything is trained on, or the turns that are not cannot be established
            return [Segment(0, len(rendering.text), None, None)] if rendering.text else []
        return segments_of(rendering, turns)

    def _encoded(self, text: Text) -> tuple[list[int], list[int]]:
        """The token ids and the labels of a text."""
        encoder = self._encoder if text.with_stand_ins is None else self._plain_encoder
        encoded = encoder.encode([text.with_stand_ins or text.text], special_tokens=False)
        if encoded.failed:
            raise RecordError("tokenizer_failed", f"the tokenizer cannot encode this text: {encoded.failed[0]}")
        spans = np.array(text.spans, np.int64).reshape(-1, 2) + encoded.bases[0]
        trained = is_trained(encoded.starts, encoded.stops, spans)
        return encoded.ids.tolist(), np.where(trained, encoded.ids, np.int32(IGNORED)).tolist()

    @functools.cached_property
    def _encoder(self) -> ReferenceEncoder:
        return ReferenceEncoder(self._tokenizer)

    @functools.cached_property
    def _plain_encoder(self) -> PlainEncoder:
        return PlainEncoder(self._tokenizer)


def _content(columns: Mapping[str, Any]) -> Conversation:
    """The content of a record with some columns, as a build reads it. Raises RecordError."""
    record = {
        name: [*value] if isinstance(value, tuple) else value for name, value in columns.items() if value is not None
    }
    (read,) = _READER.read(record, {}).contents
    if not isinstance(read, Conversation):
        raise RecordError("bad_message", "messages is a text; expected a list of messages")
    return read


@functools.lru_cache(4)
def _renderer(tokenizer: Any, state: str, config: RenderConfig, is_loaded: bool) -> _Renderer:
    """state: what a user may change of a tokenizer, which is not the key of a cache by itself."""
    rules = turn_rules(config) if is_loaded else load_turn_rules(config)
    return _Renderer(tokenizer, config, rules)
