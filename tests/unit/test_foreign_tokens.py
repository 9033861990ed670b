"""Control tokens of chats that the tokenizer does not have: text that the template of another model rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.chats import assistant, examples_of, render_config, user
from support.paths import SHARED, TOKENIZER
from support.templates import CHATML
from transforms.chat.special_tokens.control_tokens import CONTROL_TOKENS
from transforms.model.examples import PlainText, PromptCompletion
from transforms.model.outcomes import Outcomes
from transforms.steps.render import Renderer

NOTE = "records_with_foreign_tokens_in_content"
OWN = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}
LLAMA3 = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
INST = "[INST] Hi [/INST] Hello"


def outcomes_of(*contents: Any, template: str | None = None, folder: Path = TOKENIZER, **options: Any) -> Outcomes:
    options = {"now": "2026-11-20T12:00:00", "engine": "fast"} | options
    return Renderer(render_config(template, folder, **options))(examples_of(*contents)).outcomes


def foreign(*contents: Any, **options: Any) -> dict[str, int]:
    """How many records have control tokens of other models, in all (as "") and by the token."""
    notes = outcomes_of(*contents, **options).notes
    return {name.removeprefix(NOTE).strip(): count for name, count in notes.items() if name.startswith(NOTE)}


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("mode", ["report", "plain", "reject"])
def test_records_are_counted_by_the_token_and_the_first_is_shown(engine, mode):
    texts = [PlainText("Hi"), PlainText(f"{LLAMA3}{LLAMA3}"), PromptCompletion("[INST] Hi", "<|eot_id|> Hello")]
    chats = [[user(INST), assistant("Hello")], [user("Hi"), assistant("Hello")]]
    outcomes = outcomes_of(*texts, *chats, engine=engine, special_tokens_in_content=mode)
    assert {name: count for name, count in outcomes.notes.items() if name.startswith(NOTE)} == {
        NOTE: 3,
        f"{NOTE} <|start_header_id|>": 1,
        f"{NOTE} <|end_header_id|>": 1,
        f"{NOTE} <|eot_id|>": 2,
        f"{NOTE} [INST]": 2,
        f"{NOTE} [/INST]": 1,
    }
    first = "text holds <|start_header_id|>, <|end_header_id|>, <|eot_id|>"
    assert outcomes.first_examples[NOTE] == (1, first)
    assert not outcomes.special_tokens_in_content and not outcomes.rejects


def test_each_control_token_is_found_unless_it_is_the_tokenizers_own():
    found = {token: foreign(PlainText(f"a {token} b")) for token in CONTROL_TOKENS}
    assert found == {token: {} if token in OWN else {"": 1, token: 1} for token in CONTROL_TOKENS}


@pytest.mark.parametrize(
    "text", ["### Human: Hi### Assistant: Hello", "<s>old</s> [1] <b> <| |> a<|b", "<think>So.</think>", "<|other|>"]
)
def test_text_that_only_looks_similar_is_not_counted(text):
    assert foreign(PlainText(text), [user(text), assistant(text)]) == {}


def test_what_the_template_prints_is_its_own():
    template = "{%- for m in messages -%}{{- '[INST] ' + m.content + ' [/INST]' -}}{%- endfor -%}"
    built = CHATML.replace("'<|im_start|>' + message.role", "'<|' + message.role + '|>'")
    built = built.replace("<|im_start|>assistant", "<|assistant|>")
    assert foreign([user(INST), assistant("Hello")], template=template) == {}
    assert foreign([user("<|user|> [INST]"), assistant("Hello")], template=built) == {"": 1, "[INST]": 1}


def test_allow_counts_nothing():
    assert foreign(PlainText(LLAMA3), special_tokens_in_content="allow") == {}


def test_all_of_a_batch_is_searched_if_a_sample_has_one():
    call = {"type": "function", "function": {"name": "a", "arguments": {"at": INST}}}
    rare = [PlainText("Hi")] * 16 + [PlainText(LLAMA3)] + [PlainText("Hi")] * 100 + [PromptCompletion(INST, "Hello")]
    assert foreign(*rare)[""] == 2
    assert foreign(*[PlainText("Hi")] * 99, [user("Hi"), assistant("", tool_calls=[call])], unprinted="report") == {}
    assert foreign([user("Hi"), assistant("", tool_calls=[call])], unprinted="report")[""] == 1


@pytest.mark.parametrize("text", [f"{LLAMA3}{'word ' * 9999}", f"{'word ' * 9999}{LLAMA3}"])
def test_long_texts_are_found_by_their_ends(text):
    assert foreign(PlainText(text), PlainText("Hi"))[""] == 1


@pytest.mark.parametrize(
    ("tokenizer", "shape", "expected"),
    [
        ("llama3", "chatml_text.jsonl", {"<|im_start|>", "<|im_end|>"}),
        ("mistral", "chatml_text.jsonl", {"<|im_start|>", "<|im_end|>"}),
        ("qwen", "chatml_text.jsonl", set()),
        ("llama3", "guanaco.jsonl", set()),
    ],
)
def test_a_text_in_chatml_is_foreign_to_the_tokenizers_that_do_not_have_it(tokenizer, shape, expected):
    folder, file = SHARED / "tokenizers" / tokenizer, SHARED / "shapes" / shape
    if not (folder.exists() and file.exists()):
        pytest.skip("../shared is absent")
    texts = [PlainText(json.loads(line)["text"]) for line in file.read_text().splitlines() if line]
    assert foreign(*texts, folder=folder).keys() - {""} == expected
