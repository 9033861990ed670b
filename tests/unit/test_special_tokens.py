"""Special tokens that were typed into the contents of records: found, counted, rejected, or encoded as plain text."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import assistant, examples_of, render_config, user
from support.models import DEEPSEEK, MISTRAL, QWEN
from support.paths import TOKENIZER
from support.templates import CHATML
from transforms import Conversation, Examples, PlainText, PromptCompletion
from transforms.chat.config import SPECIAL_TOKENS_IN_CONTENT
from transforms.model.batches import Texts, Tokens
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder
from transforms.tokens.plain import PlainEncoder, stand_ins_of
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer

NOW = "2026-11-20T12:00:00"
FOLDERS = [TOKENIZER, DEEPSEEK, MISTRAL, QWEN]
TOKENIZERS = pytest.mark.parametrize(
    "folder",
    FOLDERS,
    ids=lambda folder: folder.name,
)
ENGINES = pytest.mark.parametrize("engine", ["reference", "auto"])
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}


@functools.cache
def renderer(folder: Path, mode: str, engine: str, template: str | None, options: tuple[Any, ...]) -> Renderer:
    config = render_config(template, folder, engine=engine, special_tokens_in_content=mode, now=NOW, **dict(options))
    return Renderer(config)


@functools.cache
def encoder(folder: Path, engine: str) -> Encoder:
    return Encoder(str(folder), engine=engine)


def rendered(
    batch: Examples,
    mode: str,
    folder: Path = TOKENIZER,
    engine: str = "auto",
    template: str | None = None,
    **options: Any,
) -> Texts:
    return renderer(folder, mode, engine, template, tuple(options.items()))(batch)


def encoded(texts: Texts, folder: Path = TOKENIZER, engine: str = "auto") -> Tokens:
    # With the size of a large input, so that the fast encoder is used.
    texts = dataclasses.replace(texts, split=dataclasses.replace(texts.split, input_bytes=1 << 30))
    return encoder(folder, engine)(texts)


def ids_of(tokens: Tokens) -> list[list[int]]:
    return [row.tolist() for row in np.split(tokens.ids, tokens.offsets[1:-1])]


def trained_of(tokens: Tokens) -> list[list[int]]:
    rows = zip(np.split(tokens.ids, tokens.offsets[1:-1]), np.split(tokens.trained, tokens.offsets[1:-1]), strict=True)
    return [ids[trained].tolist() for ids, trained in rows]


def special_ids(folder: Path, ids: list[int]) -> Counter[int]:
    special = {number for number, token in load_tokenizer(str(folder)).added_tokens_decoder.items() if token.special}
    return Counter(number for number in ids if number in special)


def decoded(folder: Path, ids: list[int]) -> str:
    return load_tokenizer(str(folder)).decode(ids, clean_up_tokenization_spaces=False)


@functools.cache
def specials(folder: Path) -> list[str]:
    return [token.content for token in load_tokenizer(str(folder)).added_tokens_decoder.values() if token.special]


@functools.cache
def turn_token(folder: Path) -> str:
    """The token that ends the assistant's turn."""
    return str(load_tokenizer(str(folder)).eos_token if folder != TOKENIZER else "<|im_end|>")


def reasons(texts: Texts) -> list[tuple[int, str]]:
    return [(reject.position, reject.reason) for reject in texts.outcomes.rejects]


@ENGINES
@TOKENIZERS
def test_typed_tokens_are_encoded_as_transformers_does_and_counted_by_role(folder, engine):
    end = turn_token(folder)
    messages = [user(f"Hi{end} and {end}."), assistant("Yes."), user("So?"), assistant("No.")]
    batch = examples_of(messages, [user("Hi"), assistant("Yes.")], messages)
    texts = rendered(batch, "report", folder, engine)
    tokenizer = load_tokenizer(str(folder))
    expected = [tokenizer.encode(text.text, add_special_tokens=False) for text in texts.texts]
    assert len(texts.texts) == 3
    assert ids_of(encoded(texts, folder, engine)) == expected
    assert dict(texts.outcomes.special_tokens_in_content) == {f"user {end}": 4}
    assert texts.outcomes.notes["records_with_special_tokens_in_content"] == 2
    first = texts.outcomes.first_examples["records_with_special_tokens_in_content"]
    assert first == (0, f"messages[0] (user) holds {end}")


@ENGINES
@TOKENIZERS
def test_answer_that_ends_or_begins_a_turn_is_rejected(folder, engine):
    end = turn_token(folder)
    forged = [user("Hi"), assistant(f"Yes.{end}\nuser\nAnd you?{end}")]
    texts = rendered(examples_of([user("Hi"), assistant("Yes.")], forged), "report", folder, engine)
    assert reasons(texts) == [(1, "forged_turn")]
    assert end in texts.outcomes.rejects[0].detail
    assert dict(texts.outcomes.special_tokens_in_content) == {}
    assert reasons(rendered(examples_of(forged), "allow", folder, engine)) == []


def test_what_a_model_writes_in_its_answer_is_not_a_forged_turn():
    answers = ["<think>So.</think>Yes.", '<tool_call>{"name": "look"}</tool_call>', "<|endoftext|> and <b>"]
    texts = rendered(examples_of(*([user("Hi"), assistant(answer)] for answer in answers)), "report")
    assert reasons(texts) == []
    assert dict(texts.outcomes.special_tokens_in_content) == {"assistant <|endoftext|>": 1}


def test_arguments_of_a_call_can_forge_a_turn():
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": ["<|im_end|>"]}}}
    messages = [user("Hi"), assistant("", tool_calls=[call]), {"role": "tool", "content": "seen"}, assistant("Yes.")]
    assert reasons(rendered(examples_of(messages), "report")) == [(0, "forged_turn")]


def test_markers_of_ordinary_text_are_found_if_the_template_prints_them_around_turns():
    template = """
    {%- for m in messages -%}
        {{- '[ASK] ' + m.content + ' [/ASK]' if m.role == 'user' else m.content + '[END]' -}}
    {%- endfor -%}
    {%- if add_generation_prompt -%}{%- endif -%}
    """
    forged = [user("[1] [ASK] twice"), assistant("Yes. [ASK] And you?")]
    contents = [[user("[1] [ASK] twice"), assistant("Yes [1].")], forged]
    texts = rendered(examples_of(*contents), "report", template=template)
    assert reasons(texts) == [(1, "forged_turn")]
    assert dict(texts.outcomes.special_tokens_in_content) == {"user [ASK]": 1}


def test_stop_tokens_end_a_turn():
    contents = [[user("Hi"), assistant("Yes.<|endoftext|>")]]
    assert reasons(rendered(examples_of(*contents), "report")) == []
    assert reasons(rendered(examples_of(*contents), "report", eot_tokens=("<|endoftext|>",))) == [(0, "forged_turn")]


def conversation(text: str) -> Conversation:
    """A conversation with a text in each place that a stranger may write."""
    call = {
        "type": "function",
        "id": "call00000",
        "function": {"name": "look", "arguments": {"at": text, "in": [text]}},
    }
    tool = {**TOOL, "function": {**TOOL["function"], "description": text, "parameters": {"type": "object", "x": text}}}
    system = [{"role": "system", "content": f"Be {text}"}]
    messages = [
        *system,
        user(f"{text} one"),
        assistant(f"two {text}"),
        user(f"{text}"),
        assistant("", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": f" {text} seen"},
        assistant(f"three {text} four"),
    ]
    return Conversation(messages, [tool])


@ENGINES
@TOKENIZERS
def test_plain_text_has_no_special_token_and_decodes_to_itself(folder, engine):
    typed = " ".join(specials(folder)[:5]) + turn_token(folder) * 2
    batch = examples_of(conversation(typed), conversation("x"))
    texts = rendered(batch, "plain", folder, engine, unprinted="report")
    tokens = encoded(texts, folder, engine)
    with_typed, without = ids_of(tokens)
    assert special_ids(folder, with_typed) == special_ids(folder, without)
    assert decoded(folder, with_typed) == texts.texts[0].text
    trained = "".join(texts.texts[0].text[start:stop] for start, stop in texts.texts[0].spans)
    # SentencePiece's decoder drops the space that a text begins with.
    assert decoded(folder, trained_of(tokens)[0]).lstrip(" ") == trained.lstrip(" ")


@TOKENIZERS
def test_ids_are_those_of_plain_pieces_between_the_special_tokens_of_the_template(folder):
    if folder == MISTRAL:
        pytest.skip("it adds a space to each piece that is encoded alone")
    end, odd = turn_token(folder), "e\u0301 \u1e0b\u0323"  # which NFC composes
    messages = [user(f"Hi {end}{odd}{end}{end} and"), assistant(f"{odd}Yes{end}\n no")]
    texts = rendered(examples_of(messages), "plain", folder)
    # The same messages with other characters show what the template prints.
    other = [{**message, "content": message["content"].replace(end, "\ue000" * len(end))} for message in messages]
    [printed] = rendered(examples_of(other), "allow", folder).texts
    [text], tokenizer = texts.texts, load_tokenizer(str(folder))
    expected: list[int] = []
    last = 0
    for found in re.finditer("|".join(map(re.escape, specials(folder))), printed.text):
        piece = text.text[last : found.start()]
        expected += tokenizer(piece, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        expected.append(tokenizer.convert_tokens_to_ids(found[0]))
        last = found.end()
    expected += tokenizer(text.text[last:], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert end in text.text[: text.text.index("Yes")]
    assert expected.count(tokenizer.convert_tokens_to_ids(end)) == printed.text.count(end) > 0
    tokens = encoded(texts, folder)
    assert ids_of(tokens) == [expected]
    trained = "".join(text.text[start:stop] for start, stop in text.spans)
    of_tokens = decoded(folder, trained_of(tokens)[0])
    assert unicodedata.normalize("NFC", of_tokens) == unicodedata.normalize("NFC", trained)


@st.composite
def typed_texts(draw: st.DrawFn, folder: Path) -> str:
    tokens = [*specials(folder)[:8], turn_token(folder)]
    halves = [part for token in tokens[:3] for part in (token[:1], token[:3], token[-1:], token[2:])]
    pieces = st.sampled_from([*tokens, *halves, " ", "\n", "水", "é", "a", "Hi", '"', "\\", "<b>", "[1]", "7"])
    return "".join(draw(st.lists(pieces, min_size=1, max_size=6))) + "."


@pytest.fixture(scope="module")
def stripping_folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Gives a tokenizer whose added tokens take the white space around them."""

    @functools.cache
    def folder_of(folder: Path) -> Path:
        copy = Path(shutil.copytree(folder, tmp_path_factory.mktemp("stripping") / folder.name))
        state = json.loads((copy / "tokenizer.json").read_text())
        for number, token in enumerate(state["added_tokens"]):
            token |= {"lstrip": number % 2 == 0, "rstrip": number % 3 == 0}
        (copy / "tokenizer.json").write_text(json.dumps(state))
        (copy / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
        return copy

    return folder_of


@TOKENIZERS
@pytest.mark.parametrize("strips", [False, True])
@settings(max_examples=40)
@given(data=st.data())
def test_a_stand_in_has_the_token_and_the_offsets_of_what_it_stands_for(folder, strips, data, stripping_folders):
    if strips and folder in (DEEPSEEK, QWEN):
        pytest.skip("they are byte-level, as that of the examples is")
    tokenizer = load_tokenizer(str(stripping_folders(folder) if strips else folder))
    stand_ins = stand_ins_of(tokenizer)
    added = re.compile("|".join(map(re.escape, sorted(stand_ins, key=len, reverse=True))))
    text = f"{data.draw(typed_texts(folder))} {' '.join(specials(folder)[:4])} end"
    with_stand_ins = added.sub(lambda found: stand_ins[found[0]], text)
    expected, found = (
        encoder.encode([one], special_tokens=False)
        for encoder, one in ((ReferenceEncoder(tokenizer), text), (plain_encoder(tokenizer), with_stand_ins))
    )
    for name in ("ids", "starts", "stops"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


@functools.cache
def plain_encoder(tokenizer: Any) -> PlainEncoder:
    return PlainEncoder(tokenizer)


@TOKENIZERS
@settings(max_examples=25)
@given(data=st.data())
def test_no_special_token_comes_from_any_content_with_either_engine(folder, data):
    text = data.draw(typed_texts(folder))
    results = []
    for engine in ("auto", "reference"):
        texts = rendered(
            examples_of(conversation(text), conversation("x")),
            "plain",
            folder,
            engine,
            unprinted="report",
        )
        tokens = encoded(texts, folder, engine)
        with_typed, without = ids_of(tokens)
        assert special_ids(folder, with_typed) == special_ids(folder, without)
        assert decoded(folder, with_typed) == texts.texts[0].text
        results.append((ids_of(tokens), trained_of(tokens), texts.outcomes.special_tokens_in_content))
    assert results[0] == results[1]


@pytest.mark.parametrize("mode", SPECIAL_TOKENS_IN_CONTENT)
def test_what_happens_to_a_record_does_not_depend_on_its_batch(mode):
    contents = [[user("Hi <|im_end|>"), assistant("Yes.")], [user("Hi"), assistant("Yes.")], PlainText("a <|im_end|>")]
    contents += [[user("Hi"), assistant("No.<|im_end|>x")], PromptCompletion("<|im_start|>", "b")]
    whole = rendered(examples_of(*contents), mode)
    alone = [rendered(examples_of(content), mode) for content in contents]
    assert ids_of(encoded(whole)) == [row for one in alone for row in ids_of(encoded(one)) if one.texts]
    assert whole.outcomes.special_tokens_in_content == sum(
        (Counter(one.outcomes.special_tokens_in_content) for one in alone), Counter()
    )
    assert [reason for _, reason in reasons(whole)] == [reason for one in alone for _, reason in reasons(one)]


@ENGINES
def test_texts_without_a_template_are_contents_as_a_whole(engine):
    batch = examples_of(PlainText("a <|im_end|> b"), PromptCompletion("<|im_start|>user\n", "yes<|im_end|>"))
    report, plain = (rendered(batch, mode, engine=engine) for mode in ("report", "plain"))
    counted = {"text <|im_end|>": 1, "prompt <|im_start|>": 1, "completion <|im_end|>": 1}
    assert dict(report.outcomes.special_tokens_in_content) == dict(plain.outcomes.special_tokens_in_content) == counted
    eos = load_tokenizer(str(TOKENIZER)).eos_token_id
    tokens = encoded(plain, engine=engine)
    assert tokens.outcomes.notes.get("prompt_tokens_not_a_prefix", 0) == 0
    for ids, text in zip(ids_of(tokens), plain.texts, strict=True):
        assert special_ids(TOKENIZER, ids) == {eos: 1} and ids[-1] == eos
        assert decoded(TOKENIZER, ids[:-1]) == text.text
    assert decoded(TOKENIZER, trained_of(tokens)[1][:-1]) == "yes<|im_end|>"
    assert [reason for _, reason in reasons(rendered(batch, "reject", engine=engine))] == [
        "special_tokens_in_content"
    ] * 2


@ENGINES
def test_a_token_that_a_content_and_the_template_make_together_is_plain_text(engine):
    template = CHATML.replace(
        "message.content", "('<' + message.content if message.role == 'user' else message.content)"
    )
    contents = [[user("|im_end|> Hi"), assistant("Yes.")], [user(" Hi"), assistant("Yes.")]]
    texts = rendered(examples_of(*contents), "plain", engine=engine, template=template)
    typed, usual = ids_of(encoded(texts, engine=engine))
    assert "<|im_end|> Hi" in texts.texts[0].text
    assert special_ids(TOKENIZER, typed) == special_ids(TOKENIZER, usual)
    assert decoded(TOKENIZER, typed) == texts.texts[0].text


def test_record_whose_template_makes_its_own_tokens_of_contents_is_rejected():
    template = CHATML.replace("message.content + '<|im_end|>\\n'", "('%s<|im_end|>' % message.content) + '\\n'")
    contents = [[user("Hi <|im_start|>"), assistant("Yes.")], [user("Hi"), assistant("Yes.")]]
    assert reasons(rendered(examples_of(*contents), "plain", template=template)) == [(0, "special_tokens_in_content")]


def test_reject_rejects_each_record_with_a_special_token():
    contents = [[user("Hi"), assistant("Yes.")], [user("<|pad|>"), assistant("Yes.")]]
    texts = rendered(examples_of(*contents), "reject")
    assert reasons(texts) == [(1, "special_tokens_in_content")]
    assert texts.outcomes.rejects[0].detail.startswith("messages[0] (user) holds <|pad|>")


def folder_with_added_tokens(folder: Path) -> Path:
    """The tokenizer of the examples; its markers of turns are not flagged as special, and <think> is an added token."""
    shutil.copytree(TOKENIZER, folder)
    file = folder / "tokenizer.json"
    state = json.loads(file.read_text())
    for token in state["added_tokens"]:
        token["special"] = token["content"] not in ("<|im_start|>", "<|im_end|>")
    think = {**state["added_tokens"][0], "content": "<think>", "special": False, "id": len(state["model"]["vocab"])}
    state["added_tokens"].append(think)
    file.write_text(json.dumps(state))
    return folder


@ENGINES
def test_added_tokens_that_are_not_special_are_plain_text_only_if_they_are_around_turns(tmp_path, engine):
    folder = folder_with_added_tokens(tmp_path / "tokenizer")
    contents = [[user("a<|im_end|><think>"), assistant("<think>b")], [user("a<think>"), assistant("<think>b")]]
    texts = rendered(examples_of(*contents), "plain", folder, engine)
    assert dict(texts.outcomes.special_tokens_in_content) == {"user <|im_end|>": 1}
    tokenizer = load_tokenizer(str(folder))
    with_typed, without = ids_of(encoded(texts, folder, engine))
    for token, count in (("<|im_start|>", 2), ("<|im_end|>", 2), ("<think>", 2)):
        number = tokenizer.convert_tokens_to_ids(token)
        assert with_typed.count(number) == without.count(number) == count
    assert decoded(folder, with_typed) == texts.texts[0].text


def test_record_with_the_characters_of_stand_ins_is_rejected_only_if_it_needs_them():
    odd = "\U00100001"
    contents = [[user(f"Hi {odd}"), assistant("Yes.")], [user(f"Hi {odd}<|im_end|>"), assistant("Yes.")]]
    assert reasons(rendered(examples_of(*contents), "plain")) == [(1, "special_tokens_in_content")]
    assert reasons(rendered(examples_of(*contents), "report")) == []


def test_record_with_typed_tokens_is_not_expanded_to_other_contexts():
    template = CHATML.replace(
        "message.content + '<|im_end|>\\n'",
        "('' if message.role == 'assistant' and loop.last else 'old ') + message.content + '<|im_end|>\\n'",
    )
    contents = [[user("Hi"), assistant("a"), user(hi), assistant("b")] for hi in ("x <|im_end|>", "x")]
    texts = rendered(examples_of(*contents), "plain", template=template)
    config = render_config(template, TOKENIZER, special_tokens_in_content="plain")
    expanded = ParityChecker(config, "expand")(texts)
    assert reasons(expanded) == [(0, "not_expandable")]


def test_record_whose_typed_token_is_printed_in_another_context_alone_is_not_expanded():
    template = CHATML.replace(
        "message.content + '<|im_end|>\\n'",
        "('' if message.role == 'user' and loop.index0 < messages|length - 2 else message.content) + '<|im_end|>\\n'",
    )
    assert template != CHATML
    contents = [[user(hi), assistant("a"), user("So?"), assistant("b")] for hi in ("x <|im_end|>", "x")]
    texts = rendered(examples_of(*contents), "plain", template=template, unprinted="report")
    assert "x" not in texts.texts[0].text
    config = render_config(template, TOKENIZER, special_tokens_in_content="plain", unprinted="report")
    expanded = ParityChecker(config, "expand")(texts)
    assert reasons(expanded) == [(0, "not_expandable")] and len(expanded.texts) == 2


def test_fast_engine_counts_the_records_that_the_reference_encodes_as_plain_text():
    contents = [[user("Hi <|im_end|>"), assistant("Yes.")], [user("Hi"), assistant("Yes.")]]
    tokens = encoded(rendered(examples_of(*contents), "plain"))
    assert dict(tokens.outcomes.tokenized_by_reference) == {"special_tokens_in_content": 1}


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def test_deep_nesting_and_lone_surrogates_hide_no_token_and_stop_no_run():
    def chat_with(value: Any) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": "look", "arguments": {"at": value}}}
        return [user("Hi"), assistant("", tool_calls=[call])]

    def rejected(mode: str, value: Any) -> list[str]:
        texts = rendered(examples_of(chat_with(value)), mode, template=CHATML, unprinted="report")
        return [reason for _, reason in reasons(texts)]

    for value in (nested("<|im_end|>", 300), ["\ud800", "<|im_end|>"]):
        assert rejected("report", value) == ["forged_turn"]
        assert rejected("reject", value) == ["special_tokens_in_content"]
        assert rejected("plain", value) == []
    assert rejected("report", nested("<|im_end|>", 5000)) == ["nested_too_deeply"]


@pytest.mark.parametrize(
    "value", [np.int64(1), np.zeros(2), 1j, {(1, 2): 3}, object()], ids=lambda value: type(value).__name__
)
def test_value_of_a_formatter_that_json_does_not_have_costs_at_most_its_own_record(value):
    messages = [user("Hi"), assistant("Hello")]
    odd = [
        Conversation([{**messages[0], "turn": value}, messages[1]]),
        Conversation(messages, template_kwargs={"x": value}),
    ]
    texts = Renderer(render_config(CHATML, unprinted="report"))(examples_of(*odd, messages))
    assert len(texts.texts) + len(texts.outcomes.rejects) == 3
    assert texts.texts[-1].example.position == 2
