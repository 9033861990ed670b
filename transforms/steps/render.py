"""Render: from examples to the text that is tokenized, and the spans of it that are trained on."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from transforms.base.errors import RecordError
from transforms.chat.config import RenderConfig
from transforms.chat.rendering.arguments import unread_arguments
from transforms.chat.rendering.omissions import NO_OMISSIONS, Omissions, find_omissions
from transforms.chat.rendering.probes import adapted
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.loss import is_empty_answer, resolve_loss, trained_turns
from transforms.chat.spans.stop_tokens import load_turn_rules
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.special_tokens import Typed, TypedTokens, described
from transforms.chat.traced.trace_cache import TraceCache
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
    attempt,
    encodable,
)
from transforms.model.outcomes import Outcomes
from transforms.model.statistics import sum_unread
from transforms.steps.counting import count_contents
from transforms.tokens.tokenizer import load_tokenizer

# What is worth reporting of a record: the name of the count, what was found, or None if the name says it, and how many.
Note: TypeAlias = tuple[str, str | None, int]
_Detail: TypeAlias = str | Callable[[], str] | None  # which may be made when it is shown
_OPEN_TURNS = "turns_without_end"  # of which each counts; of all else, each record
_OPEN = "the template prints nothing that ends an answer, so a model does not learn to stop"
_TRAINED_HEADER = "the template ignores add_generation_prompt, so the header of an answer is trained on"
_AFTER_END = "is printed after the end of a turn, without a header, so it is not trained on"
_EMPTY = "it is trained on a turn without content, call or reasoning: only on the end of the turn"


class Rendered(msgspec.Struct, gc=False):
    """An example, as it is rendered.

    Attributes:
        text: its text.
        omissions: what of it the template does not print.
        notes: what is worth reporting besides.
        typed: the special tokens in its contents.
        rendering: of a conversation; None if a compiled template rendered it.
    """

    text: Text
    omissions: Omissions = NO_OMISSIONS
    notes: Sequence[Note] = ()
    typed: Sequence[Typed] = ()
    rendering: Rendering | None = None


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
        self.rules = rules = load_turn_rules(config, tokenizer is not None)
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
        if self._trace_cache is not None:
            self._trace_cache.begin_batch(len(batch.examples))
        rendered, rejects = attempt(batch.examples, self._render_in_batch)
        texts = [one.text for one in rendered]
        contents = [text.example.content for text in texts]
        outcomes = _with_notes(batch.outcomes.reject(rejects), rendered)
        if self._trace_cache is None:
            conversations = sum(isinstance(content, Conversation) for content in contents)
            outcomes = outcomes.by_reference("rendered_by_reference", "engine", conversations)
        outcomes = outcomes.plus(statistics=count_contents(contents))
        return batch.succeeded_by(Texts, outcomes, texts=texts, trained_parts=self._trained_parts)

    def render(self, example: Example) -> Rendered:
        """Render an example as a build does.

        A conversation is adapted to its template and rendered. Then the contents are checked for special tokens, and
        the end of a turn is appended.

        Raises:
            RecordError: if a build rejects the record of the example.
        """
        content, strings = example.content, None
        if isinstance(content, Conversation):
            content, notes = adapted(content, self.template)
            if content is not example.content:
                example = msgspec.structs.replace(example, content=content)
            rendered, strings = self._render_conversation(example, content)
            if notes:
                rendered.notes = (*((name, detail, 1) for name, detail in notes.items()), *rendered.notes)
        else:
            rendered = Rendered(encodable(self._not_rendered(example)))
            if is_empty_answer(rendered.text, self._loss_on):
                rendered.notes = [("empty_answers", _EMPTY, 1)]
        if self._typed_tokens is not None:
            rendered.text, rendered.typed = self._typed_tokens.check(rendered.text, strings)
        if self.rules.appended:
            rendered.text = self._with_end(rendered.text)
        return rendered

    def _render_in_batch(self, example: Example) -> Rendered:
        rendered = self.render(example)
        rendered.rendering = None  # which takes more memory than all else
        return rendered

    def _render_conversation(self, example: Example, content: Conversation) -> tuple[Rendered, Sequence[str] | None]:
        """Render a conversation, by a compiled template if possible, and give the strings in it if they are known."""
        loss_on, difference = resolve_loss(content, self._loss_on), ""
        # Whether a content has reasoning depends on its text, so that parts of turns have no compiled templates.
        if self._trace_cache is not None and not self._has_parts:
            traced = self._trace_cache.render_with_spans(content, loss_on)
            if not isinstance(traced, str):
                compiled, (text, spans, omissions), signature = traced
                prompt = text[: spans[0][0]] if loss_on == "completion" else None
                rendered = Rendered(encodable(Text(example, text, spans, prompt=prompt, signature=signature)))
                if compiled.notes is None:
                    compiled.notes = self._find_turn_notes(rendered.text, content, loss_on)
                rendered.notes = compiled.notes
                if omissions is not NO_OMISSIONS or self._template_kwargs or content.template_kwargs:
                    rendered.omissions = self._check_omissions(content, omissions)
                return rendered, (signature.first or signature).texts
            difference = traced
        whole, rendering = self.turns.trained_text(example, content, self._loss_on, self._has_parts)
        rendered = Rendered(encodable(whole), rendering=rendering)
        rendered.omissions = self._check_omissions(content, find_omissions(rendering))
        rendered.notes = self._find_turn_notes(whole, content, loss_on, rendering)
        if difference:
            rendered.notes = [("compiled_template_differs", difference, 1), *rendered.notes]
        return rendered, None

    def _check_omissions(self, content: Conversation, omissions: Omissions) -> Omissions:
        """What the template does not print or read of a conversation. Raises RecordError."""
        if omissions.not_printed and self._unprinted == "reject":
            advice = "give another chat_template, or keep such records and count them (unprinted: report)"
            raise RecordError("not_printed", f"{omissions.detail()}; {advice}")
        if self._template_kwargs or content.template_kwargs:
            unread = [*unread_arguments(content, self.template.source(content), self._template_kwargs or {})]
            if unread:
                return replace(omissions, unread=(*omissions.unread, *unread))
        return omissions

    def _find_turn_notes(
        self, text: Text, content: Conversation, loss_on: str, rendering: Rendering | None = None
    ) -> list[Note]:
        """What is worth reporting of the turns of a text, which all conversations of its signature have in common."""
        notes: list[Note] = []
        if is_empty_answer(text, self._loss_on):
            notes.append(("empty_answers", _EMPTY, 1))
        if numbers := self.turns.after_ends(content, loss_on, rendering):
            notes.append(("answers_after_end", f"a text of messages[{numbers[0]}] {_AFTER_END}", 1))
        facts = self.turns.facts(content)
        if facts.is_sound or loss_on == "all":
            return notes
        if count := facts.count_open(content, loss_on):
            notes.append((_OPEN_TURNS, _OPEN, count))
        if self.turns.trains_on_headers(content) and trained_turns(content, loss_on):
            notes.append(("records_without_generation_prompt", _TRAINED_HEADER, 1))
        return notes

    def _with_end(self, text: Text) -> Text:
        content = text.example.content
        if not self.rules.appended or not isinstance(content, Conversation):
            return text
        ended = self.turns.with_end(text, content, trained_turns(content, resolve_loss(content, self._loss_on)))
        if ended is text or text.with_stand_ins is None or self._typed_tokens is None:
            return ended
        stand_ins = text.with_stand_ins + self._typed_tokens.with_stand_ins(ended.text[len(text.text) :])
        return msgspec.structs.replace(ended, with_stand_ins=stand_ins)

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


def _with_notes(outcomes: Outcomes, rendered: Sequence[Rendered]) -> Outcomes:
    """The outcomes of a batch, with what is worth reporting of it."""
    unread = sum_unread([dict(one.omissions.unread) for one in rendered if one.omissions.unread])
    outcomes = outcomes.plus(statistics=Statistics(unread=unread))
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)  # by names and positions of records
    firsts: dict[str, _Detail] = {}
    tokens = Counter[str]()
    for one in rendered:
        if not one.notes and not one.typed and one.omissions is NO_OMISSIONS:
            continue
        for name, detail, count in _list_notes(one):
            firsts.setdefault(name, detail)
            counts[name][one.text.example.position] += count
        tokens.update(f"{content.role} {token}" for content, typed in one.typed for token in typed)
    for name, counts_of_records in counts.items():
        first = firsts[name]
        detail = first() if callable(first) else first
        count = counts_of_records.total() if name == _OPEN_TURNS else len(counts_of_records)
        outcomes = outcomes.note(name, count, None if detail is None else (next(iter(counts_of_records)), detail))
    return outcomes.plus(special_tokens_in_content=tokens) if tokens else outcomes


def _list_notes(rendered: Rendered) -> Iterator[tuple[str, _Detail, int]]:
    yield from rendered.notes
    omissions, typed = rendered.omissions, rendered.typed
    if omissions.not_printed:
        yield "not_printed", omissions.detail, 1
    if omissions.reasoning:
        yield "reasoning_not_printed", omissions.reasoning_detail, 1
    if omissions.of_last:
        yield "last_reasoning_not_printed", omissions.reasoning_detail, 1
    if typed:
        yield "records_with_special_tokens_in_content", functools.partial(described, typed[0]), 1


def _whole(text: str) -> list[Span]:
    """All of a text, with the special tokens before and after it."""
    return [(-1, len(text) + 1)]


def _runs(trained: np.ndarray) -> list[Span]:
    """trained: bool (tokens,). Returns the (start, stop) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], trained, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
