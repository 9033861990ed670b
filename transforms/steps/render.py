"""Render: from examples to the text that is tokenized, and the spans of it that are trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.chat.config import RenderConfig
from transforms.chat.rendering.arguments import unread_arguments
from transforms.chat.rendering.omissions import NO_OMISSIONS, Omissions, find_omissions
from transforms.chat.rendering.probes import adapted
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.loss import is_empty_answer, resolve_loss, trained_turns
from transforms.chat.spans.stop_tokens import load_turn_rules, turn_rules
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.special_tokens.typed_tokens import Typed, TypedTokens, described
from transforms.chat.traced.trace_cache import SlowPath, TraceCache
from transforms.model.batches import Examples, Texts
from transforms.model.counts import Statistics
from transforms.model.examples import (
    Conversation,
    Example,
    PlainText,
    PromptCompletion,
    Span,
    Text,
    TokenRow,
    encodable,
)
from transforms.model.outcomes import Outcomes, Reject
from transforms.model.statistics import sum_unread
from transforms.steps.counting import count_contents
from transforms.tokens.tokenizer import load_tokenizer

# What the template does not print of examples, by the position of the record and the number of the example.
Omitted: TypeAlias = dict[tuple[int, int], Omissions]
# The texts that are searched at once for special tokens. Each of them is checked only if there may be one.
_CHECKED_AT_ONCE = 256


class Renderer:
    """Makes a text of each example, and finds what of it is trained on.

    Unless the engine is the reference, conversations are rendered by compiled templates. One that differs from the
    reference when it is first used is not used; its records are rendered one by one, and noted.

    Args:
        config: how conversations are rendered.
        tokenizer: of transformers, whose generation_config.json is not known; None if that of the configuration is to
            be loaded.

    Attributes:
        template: the chat template.
        rules: what is known about turns besides it.
        turns: finds them.

    Raises:
        UserError: if a template prints the date and the configuration does not give it.
    """

    def __init__(self, config: RenderConfig, tokenizer: Any = None):
        self.template = load_template(config, tokenizer)
        self.rules = rules = load_turn_rules(config) if tokenizer is None else turn_rules(config)
        self.turns = TurnFinder(self.template, rules)
        self._loss_on = config.loss_on
        self._trained_parts = config.trained_parts
        self._has_parts = self._trained_parts is not None
        self._chooses_parts = bool(config.train_parts)
        self._template_kwargs = config.chat_template_kwargs
        self._unprinted = config.unprinted
        self._trace_cache: TraceCache | None = None
        if config.engine != "reference":
            self._trace_cache = TraceCache(self.template, self.turns)
        mode, own = config.special_tokens_in_content, tokenizer or load_tokenizer(config.tokenizer)
        self._typed_tokens = None if mode == "allow" else TypedTokens(mode, own, self.template, rules)

    def __call__(self, batch: Examples) -> Texts:
        omitted: Omitted = {}
        texts = self._rendered(self._adapted(batch), omitted)
        if self._typed_tokens is not None:
            texts = _checked(texts, self._typed_tokens)
        if self.rules.appended:
            texts = replace(texts, texts=[self._with_end(text) for text in texts.texts])
        texts = replace(texts, outcomes=self._with_unread(texts, omitted))
        outcomes = self._with_notes(texts)
        outcomes = outcomes.plus(statistics=count_contents([text.example.content for text in texts.texts]))
        return replace(texts, outcomes=outcomes, trained_parts=self._trained_parts)

    def _adapted(self, batch: Examples) -> Examples:
        """The batch, with conversations in a way that the template reads."""
        examples, changed, found = list(batch.examples), False, dict[str, tuple[int, int, str | None]]()
        for number, example in enumerate(examples):
            content = example.content
            if type(content) is not Conversation:
                continue
            try:
                content, notes = adapted(content, self.template)
            except RecordError:  # which rendering finds again
                continue
            if content is not example.content:
                examples[number] = msgspec.structs.replace(example, content=content)
                changed = True
            for name, what in notes.items():
                count, position, first = found.get(name, (0, example.position, what))
                found[name] = count + 1, position, first
        outcomes = batch.outcomes
        for name, (count, position, what) in found.items():
            outcomes = outcomes.note(name, count, None if what is None else (position, what))
        return replace(batch, examples=examples, outcomes=outcomes) if changed or found else batch

    def _with_notes(self, texts: Texts) -> Outcomes:
        """The outcomes of a batch, with what is worth reporting of the template for its conversations."""
        outcomes = texts.outcomes
        for text in texts.texts:
            content = text.example.content
            if not isinstance(content, Conversation):
                continue
            facts = self.turns.facts(content)
            if facts.is_sound or (loss_on := resolve_loss(content, self._loss_on)) == "all":
                continue
            position = text.example.position
            if count := facts.count_open(content, loss_on):
                found = "the template prints nothing that ends an answer, so a model does not learn to stop"
                outcomes = outcomes.note("turns_without_end", count, (position, found))
            if self.turns.trains_on_headers(content) and trained_turns(content, loss_on):
                found = "the template ignores add_generation_prompt, so the header of an answer is trained on"
                outcomes = outcomes.note("records_without_generation_prompt", 1, (position, found))
        return outcomes

    def _with_unread(self, texts: Texts, omitted: Omitted) -> Outcomes:
        """The outcomes of a batch, with what the template does not read, and the records with empty answers."""
        unread: list[Mapping[str, int]] = []
        empty = dict[int, None]()
        for text in texts.texts:
            example = text.example
            found = omitted.get((example.position, example.number), NO_OMISSIONS).unread
            if type(example.content) is Conversation and (self._template_kwargs or example.content.template_kwargs):
                source = self.template.source(example.content)
                found = (*found, *unread_arguments(example.content, source, self._template_kwargs or {}))
            if found:
                unread.append(dict(found))
            if is_empty_answer(text, self._loss_on):
                empty[example.position] = None
        outcomes = texts.outcomes.plus(statistics=Statistics(unread=sum_unread(unread)))
        if not empty:
            return outcomes
        what = "it is trained on a turn without content, call or reasoning: only on the end of the turn"
        return outcomes.note("empty_answers", len(empty), (next(iter(empty)), what))

    def _rendered(self, batch: Examples, omitted: Omitted) -> Texts:
        differing: dict[tuple[int, int], str] = {}
        if self._trace_cache is not None:
            self._trace_cache.begin_batch(len(batch.examples))
        texts: Texts = batch.attempt(Texts, "texts", lambda one: self._text(one, differing, omitted))
        outcomes = _noted(texts, omitted)
        if differing:
            (position, _), what = next(iter(differing.items()))
            records = len({position for position, _ in differing})
            outcomes = outcomes.note("compiled_template_differs", records, (position, what))
        if self._trace_cache is None:
            conversations = sum(isinstance(text.example.content, Conversation) for text in texts.texts)
            outcomes = outcomes.by_reference("rendered_by_reference", "engine", conversations)
        return replace(texts, outcomes=outcomes)

    def _text(self, example: Example, differing: dict[tuple[int, int], str], omitted: Omitted) -> Text:
        """The text of one example, as `render` gives it, by a compiled template if possible. Raises RecordError.

        differing: takes how its compiled template differs from the reference, if it does. omitted: as in `render`.
        """
        content = example.content
        # Whether a content has reasoning depends on its text, so that parts of turns have no compiled templates.
        if self._trace_cache is None or self._has_parts or not isinstance(content, Conversation):
            return self.render(example, omitted)
        loss_on = resolve_loss(content, self._loss_on)
        found = self._trace_cache.render_with_spans(content, loss_on)
        if isinstance(found, SlowPath):
            if found.difference:
                differing[example.position, example.number] = found.difference
            return self.render(example, omitted)
        (text, spans, omissions), signature = found
        prompt = text[: spans[0][0]] if loss_on == "completion" else None
        rendered = encodable(Text(example, text, spans, prompt=prompt, signature=signature))
        if omissions is not NO_OMISSIONS:
            self._check_omissions(example, omissions, omitted)
        return rendered

    def render(self, example: Example, omitted: Omitted | None = None) -> Text:
        """The text of one example. Raises RecordError.

        omitted: takes what of it the template does not print, if that is reported.
        """
        if not isinstance(example.content, Conversation):
            return encodable(self._not_rendered(example))
        text, rendering = self.turns.trained_text(example, example.content, self._loss_on, self._has_parts)
        text, omissions = encodable(text), find_omissions(rendering)
        if omissions is not NO_OMISSIONS:
            self._check_omissions(example, omissions, {} if omitted is None else omitted)
        return text

    def finished(self, text: Text) -> Text:
        """Return a text as a batch has it: checked for special tokens in contents, with the end that is appended.

        Raises:
            RecordError: see TypedTokens.
        """
        return self._with_end(text if self._typed_tokens is None else self._typed_tokens.check(text)[0])

    def _with_end(self, text: Text) -> Text:
        content = text.example.content
        if not self.rules.appended or not isinstance(content, Conversation):
            return text
        ended = self.turns.with_end(text, content, trained_turns(content, resolve_loss(content, self._loss_on)))
        if ended is text or text.with_stand_ins is None or self._typed_tokens is None:
            return ended
        stand_ins = text.with_stand_ins + self._typed_tokens.with_stand_ins(ended.text[len(text.text) :])
        return msgspec.structs.replace(ended, with_stand_ins=stand_ins)

    def _check_omissions(self, example: Example, omissions: Omissions, omitted: Omitted) -> None:
        """Raise RecordError, or report what the template does not print."""
        if omissions.not_printed and self._unprinted == "reject":
            advice = "give another chat_template, or keep such records and count them (unprinted: report)"
            raise RecordError("not_printed", f"{omissions.detail()}; {advice}")
        omitted[example.position, example.number] = omissions

    def _not_rendered(self, example: Example) -> Text:
        """The text of an example that is no conversation."""
        content = example.content
        if self._chooses_parts:
            raise RecordError("loss_not_applicable", "train_parts asks for what only conversations have")
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


def _noted(texts: Texts, omitted: Omitted) -> Outcomes:
    """The outcomes, with the records that are not printed completely."""
    outcomes, found = texts.outcomes, [(key[0], omissions) for key, omissions in omitted.items()]
    unprinted = [(position, one.detail()) for position, one in found if one.not_printed]
    reasoning = [(position, one.reasoning_detail()) for position, one in found if one.reasoning]
    of_last = [(position, one.reasoning_detail()) for position, one in found if one.of_last]
    of_names = {"not_printed": unprinted, "reasoning_not_printed": reasoning, "last_reasoning_not_printed": of_last}
    for name, records in of_names.items():
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
        outcomes = outcomes.plus(special_tokens_in_content=counts)
    return replace(texts, texts=kept, outcomes=outcomes)


def _whole(text: str) -> list[Span]:
    """All of a text, with the special tokens before and after it."""
    return [(-1, len(text) + 1)]


def _runs(trained: np.ndarray) -> list[Span]:
    """trained: bool (tokens,). Returns the (start, stop) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], trained, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
