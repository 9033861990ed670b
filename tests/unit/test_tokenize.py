"""Tokenize: ids and offsets are the same as in transformers, for every kind of tokenizer, text and batch."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, processors
from transformers import AutoTokenizer

from support.chats import make_batch, text_of
from support.drawn import examples
from support.models import DEEPSEEK
from support.paths import ROOT, TOKENIZER
from support.tokenizers import LARGE, save_tokenizer
from transforms import BuildLabels, Tokenize, tokenize

EXAMPLES = str(TOKENIZER)
TRL = ROOT / "tests" / "trl"
TRL_TOKENIZER = str(TRL / "tokenizer")

# (id, start, stop), in characters of its own text.
Token = tuple[int, int, int]


def read_row(ids: list[int], spans: Iterable[tuple[int, int]] = ((0, 1),), position: int = 0) -> Any:
    return text_of("", spans, position, token_ids=np.array(ids, np.int32))


def tokens_of(encoder: Any, texts: list[Any]) -> list[list[Token]]:
    """Return the tokens of each text, in characters of that text. None may be rejected.

    The texts are encoded once for each character, which alone is trained on. So the characters of each token are known.
    """

    def with_span(text: Any, start: int) -> Any:
        around = int(text.special_tokens)
        length = len(text.text) if text.token_ids is None else len(text.token_ids)
        exists = -around <= start < length + around
        return msgspec.structs.replace(text, spans=[(start, start + 1)] if exists else [])

    starts = range(-1, max((len(text.text) for text in texts), default=0) + 3)
    tokens = encoder(make_batch([with_span(text, start) for start in starts for text in texts]))
    assert not tokens.outcomes.rejects
    ids, trained = (np.split(flat, tokens.offsets[1:-1]) for flat in (tokens.ids, tokens.trained))
    found: list[list[Token]] = []
    for number in range(len(texts)):
        row = ids[number].tolist()
        assert all(again.tolist() == row for again in ids[number :: len(texts)])
        count_tokens = np.stack(trained[number :: len(texts)]).T
        edges = [np.flatnonzero(of_token)[[0, -1]] for of_token in count_tokens]
        found.append([(i, int(first) - 1, int(last)) for i, (first, last) in zip(row, edges, strict=True)])
    return found


def read_labels(encoder: Any, *texts: Any) -> list[list[int]]:
    """Return the labels of each text; none if the row is dropped."""
    labels = BuildLabels().function()(encoder(make_batch([*texts])))
    assert not labels.outcomes.rejects
    return [row.tolist() for row in np.split(labels.labels, labels.offsets[1:-1])]


@functools.cache
def reference(folder: str) -> Any:
    """A tokenizer as transformers loads it; the offsets of its tokens have their white space."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    state = tokenizer.backend_tokenizer.to_str().replace('"trim_offsets":true', '"trim_offsets":false')
    tokenizer.backend_tokenizer.post_processor = Tokenizer.from_str(state).post_processor
    return tokenizer


def transformers_tokens(folder: str, text: str, special_tokens: bool = False) -> list[Token]:
    encoded = reference(folder)(text, add_special_tokens=special_tokens, return_offsets_mapping=True)
    # A token of no length counts as the character at its start.
    edges = [(start, max(stop, start + 1)) for start, stop in encoded["offset_mapping"]]
    return [(i, *own) for i, own in zip(encoded["input_ids"], edges, strict=True)]


@functools.cache
def make_encoder(folder: str, strip_bos: bool = False, engine: str = "reference") -> Any:
    return Tokenize(folder, strip_bos=strip_bos, engine=engine).function()


def with_specials(single: str) -> Any:
    return processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 1)])


@pytest.fixture(scope="module")
def bos_and_eos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("bos_and_eos"), with_specials("<s> $A </s>"))


# Characters of all planes; and what tokenizers treat specially: special tokens, runs of white space, marks
# that NFC composes, joiners, variation selectors, flags.
characters = st.characters(exclude_categories=["Cs"])
special = st.sampled_from(["<|im_end|>", "<s>", "</s>", "<|eot_id|>", "[INST]", "▁", "Ġ"])
composed = st.sampled_from(
    ["e\u0301", "\u1e0b\u0323", "\u0301", "\u0344", "\u2126", "\u200d", "\ufe0f", "👩‍👧", "🇪🇺", "한국", "ﬁ"]
)
white_space = st.sampled_from(["  ", "\n\n", " \t", "\r\n", "\u00a0", "\u3000"])
words = st.text(st.sampled_from("abcdefgh ETAOIN.,'0123456789"), max_size=12)
texts = st.lists(st.one_of(st.text(characters, max_size=8), special, composed, white_space, words), max_size=8).map(
    "".join
)

FAST = [EXAMPLES, TRL_TOKENIZER, *map(str, LARGE)]
ENGINES = pytest.mark.parametrize("engine", ["auto", "reference"])
LAW = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ENGINES
@pytest.mark.parametrize("folder", FAST, ids=lambda folder: "-".join(Path(folder).parts[-2:]))
def test_tokens_and_their_offsets_are_the_same_as_in_transformers_and_a_plain_text_has_one_eos(
    folder: str, engine: str
):
    encoder, eos = make_encoder(folder, engine=engine), reference(folder).eos_token_id

    @LAW
    @given(st.lists(texts, max_size=4))
    @example(["Zoë e\u0301 \u1e0b\u0323 ▁ 👩‍👩‍👧 水車\n", "", " ", "<|im_end|></s>"])
    @example(["ends itself</s>", "ends itself<|im_end|>", "ends itself<|eot_id|>"])
    def check(some: list[str]):
        expected = [transformers_tokens(folder, text) for text in some]
        assert tokens_of(encoder, [text_of(text) for text in some]) == expected
        for text, tokens in zip(some, expected, strict=True):
            ends_itself = bool(tokens) and tokens[-1][0] == eos
            end = [] if ends_itself else [(eos, len(text), len(text) + 1)]
            assert tokens_of(encoder, [text_of(text, special_tokens=True)]) == [[*tokens, *end]]

    check()


@ENGINES
def test_special_tokens_have_the_offsets_before_and_after_the_text(bos_and_eos: str, engine: str):
    @LAW
    @given(st.lists(texts, max_size=3))
    @example(["a", "</s>", "<s>a</s>", ""])
    def check(some: list[str]):
        rows = tokens_of(
            make_encoder(bos_and_eos, engine=engine), [text_of(text, special_tokens=True) for text in some]
        )
        for text, row in zip(some, rows, strict=True):
            plain = transformers_tokens(bos_and_eos, text)
            ids = [token for token, _, _ in transformers_tokens(bos_and_eos, text, True)]
            has_bos = text.startswith("<s>")  # so that it gets no other one
            assert [token for token, _, _ in row] == ids[has_bos:]
            assert row == [*[(0, -1, 0)][has_bos:], *plain, (1, len(text), len(text) + 1)]

    check()


@ENGINES
def test_eos_is_added_if_the_tokenizer_adds_none_and_has_one(tmp_path: Path, engine: str):
    bos_only = save_tokenizer(tmp_path / "bos_only", with_specials("<s> $A"))
    no_eos = save_tokenizer(tmp_path / "no_eos", special_tokens={})
    for folder, before, after in ((bos_only, [(0, -1, 0)], [(1, 1, 2)]), (no_eos, [], [])):
        (row,) = tokens_of(make_encoder(folder, engine=engine), [text_of("a", special_tokens=True)])
        assert row == [*before, *transformers_tokens(folder, "a"), *after]
    assert tokens_of(make_encoder(no_eos, True), [text_of("<s>a")]) == [transformers_tokens(no_eos, "<s>a")]


def test_strip_bos_removes_one_bos_at_the_start_and_no_other_token(bos_and_eos: str):
    some = [text_of("a", special_tokens=True), *map(text_of, ("<s>a", "<s><s>a", "a<s>", "<s>", ""))]
    some += [read_row([0, 0, 40]), read_row([40, 0])]
    (a, _, _), *_ = transformers_tokens(bos_and_eos, "a")
    kept, stripped = (
        [[token for token, _, _ in row] for row in tokens_of(make_encoder(bos_and_eos, strip), some)]
        for strip in (False, True)
    )
    assert kept == [[0, a, 1], [0, a], [0, 0, a], [a, 0], [0], [], [0, 0, 40], [40, 0]]
    assert stripped == [[a, 1], [a], [0, a], [a, 0], [], [], [0, 40], [40, 0]]
    (row,) = tokens_of(make_encoder(bos_and_eos, True), [text_of("<s>a b", special_tokens=True)])
    assert row == [*transformers_tokens(bos_and_eos, "<s>a b")[1:], (1, 6, 7)]


# Tokenizers whose offsets do not include white space.

TRIMMING: dict[str, Callable[[], Any]] = {
    "ByteLevel": lambda: processors.ByteLevel(trim_offsets=True),
    "Sequence": lambda: processors.Sequence([processors.ByteLevel(trim_offsets=True), with_specials("<s> $A </s>")]),
    "Roberta": lambda: processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=False),
}


@pytest.mark.parametrize("post_processor", TRIMMING)
def test_offsets_include_the_white_space_of_a_token(tmp_path: Path, post_processor: str):
    trimming = save_tokenizer(tmp_path / "trimming", TRIMMING[post_processor]())
    plain = save_tokenizer(tmp_path / "plain")
    text = " The wheel  turns \n when the rain comes\t"
    encoder = make_encoder(trimming)
    assert tokens_of(encoder, [text_of(text)]) == [transformers_tokens(plain, text)]
    (row,) = tokens_of(encoder, [text_of(" a ", special_tokens=True)])
    if post_processor != "ByteLevel":
        assert (row[0], row[-1]) == ((0, -1, 0), (1, 3, 4))
        assert [token for token, _, _ in row] == reference(trimming)(" a ")["input_ids"]
    (labels,) = read_labels(encoder, text_of("The wheel", [(3, 4)]))
    assert labels[:2] == [-100, transformers_tokens(plain, "The wheel")[1][0]]


# Rows that are already tokenized.


def test_rows_of_token_ids_pass_through_with_their_trained_tokens():
    rows = read_labels(make_encoder(EXAMPLES), read_row([7, 8, 9, 7], [(1, 2), (3, 4)]), read_row([5], [(0, 1)]))
    assert rows == [[-100, 8, -100, 7], [5]]


def test_row_with_an_id_that_is_not_in_the_vocabulary_is_rejected_and_no_other_row(tmp_path: Path):
    size = len(reference(EXAMPLES))
    some = [
        read_row([size - 1], position=10),
        read_row([3, size], position=20),
        text_of("a", position=30),
        read_row([2**31 - 1], position=40),
        text_of("a b", position=40),  # of the same record, which is rejected as a whole
    ]
    tokens = make_encoder(EXAMPLES)(make_batch(some))
    assert tokens.facts.positions.tolist() == [10, 30]
    assert [(reject.position, reject.reason, reject.record) for reject in tokens.outcomes.rejects] == [
        (20, "bad_tokens", b"record 20"),
        (40, "bad_tokens", b"record 40"),
    ]
    assert tokens.outcomes.rejects[0].detail == f"input_ids holds {size}; the tokenizer has the ids 0 to {size - 1}"
    # In some vocabularies ids are missing, so the largest id is not their size minus one.
    with_gap = make_encoder(write_tokenizer(tmp_path, {"a": 0, "b": 7}))
    assert with_gap(make_batch([read_row([7], position=1), read_row([8], position=2)])).facts.positions.tolist() == [1]


# Prompts and batches.


@ENGINES
def test_prompts_whose_tokens_do_not_begin_the_whole_text_are_counted(bos_and_eos: str, engine: str):
    lines = (TRL / "inputs" / "standard_prompt_completion.jsonl").read_text("utf-8").splitlines()
    pairs = [(record["prompt"], record["completion"]) for record in map(json.loads, lines)]
    expected = 0
    for prompt, completion in pairs:
        whole, begin = (reference(TRL_TOKENIZER)(text)["input_ids"] for text in (prompt + completion, prompt))
        expected += whole[: len(begin)] != begin
    assert 0 < expected < len(pairs)

    some = [
        text_of(p + c, [(len(p), len(p + c) + special_tokens)], i, special_tokens=special_tokens, prompt=p)
        for special_tokens in (True, False)
        for i, (p, c) in enumerate(pairs)
    ]
    notes = make_encoder(TRL_TOKENIZER, engine=engine)(make_batch(some)).outcomes.notes
    assert notes["prompt_tokens_not_a_prefix"] == 2 * expected
    # Special tokens after a prompt are none of its tokens.
    some = [text_of("The wheel turns", [(9, 16)], special_tokens=True, prompt="The wheel")]
    assert make_encoder(bos_and_eos, engine=engine)(make_batch(some)).outcomes.notes == {}


def test_texts_of_all_kinds_keep_their_order_and_their_tokens():
    kinds: list[Callable[[int], Any]] = [
        lambda i: text_of(f"plain {i} 猫", [(-1, 9)], i, special_tokens=True),
        lambda i: text_of(f"chat {i} <|im_end|>\n", [(2, 5)], i),
        lambda i: read_row([i, i + 1], [(0, 2)], i),
        lambda i: text_of(f"sa{i}cks", [(2, 7)], i, special_tokens=True, prompt="sa"),
        lambda i: read_row([10**6], [(0, 1)], i),  # an id that is rejected
        lambda i: text_of("", [], i),
    ]
    order = [0, 1, 2, 2, 4, 3, 3, 0, 5, 1, 1, 2, 0, 4, 3, 1, 5, 5, 2]
    mixed = [kinds[kind](position) for position, kind in enumerate(order)]
    encoder = make_encoder(EXAMPLES)
    alone = [encoder(make_batch([text])) for text in mixed]

    tokens = encoder(make_batch(mixed))

    assert tokens.facts.positions.tolist() == [p for one in alone for p in one.facts.positions.tolist()]
    assert tokens.ids.tolist() == [token for one in alone for token in one.ids.tolist()]
    assert tokens.trained.tolist() == [trained for one in alone for trained in one.trained.tolist()]
    assert [reject.position for reject in tokens.outcomes.rejects] == [4, 13]


@ENGINES
def test_token_of_several_parts_of_turns_has_all_of_them(engine: str):
    reasoning, content, end = 9, 10, 13  # numbers of parts, and of their message
    texts = [
        text_of("one two", [(4, 7)], parts=[end]),
        text_of("one two", [(0, 4), (4, 5), (5, 7)], 1, parts=[reasoning, content, reasoning]),
        read_row([5, 6], [(1, 2)], 2),  # of another kind: it is encoded apart
    ]
    tokens = make_encoder(EXAMPLES, engine=engine)(make_batch(texts))
    one, two = tokens.ids[: tokens.offsets[1]].tolist()
    assert tokens.ids.tolist() == [one, two, one, two, 5, 6]  # "one" and " two", whose space is reasoning
    assert tokens.parts.tolist() == [[0, 0], [end, 0], [reasoning, 0], [reasoning, content], [0, 0], [0, 0]]
    assert tokens.trained.tolist() == [False, True, True, True, False, True]


# A folder whose files change, and which files count.


def write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> str:
    Tokenizer(models.WordLevel(vocabulary, unk_token="a")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}')
    return str(folder)


@ENGINES
def test_a_tokenizer_that_is_replaced_is_loaded_again(tmp_path: Path, engine: str):
    store = fsspec.filesystem("memory")
    found = []
    for vocabulary in ({"a": 0, "b": 1}, {"a": 1, "b": 0}):  # files of the same names and sizes
        folder = write_tokenizer(tmp_path, vocabulary)
        store.put(folder + "/", "/replaced/", recursive=True)
        found += [tokenize(["b"], url, engine=engine)[0].tolist() for url in (folder, "memory://replaced")]
    assert found == [[1], [1], [0], [0]]


ADDED = {"content": "<new>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
ADDED_FILES: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "a model of the same class": {"config.json": {"model_type": "gpt_neox"}},
    "a model that decides the class": {"config.json": {"model_type": "qwen2"}, "vocab.json": {}, "merges.txt": {}},
    "added tokens in the configuration": {"tokenizer_config.json": {"added_tokens_decoder": {"4000": ADDED}}},
    "a file of added tokens": {"added_tokens.json": {"<other>": 4000}},
    "a map of special tokens": {"special_tokens_map.json": {"cls_token": ADDED, "eos_token": "<|end|>"}},
    "special tokens of its own": {"tokenizer_config.json": {"extra_special_tokens": ["<image>"], "image_token": "<i>"}},
}


@pytest.mark.parametrize("added", ADDED_FILES)
@pytest.mark.parametrize("folder", [EXAMPLES, TRL_TOKENIZER], ids=["examples", "trl"])
def test_a_tokenizer_is_what_auto_tokenizer_loads(folder: str, added: str, tmp_path: Path):
    """Whatever the folder has besides tokenizer.json."""
    for file in Path(folder).iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    for name, content in ADDED_FILES[added].items():
        file = tmp_path / name
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text("" if name == "merges.txt" else json.dumps(before | content))
    expected = AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    texts = ["The wheel  <new> turns", "<other>, <|end|> ", "<image><i>\n", "é <|im_end|></s>", "", "a" * 5000]
    for special_tokens in (False, True):
        for engine in ("auto", "reference"):
            found = tokenize(texts, str(tmp_path), special_tokens=special_tokens, engine=engine)
            ids = expected(texts, add_special_tokens=special_tokens)["input_ids"]
            eos = [expected.eos_token_id] if special_tokens else []
            assert [row.tolist() for row in found] == [row if row[-1:] == eos else row + eos for row in ids]


# Texts that are too long for a tokenizer.


@pytest.mark.slow
def test_text_that_the_tokenizer_cannot_encode_costs_its_own_record_alone():
    texts = [text_of(f"{number} The wheel turns.", position=number) for number in range(40)]
    spaces = text_of("Hello" + " " * 12_000_000 + "world", position=5000)
    for engine, reasons in (("reference", {"engine": 40}), ("auto", {})):
        encoder = make_encoder(str(DEEPSEEK), engine=engine)
        expected, found = encoder(make_batch(texts)), encoder(make_batch([*texts[:20], spaces, *texts[20:]]))
        [reject] = found.outcomes.rejects
        assert (reject.position, reject.reason) == (5000, "tokenizer_failed")
        assert "12,000,010 characters with one piece of white space of 12,000,000" in reject.detail
        assert found.outcomes.tokenized_by_reference == reasons
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.facts.positions, expected.facts.positions)


@pytest.mark.slow
def test_reference_encodes_long_texts_of_a_batch_and_counts_them():
    texts = [text_of("The wheel. " * count, position=count) for count in (10, 200_000, 20)]
    fast, expected = (make_encoder(EXAMPLES, engine=engine)(make_batch(texts)) for engine in ("auto", "reference"))
    assert fast.outcomes.tokenized_by_reference == {"long_text": 1}
    assert fast.outcomes.first_examples["tokenized_by_reference"] == (200_000, "long_text")
    assert np.array_equal(fast.ids, expected.ids)
    assert np.array_equal(fast.offsets, expected.offsets)
