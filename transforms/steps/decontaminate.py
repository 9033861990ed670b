"""Decontaminate: which records share a run of words with an evaluation set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import msgspec

from transforms.base.once import once
from transforms.base.options import PositiveInt, String, check_choice, checked
from transforms.base.stored import check_unchanged
from transforms.contamination.config import CONTAMINATED
from transforms.contamination.index import EvaluationIndex, Match
from transforms.contamination.texts import compared_texts, decode_evaluations
from transforms.contamination.words import normalized
from transforms.model.batches import Examples
from transforms.model.counts import Statistics
from transforms.model.examples import Content, Conversation, Example, TokenRow
from transforms.steps.base import Step
from transforms.storage.files import read_bytes

# About as many bytes are looked up at once.
_BYTES_AT_ONCE = 1 << 17


@once
def load_index(url: str, words: int) -> EvaluationIndex:
    """Make the index of evaluation sets, once for each process.

    Args:
        url: of the file that is stored with the dataset, whose name is that of its content.
        words: the number of words of a run.

    Raises:
        UserError: if the file is not the one that was stored.
        FileNotFoundError, StoreError: if it cannot be read.
    """
    content = read_bytes(url)
    check_unchanged("file of evaluation sets", url, hashlib.sha256(content).hexdigest())
    return EvaluationIndex(decode_evaluations(content), words)


class Decontaminator:
    """Compares the examples of a batch with evaluation sets. Takes what Decontaminate takes."""

    def __init__(self, *, evaluations: str, words: int, contaminated: str):
        self._index = load_index(evaluations, words)
        self._drops = contaminated == "drop"

    def __call__(self, batch: Examples) -> Examples:
        details = dict[int, str]()  # what was found first of each record, by its position
        set_counts = Counter[str]()
        for examples in _in_groups(batch.examples):
            for match in self._index.find([text for _, text in examples]):
                example = examples[match.text][0]
                if example.position not in details:
                    details[example.position] = _described(match, example.content)
                    set_counts[match.place.rpartition(":")[0]] += 1
        outcomes = batch.outcomes
        if tokenized := [one.position for one in batch.examples if isinstance(one.content, TokenRow)]:
            first = tokenized[0], "it has token ids"
            outcomes = outcomes.note("not_compared_with_evaluations", len(tokenized), first)
        if not details:
            return replace(batch, outcomes=outcomes)
        outcomes = outcomes.plus(statistics=Statistics(contaminated=set_counts))
        if self._drops:
            firsts = [one for one in batch.examples if one.position in details and not one.number]
            drops = (replace(one.dropped("contaminated"), detail=details[one.position]) for one in firsts)
            left = [one for one in batch.examples if one.position not in details]
            return replace(batch, outcomes=outcomes.drop(drops), examples=left)
        outcomes = outcomes.note("contaminated", len(details), next(iter(details.items())))
        marked = [
            msgspec.structs.replace(one, detail=details[one.position]) if one.position in details else one
            for one in batch.examples
        ]
        return replace(batch, outcomes=outcomes, examples=marked)


def _in_groups(examples: Sequence[Example]) -> Iterator[list[tuple[Example, bytes]]]:
    """Yield examples with their normalized texts, some at once."""
    group, size = list[tuple[Example, bytes]](), 0
    for example in examples:
        text = normalized("\n".join(compared_texts(example.content)))
        group.append((example, text))
        size += len(text)
        if size >= _BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _described(match: Match, content: Content) -> str:
    """The evaluation record, where the match begins, and its words."""
    counts = accumulate(len(normalized(text).split()) for text in compared_texts(content))
    number = next(number for number, count in enumerate(counts, 1) if match.word < count)
    place = f", message {number}" if isinstance(content, Conversation) else ""
    more = f"; {match.runs:,} runs of words in all" if match.runs > 1 else ""
    return f"{match.place}{place}: {match.words}{more}"


class Decontaminate(Step):
    """Compare each example with evaluation sets.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Examples]]. A record that shares a run of words with one of
    their records is counted, or dropped as `contaminated`.

    Args:
        evaluations: the url of the stored file of evaluation sets.
        words: the number of words of a run.
        contaminated: what to do with such a record, one of CONTAMINATED.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Examples, Examples

    def __init__(self, evaluations: str, *, words: int, contaminated: str):
        checked("evaluations", evaluations, String)
        checked("decontaminate_words", words, PositiveInt)
        check_choice("contaminated", contaminated, CONTAMINATED)
        super().__init__(Decontaminator, evaluations=evaluations, words=words, contaminated=contaminated)
