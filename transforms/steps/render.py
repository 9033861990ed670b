"""Render: from examples to the text that is tokenized, and the spans of it that are trained on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from transforms.chat.compiled import SlowPath
from transforms.chat.config import RenderConfig
from transforms.chat.template import load_template
from transforms.chat.trace_cache import TraceCache
from transforms.chat.turns import TurnFinder
from transforms.checks import check_type
from transforms.errors import RecordError
from transforms.model.batches import Examples, Texts
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, Span, Text, TokenRow
from transforms.steps.base import Step
from transforms.steps.proof import fall_back, sample


class Renderer:
    """Makes a text of each example, and finds what of it is trained on.

    Unless the engine is the reference, conversations are rendered by compiled templates, and a sample of each batch
    by the reference too; if the two differ, the engine auto renders the whole batch by the reference.

    Args:
        config: how conversations are rendered.

    Raises:
        UserError: if a template prints the date and the configuration does not give it.
    """

    def __init__(self, config: RenderConfig):
        self._template = load_template(config)
        self._turns = TurnFinder(self._template)
        self._loss_on = config.loss_on
        self._engine = config.engine
        self._trace_cache = None if config.engine == "reference" else TraceCache(self._template)

    def __call__(self, batch: Examples) -> Texts:
        if self._trace_cache is None:
            return self._by_reference(batch, "engine")
        self._trace_cache.begin_batch(len(batch.examples))
        slow_paths: list[tuple[int, SlowPath]] = []
        texts = batch.attempt(Texts, "texts", lambda example: self._render_compiled(example, slow_paths))
        difference = self._difference(batch, texts)
        if difference is not None:
            outcomes = fall_back(batch, self._engine, "rendering", *difference)
            return self._by_reference(replace(batch, outcomes=outcomes), "fell_back")
        outcomes = texts.outcomes
        for reason, count in Counter(slow.reason for _, slow in slow_paths).items():
            first = next((position, slow.detail) for position, slow in slow_paths if slow.reason == reason)
            outcomes = outcomes.count_rendered_by_reference(reason, count, first)
        return replace(texts, outcomes=outcomes)

    def _by_reference(self, batch: Examples, reason: str) -> Texts:
        """All texts of a batch by the reference, counted for the reason."""
        texts = batch.attempt(Texts, "texts", self.render)
        conversations = sum(isinstance(text.example.content, Conversation) for text in texts.texts)
        return replace(texts, outcomes=texts.outcomes.count_rendered_by_reference(reason, conversations))

    def _difference(self, batch: Examples, texts: Texts) -> tuple[int, str] | None:
        """The position of the first record of a sample that the reference renders differently, and how; or None."""
        for number in sample(batch, len(texts.texts)):
            text = texts.texts[number]
            try:
                expected = self.render(text.example)
            except RecordError as error:
                return text.example.position, error.detail
            if (text.text, text.spans, text.prompt) != (expected.text, expected.spans, expected.prompt):
                return text.example.position, "another text" if text.text != expected.text else "another mask"
        return None

    def _render_compiled(self, example: Example, slow_paths: list[tuple[int, SlowPath]]) -> Text:
        """The text of one example, as `render` gives it, by a compiled template if possible. Raises RecordError.

        slow_paths: takes the position of the record, and why it was left to the reference, if it was and has a text.
        """
        content = example.content
        if self._trace_cache is None or not isinstance(content, Conversation):
            return self.render(example)
        loss_on = loss_of(content, self._loss_on)
        if loss_on == "completion" and content.completion_start is None:
            return self.render(example)
        found = self._trace_cache.render_with_spans(content, loss_on)
        if isinstance(found, SlowPath):
            rendered = self.render(example)
            slow_paths.append((example.position, found))
            return rendered
        text, spans = found
        prompt = text[: spans[0][0]] if loss_on == "completion" else None
        return _encodable(Text(example, text, spans, prompt=prompt))

    def render(self, example: Example) -> Text:
        """The text of one example. Raises RecordError."""
        return _encodable(self._render(example))

    def _render(self, example: Example) -> Text:
        content = example.content
        if isinstance(content, Conversation):
            return self._conversation(example, content)
        if isinstance(content, TokenRow):
            spans = _runs(content.trained) if self._loss_on != "all" else [(0, len(content.input_ids))]
            return Text(example, "", spans, token_ids=content.input_ids)
        if isinstance(content, PlainText) and self._loss_on in ("auto", "all"):
            return Text(example, content.text, _whole(content.text), special_tokens=True)
        if isinstance(content, PromptCompletion) and self._loss_on in ("auto", "completion", "all"):
            text = content.prompt + content.completion
            if self._loss_on == "all":
                return Text(example, text, _whole(text), special_tokens=True)
            spans = [(len(content.prompt), len(text) + 1)]
            return Text(example, text, spans, special_tokens=True, prompt=content.prompt)
        kind = "a text" if isinstance(content, PlainText) else "a prompt and completion of plain text"
        raise RecordError("loss_not_applicable", f"loss_on {self._loss_on} asks for what {kind} does not have")

    def _conversation(self, example: Example, conversation: Conversation) -> Text:
        loss_on = loss_of(conversation, self._loss_on)
        if loss_on == "all":
            text = self._template.render(conversation)
            return Text(example, text, [(0, len(text))])
        if loss_on == "completion":
            if conversation.completion_start is None:
                raise RecordError("loss_not_applicable", "loss_on completion asks for what messages do not have")
            text, spans, prompt = self._turns.completion_span(conversation)
            return Text(example, text, spans, prompt=prompt)
        text, spans = self._turns.assistant_spans(conversation, last_only=loss_on == "last_assistant")
        return Text(example, text, spans)


def loss_of(conversation: Conversation, loss_on: str) -> str:
    """Resolve auto: what is trained on of a conversation, one of LOSSES but auto."""
    if loss_on != "auto":
        return loss_on
    return "assistant" if conversation.completion_start is None else "completion"


def _encodable(text: Text) -> Text:
    """The text itself. Raises RecordError if it cannot be encoded as UTF-8."""
    if not text.text.isascii():
        try:
            text.text.encode()
        except UnicodeEncodeError as error:
            raise RecordError("invalid_unicode", f"the text cannot be encoded: {error}") from None
    return text


def _whole(text: str) -> list[Span]:
    """All of a text, with the special tokens before and after it."""
    return [(-1, len(text) + 1)]


def _runs(trained: np.ndarray) -> list[Span]:
    """trained: bool (tokens,). Returns the (start, stop) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], trained, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


class ApplyChatTemplate(Step):
    """Render each example with the chat template, and find what of its text is trained on.

    PCollection[Examples] -> PCollection[Texts].

    Args:
        config: how conversations are rendered, and what is trained on.
    """

    input, output = Examples, Texts

    def __init__(self, config: RenderConfig):
        check_type("config", config, RenderConfig)
        super().__init__(Renderer, config=config)
