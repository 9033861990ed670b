"""Parity: compare each turn, as it is trained, with what the model would write after what a server has rendered.

What a turn is at inference is found by rendering, twice for each turn, so that a text costs many more renderings.
Therefore conversations are compared by signature (`chat.parity.comparisons`). Of those for which that is not
possible, `report` compares a sample, and all that have reasoning.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.base.options import check_choice
from transforms.chat.config import PARITIES, RenderConfig
from transforms.chat.parity.comparisons import Compared, ComparisonCache
from transforms.chat.parity.contexts import (
    CONTEXT,
    KINDS,
    OWN_WAY,
    REASONING_DROPPED,
    Difference,
    Expanded,
    RenderedBeginnings,
    differing,
    expanded,
    has_reasoning,
)
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.loss import resolve_loss, trained_turns
from transforms.chat.spans.stop_tokens import load_turn_rules
from transforms.chat.spans.turn_search import merged
from transforms.chat.spans.turns import TurnFinder
from transforms.model.batches import Texts
from transforms.model.examples import Conversation, Text
from transforms.model.outcomes import Outcomes, Reject

# The sample of those conversations of a batch that are not compared by signature: the first ones, and one in this many.
_FIRST, _ONE_OF = 4, 256
# The most turns of one text that `report` compares, since each is two more renderings of all turns before it.
_TURNS = 64


class ParityChecker:
    """Compares the turns in a batch of texts.

    Args:
        config: how the texts were rendered.
        parity: one of PARITIES. `report` counts the turns that are trained on in another way than the model would write
            them; `reject` rejects their records; `expand` makes as many texts of such a record as it has contexts, and
            each turn is trained on in one of them; `off` does not compare.

    Raises:
        ParameterError: if parity is not one of those.
    """

    def __init__(self, config: RenderConfig, parity: str = "report"):
        check_choice("parity", parity, PARITIES)
        self._template = template = load_template(config)
        rules = load_turn_rules(config)
        # A stop token that is printed for the next turn is not compared: no template prints it after the last turn.
        self._plain, self._as_trained = plain, as_trained = TurnFinder(template), TurnFinder(template, rules)
        self._has_parts = config.trained_parts is not None
        self._comparisons = ComparisonCache(template, plain, as_trained, self._trained_turns, parity == "expand")
        self._loss_on = config.loss_on
        self._engine = config.engine
        self._parity = parity

    def __call__(self, batch: Texts) -> Texts:
        if self._parity == "off":
            return batch
        self._comparisons.begin_batch(len(batch.texts))
        # No compiled template of the engine reference may decide which rows there are.
        by_signature = self._parity == "report" or self._engine != "reference"
        compared = self._by_signature(batch) if by_signature else {}
        left = self._uncompared(batch, compared)
        selected = self._selected(batch, left)
        compared |= {number: self._one_by_one(batch.texts[number], left[number]) for number in selected}
        compared = {number: own for number, own in sorted(compared.items()) if own.turns}
        outcomes = self._noted(batch, compared).note("parity_records_not_checked", len(left) - len(selected))
        if self._parity == "report":
            return dataclasses.replace(batch, outcomes=outcomes)
        texts, rejects = list[Text](), dict[int, Reject]()
        for number, text in enumerate(batch.texts):
            try:
                own = compared.get(number)
                texts += self._expanded(text, own) if own and own.kinds else [text]
            except RecordError as error:
                rejects.setdefault(text.example.position, text.example.rejected(error))
        texts = [text for text in texts if text.example.position not in rejects]
        return dataclasses.replace(batch, texts=texts, outcomes=outcomes.reject([*rejects.values()]))

    def _by_signature(self, batch: Texts) -> dict[int, Compared]:
        """For the number of each text that can be compared in this way, how its turns differ."""
        compared = {}
        for number, text in enumerate(batch.texts):
            content = text.example.content
            if not isinstance(content, Conversation):
                continue
            target: Any = resolve_loss(content, self._loss_on)
            if target == "all":
                continue
            if own := self._comparisons.find(content, text.signature, target):
                compared[number] = own
        return compared

    def _uncompared(self, batch: Texts, compared: Mapping[int, Compared]) -> dict[int, Sequence[int]]:
        """The turns of each of the other texts that has such turns."""
        others = {n: text.example.content for n, text in enumerate(batch.texts) if n not in compared}
        turns = {n: self._trained_turns(other) for n, other in others.items() if isinstance(other, Conversation)}
        return {number: own for number, own in turns.items() if own}

    def _selected(self, batch: Texts, left: Mapping[int, Sequence[int]]) -> list[int]:
        """Those texts that are compared one by one."""
        if self._parity != "report":
            return [*left]
        others = [number for number in left if not has_reasoning(_conversation(batch.texts[number]))]
        postponed = {number for i, number in enumerate(others) if i >= _FIRST and i % _ONE_OF}
        return [number for number in left if number not in postponed]

    def _one_by_one(self, text: Text, turns: Sequence[int]) -> Compared:
        """Compare the turns of a conversation that is not compared by signature."""
        beginnings = self._beginnings(text)
        return Compared(turns, _kinds(differing(beginnings, text.text, merged(text.spans), turns)))

    def _beginnings(self, text: Text) -> RenderedBeginnings:
        printed = None if self._as_trained.rules.appended else text.text
        return RenderedBeginnings(self._template, self._plain, self._as_trained, _conversation(text), printed)

    def _noted(self, batch: Texts, compared: Mapping[int, Compared]) -> Outcomes:
        outcomes = batch.outcomes.note("parity_records_checked", len(compared))
        outcomes = outcomes.note("parity_turns_checked", sum(len(own.turns) for own in compared.values()))
        others = [(batch.texts[number], own) for number, own in compared.items() if own.kinds]
        if not others:
            return outcomes
        text, own = others[0]
        shown = text.example.position, self._detail(text, own)
        outcomes = outcomes.note("parity_records_differing", len(others), shown)
        counts = Counter(kind for _, own in others for kind in own.kinds.values())
        outcomes = outcomes.note("parity_turns_differing", counts.total())
        for kind in KINDS:
            first = None
            if counts[kind] and kind not in OWN_WAY:
                text, own = next((text, own) for text, own in others if kind in own.kinds.values())
                first = text.example.position, self._detail(text, own, kind)
            outcomes = outcomes.note(f"parity_turns_{kind}", counts[kind], first)
        return outcomes

    def _detail(self, text: Text, compared: Compared, kind: str | None = None) -> str:
        """The first difference of a text, of a kind if one is given, in one line; empty if the reference finds none."""
        turns = [turn for turn, own_kind in compared.kinds.items() if kind in (None, own_kind)][:1]
        if compared.kinds[turns[0]] == REASONING_DROPPED:  # as most
            return Difference(REASONING_DROPPED, turns[0], "", "").detail
        if turns[0] == next(iter(compared.kinds)) and (first := compared.first()):
            return (first._replace(training=text.text) if first.kind == CONTEXT else first).detail
        differences = differing(self._beginnings(text), text.text, merged(text.spans), turns)
        return next((difference.detail for difference in differences.values()), "")

    def _expanded(self, text: Text, compared: Compared) -> list[Text]:
        """The texts that replace one in which some turns differ. Raises RecordError."""
        if self._parity == "reject":
            raise RecordError("differs_from_inference", self._detail(text, compared))
        if text.prompt is not None:
            raise RecordError("not_expandable", f"a completion is one context: {self._detail(text, compared)}")
        if text.with_stand_ins is not None:
            how = "special tokens were typed in its contents, and which these are is not known for other contexts"
            raise RecordError("not_expandable", how)
        rows = compared.rows()
        if rows is None:
            rows = expanded(self._beginnings(text), compared.turns)
        if isinstance(rows, Difference):
            raise RecordError("not_expandable", f"a turn differs even at the end of its text: {rows.detail}")
        return [self._replace_text(text, row) for row in rows]

    def _replace_text(self, text: Text, row: Expanded) -> Text:
        """One of the texts that replace another one. Raises RecordError."""
        content = _conversation(text)
        content = content.with_messages(content.messages[: row.length])
        spans, parts = row.spans, None
        if self._has_parts:
            spans, parts = self._as_trained.spans_by_part(self._template.rendering(content), row.turns)
        text = msgspec.structs.replace(text, text=row.text, spans=spans, parts=parts)
        return self._as_trained.with_end(text, content, row.turns)

    def _trained_turns(self, content: Conversation) -> list[int]:
        """The numbers of the assistant's messages that are trained on; a part of them if they are very many."""
        loss_on = resolve_loss(content, self._loss_on)
        if loss_on == "all":
            return []
        turns = trained_turns(content, loss_on)
        every = max(1, -(-len(turns) // _TURNS)) if self._parity == "report" else 1
        return turns[::-1][::every][::-1]


def _kinds(differences: Mapping[int, Difference]) -> dict[int, str]:
    return {turn: difference.kind for turn, difference in differences.items()}


def _conversation(text: Text) -> Conversation:
    assert isinstance(text.example.content, Conversation)
    return text.example.content
