"""Parts of a turn: each is what it is said to be, all together are the turn, and they reach the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.cases import framed
from support.chats import assistant, examples_of, render_config, user
from support.models import DEEPSEEK
from support.paths import TOKENIZER
from support.templates import CHATML, DROPS_REASONING, MARKED, models_and_odd, templates_of_models
from transforms import Conversation, Example, PlainText, RecordError
from transforms.chat.rendering.template import load_template
from transforms.chat.spans.turn_search import merged
from transforms.model.examples import Text
from transforms.rows.columns import column_of
from transforms.rows.parts import KINDS, PART_COLUMNS, PARTS
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

QWEN = [user("Is 8 prime?"), assistant("No.", reasoning_content="It is even.")]
# What a user reads in docs/masks.md.
CALL = {"type": "function", "function": {"name": "look", "arguments": {"a": 1}}}
THOUGHT = [user("Is 8 prime?"), assistant("<think>It is even.</think>\n\nNo.")]


def pieces(text: Text) -> list[tuple[str, int, str]]:
    """The part, the message and the characters of each span."""
    assert text.parts is not None
    return [
        (KINDS[part & 7], part >> 3, text.text[start:stop])
        for (start, stop), part in zip(text.spans, text.parts, strict=True)
    ]


def rendered(messages: list[dict[str, Any]], template: str, **options: Any) -> Text:
    (text,) = Renderer(render_config(template, **{"part_columns": True, **options}))(
        examples_of(Conversation(messages))
    ).texts
    return text


@pytest.mark.parametrize(
    ("name", "messages", "expected"),
    [
        ("qwen3", [user("Is 8 prime?"), assistant("No.", reasoning_content="It is even.")], [
            ("reasoning", 1, "<think>\nIt is even.\n</think>\n\n"), ("content", 1, "No."), ("end", 1, "<|im_end|>"),
            ("after_end", 1, "\n"),
        ]),
        ("qwen3_5_think", [user("Is 8 prime?"), assistant("No.", reasoning_content="It is even.")], [
            ("reasoning", 1, "It is even.\n</think>\n\n"), ("content", 1, "No."), ("end", 1, "<|im_end|>"),
            ("after_end", 1, "\n"),
        ]),
        ("qwen2_5", [user("Look."), assistant("Yes.", tool_calls=[CALL, CALL])], [
            ("content", 1, "Yes."),
            ("tool_calls", 1, '\n<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>' * 2),
            ("end", 1, "<|im_end|>"), ("after_end", 1, "\n"),
        ]),
        ("gptoss", [user("Is 8 prime?"), assistant("No.", reasoning_content="It is even.")], [
            ("template", 1, "<|channel|>analysis<|message|>"), ("reasoning", 1, "It is even."),
            ("template", 1, "<|end|><|start|>assistant<|channel|>final<|message|>"), ("content", 1, "No."),
            ("end", 1, "<|return|>"),
        ]),
    ],
)  # fmt: skip
def test_parts_of_real_templates(name: str, messages: list[dict[str, Any]], expected: list[Any]):
    assert pieces(rendered(messages, templates_of_models()[name], now="2026-11-20")) == expected


def test_parts_add_up_to_what_is_trained_on_and_begin_after_the_generation_prompt():
    """Under templates of models and odd ones, and for the headers that it prints itself, without any mark or source."""
    whole, after_prompt = set(), set()
    for name, source in models_and_odd().items():
        given = {"now": "2026-11-20", "unprinted": "report", "special_tokens_in_content": "allow", "folder": DEEPSEEK}
        config = render_config(source, **given)
        template = load_template(config)
        plain, parted = Renderer(config), Renderer(render_config(source, **given, part_columns=True))
        for seed in range(12):
            one = framed(seed)
            example = Example(0, Conversation(one.messages, one.tools), {}, False, b"")
            try:
                expected = plain.render(example)
            except RecordError:
                continue
            try:
                found = parted.render(example)
            except RecordError as error:
                assert error.reason == "parts_not_established"
                continue
            assert merged(found.spans) == expected.spans, (name, seed)
            (fast,) = parted(examples_of(Conversation(one.messages, one.tools))).texts
            assert (fast.spans, fast.parts) == (found.spans, found.parts), (name, seed)
            whole.add(name)
            of_turns = pieces(found)
            for word in [word for word in one.reasoning if word in found.text]:
                assert not any(word in text for kind, _, text in of_turns if kind in ("content", "tool_calls", "end"))
            for turn in {message for _, message, _ in of_turns}:
                try:
                    before = Conversation(one.messages[:turn], one.tools)
                    history, prompt = template.render(before), template.render(before, True)
                except RecordError:
                    continue
                start = next(
                    s for (s, _), (_, message, _) in zip(found.spans, of_turns, strict=True) if message == turn
                )
                if found.text.startswith(prompt) and history != prompt:  # it prints a header
                    assert start == len(prompt), (name, seed, turn)
                    after_prompt.add(name)
    assert len(whole) >= 30 and len(after_prompt) >= 20, (len(whole), len(after_prompt))


def rows_of(*contents: Any, template: str = CHATML, pack: dict[str, Any] | None = None, **options: Any) -> Any:
    config = render_config(template, **options)
    labels = build_labels(Encoder(str(TOKENIZER))(Renderer(config)(examples_of(*contents))))
    return Packer(**pack or {})(labels)


def decoded(ids: np.ndarray) -> str:
    from transforms.tokens.tokenizer import load_tokenizer

    return load_tokenizer(str(TOKENIZER)).decode(ids.tolist())


@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["unmarked", "marked"])
@pytest.mark.parametrize(
    ("parts", "trained"),
    [
        (("reasoning",), "<think>It is even.</think>"),
        (("content", "end"), "No.<|im_end|>"),
        (("reasoning", "content"), "<think>It is even.</think>\n\nNo."),
        (PARTS, "<think>It is even.</think>\n\nNo.<|im_end|>\n"),
    ],
)
def test_chosen_parts_alone_are_trained_on(template: str, parts: tuple[str, ...], trained: str):
    table = rows_of(Conversation(THOUGHT), template=template, train_parts=parts).train
    assert decoded(table.ids[table.labels != -100]).strip() == trained.strip()


def test_all_parts_are_the_turn_as_it_is_without_parts():
    plain, parted = (rows_of(Conversation(THOUGHT), train_parts=parts).train for parts in (None, PARTS))
    assert plain.labels.tolist() == parted.labels.tolist() and plain.parts is None


@pytest.mark.parametrize("pack", [{}, {"shift_labels": True}, {"max_length": 96, "packing": "bfd"},
                                  {"max_length": 24, "packing": "wrapped", "shift_labels": True},
                                  {"max_length": 40, "truncation": "windows"}])  # fmt: skip
def test_columns_say_of_each_label_which_part_it_is(pack: dict[str, Any]):
    contents = [Conversation([*THOUGHT, user("And 9?"), assistant("Nor is 9.")]), Conversation(THOUGHT)]
    rows = rows_of(*contents, pack=pack, part_columns=True)
    table = rows.train
    (lengths, offsets), (kinds, _), (messages, _) = (column_of(table, name) for name in PART_COLUMNS)
    assert np.add.reduceat(lengths, offsets[:-1]).tolist() == np.diff(table.offsets).tolist()
    kinds, messages = np.repeat(kinds, lengths), np.repeat(messages, lengths)
    trained = table.labels != -100
    assert (kinds[trained] > 0).all() and {*messages[trained].tolist()} <= {1, 3}
    for kind, words in (
        ("reasoning", "<think>It is even.</think>"),
        ("content", "No. Nor is 9."),
        ("end", "<|im_end|>"),
    ):
        text = decoded(table.labels[trained & (kinds == KINDS.index(kind))])
        assert text and all(character in words + "\n" for character in text), (kind, text)
    counts = {kind: int(np.sum(kinds[trained] == KINDS.index(kind))) for kind in KINDS}
    assert rows.outcomes.statistics.parts == {kind: count for kind, count in counts.items() if count}


def test_parity_compares_whole_turns_and_finds_the_parts_of_the_rows_that_it_makes():
    messages = [
        *QWEN,
        user("And 9?"),
        assistant("Nor is 9.", reasoning_content="3 * 3."),
        user("Good."),
        assistant("!"),
    ]
    contents = examples_of(*[Conversation(messages)] * 3)
    for parity in ("report", "reject", "expand"):
        config = render_config(DROPS_REASONING, unprinted="report")
        whole = ParityChecker(config, parity)(Renderer(config)(contents))
        config = render_config(DROPS_REASONING, unprinted="report", train_parts=("reasoning", "content"))
        found = ParityChecker(config, parity)(Renderer(config)(contents))
        assert found.outcomes.notes == whole.outcomes.notes and found.outcomes.notes["parity_turns_differing"]
        assert [text.text for text in found.texts] == [text.text for text in whole.texts]
        assert [merged(text.spans) for text in found.texts] == [text.spans for text in whole.texts]
    assert found.trained_parts
    trained = [[piece for piece in pieces(text) if piece[0] in found.trained_parts] for text in found.texts]
    assert trained[:3] == [
        [("reasoning", 1, "<think>It is even.</think>"), ("content", 1, "No.")],
        [("reasoning", 3, "<think>3 * 3.</think>"), ("content", 3, "Nor is 9.")],
        [("content", 5, "!")],
    ]


def test_what_is_not_known_rejects_the_record_only_if_parts_are_asked_for():
    half = Conversation([user("Hi"), assistant("<think>It is even. No.")])
    assert len(Renderer(render_config(CHATML))(examples_of(half)).texts) == 1
    (reject,) = Renderer(render_config(CHATML, train_parts=("content",)))(examples_of(half)).outcomes.rejects
    assert reject.reason == "parts_not_established" and "messages[1]" in reject.detail


def test_texts_without_turns_have_no_parts():
    text = PlainText("The wheel turns")
    (reject,) = Renderer(render_config(CHATML, train_parts=("content",)))(examples_of(text)).outcomes.rejects
    assert reject.reason == "loss_not_applicable"
    assert rows_of(text, Conversation(THOUGHT), part_columns=True).outcomes.statistics.parts["none"] > 0
