"""Tokenize: ids and offsets are the same as in transformers, for every kind of tokenizer, text and batch."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, processors
from transformers import AutoTokenizer

from support.chats import batch_of, text_of
from support.datasets import rows_of, write_jsonl
from support.models import DEEPSEEK, MODELS, TOKENIZERS
from support.paths import ROOT, TOKENIZER
from support.tokenizers import save_tokenizer
from transforms import Example, PlainText
from transforms.model.batches import Tokens
from transforms.model.examples import Span, Text
from transforms.rows.parts import code_of
from transforms.steps.label import build_labels
from transforms.steps.tokenize import Encoder
from transforms.tokens.fast_encoder import FastEncoder, load_fast_encoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer

EXAMPLES = str(TOKENIZER)
TRL = ROOT / "tests" / "trl"
TRL_TOKENIZER = str(TRL / "tokenizer")

# (id, start, stop), in characters of its own text.
Token = tuple[int, int, int]


def row_of(ids: list[int], spans: Iterable[Span] = ((0, 1),), position: int = 0) -> Text:
    return text_of("", spans, position, token_ids=np.array(ids, np.int32))


def tokens_of(encoder: Encoder, texts: list[Text]) -> list[list[Token]]:
    """Return the tokens of each text, in characters of that text. None may be rejected.

    The texts are encoded once for each character, which alone is trained on. So the characters of each token are known.
    """

    def with_span(text: Text, start: int) -> Text:
        around = int(text.special_tokens)
        length = len(text.text) if text.token_ids is None else len(text.token_ids)
        exists = -around <= start < length + around
        return msgspec.structs.replace(text, spans=[(start, start + 1)] if exists else [])

    starts = range(-1, max((len(text.text) for text in texts), default=0) + 3)
    tokens = encoder(batch_of([with_span(text, start) for start in starts for text in texts]))
    assert not tokens.outcomes.rejects
    ids, trained = (np.split(flat, tokens.offsets[1:-1]) for flat in (tokens.ids, tokens.trained))
    found: list[list[Token]] = []
    for number in range(len(texts)):
        row = ids[number].tolist()
        assert all(again.tolist() == row for again in ids[number :: len(texts)])
        of_tokens = np.stack(trained[number :: len(texts)]).T
        edges = [np.flatnonzero(of_token)[[0, -1]] for of_token in of_tokens]
        found.append([(i, int(first) - 1, int(last)) for i, (first, last) in zip(row, edges, strict=True)])
    return found


def labels_of(encoder: Encoder, text: Text) -> list[int]:
    """Return the labels of one text; all are ignored if the row is dropped."""
    tokens = encoder(batch_of([text]))
    assert not tokens.outcomes.rejects
    labels = build_labels(tokens)
    return labels.labels.tolist() or [-100] * len(tokens.ids)


def same(one: Tokens, other: Tokens) -> bool:
    """Return whether the ids and the trained tokens of all rows are the same."""
    rows = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("ids", "offsets", "trained"))
    return rows and one.outcomes == other.outcomes


@functools.cache
def reference(folder: str) -> Any:
    """Load a tokenizer by transformers. A large one is shared with the encoder, because loading takes a second."""
    return load_tokenizer(folder) if Path(folder).is_relative_to(MODELS) else AutoTokenizer.from_pretrained(folder)


def transformers_tokens(folder: str, text: str, special_tokens: bool = False) -> list[Token]:
    encoded = reference(folder)(text, add_special_tokens=special_tokens, return_offsets_mapping=True)
    # A token of no length counts as the character at its start.
    edges = [(start, max(stop, start + 1)) for start, stop in encoded["offset_mapping"]]
    return [(i, *own) for i, own in zip(encoded["input_ids"], edges, strict=True)]


@functools.cache
def encoder_of(folder: str, strip_bos: bool = False, engine: str = "reference") -> Encoder:
    return Encoder(folder, strip_bos, engine)


def with_specials(single: str) -> Any:
    return processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 1)])


@pytest.fixture(scope="module")
def bos_and_eos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("bos_and_eos"), with_specials("<s> $A </s>"))


@pytest.fixture(scope="module")
def bos_only(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("bos_only"), with_specials("<s> $A"))


@pytest.fixture(scope="module")
def no_eos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("no_eos"), special_tokens={})


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

FAST = [EXAMPLES, TRL_TOKENIZER, *map(str, TOKENIZERS)]
fast = pytest.mark.parametrize("folder", FAST, ids=lambda folder: "-".join(Path(folder).parts[-2:]))
LAW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fast
def test_tokens_and_their_offsets_are_the_same_as_in_transformers(folder: str):
    encoder = encoder_of(folder)

    @LAW
    @given(st.lists(texts, max_size=4))
    @example(["Zoë e\u0301 \u1e0b\u0323 ▁ 👩‍👧 水車\n", "", " ", "<|im_end|></s>"])
    def check(some: list[str]):
        rows = tokens_of(encoder, [text_of(text) for text in some])
        assert rows == [transformers_tokens(folder, text) for text in some]

    check()


@fast
def test_plain_text_has_the_same_tokens_and_one_eos(folder: str):
    encoder, eos = encoder_of(folder), reference(folder).eos_token_id

    @LAW
    @given(texts)
    @example("ends itself</s>")
    @example("ends itself<|im_end|>")
    @example("ends itself<|eot_id|>")
    def check(text: str):
        (row,) = tokens_of(encoder, [text_of(text, special_tokens=True)])
        theirs = transformers_tokens(folder, text)
        ends_itself = bool(theirs) and theirs[-1][0] == eos
        assert row == (theirs if ends_itself else [*theirs, (eos, len(text), len(text) + 1)])

    check()


def test_special_tokens_have_the_offsets_before_and_after_the_text(bos_and_eos: str):
    @LAW
    @given(st.lists(texts, max_size=3))
    @example(["a", "</s>", "<s>a</s>"])
    def check(some: list[str]):
        rows = tokens_of(encoder_of(bos_and_eos), [text_of(text, special_tokens=True) for text in some])
        for text, row in zip(some, rows, strict=True):
            plain = transformers_tokens(bos_and_eos, text)
            ids = [token for token, _, _ in transformers_tokens(bos_and_eos, text, True)]
            has_bos = text.startswith("<s>")  # so that it gets no other one
            assert [token for token, _, _ in row] == ids[has_bos:]
            if plain:
                assert row == [*[(0, -1, 0)][has_bos:], *plain, (1, len(text), len(text) + 1)]

    check()


def test_special_tokens_that_a_text_spells_out_have_the_offsets_of_their_spelling(bos_and_eos: str):
    (row,) = tokens_of(encoder_of(bos_and_eos), [text_of("<s>a</s>", special_tokens=True)])
    assert [token for token in row if token[0] in (0, 1)] == [(0, 0, 3), (1, 4, 8), (1, 8, 9)]


def test_eos_is_added_if_the_tokenizer_adds_none(bos_only: str):
    (row,) = tokens_of(encoder_of(bos_only), [text_of("a", special_tokens=True)])
    assert row == [(0, -1, 0), *transformers_tokens(bos_only, "a"), (1, 1, 2)]


def test_no_eos_is_added_if_the_tokenizer_has_none(no_eos: str):
    (row,) = tokens_of(encoder_of(no_eos), [text_of("a", special_tokens=True)])
    assert row == transformers_tokens(no_eos, "a")


def test_conversations_have_only_the_special_tokens_of_the_template(bos_and_eos: str):
    (row,) = tokens_of(encoder_of(bos_and_eos), [text_of("<s>a</s>")])
    assert [token for token, _, _ in row if token in (0, 1)] == [0, 1]


def test_strip_bos_removes_one_bos_at_the_start(bos_and_eos: str):
    some = [
        text_of("a", special_tokens=True),
        text_of("<s>a"),
        text_of("<s><s>a"),
        text_of("a<s>"),
        text_of("<s>"),
        text_of(""),
        row_of([0, 0, 40]),
        row_of([40, 0]),
    ]
    (a, _, _), *_ = transformers_tokens(bos_and_eos, "a")
    kept, stripped = (
        [[token for token, _, _ in row] for row in tokens_of(encoder_of(bos_and_eos, strip), some)]
        for strip in (False, True)
    )
    assert kept == [[0, a, 1], [0, a], [0, 0, a], [a, 0], [0], [], [0, 0, 40], [40, 0]]
    assert stripped == [[a, 1], [a], [0, a], [a, 0], [], [], [0, 40], [40, 0]]


def test_strip_bos_changes_no_other_token(bos_and_eos: str):
    (row,) = tokens_of(encoder_of(bos_and_eos, True), [text_of("<s>a b", special_tokens=True)])
    assert row == [*transformers_tokens(bos_and_eos, "<s>a b")[1:], (1, 6, 7)]


def test_strip_bos_removes_nothing_if_the_tokenizer_has_no_bos(no_eos: str):
    assert tokens_of(encoder_of(no_eos, True), [text_of("<s>a")]) == [transformers_tokens(no_eos, "<s>a")]


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
    assert transformers_tokens(trimming, text) != transformers_tokens(plain, text)  # otherwise this test shows nothing

    (row,) = tokens_of(Encoder(trimming, engine="reference"), [text_of(text)])

    assert row == transformers_tokens(plain, text)


@pytest.mark.parametrize("post_processor", ["Sequence", "Roberta"])
def test_special_tokens_are_still_added_if_offsets_include_white_space(tmp_path: Path, post_processor: str):
    folder = save_tokenizer(tmp_path, TRIMMING[post_processor]())
    (row,) = tokens_of(Encoder(folder, engine="reference"), [text_of(" a ", special_tokens=True)])
    assert (row[0], row[-1]) == ((0, -1, 0), (1, 3, 4))
    assert [token for token, _, _ in row] == reference(folder)(" a ")["input_ids"]


def test_token_is_trained_if_only_its_white_space_is(tmp_path: Path):
    folder = save_tokenizer(tmp_path, processors.ByteLevel(trim_offsets=True))
    (_, wheel) = transformers_tokens(folder, "The wheel")[:2]
    assert labels_of(Encoder(folder), text_of("The wheel", [(3, 4)]))[:2] == [-100, wheel[0]]


def test_record_is_rejected_as_a_whole_if_one_of_its_texts_is_rejected():
    texts = [
        text_of("a b", position=0),
        text_of("a b", position=1),
        row_of([10**6], position=1),
        text_of("a b", position=2),
    ]
    tokens = encoder_of(EXAMPLES)(batch_of(texts))
    assert [reject.record for reject in tokens.outcomes.rejects] == [b"record 1"]
    assert tokens.source.positions.tolist() == [0, 2]


# Rows that are already tokenized.


def test_rows_of_token_ids_pass_through_with_their_trained_tokens():
    labels = build_labels(
        encoder_of(EXAMPLES)(batch_of([row_of([7, 8, 9, 7], [(1, 2), (3, 4)]), row_of([5], [(0, 1)])]))
    )
    assert labels.ids.tolist() == [7, 8, 9, 7, 5]
    assert labels.labels.tolist() == [-100, 8, -100, 7, 5]
    assert labels.offsets.tolist() == [0, 4, 5]


def test_row_of_one_token_passes_through():
    labels = build_labels(encoder_of(EXAMPLES)(batch_of([row_of([5])])))
    assert labels.labels.tolist() == [5]


def test_row_with_an_id_that_is_not_in_the_vocabulary_is_rejected_and_no_other_row():
    size = len(reference(EXAMPLES))
    some = [
        row_of([size - 1], position=10),
        row_of([3, size], position=20),
        text_of("a", position=30),
        row_of([2**31 - 1], position=40),
    ]
    tokens = encoder_of(EXAMPLES)(batch_of(some))
    assert tokens.source.positions.tolist() == [10, 30]
    assert [(reject.position, reject.reason, reject.record) for reject in tokens.outcomes.rejects] == [
        (20, "bad_tokens", b"record 20"),
        (40, "bad_tokens", b"record 40"),
    ]
    assert tokens.outcomes.rejects[0].detail == f"input_ids holds {size}; the tokenizer has the ids 0 to {size - 1}"


def test_id_after_a_gap_in_the_vocabulary_is_known(tmp_path: Path):
    """In some vocabularies ids are missing, so the largest id is not their size minus one."""
    Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}')
    tokens = Encoder(str(tmp_path))(batch_of([row_of([7], position=1), row_of([8], position=2)]))
    assert tokens.source.positions.tolist() == [1]
    assert [reject.position for reject in tokens.outcomes.rejects] == [2]


# Prompts and batches.


def test_prompts_whose_tokens_do_not_begin_the_whole_text_are_counted():
    lines = (TRL / "inputs" / "standard_prompt_completion.jsonl").read_text("utf-8").splitlines()
    pairs = [(record["prompt"], record["completion"]) for record in map(json.loads, lines)]
    expected = 0
    for prompt, completion in pairs:
        whole, begin = (reference(TRL_TOKENIZER)(text)["input_ids"] for text in (prompt + completion, prompt))
        expected += whole[: len(begin)] != begin
    assert 0 < expected < len(pairs)

    some = [
        text_of(p + c, [(len(p), len(p + c) + 1)], i, special_tokens=special_tokens, prompt=p)
        for special_tokens in (True, False)
        for i, (p, c) in enumerate(pairs)
    ]
    notes = encoder_of(TRL_TOKENIZER)(batch_of(some)).outcomes.notes
    assert notes["prompt_tokens_not_a_prefix"] == 2 * expected


def test_special_tokens_after_a_prompt_do_not_count_as_its_tokens(bos_and_eos: str):
    some = [text_of("The wheel turns", [(9, 16)], special_tokens=True, prompt="The wheel")]
    assert encoder_of(bos_and_eos)(batch_of(some)).outcomes.notes == {}


def test_completion_that_begins_inside_a_token_trains_that_token():
    (token, *_) = [
        token for token in transformers_tokens(TRL_TOKENIZER, "counts the sacks") if token[1] < 13 < token[2]
    ]
    labels = labels_of(
        encoder_of(TRL_TOKENIZER), text_of("counts the sacks", [(13, 17)], special_tokens=True, prompt="counts the sa")
    )
    assert [label for label in labels if label != -100] == [token[0], reference(TRL_TOKENIZER).eos_token_id]


def mixed() -> list[Text]:
    kinds: list[Callable[[int], Text]] = [
        lambda i: text_of(f"plain {i} 猫", [(-1, 9)], i, special_tokens=True),
        lambda i: text_of(f"chat {i} <|im_end|>\n", [(2, 5)], i),
        lambda i: row_of([i, i + 1], [(0, 2)], i),
        lambda i: text_of(f"sa{i}cks", [(2, 7)], i, special_tokens=True, prompt="sa"),
        lambda i: row_of([10**6], [(0, 1)], i),  # an id that is rejected
        lambda i: text_of("", [], i),
    ]
    order = [0, 1, 2, 2, 4, 3, 3, 0, 5, 1, 1, 2, 0, 4, 3, 1, 5, 5, 2]
    return [kinds[kind](position) for position, kind in enumerate(order)]


def test_texts_of_all_kinds_keep_their_order_and_their_tokens():
    encoder = encoder_of(EXAMPLES)
    alone = [encoder(batch_of([text])) for text in mixed()]

    tokens = encoder(batch_of(mixed()))

    assert tokens.source.positions.tolist() == [p for one in alone for p in one.source.positions.tolist()]
    assert tokens.ids.tolist() == [token for one in alone for token in one.ids.tolist()]
    assert [reject.position for reject in tokens.outcomes.rejects] == [4, 13]
    labels, labels_alone = build_labels(tokens), [build_labels(one) for one in alone]
    assert labels.labels.tolist() == [label for one in labels_alone for label in one.labels.tolist()]
    assert labels.source.positions.tolist() == [p for one in labels_alone for p in one.source.positions.tolist()]


@pytest.mark.parametrize("characters_at_once", [1, 7, 20])
def test_number_of_characters_per_call_does_not_change_the_tokens(
    monkeypatch: pytest.MonkeyPatch, characters_at_once: int
):
    whole = encoder_of(EXAMPLES)(batch_of(mixed()))
    monkeypatch.setattr(ReferenceEncoder, "characters_at_once", characters_at_once)
    assert same(encoder_of(EXAMPLES)(batch_of(mixed())), whole)


def test_a_call_of_the_tokenizer_ends_with_the_text_that_reaches_characters_at_once(monkeypatch: pytest.MonkeyPatch):
    some = [text_of("four"), text_of("five!"), text_of("sixsix"), text_of("x")]
    monkeypatch.setattr(ReferenceEncoder, "characters_at_once", 8)
    chunks: list[list[str]] = []
    encode = ReferenceEncoder.encode
    monkeypatch.setattr(
        ReferenceEncoder, "encode", lambda self, texts, *how: chunks.append(texts) or encode(self, texts, *how)
    )
    encoder_of(EXAMPLES)(batch_of(some))
    assert chunks == [["four", "five!"], ["sixsix", "x"]]


def test_batch_without_texts_becomes_a_batch_without_tokens():
    tokens = encoder_of(EXAMPLES)(batch_of([]))
    assert tokens.offsets.tolist() == [0]
    assert [len(values) for values in (tokens.ids, tokens.trained)] == [0, 0]
    assert len(build_labels(tokens).ids) == 0


def test_kept_columns_and_validation_stay_with_their_row():
    columns = [{"id": "a", "n": None}, {"id": None, "n": "2"}]
    some = [
        Text(Example(position, PlainText("a"), columns[position], position == 1, b""), "a", [(0, 1)])
        for position in (0, 1)
    ]
    source = encoder_of(EXAMPLES)(batch_of(some)).source
    assert source.columns.to_pylist() == columns
    assert source.validation.tolist() == [False, True]


LOADING = """
import sys, threading, time
from transforms.tokens.fast_encoder import load_fast_encoder
from transforms.chat.rendering.transformers_jinja import compile_template
from transforms.tokens.tokenizer import load_tokenizer

loads = [
    lambda: load_tokenizer(sys.argv[1]),
    lambda: compile_template("{{ bos_token }}"),
    lambda: load_fast_encoder(sys.argv[1]),
]
loaded = [[], [], []]

def load(number):
    time.sleep(number / 500)
    loaded[number % 3].append(loads[number % 3]())

threads = [threading.Thread(target=load, args=[number]) for number in range(90)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([(len(ones), len(set(map(id, ones)))) for ones in loaded])
"""


def test_threads_that_load_at_the_same_time_load_once():
    """The threads start one after another, so some call it at each moment of the import of transformers."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING, EXAMPLES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[(30, 1), (30, 1), (30, 1)]\n", done.stderr


# A folder whose files change.


def write_tokenizer(folder: Path, words: Iterable[str]) -> str:
    """Write a tokenizer whose ids are the positions of the words."""
    Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?")).save(
        str(folder / "tokenizer.json")
    )
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}')
    return str(folder)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_tokenizer_that_is_replaced_in_its_folder_is_loaded_again(tmp_path: Path, engine: str):
    folder = write_tokenizer(tmp_path, ["?", "a", "b"])
    first = Encoder(folder, engine=engine)
    assert load_tokenizer(folder) is load_tokenizer(folder)
    write_tokenizer(tmp_path, ["?", "b", "a"])  # files of the same names and sizes
    second = Encoder(folder, engine=engine)
    assert [encoder(batch_of([text_of("b")])).ids.tolist() for encoder in (first, second)] == [[2], [1]]


def test_folders_with_the_same_files_share_a_tokenizer(tmp_path: Path):
    first, second = (str(shutil.copytree(EXAMPLES, tmp_path / name)) for name in "ab")
    assert load_tokenizer(first) is load_tokenizer(second)
    (tmp_path / "b" / "chat_template.jinja").write_text("another")
    assert load_tokenizer(first).chat_template != load_tokenizer(second).chat_template == "another"


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


@pytest.mark.parametrize(
    ("folder", "added"),
    [
        *((folder, added) for folder in (EXAMPLES, TRL_TOKENIZER) for added in ADDED_FILES),
        *((str(folder), "nothing else") for folder in TOKENIZERS),
    ],
)
def test_a_tokenizer_is_what_auto_tokenizer_loads(folder: str, added: str, tmp_path: Path):
    """Whatever the folder has besides tokenizer.json. load_tokenizer finds classes and added tokens in a faster way."""
    for file in Path(folder).iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    for name, content in ADDED_FILES[added].items():
        file = tmp_path / name
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text("" if name == "merges.txt" else json.dumps(before | content))
    expected = AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    found = load_tokenizer(str(tmp_path))
    assert type(found) is type(expected)
    assert state_of(found) == state_of(expected)


def state_of(tokenizer: Any) -> dict[str, Any]:
    """All that decides what a tokenizer does. load_tokenizer changes trim_offsets; the folder is not of interest."""
    state = {name: repr(value) for name, value in vars(tokenizer).items() if name not in ("_tokenizer", "name_or_path")}
    kwargs = {name: repr(value) for name, value in tokenizer.init_kwargs.items() if name != "name_or_path"}
    backend = tokenizer.backend_tokenizer.to_str().replace('"trim_offsets":true', '"trim_offsets":false')
    return state | {"init_kwargs": kwargs, "backend": backend}


def test_a_fast_encoder_is_loaded_again_if_the_files_in_its_folder_change(tmp_path: Path):
    folder = str(shutil.copytree(EXAMPLES, tmp_path / "tokenizer"))
    first = load_fast_encoder(folder)
    assert load_fast_encoder(folder) is first
    shutil.copytree(TRL_TOKENIZER, folder, dirs_exist_ok=True)
    second = load_fast_encoder(folder)
    assert isinstance(first, FastEncoder) and isinstance(second, FastEncoder)
    ids = [encoder.encode(["The wheel turns"], False).ids.tolist() for encoder in (first, second)]
    assert ids == [reference(folder)("The wheel turns")["input_ids"] for folder in (EXAMPLES, TRL_TOKENIZER)]


def test_a_tokenizer_that_is_replaced_in_a_store_is_loaded_again(tmp_path: Path):
    store = fsspec.filesystem("memory")
    ids = []
    for words in (["?", "a", "b"], ["?", "b", "a"]):
        store.put(write_tokenizer(tmp_path, words) + "/", "/replaced/", recursive=True)
        ids.append(load_tokenizer("memory://replaced")("b")["input_ids"])
    assert ids == [[2], [1]]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_build_that_overwrites_with_another_tokenizer_uses_the_new_one(build, tmp_path: Path, engine: str):
    text = "The wheel turns when the rain comes."
    corpus, output = write_jsonl(tmp_path / "corpus.jsonl", [{"text": text}]), tmp_path / "out"
    for folder in (EXAMPLES, TRL_TOKENIZER):
        ended = build(
            "--input", corpus, "--tokenizer", folder, "--output", output, "--overwrite", "--engine", engine
        )  # fmt: skip
        assert ended.code == 0, ended.err
        [row] = rows_of(output)
        assert row["input_ids"] == [*reference(folder)(text)["input_ids"], reference(folder).eos_token_id]


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_token_of_several_parts_of_turns_has_all_of_them(engine: str):
    reasoning, content, end = (code_of(part, 1) for part in ("reasoning", "content", "end"))
    texts = [
        msgspec.structs.replace(text_of("one two", [(4, 7)]), parts=[end]),
        msgspec.structs.replace(
            text_of("one two", [(0, 4), (4, 5), (5, 7)], 1),
            parts=[reasoning, content, reasoning],
        ),
        msgspec.structs.replace(row_of([5, 6], [(1, 2)], 2)),  # of another kind: it is encoded apart
    ]
    tokens = Encoder(EXAMPLES, engine=engine)(batch_of(texts))
    assert tokens.parts is not None
    one, two = tokens.ids[: tokens.offsets[1]].tolist()
    assert tokens.ids.tolist() == [one, two, one, two, 5, 6]  # "one" and " two", whose space is reasoning
    assert tokens.parts.tolist() == [[0, 0], [end, 0], [reasoning, 0], [reasoning, content], [0, 0], [0, 0]]
    assert tokens.trained.tolist() == [False, True, True, True, False, True]


@pytest.mark.parametrize("at", [0, 20, 40])
def test_text_that_the_tokenizer_cannot_encode_costs_its_own_record_alone(at):
    folder = str(DEEPSEEK)
    texts = [text_of(f"{number} The wheel turns.", position=number) for number in range(40)]
    spaces = text_of("Hello" + " " * 12_000_000 + "world", position=5000)
    for engine, reasons in (("reference", {"engine": 40}), ("auto", {})):
        encoder = Encoder(folder, engine=engine)
        expected, found = encoder(batch_of(texts)), encoder(batch_of([*texts[:at], spaces, *texts[at:]]))
        [reject] = found.outcomes.rejects
        assert (reject.position, reject.reason) == (5000, "tokenizer_failed")
        assert "12,000,010 characters with one piece of white space of 12,000,000" in reject.detail
        assert found.outcomes.tokenized_by_reference == reasons
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.source.positions, expected.source.positions)


def test_text_that_the_tokenizer_strips_is_kept_next_to_one_that_it_cannot_encode(tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(str(DEEPSEEK))
    tokenizer.backend_tokenizer.normalizer = normalizers.Strip(left=False)
    tokenizer.save_pretrained(tmp_path)
    stripped, whole = text_of("hello world\n", [(0, 5)], 0), text_of("hello", position=2)
    spaces = text_of("Hello" + " " * 12_000_000 + "world", position=1)
    encoder = Encoder(str(tmp_path), engine="reference")
    expected, found = encoder(batch_of([stripped, whole])), encoder(batch_of([stripped, spaces, whole]))
    assert [(reject.position, reject.reason) for reject in found.outcomes.rejects] == [(1, "tokenizer_failed")]
    assert found.source.positions.tolist() == [0, 2]
    assert np.array_equal(found.ids, expected.ids)


def test_reference_encodes_long_texts_of_a_batch_and_counts_them():
    texts = [text_of("The wheel. " * count, position=count) for count in (10, 200_000, 20)]
    fast, expected = (Encoder(EXAMPLES, engine=engine)(batch_of(texts)) for engine in ("auto", "reference"))
    assert fast.outcomes.tokenized_by_reference == {"long_text": 1}
    assert fast.outcomes.first_examples["tokenized_by_reference"] == (200_000, "long_text")
    assert np.array_equal(fast.ids, expected.ids)
    assert np.array_equal(fast.offsets, expected.offsets)
