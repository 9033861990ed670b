"""Render: from examples to the text that is tokenized, and the spans of it that are trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from transforms.chat.compiled import SlowPath
from transforms.chat.config import RenderConfig
from transforms.chat.conventions import Template
from transforms.chat.fast_template import FastTemplate, NotFollowed
from transforms.chat.habits import HabitFinder, Habits
from transforms.chat.limits import TemplateLimit
from transforms.chat.omissions import NO_OMISSIONS, Omissions
from transforms.chat.stop_tokens import load_turn_rules
from transforms.chat.template import load_template
from transforms.chat.trace_cache import TraceCache
from transforms.chat.turns import TurnFinder, has_weights, loss_of, trained_turns
from transforms.chat.typed_tokens import FOREIGN_TOKENS, Typed, TypedTokens, described
from transforms.checks import check_type
from transforms.errors import RecordError
from transforms.model.batches import Examples, Texts
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, Span, Text, TokenRow
from transforms.model.outcomes import Outcomes, Reject
from transforms.steps.base import Step
from transforms.steps.counting import of_contents
from transforms.steps.proof import fall_back, sample_conversations
from transforms.steps.unread_keys import check_keys, unread_keys

# The position of a record, and what of it the template does not print.
Omitted: TypeAlias = list[tuple[int, Omissions]]
# So many texts are searched at once for special tokens. Each of them is checked only if there may be one.
_CHECKED_AT_ONCE = 256
# Reasons that say what the template does, and not only what the conversation has.
_OF_TEMPLATE = ("guard_failed", "template_not_traceable", "trace_failed")


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
        rules = load_turn_rules(config)
        self._turns = TurnFinder(self._template, rules)
        self._habits = HabitFinder(self._turns)
        self._loss_on = config.loss_on
        self._unprinted = config.unprinted
        self._max_text_bytes = config.max_text_bytes
        self._engine = config.engine
        self._trace_cache = None if config.engine == "reference" else TraceCache(self._template, rules)
        self._fast_template = FastTemplate(self._template)
        self._fast_turns = TurnFinder(self._fast_template, rules, self._turns)
        allows = config.special_tokens_in_content == "allow"
        self._typed_tokens = None if allows else TypedTokens(config, self._template, rules)

    def __call__(self, batch: Examples) -> Texts:
        texts = self._rendered(batch)
        if self._typed_tokens is not None:
            texts = _checked(texts, self._typed_tokens)
        texts = check_keys(texts, self._unprinted, self._loss_on)
        outcomes = self._with_notes(texts)
        return replace(texts, outcomes=outcomes.count(of_contents([text.example.content for text in texts.texts])))

    def _with_notes(self, texts: Texts) -> Outcomes:
        """The outcomes of a batch, with what is worth reporting of the template for its conversations."""
        outcomes = texts.outcomes
        known: dict[bool, Habits] = {}  # with tools and without; most conversations have no arguments of their own
        for text in texts.texts:
            content = text.example.content
            if not isinstance(content, Conversation):
                continue
            has_tools = bool(content.tools)
            habits = None if content.template_kwargs else known.get(has_tools)
            if habits is None:
                habits = self._habits.habits(content)
                if not content.template_kwargs:
                    known[has_tools] = habits
            if habits.are_sound or (loss_on := loss_of(content, self._loss_on)) == "all":
                continue
            position = text.example.position
            if count := habits.count_open(content, loss_on):
                found = "the template prints nothing that ends an answer, so that a model does not learn to stop"
                outcomes = outcomes.note("turns_without_end", count, (position, found))
            if habits.ignores_prompt and trained_turns(content, loss_on):
                found = "the template ignores add_generation_prompt, so that the header of an answer is trained on"
                outcomes = outcomes.note("records_without_generation_prompt", 1, (position, found))
        return outcomes

    def _rendered(self, batch: Examples) -> Texts:
        if self._trace_cache is None:
            return self._by_reference(batch, "engine")
        self._trace_cache.begin_batch(len(batch.examples))
        slow_paths: list[tuple[int, SlowPath]] = []
        omitted: Omitted = []
        texts = batch.attempt(Texts, "texts", lambda example: self._render_compiled(example, slow_paths, omitted))
        difference = self._difference(batch, texts, dict(omitted))
        if difference is not None:
            outcomes = fall_back(batch, self._engine, "rendering", *difference)
            return self._by_reference(replace(batch, outcomes=outcomes), "fell_back")
        outcomes = _noted(texts.outcomes, omitted)
        for reason, count in Counter(slow.reason for _, slow in slow_paths).items():
            first = next((position, slow.detail) for position, slow in slow_paths if slow.reason == reason)
            outcomes = outcomes.count_rendered_by_reference(reason, count, first)
        return replace(texts, outcomes=outcomes)

    def _by_reference(self, batch: Examples, reason: str) -> Texts:
        """All texts of a batch by the reference, counted for the reason."""
        omitted: Omitted = []
        texts = batch.attempt(Texts, "texts", lambda example: self.render(example, omitted))
        conversations = sum(isinstance(text.example.content, Conversation) for text in texts.texts)
        outcomes = _noted(texts.outcomes, omitted)
        return replace(texts, outcomes=outcomes.count_rendered_by_reference(reason, conversations))

    def _difference(self, batch: Examples, texts: Texts, omitted: dict[int, Omissions]) -> tuple[int, str] | None:
        """The position of the first record of a sample that the reference renders differently, and how; or None."""
        for number in sample_conversations(batch, texts.texts):
            text = texts.texts[number]
            expected_omissions: Omitted = []
            try:
                expected = self.render(text.example, expected_omissions)
            except RecordError as error:
                return text.example.position, error.detail
            if (text.text, text.spans, text.prompt) != (expected.text, expected.spans, expected.prompt):
                return text.example.position, "another text" if text.text != expected.text else "another mask"
            if dict(expected_omissions).get(text.example.position) != omitted.get(text.example.position):
                return text.example.position, "another omission"
        return None

    def _render_compiled(self, example: Example, slow_paths: list[tuple[int, SlowPath]], omitted: Omitted) -> Text:
        """The text of one example, as `render` gives it, by a compiled template if possible. Raises RecordError.

        slow_paths: takes the position of the record, and why it was left to the reference, if it was and has a text.
        omitted: as in `render`.
        """
        content = example.content
        if self._trace_cache is None or not isinstance(content, Conversation):
            return self.render(example, omitted)
        loss_on = loss_of(content, self._loss_on)
        found = self._trace_cache.render_with_spans(content, loss_on)
        if isinstance(found, SlowPath):
            return self._render_uncompiled(example, content, found, slow_paths, omitted)
        text, spans, omissions = found
        prompt = text[: spans[0][0]] if loss_on == "completion" else None
        rendered = self._within_limits(Text(example, text, spans, prompt=prompt))
        if omissions is not NO_OMISSIONS:
            self._check_omissions(example, omissions, omitted)
        return rendered

    def _render_uncompiled(
        self,
        example: Example,
        content: Conversation,
        why: SlowPath,
        slow_paths: list[tuple[int, SlowPath]],
        omitted: Omitted,
    ) -> Text:
        """The text of an example for which there is no compiled template."""
        try:
            text = self._within_limits(self._conversation(example, content, self._fast_template, self._fast_turns))
            omissions = self._fast_template.omissions(content)
        except NotFollowed as error:
            slow = why if why.reason in _OF_TEMPLATE else SlowPath("not_followed", str(error))
        except RecordError as error:  # the reference has the last word
            slow = SlowPath("not_followed", f"{error.reason}: {error.detail}")
        except RecursionError:  # the fast engine needs more frames for the same depth
            slow = SlowPath("not_followed", "it is nested too deeply")
        else:
            if omissions is not NO_OMISSIONS:
                self._check_omissions(example, omissions, omitted)
            return text
        rendered = self.render(example, omitted)
        slow_paths.append((example.position, slow))
        return rendered

    def render(self, example: Example, omitted: Omitted | None = None) -> Text:
        """The text of one example. Raises RecordError.

        omitted: takes the position of the record, and what of it the template does not print, if that is reported.
        """
        text = self._within_limits(self._render(example))
        if isinstance(example.content, Conversation):
            omissions = self._template.omissions(example.content, text.text)
            if omissions is not NO_OMISSIONS:
                self._check_omissions(example, omissions, [] if omitted is None else omitted)
        return text

    def _within_limits(self, text: Text) -> Text:
        """The text itself. Raises RecordError if it cannot be encoded as UTF-8, or is too long."""
        size = len(text.text)
        if not text.text.isascii():
            try:
                size = len(text.text.encode())
            except UnicodeEncodeError as error:
                raise RecordError("invalid_unicode", f"the text cannot be encoded: {error}") from None
        if size > self._max_text_bytes and isinstance(text.example.content, Conversation):
            raise TemplateLimit(
                "template_limit",
                f"the chat template prints {size:,} bytes, and max_text_bytes is {self._max_text_bytes:,}",
            )
        return text

    def check_special_tokens(self, text: Text) -> Text:
        """Return a text after the check of its contents for special tokens. Raises RecordError, see TypedTokens."""
        return text if self._typed_tokens is None else self._typed_tokens.check(text)[0]

    def check_keys(self, text: Text) -> Text:
        """Return a text after the check of the keys of its messages. Raises RecordError, see unread_keys."""
        if isinstance(text.example.content, Conversation):
            unread_keys(text, self._unprinted)
        return text

    def _check_omissions(self, example: Example, omissions: Omissions, omitted: Omitted) -> None:
        """Raise RecordError, or report what the template does not print."""
        if omissions.not_printed and self._unprinted == "reject":
            advice = "give another chat_template, or keep such records and count them (unprinted: report)"
            raise RecordError("not_printed", f"{omissions.detail()}; {advice}")
        omitted.append((example.position, omissions))

    def _render(self, example: Example) -> Text:
        content = example.content
        if isinstance(content, Conversation):
            return self._conversation(example, content, self._template, self._turns)
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

    def _conversation(
        self, example: Example, conversation: Conversation, template: Template, turns: TurnFinder
    ) -> Text:
        loss_on = loss_of(conversation, self._loss_on)
        if loss_on == "all":
            text = template.render(conversation)
            return Text(example, text, [(0, len(text))])
        if loss_on == "completion":
            text, spans, prompt = turns.completion_span(conversation)
            return Text(example, text, spans, prompt=prompt)
        if has_weights(conversation):
            text, spans, weights = turns.weighted_spans(conversation, loss_on)
            return Text(example, text, spans, weights=weights)
        text, spans = turns.assistant_spans(conversation, loss_on)
        return Text(example, text, spans)


def _noted(outcomes: Outcomes, omitted: Omitted) -> Outcomes:
    """Count the records of which something is not printed."""
    unprinted = [(position, omissions.detail()) for position, omissions in omitted if omissions.not_printed]
    reasoning = [(position, omissions.reasoning_detail()) for position, omissions in omitted if omissions.reasoning]
    of_last = [(position, omissions.reasoning_detail()) for position, omissions in omitted if omissions.of_last]
    for name, records in (
        ("not_printed", unprinted),
        ("reasoning_not_printed", reasoning),
        ("last_reasoning_not_printed", of_last),
    ):
        if records:
            outcomes = outcomes.note(name, len(records), records[0])
    return outcomes


def _checked(texts: Texts, typed_tokens: TypedTokens) -> Texts:
    """The texts after the check of their contents for special tokens, which are counted."""
    kept: list[Text] = []
    rejects: dict[int, Reject] = {}
    found: list[tuple[int, Typed]] = []
    for first in range(0, len(texts.texts), _CHECKED_AT_ONCE):
        some = texts.texts[first : first + _CHECKED_AT_ONCE]
        if not typed_tokens.may_concern(some):
            kept += some
            continue
        for text in some:
            try:
                checked, in_text = typed_tokens.check(text)
            except RecordError as error:
                rejects.setdefault(text.example.position, text.example.rejected(error))
            except RecursionError as error:
                too_deep = RecordError("nested_too_deeply", f"{error}")
                rejects.setdefault(text.example.position, text.example.rejected(too_deep))
            else:
                kept.append(checked)
                found += [(text.example.position, one) for one in in_text]
    if rejects:
        kept = [text for text in kept if text.example.position not in rejects]
        found = [(position, one) for position, one in found if position not in rejects]
    outcomes = texts.outcomes.reject([*rejects.values()])
    if found:
        position, typed = found[0]
        records = len({position for position, _ in found})
        outcomes = outcomes.note("records_with_special_tokens_in_content", records, (position, described(typed)))
        counts = Counter(f"{content.role} {token}" for _, (content, tokens) in found for token in tokens)
        outcomes = outcomes.count_special_tokens_in_content(counts)
    return replace(texts, texts=kept, outcomes=_noted_foreign(outcomes, typed_tokens.foreign(kept)))


def _noted_foreign(outcomes: Outcomes, foreign: Sequence[tuple[int, Typed]]) -> Outcomes:
    """Count the records with control tokens that the tokenizer does not have, in all and for each token."""
    if not foreign:
        return outcomes
    position, typed = foreign[0]
    records = len({position for position, _ in foreign})
    outcomes = outcomes.note(FOREIGN_TOKENS, records, (position, described(typed)))
    by_token = {(token, position) for position, (_, tokens) in foreign for token in tokens}
    for token, count in sorted(Counter(token for token, _ in by_token).items()):
        outcomes = outcomes.note(f"{FOREIGN_TOKENS} {token}", count)
    return outcomes


def _whole(text: str) -> list[Span]:
    """All of a text, with the special tokens before and after it."""
    return [(-1, len(text) + 1)]


def _runs(trained: np.ndarray) -> list[Span]:
    """trained: bool (tokens,). Returns the (start, stop) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], trained, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


class ApplyChatTemplate(Step):
    """Render each example with the chat template, and find what of its text is trained on.

    PCollection[Parts[Examples]] -> PCollection[Parts[Texts]].

    Args:
        config: how conversations are rendered, and what is trained on.
        sources: for each source of the records, by its number, the fields of the configuration that have another value
            for it; all but tokenizer and engine.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Examples, Texts

    def __init__(self, config: RenderConfig, *, sources: Sequence[Mapping[str, Any]] = ()):
        check_type("config", config, RenderConfig)
        config.of_sources(sources)  # checks them here, not on a worker
        super().__init__(_renderer, sources, config=config)


def _renderer(config: RenderConfig, **of_source: Any) -> Renderer:
    return Renderer(replace(config, **of_source))
