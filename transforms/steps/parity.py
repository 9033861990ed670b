"""Parity: compare each turn, as it is trained, with what the model would write after what a server has rendered.

What a turn is at inference is found by rendering, twice for each turn, so that a text costs many more renderings.
Therefore conversations are compared once per signature (`chat.comparisons`). Of those for which that is not possible,
`report` compares a sample, and all that have reasoning.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from transforms.chat.config import PARITIES, RenderConfig
from transforms.chat.fast.fast_template import FastTemplate
from transforms.chat.fast.identity import NotFollowed
from transforms.chat.parity.comparisons import Compared, ComparisonCache
from transforms.chat.parity.contexts import KINDS, Contexts, Difference, has_reasoning
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.loss import loss_of, trained_turns
from transforms.chat.spans.stop_tokens import TurnRules, load_turn_rules
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.trace_cache import TraceCache
from transforms.checks import check_choice, check_type
from transforms.errors import RecordError
from transforms.model.batches import Texts
from transforms.model.examples import Conversation, Text
from transforms.model.outcomes import Outcomes, Reject
from transforms.steps.base import Step
from transforms.steps.spot_checks import noted_difference, sample_conversations

# The sample of those conversations of a batch that are not compared by signature: the first ones, and one of so many.
_FIRST, _ONE_OF = 4, 256
# The most turns of one text that `report` compares, since each is two more renderings of all turns before it; and the
# most of one that the reference compares as a sample.
_TURNS, _SAMPLED_TURNS = 64, 4


class _Compared(NamedTuple):
    """The turns of a text that were compared.

    Attributes:
        turns: their numbers.
        kinds: for those that differ, the kind of their difference.
        by_signature: the comparison, if it was made by signature.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    by_signature: Compared | None = None


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
        template = load_template(config)
        rules = load_turn_rules(config)
        # A stop token that is printed for the next turn is not compared: no template prints it after the last turn.
        plain, as_trained = (TurnFinder(template, these) for these in (TurnRules(traced=rules.traced), rules))
        self._contexts = Contexts(template, plain, as_trained)
        fast = FastTemplate(template)
        self._uncompiled_contexts = Contexts(fast, TurnFinder(fast, TurnRules(traced=rules.traced), plain), as_trained)
        self._trace_cache = TraceCache(template, rules)
        self._fast_contexts = Contexts(template, plain, as_trained, self._trace_cache.render)
        self._comparisons = ComparisonCache(template, rules, expands=parity == "expand")
        self._loss_on = config.loss_on
        self._engine = config.engine
        self._parity = parity

    def __call__(self, batch: Texts) -> Texts:
        if self._parity == "off":
            return batch
        self._trace_cache.begin_batch(len(batch.texts))
        self._comparisons.begin_batch(len(batch.texts))
        by_reference_only = self._by_reference_only(batch)
        compared = {} if by_reference_only else self._by_signature(batch)
        if difference := self._difference(batch, compared):
            batch = dataclasses.replace(batch, outcomes=noted_difference(batch, self._engine, "comparing", *difference))
        left = self._uncompared(batch, compared)
        selected = self._selected(batch, left)
        compared |= {number: self._uncompiled(batch.texts[number], left[number]) for number in selected}
        compared = {number: found for number, found in sorted(compared.items()) if found.turns}
        outcomes = self._noted(batch, compared).note("parity_records_not_checked", len(left) - len(selected))
        if self._parity == "report":
            return dataclasses.replace(batch, outcomes=outcomes)
        contexts = self._contexts if by_reference_only else self._fast_contexts
        texts, rejects = list[Text](), dict[int, Reject]()
        for number, text in enumerate(batch.texts):
            try:
                found = compared.get(number)
                texts += self._expanded(contexts, text, found) if found and found.kinds else [text]
            except RecordError as error:
                rejects.setdefault(text.example.position, text.example.rejected(error))
        texts = [text for text in texts if text.example.position not in rejects]
        return dataclasses.replace(batch, texts=texts, outcomes=outcomes.reject([*rejects.values()]))

    def _by_reference_only(self, batch: Texts) -> bool:
        """Whether no comparison by signature may decide which rows there are."""
        return batch.split.differing is not None or (self._parity != "report" and self._engine == "reference")

    def _by_signature(self, batch: Texts) -> dict[int, _Compared]:
        """For the number of each text that can be compared in this way, how its turns differ."""
        compared = {}
        for number, text in enumerate(batch.texts):
            content = text.example.content
            if not isinstance(content, Conversation):
                continue
            target: Any = loss_of(content, self._loss_on)
            if target != "all" and (
                found := self._comparisons.compare(content, text.signature, target, self._trained_turns)
            ):
                compared[number] = _Compared(found.comparison.turns, found.comparison.kinds, found)
        return compared

    def _difference(self, batch: Texts, compared: Mapping[int, _Compared]) -> tuple[int, str] | None:
        """The position of the first record of a sample that the reference compares otherwise, and how; or None."""
        first = [number for number, found in compared.items() if found.kinds][:1]
        for number in sorted({*sample_conversations(batch, batch.texts), *first} & compared.keys()):
            text, found = batch.texts[number], compared[number]
            turns = _sample_turns(found.turns, [*found.kinds][:1] if number in first else [], f"{batch.part}-{number}")
            kinds = {turn: kind for turn, kind in found.kinds.items() if turn in turns}
            expected = self._by_reference(text, turns)
            if kinds != expected.kinds:
                return text.example.position, f"{kinds}, not {expected.kinds}"
            if number in first and self._parity != "report" and (how := self._other_rows(text, found)):
                return text.example.position, how
        return None

    def _other_rows(self, text: Text, found: _Compared) -> str:
        """How the rows that replace a text differ from those of the reference; empty if they do not."""
        try:
            rows = self._expanded(self._fast_contexts, text, found)
        except RecordError as error:
            rows, how = [], error.detail
        try:
            expected = self._expanded(self._contexts, text, found._replace(by_signature=None))
        except RecordError as error:
            return "" if not rows and error.detail == how else error.detail
        return "" if rows == expected else "other rows"

    def _uncompared(self, batch: Texts, compared: Mapping[int, _Compared]) -> dict[int, Sequence[int]]:
        """The turns of each of the other texts that has such turns."""
        others = {n: text.example.content for n, text in enumerate(batch.texts) if n not in compared}
        turns = {n: self._trained_turns(other) for n, other in others.items() if isinstance(other, Conversation)}
        return {number: own for number, own in turns.items() if own}

    def _selected(self, batch: Texts, left: Mapping[int, Sequence[int]]) -> list[int]:
        """Those texts that are compared by the reference."""
        if self._parity != "report":
            return [*left]
        others = [number for number in left if not has_reasoning(_conversation(batch.texts[number]))]
        postponed = {number for i, number in enumerate(others) if i >= _FIRST and i % _ONE_OF}
        return [number for number in left if number not in postponed]

    def _uncompiled(self, text: Text, turns: Sequence[int]) -> _Compared:
        """Compare the turns of a conversation that is not compared by signature."""
        try:
            return _compared(turns, self._differing(text, turns, self._uncompiled_contexts))
        except NotFollowed:
            return self._by_reference(text, turns)

    def _by_reference(self, text: Text, turns: Sequence[int]) -> _Compared:
        return _compared(turns, self._differing(text, turns, self._contexts))

    def _differing(self, text: Text, turns: Sequence[int], contexts: Contexts) -> dict[int, Difference]:
        return contexts.differing(_conversation(text), text.text, text.spans, turns)

    def _noted(self, batch: Texts, compared: Mapping[int, _Compared]) -> Outcomes:
        outcomes = batch.outcomes.note("parity_records_checked", len(compared))
        outcomes = outcomes.note("parity_turns_checked", sum(len(found.turns) for found in compared.values()))
        differing = [(batch.texts[number], found) for number, found in compared.items() if found.kinds]
        if not differing:
            return outcomes
        text, found = differing[0]
        first = text.example.position, self._detail(text, found)
        outcomes = outcomes.note("parity_records_differing", len(differing), first)
        # Conversations of one signature share their kinds.
        alike = Counter(id(found.kinds) for _, found in differing)
        counts = Counter[str]()
        for kinds in {id(found.kinds): found.kinds for _, found in differing}.values():
            for kind, turns in Counter(kinds.values()).items():
                counts[kind] += turns * alike[id(kinds)]
        outcomes = outcomes.note("parity_turns_differing", counts.total())
        for kind in KINDS:
            outcomes = outcomes.note(f"parity_turns_{kind}", counts[kind])
        return outcomes

    def _detail(self, text: Text, found: _Compared) -> str:
        """The first difference of a text in one line; empty if the reference finds none."""
        if found.by_signature:
            return found.by_signature.detail
        differing = self._differing(text, [*found.kinds][:1], self._contexts)
        return next((difference.detail for difference in differing.values()), "")

    def _expanded(self, contexts: Contexts, text: Text, found: _Compared) -> list[Text]:
        """The texts that replace one of which some turns differ. Raises RecordError."""
        if not (how := self._detail(text, found)):
            return [text]
        if self._parity == "reject":
            raise RecordError("differs_from_inference", how)
        if text.prompt is not None:
            raise RecordError("not_expandable", f"a completion is one context: {how}")
        if text.weights is not None:
            raise RecordError("not_expandable", "the weights of its turns are not known for other contexts")
        if text.added_tokens is not None:
            how = "special tokens were typed in its contents, and which these are is not known for other contexts"
            raise RecordError("not_expandable", how)
        rows = found.by_signature.expanded() if found.by_signature else None
        if rows is None:
            rows = contexts.expanded(_conversation(text), found.turns)
        return [msgspec.structs.replace(text, text=row, spans=spans) for row, spans in rows]

    def _trained_turns(self, content: Conversation) -> list[int]:
        """The numbers of the assistant's messages that are trained on; a part of them if they are very many."""
        loss_on = loss_of(content, self._loss_on)
        if loss_on == "all":
            return []
        turns = trained_turns(content, loss_on)
        every = max(1, -(-len(turns) // _TURNS)) if self._parity == "report" else 1
        return turns[::-1][::every][::-1]


def _sample_turns(turns: Sequence[int], wanted: Sequence[int], seed: str) -> list[int]:
    """A sample of turns, with those that are wanted."""
    others = [turn for turn in turns if turn not in wanted]
    left = min(_SAMPLED_TURNS - len(wanted), len(others))
    return sorted([*wanted, *random.Random(seed).sample(others, left)])


def _compared(turns: Sequence[int], differing: Mapping[int, Difference]) -> _Compared:
    return _Compared(turns, {turn: difference.kind for turn, difference in differing.items()})


def _conversation(text: Text) -> Conversation:
    assert isinstance(text.example.content, Conversation)
    return text.example.content


class CheckParity(Step):
    """Compare each turn, and the text before it, with what they are when the model writes the turn.

    PCollection[Parts[Texts]] -> PCollection[Parts[Texts]].

    Args:
        config: how the texts were rendered.
        parity: what happens to a record if one of its turns differs: `report` counts it, `expand` makes a row of each
            context, `reject` rejects it; `off` does not compare.
        sources: as for ApplyChatTemplate.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Texts, Texts

    def __init__(self, config: RenderConfig, *, parity: str = "report", sources: Sequence[Mapping[str, Any]] = ()):
        check_type("config", config, RenderConfig)
        check_choice("parity", parity, PARITIES)
        config.of_sources(sources)  # checks them here, not on a worker
        super().__init__(_parity_checker, sources, config=config, parity=parity)


def _parity_checker(config: RenderConfig, parity: str, **of_source: Any) -> ParityChecker:
    return ParityChecker(dataclasses.replace(config, **of_source), parity)
