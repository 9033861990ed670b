"""What must be true of the outcomes of records under a template: of any template, with any options."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.cases import NOW, Case, Marked, make_template, printed, smaller, turns_are_known, turns_in, wrong_words
from support.chats import parsed, render_config
from support.paths import TOKENIZER
from support.transformers_text import TransformersText
from transforms import ApplyChatTemplate, CheckParity, Examples, Tokenize


def shown_failure(case: Case, **more: Any) -> str | None:
    """The failure of a case and the case, as small as it could be made; None if nothing is wrong."""
    if find_failure(case, **more) is None:
        return None
    more.pop("counts", None)
    case = smaller(case, lambda one: find_failure(one, **more) is not None)
    return f"{find_failure(case, **more)}\n{case}"


def find_failure(
    case: Case, each_alone: bool = False, folder: Path = TOKENIZER, counts: Counter[str] | None = None
) -> str | None:
    """Describe the first thing that is wrong with the outcomes of records; None if nothing is.

    The text of each record that is kept is that of `apply_chat_template`; its words show that what is trained on is of
    the assistant, and all of it, and that nothing is lost uncounted. Both engines give each record the same text,
    spans, parts, tokens, parity, reject and counts, in another order, in other batches, and alone.

    Args:
        case: the template, records and options. `parity` is that of the step after the rendering.
        each_alone: whether each record is rendered alone too, which takes most of the time.
        folder: of the tokenizer.
        counts: to which is added how many records are kept, and why others are not.
    """
    template, options, records = case.template, dict(case.options), case.records
    batch = parsed(records)
    examples = batch.examples
    parity = options.pop("parity", "off")
    texts_by_engine: dict[str, Any] = {}

    def rendered(engine: str, batches: Sequence[Sequence[Any]], is_shared: bool) -> tuple[dict[int, Any], Any]:
        config = render_config(template, folder, engine=engine, now=NOW.isoformat(), **options)
        render = ApplyChatTemplate(config).function()
        found: dict[int, Any] = {}
        sums = Counter[str]()
        for some in batches:
            render = render if is_shared else ApplyChatTemplate(config).function()
            texts = render(_cut(batch, some))
            found |= _by_record(texts)
            sums += _counts(texts)
            texts_by_engine[engine] = texts
        return found, sums

    try:
        expected = rendered("reference", [examples], True)
        if counts is not None:
            counts.update("kept" if outcome[0] != "reject" else outcome[1] for outcome in expected[0].values())
        marked = {number: Marked(record) for number, record in enumerate(records)}
        if wrong := _wrong_masks(case, marked, texts_by_engine["reference"], folder):
            return wrong
        if different := _different_tokens(texts_by_engine["reference"], folder):
            return different
        orders: list[tuple[str, str, Sequence[Sequence[Any]], bool]] = [
            ("auto, in reverse", "auto", [examples[::-1]], True),
            ("auto, in two batches", "auto", [examples[::2], examples[1::2]], True),
            ("auto", "auto", [examples], True),
        ]
        if each_alone:
            alone = [[example] for example in examples]
            orders = [
                ("reference, each alone", "reference", alone, False),
                ("auto, each alone", "auto", alone, False),
                ("auto, one after another", "auto", alone, True),
                *orders,
            ]
        of_all = texts_by_engine["reference"]
        for name, *more in orders:
            found = rendered(*more)
            for number in expected[0].keys() | found[0].keys():
                if found[0].get(number) != expected[0].get(number):
                    return f"record {number}: {name}\n  {found[0].get(number)}\nreference\n  {expected[0].get(number)}"
            if found[1] != expected[1]:
                return f"{name} counts {dict(found[1])}\nreference {dict(expected[1])}"
        if (firsts := _firsts(texts_by_engine["auto"])) != _firsts(of_all):
            return f"record: auto shows of the first ones {firsts}\nreference {_firsts(of_all)}"
        if parity != "off":
            config = render_config(template, folder, now=NOW.isoformat(), **options)
            compared = [
                CheckParity(config, parity=parity).function()(texts) for texts in (of_all, texts_by_engine["auto"])
            ]
            pairs = [of_any_engine(texts) for texts in compared]
            if pairs[0] != pairs[1]:
                return f"parity: auto\n  {pairs[1]}\nreference\n  {pairs[0]}"
    except Exception as error:  # whatever it is, it is not an outcome of a record
        return f"{type(error).__name__}: {error}"
    return None


def _cut(batch: Examples, examples: Sequence[Any]) -> Examples:
    """A batch of some examples of another one."""
    outcomes = type(batch.outcomes)(read=len(examples))
    return dataclasses.replace(batch, examples=[*examples], outcomes=outcomes)


def _wrong_masks(case: Case, marked: Mapping[int, Marked], texts: Any, folder: Path) -> str | None:
    """Describe a text that is not that of transformers, or a mask that its words or turns show to be wrong."""
    template, options, features = case.template, case.options, case.features
    apply = TransformersText(template, folder, NOW)
    shows = features is not None and turns_are_known(features) and not options.get("eot_tokens")
    showing = TransformersText(make_template(features, True), folder, NOW) if features is not None and shows else None
    has_blocks = "generation -%}" in template or "generation %}" in template
    lost = Counter[str]()
    for text in texts.texts:
        one = marked[text.example.position]
        name = f"record {text.example.position}"
        if text.text != (expected := printed(apply, one)):
            return f"{name}: reference prints {text.text!r}, transformers {expected!r}"
        loss_on, unprinted = options.get("loss_on", "assistant"), options.get("unprinted", "reject")
        wrong, is_untrained = wrong_words(one, text.text, text.spans, loss_on, has_blocks, unprinted)
        if wrong:
            return f"{name}: {wrong}\n  {text.text!r}\n  {text.spans}"
        lost["answers_after_end"] += is_untrained
        lost.update(
            kind
            for kind, words in zip(("not_printed", "reasoning_not_printed"), one.lost(text.text), strict=True)
            if words
        )
        if showing and loss_on == "assistant" and not any("weight" in message for message in one.messages):
            text_of_turns, written = turns_in(printed(showing, one) or "", features or {})
            trained = {at for start, stop in text.spans for at in range(start, stop)}
            wrong_at = [at for at in sorted(trained ^ written) if not text.text[at : at + 1].isspace()]
            if text_of_turns != text.text or wrong_at:
                where = wrong_at[0] if wrong_at else 0
                how = "is trained on" if where in trained else "is not trained on"
                return f"{name}: {text.text[:where]!r} | {text.text[where:]!r}: what follows | {how}"
    for kind, count in lost.items():
        if texts.outcomes.notes.get(kind, 0) < count:
            return f"{count} records lose words, counted as {kind} are {texts.outcomes.notes}"
    return None


@functools.cache
def _encoder(engine: str, folder: Path) -> Any:
    return Tokenize(str(folder), engine=engine).function()


def _different_tokens(texts: Any, folder: Path) -> str | None:
    """Describe how the engines encode texts differently; None if they do not."""
    found = [_encoder(engine, folder)(texts) for engine in ("reference", "auto")]
    for name in ("ids", "offsets", "trained"):
        expected, given = (getattr(tokens, name) for tokens in found)
        if not np.array_equal(expected, given):
            return f"{name} of tokens: auto\n  {given}\nreference\n  {expected}"
    return None


def of_any_engine(texts: Any) -> Any:
    """What both engines must agree on: the outcome of each record, what is counted, and the first example of it."""
    return _by_record(texts), _counts(texts), _firsts(texts)


def _by_record(texts: Any) -> dict[int, Any]:
    found = dict[int, Any]()
    for text in texts.texts:  # parity makes several of one record
        found.setdefault(text.example.position, []).append(_of_text(text))
    rejects = {reject.position: ("reject", reject.reason, reject.detail) for reject in texts.outcomes.rejects}
    return {**found, **rejects}


def _of_text(text: Any) -> Any:
    return text.text, text.spans, text.parts, text.prompt, text.with_stand_ins


def _firsts(texts: Any) -> dict[str, Any]:
    """The first example of what is counted."""
    return {name: one for name, one in texts.outcomes.first_examples.items() if name != "rendered_by_reference"}


def _counts(texts: Any) -> Counter[str]:
    """What is counted of a batch, but for the paths that the engines took."""
    outcomes = texts.outcomes
    counts = Counter(outcomes.notes)
    for name, unread in outcomes.statistics.unread.items():
        counts[f"unread {name}"] += unread.characters
    return counts


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What became of records by both engines.

    Attributes:
        becomes: each row, with what is trained on between ⟦ and ⟧ and the tokenizer's own tokens as ‹ and ›; and, where
            a record has none, why it is rejected. In the order of the records.
        counts: the notes, and the special tokens in contents.
        unread: of what the template does not print by name, the records and the characters.
        first: for each count the first record, by its number.
        said: all that is said of records, of rejects and of the first one of each count.
    """

    becomes: list[str | dict[str, str]]
    counts: dict[str, int]
    unread: dict[str, list[int]]
    first: dict[str, int]
    said: str


def read_outcomes(
    records: Sequence[Mapping[str, Any]],
    template: str | None,
    folder: Path = TOKENIZER,
    parity: str = "off",
    **options: Any,
) -> Rendered:
    """Render records with both engines, which must agree."""
    found = []
    for engine in ("auto", "reference"):
        config = render_config(template, folder, engine=engine, **options)
        texts = ApplyChatTemplate(config).function()(parsed(records))
        found.append(CheckParity(config, parity=parity).function()(texts))
    assert of_any_engine(found[0]) == of_any_engine(found[1])
    texts = found[1]
    outcomes = texts.outcomes
    rows = [(text.example.position, _shown(text)) for text in texts.texts]
    rows += [(reject.position, {"rejected": reject.reason}) for reject in outcomes.rejects]
    said = [reject.detail for reject in outcomes.rejects] + [what for _, what in outcomes.first_examples.values()]
    counts = {**outcomes.notes, **outcomes.special_tokens_in_content}
    unread = {name: [one.records, one.characters] for name, one in outcomes.statistics.unread.items()}
    first = {name: position for name, (position, _) in outcomes.first_examples.items()}
    becomes = [row for _, row in sorted(rows, key=lambda one: one[0])]
    return Rendered(becomes, counts, unread, first, "\n".join(said))


def _shown(text: Any) -> str:
    whole, own = (f"‹{text.text}›", 1) if text.special_tokens else (text.text, 0)
    edges = [0, *(edge + own for span in text.spans for edge in span), len(whole)]
    pieces = [whole[start:stop] for start, stop in itertools.pairwise(edges)]
    return "".join(f"⟦{piece}⟧" if number % 2 else piece for number, piece in enumerate(pieces))
