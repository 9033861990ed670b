"""Parity: compare the context in which each turn is trained with the one that the model has at inference.

What a server would have rendered before a turn is found by rendering, once for each turn, so that a text costs as many
more renderings as it has turns. If the template is known to keep the contexts of conversations like one
(`chat.contexts`), only a sample of such conversations is compared; if one of the sample differs, the whole batch is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec

from transforms.chat.config import PARITIES, RenderConfig
from transforms.chat.contexts import Contexts
from transforms.chat.template import load_template
from transforms.chat.trace_cache import TraceCache
from transforms.chat.turns import TurnFinder, assistant_turns, trained_turns
from transforms.checks import check_choice, check_type
from transforms.errors import RecordError
from transforms.model.batches import Texts
from transforms.model.examples import Conversation, Text
from transforms.model.outcomes import Reject
from transforms.steps.base import Step
from transforms.steps.render import loss_of

# The sample of those conversations of a batch whose contexts the template keeps: the first ones, and one of so many.
_FIRST, _ONE_OF = 8, 64
# The most turns of one text that `report` compares, since each is another rendering of all turns before it.
_TURNS = 64


class ParityChecker:
    """Compares the contexts of the turns in a batch of texts.

    Args:
        config: how the texts were rendered.
        parity: one of PARITIES. `report` counts the turns that are trained on in another context than that of their
            inference; `reject` rejects their records; `expand` makes as many texts of such a record as it has contexts,
            and each turn is trained on in one of them; `off` does not compare.

    Raises:
        ParameterError: if parity is not one of those.
    """

    def __init__(self, config: RenderConfig, parity: str = "report"):
        check_choice("parity", parity, PARITIES)
        template = load_template(config)
        finder = TurnFinder(template)
        self._reference = Contexts(template, finder, template.render)
        self._trace_cache = TraceCache(template)
        self._contexts = (
            self._reference if config.engine == "reference" else Contexts(template, finder, self._trace_cache.render)
        )
        self._loss_on = config.loss_on
        self._parity = parity

    def __call__(self, batch: Texts) -> Texts:
        if self._parity == "off":
            return batch
        self._trace_cache.begin_batch(len(batch.texts))
        # If compiled templates gave another text in render, they may do so here.
        contexts = self._reference if "rendering_fell_back_to_reference" in batch.outcomes.notes else self._contexts
        compared = self._compare_batch(contexts, batch.texts)
        differing = {number: (turns, how) for number, (turns, how) in compared.items() if how}
        texts, rejects = batch.texts, list[Reject]()
        if self._parity != "report" and differing:
            texts = []
            for number, text in enumerate(batch.texts):
                try:
                    texts += self._expanded(contexts, text, *differing[number]) if number in differing else [text]
                except RecordError as error:
                    rejects.append(text.example.rejected(error))
        outcomes = batch.outcomes.reject(rejects)
        outcomes = outcomes.note("parity_records_checked", len(compared))
        outcomes = outcomes.note("parity_turns_checked", sum(len(turns) for turns, _ in compared.values()))
        for number, (_, how) in differing.items():
            outcomes = outcomes.note("parity_turns_differing", len(how))
            first = batch.texts[number].example.position, next(iter(how.values()))
            outcomes = outcomes.note("parity_records_differing", 1, first)
        return dataclasses.replace(batch, texts=texts, outcomes=outcomes)

    def _compare_batch(self, contexts: Contexts, texts: list[Text]) -> dict[int, tuple[list[int], dict[int, str]]]:
        """For the number of each text that was compared, the turns compared, and how some of them differ."""
        contents = {
            number: text.example.content
            for number, text in enumerate(texts)
            if isinstance(text.example.content, Conversation)
        }
        safe, postponed = list[int](), set[int]()
        if self._parity == "report":
            safe = [number for number, content in contents.items() if contexts.are_kept(content)]
            postponed = {number for i, number in enumerate(safe) if i >= _FIRST and i % _ONE_OF}
        compared = self._compare(contexts, texts, [number for number in contents if number not in postponed])
        if any(compared[number][1] for number in safe if number in compared):
            compared |= self._compare(contexts, texts, sorted(postponed))
        return dict(sorted(compared.items()))

    def _compare(
        self, contexts: Contexts, texts: list[Text], numbers: list[int]
    ) -> dict[int, tuple[list[int], dict[int, str]]]:
        compared = {}
        for number in numbers:
            text = texts[number]
            if turns := self._trained_turns(text):
                compared[number] = turns, contexts.differing(_conversation(text), text.text, text.spans, turns)
        return compared

    def _expanded(self, contexts: Contexts, text: Text, turns: list[int], differing: Mapping[int, str]) -> list[Text]:
        """The texts that replace one of which some turns differ. Raises RecordError."""
        if self._parity == "reject":
            raise RecordError("differs_from_inference", next(iter(differing.values())))
        if text.prompt is not None:
            raise RecordError("not_expandable", f"a completion is one context: {next(iter(differing.values()))}")
        rows = contexts.expanded(_conversation(text), turns)
        return [msgspec.structs.replace(text, text=row, spans=spans) for row, spans in rows]

    def _trained_turns(self, text: Text) -> list[int]:
        """The numbers of the assistant's messages that are trained on; a part of them if they are very many."""
        content = _conversation(text)
        loss_on = loss_of(content, self._loss_on)
        if loss_on == "all":
            return []
        turns = trained_turns(content, last_only=loss_on == "last_assistant")
        if loss_on == "completion":
            turns = [turn for turn in assistant_turns(content) if turn >= (content.completion_start or 0)]
        every = max(1, -(-len(turns) // _TURNS)) if self._parity == "report" else 1
        return turns[::-1][::every][::-1]


def _conversation(text: Text) -> Conversation:
    assert isinstance(text.example.content, Conversation)
    return text.example.content


class CheckParity(Step):
    """Compare the context of each turn with what a server would have rendered before the model wrote it.

    PCollection[Texts] -> PCollection[Texts].

    Args:
        config: how the texts were rendered.
        parity: what happens to a record if one of its turns differs: `report` counts it, `expand` makes a row of each
            context, `reject` rejects it; `off` does not compare.

    Raises:
        ParameterError: if parity is not one of those.
    """

    input, output = Texts, Texts

    def __init__(self, config: RenderConfig, *, parity: str = "report"):
        check_type("config", config, RenderConfig)
        check_choice("parity", parity, PARITIES)
        super().__init__(ParityChecker, config=config, parity=parity)
