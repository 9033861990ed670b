"""The fast engine gives the same texts, masks and ids as the reference. What is compared while a build runs."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, batch_of, examples_of, render_config, text_of, user
from support.datasets import digests, manifest_of, write_jsonl
from support.models import TOKENIZERS
from support.paths import TOKENIZER
from support.templates import CHATML
from support.tokenizers import save_tokenizer
from transforms import Conversation, InputError, PlainText, PromptCompletion, RecordError
from transforms.chat.parity import compiled_beginnings
from transforms.chat.rendering.omissions import Omissions
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, SlowPath, TemplateCompiler
from transforms.model.batches import Texts, Tokens
from transforms.model.outcomes import Outcomes
from transforms.steps import tokenize
from transforms.steps.label import build_labels
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.spot_checks import sample
from transforms.steps.tokenize import Encoder
from transforms.tokens.fast_encoder import FastEncoder
from transforms.tokens.ids import IdEncoder
from transforms.tokens.utf8 import Utf8

FOLDERS = pytest.mark.parametrize(
    "folder",
    [TOKENIZER, *TOKENIZERS],
    ids=lambda path: path.name if path != TOKENIZER else "examples",
)
PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]


@pytest.fixture(autouse=True)
def always_fast(monkeypatch):
    """Use the fast encoder for small builds too."""
    monkeypatch.setattr(tokenize, "WORTH_LOADING", 0)


def rows_of(tokens: Tokens) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids and the labels of each row that has a label."""
    labels = build_labels(tokens)
    cuts = labels.offsets[1:-1]
    return tuple([row.tolist() for row in np.split(flat, cuts)] for flat in (labels.ids, labels.labels))  # type: ignore[return-value]


def check(folder: Any, batch: Texts, strip_bos: bool = False) -> None:
    """Check that both engines give the same rows, rejects and notes."""
    fast, reference = (Encoder(str(folder), strip_bos, engine)(batch) for engine in ("auto", "reference"))
    assert rows_of(fast) == rows_of(reference)
    assert of_any_engine(fast.outcomes) == of_any_engine(reference.outcomes)


def of_any_engine(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes without the counts of the reference, which depend on the engine."""
    by_reference = ("rendered_by_reference", "tokenized_by_reference")
    examples = {name: example for name, example in outcomes.first_examples.items() if name not in by_reference}
    return msgspec.structs.replace(
        outcomes, rendered_by_reference={}, tokenized_by_reference={}, first_examples=examples
    )


# Characters of other planes, parts of characters, characters that normalizers change, controls, special tokens.
PIECES = [
    "a",
    " ",
    "  ",
    "\n",
    "the wheel",
    "é",
    "e\u0301",
    "\u212b",
    "\ufb01",
    "水",
    "🇨🇭",
    "👩\u200d👧",
    "\u2581",
    "\0",
    "\x1f",
    "\u00a0",
]
PIECES += [chr(plane << 16 | 0x123) for plane in range(17)] + [
    "<|im_end|>",
    "</s>",
    "<s>",
    "[INST]",
    "\ufffd",
    "\u200b",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@FOLDERS
def test_tokens_and_masks_equal_the_reference(folder):
    @settings(max_examples=150)
    @given(st.lists(st.tuples(TEXTS, st.data()), min_size=1, max_size=4), st.booleans(), st.booleans(), st.booleans())
    def law(drawn: list[Any], special_tokens: bool, strip_bos: bool, has_prompt: bool) -> None:
        texts = []
        for text, data in drawn:
            edges = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
            spans = list(zip(edges[::2], edges[1::2], strict=False))
            prompt = text[: edges[0]] if edges and has_prompt else None
            if special_tokens and edges:
                spans = [(-1, edges[0]), (edges[-1], len(text) + 1)] if len(edges) > 1 else [(edges[0], len(text) + 1)]
            texts.append(text_of(text, spans, special_tokens=special_tokens, prompt=prompt))
        check(folder, batch_of(texts), strip_bos)

    law()


@FOLDERS
@pytest.mark.parametrize(
    "content",
    [
        pytest.param([user("\ud800"), assistant("\udfff")], id="lone surrogates"),
        pytest.param([user("\0"), assistant("\0a\0")], id="NUL"),
        pytest.param([user("a"), assistant("".join(map(chr, range(0x10F000, 0x110000))))], id="private use"),
        pytest.param(
            [user("a"), assistant("".join(map(chr, [*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE)])))],
            id="all of it",
        ),
        pytest.param(
            [
                user("a"),
                assistant("".join(chr(code) for code in range(0, 0x110000, 37) if not 0xD800 <= code < 0xE000)),
            ],
            id="every plane",
        ),
        pytest.param(PlainText("\0" + "word " * 100_000), id="long text"),
        pytest.param(PromptCompletion("e", "\u0301 and \u212b"), id="a completion that begins inside a character"),
    ],
)
def test_hostile_input_gives_the_same_rows_with_both_engines(folder, content):
    check_all(folder, content)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(
            [user("go on"), assistant("the wheel turns when the rain comes. " * 280_000)], id="10 MB in one message"
        ),
        pytest.param(PLAIN[:2] * 5_000, id="10,000 turns"),
    ],
)
def test_long_input_gives_the_same_rows_with_both_engines(content):
    check_all(TOKENIZER, content)


def check_all(folder: Any, content: Any) -> None:
    """Check that both engines render and tokenize a conversation to the same rows."""
    results = []
    for engine in ("auto", "reference"):
        texts = Renderer(render_config(folder=folder, chat_template=CHATML, engine=engine))(examples_of(content, PLAIN))
        texts = ParityChecker(render_config(folder=folder, chat_template=CHATML, engine=engine))(texts)
        tokens = Encoder(str(folder), engine=engine)(texts)
        rendered = [(text.text, text.spans) for text in texts.texts]
        results.append((rendered, rows_of(tokens), of_any_engine(tokens.outcomes)))
    assert results[0] == results[1]


FAULTS = {
    "other text": lambda text, spans, omissions: (text.replace("6", "7"), spans, omissions),
    "other spans": lambda text, spans, omissions: (text, spans[:1], omissions),
    "other omissions": lambda text, spans, _: (text, spans, Omissions(reasoning=("it",)) if "6" in text else _),
    "other omissions, for which the record would be rejected": lambda text, spans, _: (
        (text, spans, Omissions(("the tools",)) if "6" in text else _)
    ),
}


def make_faulty(monkeypatch, fault: Any, compare: Any) -> None:
    """Change what compiled templates make of texts. compare: how they are compared, which finds it."""
    render = CompiledTemplate.render

    def rendered(self: CompiledTemplate, *texts: Any) -> Any:
        found = render(self, *texts)
        return found and fault(*found)

    monkeypatch.setattr(CompiledTemplate, "render", rendered)
    monkeypatch.setattr(TemplateCompiler, "compare", compare)


@pytest.mark.parametrize("fault", FAULTS)
def test_compiled_template_that_differs_is_not_used_and_its_records_are_counted(
    monkeypatch, fault, no_compiled_template_differs
):
    batches = [examples_of(*[PLAIN[:2]] * 3, PLAIN, PLAIN[:2], PLAIN), examples_of(PLAIN[:2], PLAIN)]
    reference = [Renderer(render_config(CHATML, engine="reference"))(batch) for batch in batches]
    make_faulty(monkeypatch, FAULTS[fault], no_compiled_template_differs)
    renderer = Renderer(render_config(CHATML))
    found = [renderer(batch) for batch in batches]
    for texts, expected in zip(found, reference, strict=True):
        assert [(text.text, text.spans) for text in texts.texts] == [(text.text, text.spans) for text in expected.texts]
        assert not texts.outcomes.rejects and texts.outcomes.rendered_by_reference == {}
    assert [dict(texts.outcomes.notes) for texts in found] == [
        {"compiled_template_differs": 2},
        {"compiled_template_differs": 1},
    ]
    firsts = [dict(texts.outcomes.first_examples) for texts in found]
    assert firsts == [{"compiled_template_differs": (at, fault.partition(",")[0])} for at in (3, 1)]
    signatures = [text.signature is None for texts in found for text in texts.texts]
    assert signatures == [False, False, False, True, False, True, False, True]


def test_compiled_template_is_compared_by_the_first_conversation_for_which_its_guards_hold(
    monkeypatch, no_compiled_template_differs
):
    content = "(message.content | upper if 'x' in message.content else message.content)"
    template = CHATML.replace("message.content", content)
    batch = examples_of([user("3+3?"), assistant("x")], [user("3+3?"), assistant("6")])
    expected = Renderer(render_config(template, engine="reference"))(batch).texts
    assert "X" in expected[0].text
    make_faulty(monkeypatch, FAULTS["other text"], no_compiled_template_differs)
    texts = Renderer(render_config(template))(batch)
    assert [text.text for text in texts.texts] == [text.text for text in expected]
    assert texts.outcomes.first_examples["compiled_template_differs"] == (1, "other text")


def test_compiled_template_that_the_reference_refuses_is_not_used(monkeypatch, no_compiled_template_differs):
    def refused(*_: Any) -> Any:
        raise RecordError("spans_not_established", "it is not known")

    monkeypatch.setattr(TemplateCompiler, "compare", no_compiled_template_differs)
    template = load_template(render_config(CHATML))
    reference = TurnFinder(template)
    monkeypatch.setattr(reference, "trained_spans", refused)
    compiler = TemplateCompiler(template, None, reference)
    compiled = compiler.compile(Conversation(PLAIN), "assistant")
    assert isinstance(compiled, CompiledTemplate)
    texts = [message["content"] for message in PLAIN]
    rendered = compiled.render(texts, texts)
    assert rendered
    differs = compiler.compare(compiled, Conversation(PLAIN), "assistant", rendered)
    assert differs == SlowPath("compiled_differs", "the reference refuses it: spans_not_established: it is not known")
    assert not compiled.is_compared


def test_parity_does_not_compare_by_a_compiled_template_that_differs(monkeypatch, no_compiled_template_differs):
    thinks = "('<think></think>' if loop.last and message.role == 'assistant' else '') + message.content"
    template = CHATML.replace("message.content", thinks)
    batch = examples_of(PLAIN, [user("a"), assistant("b"), user("c"), assistant("6")])
    texts = Renderer(render_config(template, engine="reference"))(batch)
    expected = ParityChecker(render_config(template, engine="reference"), "expand")(texts)
    assert len(expected.texts) == 4
    make_faulty(monkeypatch, FAULTS["other spans"], no_compiled_template_differs)
    monkeypatch.setattr(compiled_beginnings, "CompiledBeginnings", lambda *_: pytest.fail("it was used"))
    assert ParityChecker(render_config(template), "expand")(texts) == expected


def test_build_with_a_compiled_template_that_differs_has_the_right_rows_and_a_warning(
    build, tmp_path, monkeypatch, no_compiled_template_differs
):
    records = [{"messages": PLAIN if number % 3 else PLAIN[:2]} for number in range(30)]
    chats = write_jsonl(tmp_path / "chats.jsonl", records)
    options = ["--input", chats, "--tokenizer", TOKENIZER]
    assert build(*options, "--output", tmp_path / "right", "--engine=reference").code == 0
    make_faulty(monkeypatch, FAULTS["other text"], no_compiled_template_differs)
    ended = build(*options, "--output", tmp_path / "out")
    assert ended.code == 0, ended.err
    excluded = ("manifest.json", "report.html", "README.md")
    assert digests(tmp_path / "out", *excluded) == digests(tmp_path / "right", *excluded)
    manifest = manifest_of(tmp_path / "out")
    assert manifest["notes"]["compiled_template_differs"] == 20 and manifest["rendered_by_reference"] == {}
    first = {"source": str(chats), "position": f"byte {len(json.dumps(records[0])) + 1}", "detail": "other text"}
    assert manifest["first_examples"]["compiled_template_differs"] == first
    assert (
        "warning: 20 records whose compiled template differs from apply_chat_template: they were rendered one by one, "
        "their rows are right (docs/engines.md)\n"
    ) in ended.err


@pytest.mark.parametrize("what", ["ids", "offsets"])
def test_tokens_of_the_sample_are_compared(monkeypatch, what):
    encode = FastEncoder.encode

    def encode_differently(self: FastEncoder, texts: list[str], special_tokens: bool) -> Any:
        encoded = encode(self, texts, special_tokens)
        if what == "ids":
            return dataclasses.replace(encoded, ids=np.where(encoded.ids == encoded.ids[-1], 5, encoded.ids))
        return dataclasses.replace(encoded, starts=encoded.starts + 3, stops=encoded.stops + 3)

    batch = batch_of([text_of("the wheel turns", [(0, 3)], position=number) for number in range(3)])
    monkeypatch.setattr(FastEncoder, "encode", encode_differently)
    tokens = {"ids": "tokens", "offsets": "trained tokens"}[what]
    found = (
        rf"^chats\.jsonl, byte 0: gigatoken gives other {tokens} than tokenizers, from number \d on\. Give --engine "
    )
    with pytest.raises(InputError, match=f"{found}reference, which does not use it\\.$"):
        Encoder(str(TOKENIZER))(batch)
    assert len(Encoder(str(TOKENIZER), engine="reference")(batch).ids)


def test_difference_in_the_excerpt_of_a_long_text_is_found(monkeypatch):
    encode = FastEncoder.encode
    monkeypatch.setattr(
        FastEncoder,
        "encode",
        lambda self, texts, special: (
            encoded := encode(self, texts, special),
            dataclasses.replace(encoded, ids=encoded.ids + (len(texts[0]) == 4096)),
        )[1],
    )
    text = "the wheel turns when the rain comes. " * 500
    with pytest.raises(InputError, match="gigatoken gives other tokens than tokenizers, from number 0 on"):
        Encoder(str(TOKENIZER))(batch_of([text_of(text, [(len(text) - 1, len(text))])]))


def test_wrong_token_of_gigatoken_ends_the_build_in_one_line_that_names_the_record(build, tmp_path, monkeypatch):
    encode = IdEncoder.encode

    def encode_wrongly(self: IdEncoder, texts: Utf8) -> Any:
        ids, offsets = encode(self, texts)
        return np.where(ids == ids[-1], 5, ids), offsets

    monkeypatch.setattr(IdEncoder, "encode", encode_wrongly)
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": PLAIN}] * 9)
    options = ["--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / "out"]
    ended = build(*options)
    assert ended.code == 1
    assert "Traceback" not in ended.err and not (tmp_path / "out" / "_SUCCESS").exists()
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith(f"chatmill: {chats}, byte 0: gigatoken gives other tokens than tokenizers, from number ")
    assert last.endswith(" on. Give --engine reference, which does not use it.")
    assert build(*options, "--engine=reference").code == 0


@FOLDERS
@pytest.mark.parametrize("special_tokens", [False, True])
def test_excerpts_of_long_texts_are_the_same_for_both_engines(folder, special_tokens):
    texts = ["Grüße 水車は回る。 e\u0301 <|im_end|>\n" * 3_000, "the wheel turns\n\n" * 1_000]
    spans = [[(-int(special_tokens), 40), (4_000, 9_000)], [(0, 17_000 + special_tokens)]]
    for part in range(4):
        some = [
            text_of(text, own, number, special_tokens=special_tokens)
            for number, (text, own) in enumerate(zip(texts, spans, strict=True))
        ]
        check(folder, dataclasses.replace(batch_of(some), part=part))


COSTS = st.lists(st.integers(0, 10_000), max_size=300)


@given(COSTS, st.integers(0, 10**6))
def test_sample_is_the_same_in_each_run_and_has_the_first_record_or_the_cheapest_one(costs, characters):
    batch = batch_of([])
    for part in range(3):
        of_part = dataclasses.replace(batch, part=part)
        chosen = sample(of_part, len(costs), costs.__getitem__, characters)
        assert chosen == sample(of_part, len(costs), costs.__getitem__, characters)
        assert chosen == sorted({*chosen}) and {*chosen} <= {*range(len(costs))}
        if costs and not part:
            assert chosen
            assert 0 in chosen or costs[0] > 4096


def saved_with_normalizer(folder: Path, normalizer: str) -> str:
    save_tokenizer(folder)
    state = json.loads((folder / "tokenizer.json").read_text())
    state["normalizer"] = {"type": normalizer}
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return str(folder)


def test_tokenizer_with_an_unsupported_normalizer_uses_the_reference(tmp_path, caplog):
    folder = saved_with_normalizer(tmp_path, "ByteLevel")
    batch = batch_of([text_of("The Wheel Turns", [(4, 9)])])
    with caplog.at_level(logging.WARNING):
        tokens = Encoder(folder)(batch)
    assert "transformers tokenizes, since the fast engine cannot: Unsupported normalizer type: ByteLevel" in caplog.text
    assert rows_of(tokens) == rows_of(Encoder(folder, engine="reference")(batch))
    assert tokens.outcomes.tokenized_by_reference == {"tokenizer_not_supported": 1}
    assert tokens.outcomes.first_examples == {
        "tokenized_by_reference": (0, "tokenizer_not_supported: Unsupported normalizer type: ByteLevel")
    }


def test_small_inputs_are_encoded_without_loading_the_fast_encoder(monkeypatch):
    monkeypatch.setattr(tokenize, "WORTH_LOADING", SPLIT.input_bytes + 1)
    monkeypatch.setattr(tokenize, "load_fast_encoder", lambda *_: pytest.fail("it was loaded"))
    tokens = Encoder(str(TOKENIZER))(batch_of([text_of("a" * 99)]))
    assert tokens.outcomes.tokenized_by_reference == {"small_input": 1}
    assert tokens.outcomes.first_examples == {}


def test_small_splits_of_a_large_input_are_encoded_by_the_fast_encoder(monkeypatch):
    monkeypatch.setattr(tokenize, "WORTH_LOADING", SPLIT.bytes + 1)
    split = dataclasses.replace(SPLIT, input_bytes=SPLIT.bytes + 1)
    tokens = Encoder(str(TOKENIZER))(dataclasses.replace(batch_of([text_of("a" * 99)]), split=split))
    assert tokens.outcomes.tokenized_by_reference == {}


SEVERAL_TEXTS_OF_A_RECORD = [
    text_of("a", position=0),
    text_of("b", position=1),
    text_of("c", position=1),
    text_of("", [(0, 1)], position=2, token_ids=np.array([5], np.int32)),
    text_of("d", position=3),
]


@pytest.mark.parametrize(("engine", "counts"), [("reference", {"engine": 3}), ("auto", {})])
def test_each_record_that_the_reference_encodes_counts_once_and_token_ids_do_not_count(engine, counts):
    tokens = Encoder(str(TOKENIZER), engine=engine)(batch_of(SEVERAL_TEXTS_OF_A_RECORD))
    assert tokens.outcomes.tokenized_by_reference == counts
    assert tokens.outcomes.first_examples == {}


@pytest.mark.parametrize("special_tokens", [False, True])
def test_records_that_the_tokenizer_normalises_are_counted_once(tmp_path, monkeypatch, special_tokens):
    folder = saved_with_normalizer(tmp_path, "NFC")
    monkeypatch.setattr(FastEncoder, "characters_at_once", 2)  # the texts of record 4 are encoded by two calls
    texts = {1: ["plain"], 2: ["e\u0301"], 3: ["\u00e9"], 4: ["\u212b", "and", "e\u0301"], 5: ["水"]}
    batch = batch_of(
        [text_of(text, position=i, special_tokens=special_tokens) for i, some in texts.items() for text in some]
    )
    tokens = Encoder(folder, engine="auto")(batch)
    assert tokens.outcomes.tokenized_by_reference == {"altered_by_normalizer": 2}
    assert tokens.outcomes.first_examples == {
        "tokenized_by_reference": (2, "altered_by_normalizer: the tokenizer changes the characters of its text")
    }


def test_engines_write_the_same_bytes(build, tmp_path):
    records: list[Any] = [
        {"messages": PLAIN},
        {"messages": [*PLAIN, user("Grüße \0 e\u0301")]},
        {"text": "水車は回る。"},
    ] * 20
    records += [{"prompt": "2+2=", "completion": "4"}, {"messages": [*PLAIN[:1], assistant("4", weight=0), *PLAIN[:2]]}]
    chats = write_jsonl(tmp_path / "chats.jsonl", records)
    for engine in ("auto", "reference"):
        ended = build("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / engine, "--engine", engine)
        assert ended.code == 0, ended.err
    assert manifest_of(tmp_path / "auto")["records"]["kept"] == len(records)
    outputs = [tmp_path / engine for engine in ("auto", "reference")]
    # These two count what each engine did.
    written = [digests(output, "manifest.json", "report.html") for output in outputs]
    assert written[0] == written[1]
    auto, reference = (manifest_of(output) for output in outputs)
    assert auto["rendered_by_reference"] == auto["tokenized_by_reference"] == {}
    assert (reference["rendered_by_reference"], reference["tokenized_by_reference"]) == ({"engine": 41}, {"engine": 62})
    for manifest in (auto, reference):  # only these depend on the engine
        for name in ("rendered_by_reference", "tokenized_by_reference"):
            del manifest[name]
            manifest["first_examples"].pop(name, None)
    assert auto == reference
