"""Which template renders a conversation, and the real conversations of the examples as transformers masks them."""

from __future__ import annotations

import copy
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from support.chats import assistant, make_examples, render_config, user
from support.engines import read_outcomes
from support.paths import CHATS, TOKENIZER
from support.templates import CHATML, MARKED
from transforms import (
    ApplyChatTemplate,
    CheckParity,
    Conversation,
    ParameterError,
    PlainText,
    PromptCompletion,
    RecordError,
    render,
)

MARKERS = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")
HELLO = [user("Hi"), assistant("Hello")]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
CLOCK = "{{ strftime_now('%Y') }}"


@pytest.mark.slow
def test_real_conversations_have_the_ids_and_the_masks_of_transformers_also_without_markers():
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    without = MARKERS.sub(r"{%\1 set marked = 1 \2%}", tokenizer.chat_template)
    assert without != tokenizer.chat_template
    compared = weighted = 0
    for line in (CHATS / "support.jsonl").read_bytes().splitlines():
        try:
            record = json.loads(line)
            given = {"messages": record["messages"], "tools": record.get("tools"), "tokenizer": str(TOKENIZER)}
            made = render(**given)
        except (ValueError, KeyError, RecordError):
            continue  # malformed records of the corpus
        expected = tokenizer.apply_chat_template(
            record["messages"], tools=record.get("tools"), return_dict=True, return_assistant_tokens_mask=True
        )
        # A turn of weight 0 is not trained on. Each turn is one run of ones.
        turns = iter([message for message in record["messages"] if message["role"] == "assistant"])
        mask, weight = list[int](), 0
        for before, one in zip([0, *expected["assistant_masks"]], expected["assistant_masks"], strict=False):
            weight = next(turns).get("weight", 1) if one > before else weight
            mask.append(one * weight)
        pairs = zip(expected["input_ids"], mask, strict=True)
        assert made.input_ids == expected["input_ids"]
        assert made.labels == [token if trained else -100 for token, trained in pairs]
        assert render(**given, chat_template=without) == made
        compared += 1
        weighted += any(message.get("weight") == 0 for message in record["messages"])
    assert compared > 390 and weighted > 10


def test_threads_that_render_at_the_same_time_have_separate_masks():
    """Runners process bundles in threads of one process, which share the compiled template."""
    conversations = [[user("Hi"), *(assistant(f"{n}, {i}") for i in range(20))] for n in range(100)]
    given: dict[str, Any] = {"tokenizer": str(TOKENIZER), "chat_template": MARKED}
    expected = [render(messages, **given) for messages in conversations]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda messages: render(messages, **given), conversations)) == expected
    finally:
        sys.setswitchinterval(before)


def test_messages_that_are_rendered_are_not_changed():
    messages = [user([{"type": "text", "text": text} for text in "ab"]), assistant("c", weight=1)]
    given = copy.deepcopy(messages)
    assert render(given, tokenizer=str(TOKENIZER), chat_template=MARKED).text
    assert given == messages


def save_with_templates(folder: Path, template: str | None = None, **named: str) -> Path:
    """Save the example tokenizer with these templates, in the format of transformers, and return its folder."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TOKENIZER / name).read_bytes())
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    for name, text in named.items():
        (folder / "additional_chat_templates").mkdir(exist_ok=True)
        (folder / "additional_chat_templates" / f"{name}.jinja").write_text(text)
    return folder


def test_conversations_with_tools_have_a_template_of_their_own_and_one_that_is_given_is_for_all(tmp_path: Path):
    folder = save_with_templates(tmp_path, CHATML, tool_use="USES TOOLS" + CHATML)
    records = [{"messages": HELLO}, {"messages": HELLO, "tools": TOOLS}]
    printed = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello<|im_end|>\n⟧"
    assert read_outcomes(records, None, folder, unprinted="report").becomes == [printed, f"USES TOOLS{printed}"]
    assert read_outcomes(records, CHATML, folder, unprinted="report").becomes == [printed, printed]


@pytest.mark.parametrize("named", [{}, {"tool_use": CHATML}], ids=["none", "only_for_tools"])
def test_conversation_without_a_template_is_rejected_with_advice(tmp_path: Path, named: dict[str, str]):
    folder = save_with_templates(tmp_path, None, **named)
    found = read_outcomes([{"text": "a"}, {"messages": HELLO}, {"text": "b"}], None, folder)
    assert found.becomes == ["⟦‹a›⟧", {"rejected": "no_chat_template"}, "⟦‹b›⟧"]
    assert re.search(r"no chat template.*give chat_template", found.said)


@pytest.mark.parametrize("template", [CLOCK, None], ids=["given", "of_the_tokenizer"])
@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_template_that_prints_the_date_is_refused_if_now_is_not_given(
    template: str | None, engine: str, tmp_path: Path
):
    """Otherwise each worker would print the time of its own clock."""
    folder = save_with_templates(tmp_path, CHATML, tool_use=CLOCK)
    config = render_config(template, folder, engine=engine)
    apply = ApplyChatTemplate(config).function()
    texts = CheckParity(config).function()(apply(make_examples(PlainText("no template is needed"))))
    assert texts.texts[0].text == "no template is needed"
    with pytest.raises(ParameterError, match=r"now=None: the chat template prints the date"):
        apply(make_examples(Conversation(HELLO, TOOLS)))


@pytest.mark.parametrize(
    "content", [PlainText("a\ud800"), PromptCompletion("a", "\udfff"), Conversation([user("\ud83d")])]
)
@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_text_that_is_not_unicode_is_refused(content: Any, engine: str):
    texts = ApplyChatTemplate(render_config(CHATML, engine=engine)).function()(make_examples(content, HELLO))
    assert [(reject.position, reject.reason) for reject in texts.outcomes.rejects] == [(0, "invalid_unicode")]
    assert len(texts.texts) == 1
