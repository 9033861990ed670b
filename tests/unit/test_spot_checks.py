"""The fast engine gives the same texts, masks and ids as the reference, or nothing of it is published."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, batch_of, examples_of, render_config, text_of, user
from support.datasets import digests, manifest_of, write_jsonl
from support.increments import job_by_hand
from support.paths import SHARED, TOKENIZER
from support.templates import CHATML
from support.tokenizers import save_tokenizer
from transforms.base.errors import InputError, ParameterError
from transforms.catalog.budgets import Budgets
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.chat.rendering.omissions import NO_OMISSIONS, Omissions
from transforms.chat.traced.compiled import CompiledTemplate
from transforms.model.batches import Texts, Tokens
from transforms.model.examples import PlainText, PromptCompletion
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import DIFFERS, FirstExample, Receipt, Shard
from transforms.publish.increment_commit import Change, commit_increment
from transforms.steps import render, tokenize
from transforms.steps import write as write_step
from transforms.steps.label import build_labels
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.spot_checks import sample
from transforms.steps.tokenize import Encoder
from transforms.storage.writing import write_atomically
from transforms.tokens.fast_encoder import FastEncoder
from transforms.tokens.reference import ReferenceEncoder

REAL = [SHARED / "tokenizers" / name for name in ("llama3", "qwen", "mistral")]
FOLDERS = pytest.mark.parametrize(
    "folder",
    [TOKENIZER, *(pytest.param(path, marks=pytest.mark.skipif(not path.exists(), reason="absent")) for path in REAL)],
    ids=lambda path: path.name if path != TOKENIZER else "examples",
)
PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]


@pytest.fixture(autouse=True)
def always_fast(monkeypatch):
    """Use the fast encoder for small batches too."""
    monkeypatch.setattr(tokenize, "WORTH_LOADING", 0)


def rows_of(tokens: Tokens) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids and the labels of each row that has a label."""
    labels = build_labels(tokens)
    cuts = labels.offsets[1:-1]
    return tuple([row.tolist() for row in np.split(flat, cuts)] for flat in (labels.ids, labels.labels))  # type: ignore[return-value]


def check(folder: Any, batch: Texts, strip_bos: bool = False) -> None:
    """Check that both engines give the same rows, rejects and notes."""
    fast, reference = (Encoder(str(folder), strip_bos, engine)(batch) for engine in ("fast", "reference"))
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
def test_long_input_gives_the_same_rows_with_both_engines(content, monkeypatch):
    # Otherwise the check would render the batch by the reference once more.
    monkeypatch.setattr(render, "sample_conversations", lambda batch, texts: [])
    check_all(TOKENIZER, content)


def check_all(folder: Any, content: Any) -> None:
    """Check that both engines render and tokenize a conversation to the same rows."""
    results = []
    for engine in ("fast", "reference"):
        texts = Renderer(render_config(folder=folder, chat_template=CHATML, engine=engine))(examples_of(content, PLAIN))
        texts = ParityChecker(render_config(folder=folder, chat_template=CHATML, engine=engine))(texts)
        tokens = Encoder(str(folder), engine=engine)(texts)
        rendered = [(text.text, text.spans) for text in texts.texts]
        results.append((rendered, rows_of(tokens), of_any_engine(tokens.outcomes)))
    assert results[0] == results[1]


def faulty(monkeypatch, change: Any) -> None:
    """Change what compiled templates make of some texts: a function of the text, the spans and the omissions."""
    render_compiled = CompiledTemplate.render

    def changed(self: CompiledTemplate, *texts: Any) -> Any:
        found = render_compiled(self, *texts)
        return found and (change(*found) or found)

    monkeypatch.setattr(CompiledTemplate, "render", changed)


NOT_PRINTED = Omissions(("the tools",))
FAULTS = {
    "other text": lambda text, spans, omissions: (text.replace("6", "7"), spans, omissions),
    "other spans": lambda text, spans, omissions: (text, spans[:1], omissions),
    "it leaves out something else": lambda text, spans, _: (
        (text, spans, Omissions(reasoning=("it",))) if "6" in text else None
    ),
    "it is rejected as not_printed, and by transformers it is kept": lambda text, spans, _: (
        (text, spans, NOT_PRINTED) if "6" in text else None
    ),
}


@pytest.mark.parametrize("difference", FAULTS)
def test_first_record_of_each_signature_and_each_reject_are_compared(monkeypatch, difference):
    batch = examples_of(*[PLAIN[:2]] * 3, PLAIN, PLAIN[:2])
    faulty(monkeypatch, FAULTS[difference])
    texts = Renderer(render_config(CHATML))(batch)
    assert texts.outcomes.notes[DIFFERS] == 1
    assert texts.outcomes.first_examples[DIFFERS] == (3, f"rendering: {difference}")
    with pytest.raises(InputError, match=r"chats\.jsonl, 3: rendering by the fast engine differs"):
        Renderer(render_config(CHATML, engine="fast"))(batch)


@pytest.mark.parametrize(("content", "plain"), [(" 6", "6"), ("é", "e")])
def test_texts_of_one_signature_are_compared_for_white_space_and_other_characters(monkeypatch, content, plain):
    batch = examples_of(*[[user("3+3?"), assistant(plain)]] * 40, [user("3+3?"), assistant(content)])
    faulty(monkeypatch, lambda text, *found: (text.replace(content, content + "7"), *found))
    assert Renderer(render_config(CHATML))(batch).outcomes.first_examples[DIFFERS] == (40, "rendering: other text")


def test_texts_of_one_of_so_many_records_are_compared(monkeypatch):
    batch = examples_of(*[[user("3+3?"), assistant("6" * (1 + number % 7 == 3))] for number in range(400)])
    faulty(monkeypatch, lambda text, *found: (text.replace("6", "7"), *found))
    monkeypatch.setattr(render, "sample_conversations", lambda batch, texts: [])
    found = [
        Renderer(render_config(CHATML))(dataclasses.replace(batch, part=part)).outcomes.notes.get(DIFFERS)
        for part in range(20)
    ]
    assert found == [1] * 20


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
    tokens = Encoder(str(TOKENIZER))(batch)
    assert dict(tokens.outcomes.notes) == {DIFFERS: 1}
    assert tokens.outcomes.first_examples[DIFFERS][1].startswith("tokenizing: other t")
    with pytest.raises(InputError, match="tokenizing by the fast engine differs"):
        Encoder(str(TOKENIZER), engine="fast")(batch)


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
    tokens = Encoder(str(TOKENIZER))(batch_of([text_of(text, [(len(text) - 1, len(text))])]))
    assert dict(tokens.outcomes.notes) == {DIFFERS: 1}


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


@pytest.mark.parametrize("part", range(3))
def test_reference_encodes_a_small_share_of_long_texts(monkeypatch, part):
    encoded: list[int] = []
    encode = ReferenceEncoder.encode
    monkeypatch.setattr(
        ReferenceEncoder,
        "encode",
        lambda self, texts, special: (encoded.extend(map(len, texts)), encode(self, texts, special))[1],
    )
    texts = [text_of("the wheel turns when the rain comes. " * 2_700, position=number) for number in range(40)]
    batch = dataclasses.replace(batch_of(texts), part=part)
    Encoder(str(TOKENIZER), engine="fast")(batch)
    assert sum(encoded) <= 8192 + 40 * 2_700 * 37 / 2048 + 4096
    assert sum(encoded) > 0 or part


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


@pytest.mark.parametrize("size", [100, 1_000, 30_000, 2_000_000])
@pytest.mark.parametrize("cost_of_a_character", [0.1, 1])
def test_sample_costs_a_2048th_of_the_parts_after_the_first_on_average(size, cost_of_a_character):
    count = 2_000_000 // size
    draw = random.Random(7)
    sizes = [draw.randrange(2 * size) + 1 for _ in range(count)]
    costs = [int(own * cost_of_a_character) for own in sizes]
    batch = batch_of([])
    parts = (dataclasses.replace(batch, part=part) for part in range(1, 3_000))
    total = sum(costs[number] for of_part in parts for number in sample(of_part, count, costs.__getitem__, sum(sizes)))
    share = total / 2_999 / sum(sizes)
    assert share < 1.3 / 2048
    if 1_000 <= size * cost_of_a_character < 100_000:
        assert share > 0.7 / 2048


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
    with pytest.raises(ParameterError, match=r"engine='fast': it cannot load the tokenizer: .*ByteLevel"):
        Encoder(folder, engine="fast")(batch)


def test_small_inputs_are_encoded_without_loading_the_fast_encoder(monkeypatch):
    monkeypatch.setattr(tokenize, "WORTH_LOADING", SPLIT.bytes + 1)
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


@pytest.mark.parametrize(("engine", "counts"), [("reference", {"engine": 3}), ("auto", {}), ("fast", {})])
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
    tokens = Encoder(folder, engine="fast")(batch)
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
    for engine in ("auto", "reference", "fast"):
        ended = build("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / engine, "--engine", engine)
        assert ended.code == 0, ended.err
    assert manifest_of(tmp_path / "auto")["records"]["kept"] == len(records)
    outputs = [tmp_path / engine for engine in ("auto", "reference", "fast")]
    # These two count what each engine did.
    written = [digests(output, "manifest.json", "report.html") for output in outputs]
    assert written[0] == written[1] == written[2]
    auto, reference, fast = (manifest_of(output) for output in outputs)
    assert auto["rendered_by_reference"] == auto["tokenized_by_reference"] == {}
    assert (reference["rendered_by_reference"], reference["tokenized_by_reference"]) == ({"engine": 41}, {"engine": 62})
    for manifest in (auto, reference, fast):  # only these depend on the engine
        for name in ("rendered_by_reference", "tokenized_by_reference"):
            del manifest[name]
            manifest["first_examples"].pop(name, None)
    assert auto == reference == fast


def test_fast_engine_that_differs_fails_the_build_in_one_line(build, tmp_path, monkeypatch):
    monkeypatch.setattr(CompiledTemplate, "render", lambda self, *texts: ("?", [(0, 1)], NO_OMISSIONS))
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": PLAIN}])
    ended = build("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / "fast", "--engine", "fast")
    assert ended.code == 1
    assert ended.err.strip().splitlines()[-1].startswith(f"chatmill: {chats}, 0: rendering by the fast engine differs")


@pytest.mark.parametrize("exchanged", [(), ("--shuffle=global", "--shards=4", "--dedup=exact")], ids=["", "exchanged"])
def test_nothing_of_the_fast_engine_is_published_if_it_differs_in_one_record(build, tmp_path, monkeypatch, exchanged):
    """Of many splits, one record of one differs: all of them are built again, also by a run that resumes."""
    records = [{"messages": [user(f"{number}+1?"), assistant(f"{number + 1}")]} for number in range(200)]
    records[150] = {"messages": [*records[150]["messages"], *PLAIN]}
    chats = write_jsonl(tmp_path / "chats.jsonl", records)
    options = ["--input", chats, "--tokenizer", TOKENIZER, "--split_bytes", 500, *exchanged]
    assert build(*options, "--output", tmp_path / "right").code == 0
    faulty(monkeypatch, lambda text, *found: (text.replace("3?", "4?"), *found))  # of any signature
    out = tmp_path / "out"
    with monkeypatch.context() as killed:
        written = iter(range(12))
        write = write_step.write_receipt

        def write_some(folder: str, receipt: Receipt) -> None:
            if receipt.by_reference and next(written, None) is None:
                raise OSError("the worker is killed")
            write(folder, receipt)

        killed.setattr(write_step, "write_receipt", write_some)
        assert build(*options, "--output", out).code == 1
    assert not (out / "_SUCCESS").exists()
    ended = build(*options, "--output", out)
    assert ended.code == 0, ended.err
    excluded = ("manifest.json", "report.html", "README.md")
    # Nothing that the fast engine made is left: all that the reference made has an r in its name.
    right = {
        name.replace(".parquet", "r.parquet"): sha256 for name, sha256 in digests(tmp_path / "right", *excluded).items()
    }
    assert digests(out, *excluded) == right
    manifest = manifest_of(out)
    assert manifest["first_examples"][DIFFERS]["detail"] == "rendering: other text"
    assert manifest["rendered_by_reference"] == {"fast_engine_differed": 200}
    assert "warning: the rows were made by the reference, since the fast engine differed from " in ended.err


def test_commit_refuses_what_the_fast_engine_made_if_it_differs(tmp_path):
    folder = Folder(str(tmp_path), "0123456789abcdef")
    write_atomically(folder.job, msgspec.json.encode(job_by_hand() | {"splits": 1}))
    write_atomically(folder.plan, b"")
    counts = {name: {} for name in ("dropped", "rejected", "notes", "rendered_by_reference", "tokenized_by_reference")}
    others = {"read": 1, "kept": 1, "truncated": 0, "trained_tokens_lost": 0, "increment": folder.increment}
    others |= {"rejects": None, "first_rejects": {}, "first_examples": {}}

    def part_of(part: int, **changes: Any) -> Receipt:
        path = f"data/train-{folder.increment}-000000-{part:03d}.parquet"
        shards = [Shard(path, "parquet", "train", 1, 9, 5, 100, "0" * 64)]
        return msgspec.convert(
            {"split": 0, "part": part, "last": part == 2, "shards": shards} | counts | others | changes, Receipt
        )

    found = {DIFFERS: FirstExample("a.jsonl", "byte 7", "rendering: other text")}
    receipts = [part_of(part, first_examples=found if part == 1 else {}) for part in range(3)]
    with pytest.raises(InputError, match=r"^a\.jsonl, byte 7: the fast engine differs .* Give the engine reference\.$"):
        commit_increment(folder, receipts, Budgets(), "none", Change())
    assert Log(folder).newest() is None
    again = [msgspec.structs.replace(receipt, by_reference=True, first_examples=found) for receipt in receipts]
    assert commit_increment(folder, again, Budgets(), "none", Change()).version == 1
