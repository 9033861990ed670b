"""The fast engine gives the same texts, masks and ids as the reference; and what is compared while a build runs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import awkward
import gigatoken
import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from pipeline import main
from support.chats import assistant, make_batch, make_examples, render_config, text_of, user
from support.datasets import digests, read_manifest, write_jsonl
from support.engines import of_any_engine
from support.laws import broken_laws
from support.paths import TOKENIZER
from support.templates import CHATML
from support.tokenizers import LARGE, save_tokenizer
from transforms import ApplyChatTemplate, BuildLabels, CheckParity, InputError, PlainText, PromptCompletion, Tokenize

PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]


def assert_same_rows(folder: Any, batch: Any) -> None:
    """Assert that both engines give the same ids, labels, rejects and notes."""
    found = []
    for engine in ("auto", "reference"):
        tokens = Tokenize(str(folder), engine=engine).function()(batch)
        labels = BuildLabels().function()(tokens)
        by_engine = {name: tokens.outcomes.first_examples.get(name) for name in tokens.outcomes.notes}
        rows = [labels.ids.tolist(), labels.labels.tolist(), labels.offsets.tolist()]
        found.append((rows, labels.outcomes.rejects, labels.outcomes.drops, labels.outcomes.notes, by_engine))
    assert found[0] == found[1]


EVERY_PLANE = "".join(chr(code) for code in range(0, 0x110000, 37) if not 0xD800 <= code < 0xE000)
HOSTILE = {
    "lone surrogates": [user("\ud800"), assistant("\udfff")],
    "NUL": [user("\0"), assistant("\0a\0")],
    "private use": [user("a"), assistant("".join(map(chr, [*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE)])))],
    "every plane": [user("a"), assistant(EVERY_PLANE)],
    "long text": PlainText("\0" + "word " * 100_000),
    "a completion that begins inside a character": PromptCompletion("e", "\u0301 and \u212b"),
}
LONG = {
    "5 MB in one message": [user("go on"), assistant("the wheel turns when the rain comes. " * 140_000)],
    "10,000 turns": PLAIN[:2] * 5_000,
}


@pytest.mark.parametrize(
    ("folder", "content"),
    [pytest.param(folder, HOSTILE[name], id=f"{folder.name}-{name}") for folder in LARGE for name in HOSTILE]
    + [pytest.param(TOKENIZER, content, id=name, marks=pytest.mark.slow) for name, content in LONG.items()],
)
def test_hostile_input_gives_the_same_rows_with_both_engines(folder, content):
    texts = []
    for engine in ("auto", "reference"):
        config = render_config(CHATML, folder, engine=engine)
        texts.append(
            CheckParity(config).function()(ApplyChatTemplate(config).function()(make_examples(content, PLAIN)))
        )
    assert of_any_engine(texts[0]) == of_any_engine(texts[1])
    assert_same_rows(folder, texts[0])


@pytest.mark.parametrize("folder", [TOKENIZER, *LARGE], ids=lambda path: path.name)
@pytest.mark.parametrize("special_tokens", [False, True])
def test_excerpts_of_long_texts_are_the_same_for_both_engines(folder, special_tokens):
    texts = ["Grüße 水車は回る。 e\u0301 <|im_end|>\n" * 3_000, "the wheel turns\n\n" * 1_000]
    spans = [[(-int(special_tokens), 40), (4_000, 9_000)], [(0, 17_000 + special_tokens)]]
    for chunk in range(4):
        some = [
            text_of(text, own, number, special_tokens=special_tokens)
            for number, (text, own) in enumerate(zip(texts, spans, strict=True))
        ]
        assert_same_rows(folder, dataclasses.replace(make_batch(some), chunk=chunk))


# What is compared while a build runs.


APPLY = PreTrainedTokenizerBase.apply_chat_template


@pytest.fixture
def printed(monkeypatch) -> list[str]:
    """What `apply_chat_template` has printed; it returns 7 in the place of 6, which no compiled template does."""
    texts: list[str] = []

    def applied(*given: Any, **options: Any) -> Any:
        text = APPLY(*given, **options)
        if not isinstance(text, str):
            return text
        texts.append(text)
        return text.replace("6", "7")

    monkeypatch.setattr(PreTrainedTokenizerBase, "apply_chat_template", applied)
    return texts


def test_records_whose_compiled_template_differs_are_counted_and_warned_of(printed, tmp_path, capfd):
    records = [{"messages": PLAIN if number % 3 else PLAIN[:2]} for number in range(30)]
    chats = write_jsonl(tmp_path / "chats.jsonl", records)
    options = [f"--input={chats}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}"]
    assert main(["build", *options, f"--chat_template={CHATML}", "--parity=off"]) == 0
    (broken,) = broken_laws(tmp_path / "out")
    assert broken.startswith("a compiled template differs")
    manifest = read_manifest(tmp_path / "out")
    assert manifest["notes"]["compiled_template_differs"] == 20
    first = manifest["first_examples"]["compiled_template_differs"]
    assert (first["file"], first["position"]) == (str(chats), f"byte {len(json.dumps(records[0])) + 1}")
    assert (
        "warning: 20 records whose compiled template differs from apply_chat_template: they were rendered one by one, "
        "their rows are right (docs/engines.md)\n"
    ) in capfd.readouterr().err


def test_rendering_and_parity_compare_a_compiled_template_when_it_is_first_used(printed):
    """Then it is not used, and so not compared again."""
    config = render_config(CHATML)
    batch = make_examples(PLAIN, [user("1+5?"), assistant("6"), user("6+0?"), assistant("Also 6.")])
    texts = ApplyChatTemplate(config).function()(batch)
    assert texts.outcomes.notes == {"compiled_template_differs": 2}
    for function, of in ((ApplyChatTemplate(config).function(), batch), (CheckParity(config).function(), texts)):
        printed.clear()
        function(of)
        assert [text.text for text in texts.texts if text.text in printed] == [texts.texts[0].text]


class GigatokenThatErrs:
    """Gives another id in the place of those of one byte, to texts of a length or to all."""

    def __init__(self, right: Any, length: int | None):
        self.vocab, self.backend, self._right, self._length = right.vocab, self, right.backend, length
        self._of_a_byte = [number for number, token in right.vocab.items() if len(token) == 1]

    def encode_batch(self, texts: Any, parallel: bool) -> Any:
        found = self._right.encode_batch(texts, parallel=parallel)
        if self._length not in (None, len(texts[0])):
            return found
        ids = np.array(found.layout.content.data)
        content = awkward.contents.NumpyArray(np.where(np.isin(ids, self._of_a_byte), 5, ids).astype(ids.dtype))
        return awkward.Array(awkward.contents.ListOffsetArray(found.layout.offsets, content))


@pytest.fixture
def gigatoken_errs(monkeypatch, tmp_path):
    """Gigatoken errs for a tokenizer, whose folder is returned. length: of texts for which it does."""
    load = gigatoken.Tokenizer.from_json

    def errs(length: int | None = None) -> str:
        monkeypatch.setattr(gigatoken.Tokenizer, "from_json", lambda *given: GigatokenThatErrs(load(*given), length))
        return save_tokenizer(tmp_path / "tokenizer", words=[f"of {length} alone"])  # no other test has loaded it

    return errs


OTHER_TOKENS = "gigatoken gives other tokens than tokenizers, from number "


def test_difference_in_the_excerpt_of_a_long_text_is_found(gigatoken_errs):
    text = "the wheel turns when the rain comes. " * 500
    batch = make_batch([text_of(text, [(len(text) - 1, len(text))])])
    with pytest.raises(InputError, match=OTHER_TOKENS):
        Tokenize(gigatoken_errs(4096)).function()(batch)


def test_wrong_token_of_gigatoken_ends_the_build_in_one_line_that_names_the_record(build, tmp_path, gigatoken_errs):
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": PLAIN}] * 9000)
    options = ["--input", chats, "--chat_template", CHATML, "--output", tmp_path / "out", "--parity=off"]
    options += ["--direct_num_workers=1", "--tokenizer", gigatoken_errs()]
    ended = build(*options)
    assert ended.code == 1
    assert "Traceback" not in ended.err and not (tmp_path / "out" / "manifest.json").exists()
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith(f"chatmill: {chats}, byte 0: {OTHER_TOKENS}")
    assert last.endswith(" on. Give --engine reference, which does not use it.")
    assert build(*options, "--engine=reference").code == 0


@pytest.mark.parametrize("special_tokens", [False, True])
def test_records_that_the_tokenizer_normalises_are_counted_once(tmp_path, special_tokens):
    folder = save_tokenizer(tmp_path / "tokenizer")
    state = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(json.dumps(state | {"normalizer": {"type": "NFC"}}))
    texts = {1: ["plain"], 2: ["e\u0301"], 3: ["\u00e9"], 4: ["\u212b", "and", "e\u0301"], 5: ["水"]}
    some = [text_of(text, position=i, special_tokens=special_tokens) for i, own in texts.items() for text in own]
    outcomes = Tokenize(folder).function()(make_batch(some)).outcomes
    assert outcomes.tokenized_by_reference == {"altered_by_normalizer": 2}
    found = "altered_by_normalizer: the tokenizer changes the characters of its text"
    assert outcomes.first_examples == {"tokenized_by_reference": (2, found)}


def test_engines_write_the_same_bytes(build, tmp_path):
    records: list[Any] = [
        {"messages": PLAIN},
        {"messages": [*PLAIN, user("Grüße \0 e\u0301")]},
        {"text": "水車は回る。"},
    ]
    records *= 20
    records += [{"prompt": "2+2=", "completion": "4"}, {"messages": [*PLAIN[:1], assistant("4", weight=0), *PLAIN[:2]]}]
    chats = write_jsonl(tmp_path / "chats.jsonl", records)
    for engine in ("auto", "reference"):
        ended = build("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / engine, "--engine", engine)
        assert ended.code == 0, ended.err
    outputs = [tmp_path / engine for engine in ("auto", "reference")]
    # These two count what each engine did.
    written = [digests(output, "manifest.json", "report.html") for output in outputs]
    assert written[0] == written[1]
    auto, reference = (read_manifest(output) for output in outputs)
    assert auto["records"]["kept"] == len(records)
    assert auto["rendered_by_reference"] == {}
    assert (reference["rendered_by_reference"], reference["tokenized_by_reference"]) == ({"engine": 41}, {"engine": 62})
    for manifest in (auto, reference):  # only these depend on the engine
        for name in ("rendered_by_reference", "tokenized_by_reference"):
            del manifest[name]
            manifest["first_examples"].pop(name, None)
    assert auto == reference
