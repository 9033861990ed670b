"""Parts of a turn: each is what it is said to be, all together are the turn, and they reach the rows."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from support.cases import framed
from support.chats import assistant, make_examples, render_config, user
from support.datasets import read_manifest, read_rows, write_jsonl
from support.models import DEEPSEEK
from support.paths import TOKENIZER
from support.templates import CHATML, DROPS_REASONING, MARKED, model_templates, models_and_odd
from support.transformers_text import TransformersText
from transforms import ApplyChatTemplate, CheckParity, Conversation

KINDS = ("none", "reasoning", "content", "tool_calls", "template", "end", "after_end")
NOW = datetime(2026, 11, 20)
# What a user reads in docs/masks.md.
CALL = {"type": "function", "function": {"name": "look", "arguments": {"a": 1}}}
THOUGHT = [user("Is 8 prime?"), assistant("<think>It is even.</think>\n\nNo.")]
QWEN = [user("Is 8 prime?"), assistant("No.", reasoning_content="It is even.")]


def renderer(template: str, engine: str = "auto", **options: Any) -> Any:
    return ApplyChatTemplate(render_config(template, engine=engine, now=NOW.isoformat(), **options)).function()


def pieces(text: Any) -> list[tuple[str, int, str]]:
    """The part, the message and the characters of each span."""
    return [
        (KINDS[part & 7], part >> 3, text.text[start:stop])
        for (start, stop), part in zip(text.spans, text.parts, strict=True)
    ]


ENDS = [("end", 1, "<|im_end|>"), ("after_end", 1, "\n")]


@pytest.mark.parametrize(
    ("name", "messages", "expected"),
    [
        ("qwen3", QWEN, [("reasoning", 1, "<think>\nIt is even.\n</think>\n\n"), ("content", 1, "No."), *ENDS]),
        ("qwen3_5_think", QWEN, [("reasoning", 1, "It is even.\n</think>\n\n"), ("content", 1, "No."), *ENDS]),
        ("qwen2_5", [user("Look."), assistant("Yes.", tool_calls=[CALL, CALL])], [
            ("content", 1, "Yes."),
            ("tool_calls", 1, '\n<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>' * 2), *ENDS,
        ]),
        ("gptoss", QWEN, [
            ("template", 1, "<|channel|>analysis<|message|>"), ("reasoning", 1, "It is even."),
            ("template", 1, "<|end|><|start|>assistant<|channel|>final<|message|>"), ("content", 1, "No."),
            ("end", 1, "<|return|>"),
        ]),
        ("gptoss", [user("Look."), assistant("", tool_calls=[CALL])], [  # it prints one call of a turn
            ("tool_calls", 1, ' to=functions.look<|channel|>commentary json<|message|>{"a": 1}'),
            ("end", 1, "<|call|>"),
        ]),
        ("llama3_1", [user("Look."), assistant("", tool_calls=[CALL])], [  # it refuses two calls
            ("tool_calls", 1, '{"name": "look", "parameters": {"a": 1}}'), ("end", 1, "<|eot_id|>"),
        ]),
        ("glm4moe", [user("Look."), assistant("", tool_calls=[CALL])], [  # nothing ends the turn
            ("reasoning", 1, "\n<think></think>\n"),
            ("tool_calls", 1, "<tool_call>look\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"),
        ]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_parts_of_real_templates(name: str, messages: list[dict[str, Any]], expected: list[Any], engine: str):
    (text,) = renderer(model_templates()[name], engine, part_columns=True)(make_examples(messages)).texts
    assert pieces(text) == expected


@pytest.mark.slow
def test_parts_add_up_to_what_is_trained_on_and_begin_after_the_generation_prompt():
    """Under templates of models and odd ones, and for the headers that it prints itself, without any mark or source."""
    whole, after_prompt = set(), set()
    for name, source in models_and_odd().items():
        given = {"unprinted": "report", "special_tokens_in_content": "allow", "folder": DEEPSEEK}
        plain, parted = (renderer(source, **given, part_columns=has_parts) for has_parts in (False, True))
        reference, apply = (
            renderer(source, "reference", **given, part_columns=True),
            TransformersText(source, DEEPSEEK, NOW),
        )
        for seed in range(8):
            one = framed(seed)
            batch = make_examples(Conversation(one.messages, one.tools))
            expected, found = plain(batch).texts, parted(batch)
            if not expected or found.outcomes.rejects:
                assert not expected or found.outcomes.rejects[0].reason == "parts_not_established"
                continue
            assert [(text.spans, text.parts) for text in reference(batch).texts] == [
                (text.spans, text.parts) for text in found.texts
            ]
            [text] = found.texts
            assert characters(text) == characters(expected[0]), (name, seed)
            whole.add(name)
            of_turns = pieces(text)
            for word in [word for word in one.reasoning if word in text.text]:
                assert not any(word in text for kind, _, text in of_turns if kind in ("content", "tool_calls", "end"))
            starts = zip(text.spans, of_turns, strict=True)
            for turn, own in groupby(starts, key=lambda pair: pair[1][1]):
                before = apply.prepared(one.messages[:turn])
                history, prompt = (apply.apply(before, one.tools, has_prompt) for has_prompt in (False, True))
                if before and prompt and text.text.startswith(prompt) and history != prompt:  # it prints a header
                    assert next(own)[0][0] == len(prompt), (name, seed, turn)
                    after_prompt.add(name)
    assert len(whole) >= 30 and len(after_prompt) >= 20, (len(whole), len(after_prompt))


def characters(text: Any) -> set[int]:
    return {at for start, stop in text.spans for at in range(start, stop)}


@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["unmarked", "marked"])
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("reasoning",), "<think>It is even.</think>"),
        (("content", "end"), "No.<|im_end|>"),
        (("reasoning", "content"), "<think>It is even.</think>\n\nNo."),
        (KINDS[1:], "<think>It is even.</think>\n\nNo.<|im_end|>\n"),
    ],
)
def test_chosen_parts_alone_are_trained_on(build, tmp_path, template: str, parts: tuple[str, ...], expected: str):
    [row], _ = built(build, tmp_path, [THOUGHT], f"--train_parts={','.join(parts)}", template=template)
    trained = decoded([label for label in row["labels"] if label != -100])
    assert trained.strip() == expected.strip()


def built(build, tmp_path, chats: list[Any], *options: str, template: str = CHATML) -> tuple[list[Any], Any]:
    """The rows of a build, and its manifest."""
    records = [{"messages": chat} if isinstance(chat, list) else chat for chat in chats]
    given = ["--input", write_jsonl(tmp_path / "chats.jsonl", records), "--tokenizer", TOKENIZER]
    ended = build(*given, "--chat_template", template, "--output", tmp_path / "out", *options)
    assert ended.code == 0, ended.err
    return read_rows(tmp_path / "out"), read_manifest(tmp_path / "out")


def decoded(ids: Any) -> str:
    return AutoTokenizer.from_pretrained(TOKENIZER).decode(list(ids))


@pytest.mark.parametrize("pack", [["--packing=none"], ["--packing=none", "--shift_labels"],
                                  ["--max_length=96", "--packing=bfd"],
                                  ["--max_length=24", "--packing=wrapped", "--shift_labels"],
                                  ["--max_length=40", "--packing=none", "--truncation=windows"]])  # fmt: skip
def test_columns_say_of_each_label_which_part_it_is(build, tmp_path, pack: list[str]):
    chats = [[*THOUGHT, user("And 9?"), assistant("Nor is 9.")], THOUGHT, *[{"text": "The wheel turns"}] * 2]
    columns = "--write_columns=input_ids,labels,seq_lengths,part_lengths,part_kinds,part_messages"
    rows, manifest = built(build, tmp_path, chats, columns, *pack)
    counts, text_of = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, "")
    for row in rows:
        kinds, messages = (np.repeat(row[name], row["part_lengths"]) for name in ("part_kinds", "part_messages"))
        labels = np.array(row["labels"])
        assert len(kinds) == len(labels) == len(row["input_ids"])
        for number, kind in enumerate(KINDS):
            own = (labels != -100) & (kinds == number)
            counts[kind] += int(np.sum(own))
            text_of[kind] += decoded(labels[own])
            assert {*messages[own].tolist()} <= ({1, 3} if number else {-1})
    for kind, words in (
        ("reasoning", "<think>It is even.</think>"),
        ("content", "No. Nor is 9."),
        ("end", "<|im_end|>"),
    ):
        assert text_of[kind] and all(character in words + "\n" for character in text_of[kind]), (kind, text_of[kind])
    assert "wheel turns" in text_of["none"] or "--packing=wrapped" in pack
    assert manifest["statistics"]["parts"] == {kind: count for kind, count in counts.items() if count}


def test_parity_compares_whole_turns_and_finds_the_parts_of_the_rows_that_it_makes():
    messages = [
        *QWEN,
        user("And 9?"),
        assistant("Nor is 9.", reasoning_content="3 * 3."),
        user("Good."),
        assistant("!"),
    ]
    contents = make_examples(messages, messages, messages)
    for parity in ("report", "reject", "expand"):
        configs = [
            render_config(DROPS_REASONING, unprinted="report", train_parts=parts)
            for parts in (None, ("reasoning", "content"))
        ]
        whole, found = (
            CheckParity(config, parity=parity).function()(ApplyChatTemplate(config).function()(contents))
            for config in configs
        )
        assert found.outcomes.notes == whole.outcomes.notes and found.outcomes.notes["parity_turns_differing"]
        assert [text.text for text in found.texts] == [text.text for text in whole.texts]
        assert [characters(text) for text in found.texts] == [characters(text) for text in whole.texts]
    trained = [[piece for piece in pieces(text) if piece[0] in ("reasoning", "content")] for text in found.texts]
    assert trained[:3] == [
        [("reasoning", 1, "<think>It is even.</think>"), ("content", 1, "No.")],
        [("reasoning", 3, "<think>3 * 3.</think>"), ("content", 3, "Nor is 9.")],
        [("content", 5, "!")],
    ]
