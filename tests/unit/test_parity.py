from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, render_config, user
from support.datasets import manifest_of, rows_of, write_jsonl
from support.paths import SHARED, TOKENIZER
from support.templates import CHATML, MARKED, OPENS_REASONING
from transforms.chat.template import load_template
from transforms.model.batches import Examples, Texts
from transforms.model.examples import Conversation, Example
from transforms.model.outcomes import Outcomes
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

# As Qwen 3 and others do: reasoning is printed behind the last user's message, and dropped in front of it.
DROPS_EARLIER = """
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.reasoning_content and loop.index0 > ns.last -%}
        {{- '<think>' + message.reasoning_content + '</think>' -}}
    {%- endif -%}
    {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
MARKED_DROPS_EARLIER = DROPS_EARLIER.replace(
    "    {%- if message.reasoning_content",
    "    {%- if message.role == 'assistant' -%}{%- generation -%}\n    {%- if message.reasoning_content",
).replace(
    "    {{- message.content + '<|im_end|>\\n' -}}\n{%- endfor",
    "    {{- message.content + '<|im_end|>\\n' -}}{%- endgeneration -%}\n"
    "    {%- else -%}{{- message.content + '<|im_end|>\\n' -}}{%- endif -%}\n{%- endfor",
)
# Its own messages do not show that it looks at what the first message says.
LOOKS_FOR_A_WORD = CHATML.replace(
    "message.content + '<|im_end|>", "message.content + ('!' if 'loud' in messages[-1].content else '') + '<|im_end|>"
)
REFUSES_NOTHING = "{%- if not messages -%}{{- raise_exception('no messages') -}}{%- endif -%}" + CHATML
BOTH_WAYS = pytest.mark.parametrize(
    "template", [DROPS_EARLIER, MARKED_DROPS_EARLIER], ids=["without_markers", "with_markers"]
)
NO_FLAW = {"parity_records_checked": 1, "parity_turns_checked": 3}

# The second answer was given with the first one's reasoning in sight, as a user's message had not yet followed.
WITH_A_TOOL = [
    user("2+2?"),
    assistant("add(2, 2)", reasoning_content="A sum."),
    {"role": "tool", "content": "4"},
    assistant("It is 4.", reasoning_content="The tool says 4."),
    user("And 4+4?"),
    assistant("8"),
]
PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6"), user("4+4?"), assistant("8")]


def rendered(template: str, *conversations: Conversation, loss_on: str = "auto") -> Texts:
    examples = [Example(number, content, {}, False, b"{}") for number, content in enumerate(conversations)]
    batch = Examples(SPLIT, 0, True, Outcomes(read=len(examples)), examples)
    return Renderer(render_config(template, loss_on=loss_on))(batch)


def checked(template: str, *conversations: Any, parity: str = "report", loss_on: str = "auto") -> Texts:
    conversations = tuple(c if isinstance(c, Conversation) else Conversation(c) for c in conversations)
    checker = ParityChecker(render_config(template, loss_on=loss_on), parity=parity)
    return checker(rendered(template, *conversations, loss_on=loss_on))


def trained(batch: Texts) -> list[list[str]]:
    return [[text.text[start:stop] for start, stop in text.spans] for text in batch.texts]


@BOTH_WAYS
def test_turns_of_another_context_are_counted_and_the_first_is_shown(template):
    batch = checked(template, PLAIN, WITH_A_TOOL)
    assert dict(batch.outcomes.notes) == {
        "parity_records_checked": 2,
        "parity_turns_checked": 6,
        "parity_turns_differing": 2,
        "parity_records_differing": 1,
    }
    position, how = batch.outcomes.first_examples["parity_records_differing"]
    assert position == 1
    assert how == "messages[1]: the training text leaves out the reasoning before the answer"
    assert batch.texts == rendered(template, Conversation(PLAIN), Conversation(WITH_A_TOOL)).texts
    assert not batch.outcomes.rejects


def test_where_the_contexts_part_is_shown():
    weightless = [*WITH_A_TOOL[:1], WITH_A_TOOL[1] | {"weight": 0}, *WITH_A_TOOL[2:]]
    batch = checked(DROPS_EARLIER, weightless)
    how = batch.outcomes.first_examples["parity_records_differing"][1]
    assert how.startswith("messages[3]: the training text has ")
    assert "⟪add(2, 2)" in how
    assert "⟪<think>A sum." in how


@BOTH_WAYS
def test_expand_makes_a_text_of_each_context(template):
    batch = checked(template, PLAIN, WITH_A_TOOL, PLAIN, parity="expand")
    assert [text.example.position for text in batch.texts] == [0, 1, 1, 2]
    assert trained(batch)[1:3] == [
        ["<think>A sum.</think>add(2, 2)<|im_end|>\n", "<think>The tool says 4.</think>It is 4.<|im_end|>\n"],
        ["8<|im_end|>\n"],
    ]
    assert "A sum." not in batch.texts[2].text
    assert trained(batch)[0] == ["4<|im_end|>\n", "6<|im_end|>\n", "8<|im_end|>\n"]


@BOTH_WAYS
def test_reject_has_its_own_reason(template):
    batch = checked(template, PLAIN, WITH_A_TOOL, parity="reject")
    assert [text.example.position for text in batch.texts] == [0]
    assert [(reject.position, reject.reason) for reject in batch.outcomes.rejects] == [(1, "differs_from_inference")]


@pytest.mark.parametrize("parity", ["report", "expand", "reject"])
def test_conversation_without_an_answer_has_no_turn_to_look_at(parity):
    batch = checked(CHATML, PLAIN[:1], PLAIN, parity=parity)
    assert dict(batch.outcomes.notes) == NO_FLAW
    assert len(batch.texts) == 2


def test_off_looks_at_nothing():
    batch = checked(DROPS_EARLIER, WITH_A_TOOL, parity="off")
    assert batch == rendered(DROPS_EARLIER, Conversation(WITH_A_TOOL))


def test_turn_whose_generation_prompt_no_history_shows_is_not_expandable():
    assert checked(OPENS_REASONING, PLAIN).outcomes.notes["parity_turns_differing"] == 3
    batch = checked(OPENS_REASONING, PLAIN, parity="expand")
    assert [reject.reason for reject in batch.outcomes.rejects] == ["not_expandable"]
    assert "<think>" in batch.outcomes.rejects[0].detail
    assert not batch.texts


def test_turn_before_which_the_template_renders_nothing():
    greeting = [assistant("Hello."), *PLAIN]
    assert dict(checked(CHATML, greeting).outcomes.notes) == {"parity_records_checked": 1, "parity_turns_checked": 4}
    batch = checked(REFUSES_NOTHING, greeting)
    assert batch.outcomes.notes["parity_turns_differing"] == 1
    assert "messages[0]: the template refuses" in batch.outcomes.first_examples["parity_records_differing"][1]


@pytest.mark.parametrize(
    ("loss_on", "weights", "differing"),
    [("assistant", {}, 2), ("assistant", {1: 0, 3: 0}, 0), ("last_assistant", {}, 0), ("all", {}, None)],
)
def test_only_turns_that_are_trained_on_count(loss_on, weights, differing):
    messages = [
        message | ({"weight": weights[number]} if number in weights else {})
        for number, message in enumerate(WITH_A_TOOL)
    ]
    notes = checked(DROPS_EARLIER, messages, loss_on=loss_on).outcomes.notes
    assert notes.get("parity_turns_differing", 0) == (differing or 0)
    assert ("parity_records_checked" in notes) == (differing is not None)
    rows = trained(checked(DROPS_EARLIER, messages, loss_on=loss_on, parity="expand"))
    if weights or loss_on == "last_assistant":
        assert rows == [["8<|im_end|>\n"]]


def test_completion_is_one_context():
    good = Conversation(PLAIN[:2], completion_start=1)
    assert dict(checked(CHATML, good).outcomes.notes) == {"parity_records_checked": 1, "parity_turns_checked": 1}
    bad = Conversation(WITH_A_TOOL, completion_start=1)
    assert checked(DROPS_EARLIER, good, bad).outcomes.notes["parity_records_differing"] == 1
    batch = checked(DROPS_EARLIER, good, bad, parity="expand")
    assert [(reject.position, reject.reason) for reject in batch.outcomes.rejects] == [(1, "not_expandable")]
    assert len(batch.texts) == 1


def test_marked_turn_of_which_nothing_is_trained_on_does_not_differ():
    template = MARKED.replace(
        "{{- message.content + '<|im_end|>\\n' -}}{%- endgeneration", "{{- message.content -}}{%- endgeneration"
    )
    empty = [user("2+2?"), assistant(""), *PLAIN]
    assert dict(checked(template, empty).outcomes.notes) == {"parity_records_checked": 1, "parity_turns_checked": 4}


def test_reasoning_and_answer_in_blocks_of_their_own_are_one_turn():
    template = """
    {%- for message in messages -%}
        {{- '<|im_start|>' + message.role + '\\n' -}}
        {%- if message.role == 'assistant' -%}
            {%- generation -%}{{- 'So. ' -}}{%- endgeneration -%}{{- '|' -}}
            {%- generation -%}{{- message.reasoning_content + '</think>' -}}{%- endgeneration -%}{{- '|' -}}
            {%- generation -%}{{- message.content + '<|im_end|>\\n' -}}{%- endgeneration -%}
        {%- else -%}{{- message.content + '<|im_end|>\\n' -}}{%- endif -%}
    {%- endfor -%}
    {%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
    """
    messages = [user("2+2?"), assistant("4", reasoning_content="easy"), *WITH_A_TOOL[:2]]
    assert dict(checked(template, messages).outcomes.notes) == {"parity_records_checked": 1, "parity_turns_checked": 2}


def test_of_conversations_whose_contexts_are_kept_a_sample_is_looked_at():
    batch = checked(CHATML, *[PLAIN] * 100)
    assert dict(batch.outcomes.notes) == {"parity_records_checked": 9, "parity_turns_checked": 27}
    assert checked(CHATML, *[PLAIN] * 100, parity="expand").outcomes.notes["parity_records_checked"] == 100
    # The template drops reasoning, but these have none; with those that have, those are looked at.
    assert checked(DROPS_EARLIER, *[PLAIN] * 100).outcomes.notes["parity_records_checked"] == 9
    mixed = checked(DROPS_EARLIER, *[PLAIN] * 99, WITH_A_TOOL)
    assert mixed.outcomes.notes["parity_records_checked"] == 10
    assert mixed.outcomes.first_examples["parity_records_differing"][0] == 99


def test_where_one_of_the_sample_differs_all_are_looked_at():
    loud = [*PLAIN[:-1], assistant("so loud")]
    batch = checked(LOOKS_FOR_A_WORD, *[PLAIN] * 20, *[loud] * 80)
    assert batch.outcomes.notes["parity_records_checked"] == 100
    assert batch.outcomes.notes["parity_records_differing"] == 80


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_expanded_turns_are_each_trained_on_once_in_the_context_of_their_inference(data):
    template = data.draw(st.sampled_from([DROPS_EARLIER, MARKED_DROPS_EARLIER, CHATML]))
    conversation = Conversation(data.draw(_dialogues()))
    chat_template = load_template(render_config(template))
    batch = checked(template, conversation, parity="expand")
    contexts = {
        chat_template.render(conversation, conversation.messages[:number], add_generation_prompt=True): message
        for number, message in enumerate(conversation.messages)
        if message["role"] == "assistant"
    }
    found = [(text.text[:start], text.text[start:stop]) for text in batch.texts for start, stop in text.spans]
    assert sorted(context for context, _ in found) == sorted(contexts)
    for context, answer in found:
        message = contexts[context]
        thought = f"<think>{message['reasoning_content']}</think>" if "reasoning_content" in message else ""
        assert answer == (thought if template != CHATML else "") + message["content"] + "<|im_end|>\n"
    assert not batch.outcomes.rejects


def _dialogues() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Exchanges of a user's message and one answer or several, with answers of a tool between them."""

    @st.composite
    def dialogue(draw) -> list[dict[str, Any]]:
        messages = []
        for number in range(draw(st.integers(1, 4))):
            messages.append(user(f"{number}?"))
            for answer in range(draw(st.integers(1, 3))):
                if answer:
                    messages.append({"role": "tool", "content": "seen"})
                keys = {"reasoning_content": f"So {number}."} if draw(st.booleans()) else {}
                messages.append(assistant(draw(st.sampled_from(["", "yes", "no <think>", "yes"])), **keys))
        return messages

    return dialogue()


def test_records_of_several_rows_have_one_fate():
    record = {"messages": [WITH_A_TOOL, PLAIN, WITH_A_TOOL]}
    batch = checked(DROPS_EARLIER, *record["messages"], parity="expand")
    labels = build_labels(Encoder(str(TOKENIZER))(batch))
    lengths = np.diff(labels.offsets)
    assert len(lengths) == 5
    outcomes = Packer()(labels).outcomes
    assert (outcomes.kept, outcomes.truncated, dict(outcomes.dropped)) == (3, 0, {})
    assert outcomes.notes["parity_rows_added"] == 2
    shortest = int(lengths.min())
    for truncation, expected in (("keep_start", (0, 3, {})), ("drop", (0, 0, {"too_long": 3}))):
        outcomes = Packer(max_length=shortest - 1, truncation=truncation)(labels).outcomes
        assert (outcomes.kept, outcomes.truncated, dict(outcomes.dropped)) == expected
        assert not outcomes.unaccounted()
    # Of the tool's record the longer row is left out, and so it is no longer whole.
    outcomes = Packer(max_length=int(lengths.max()) - 1, truncation="drop")(labels).outcomes
    assert outcomes.kept + outcomes.truncated == 3
    assert outcomes.truncated == 2
    assert "parity_rows_added" not in outcomes.notes
    assert outcomes.trained_tokens_lost > 0


def test_build_with_expand_reconciles_records_and_rows(build, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(DROPS_EARLIER)
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": messages} for messages in (PLAIN, WITH_A_TOOL, PLAIN)])
    options = ("--input", chats, "--tokenizer", TOKENIZER, "--chat_template", template, "--output")
    ended = build(*options, tmp_path / "report")
    assert ended.code == 0
    assert "2 turns of 1 records are trained on in another context" in ended.err
    assert "--parity expand" in ended.err
    assert f"{chats}, byte " in ended.err
    ended = build(*options, tmp_path / "expand", "--parity", "expand", "--provenance")
    assert ended.code == 0
    manifest, rows = manifest_of(tmp_path / "expand"), rows_of(tmp_path / "expand")
    assert manifest["records"]["kept"] == 3
    assert manifest["rows"] == len(rows) == 4
    assert manifest["notes"]["parity_rows_added"] == 1
    assert rows[1]["source_position"] == rows[2]["source_position"]
    assert [len(row["input_ids"]) for row in rows[:1]] == [len(rows[3]["input_ids"])]
    ended = build(*options, tmp_path / "reject", "--parity", "reject", "--max_reject_fraction", "0.5")
    assert manifest_of(tmp_path / "reject")["records"]["rejected"] == {"differs_from_inference": 1}


@pytest.mark.skipif(not (SHARED / "oracle").exists(), reason="the shared oracle is absent")
def test_real_templates_in_the_contexts_of_inference():
    """Under real templates, what --parity expand keeps is trained on in the context of its inference."""
    refused = kept = 0
    for case in map(json.loads, (SHARED / "oracle" / "masks.jsonl").read_text().splitlines()):
        template, own = case["chat_template"], case["special_tokens"]
        conversation = Conversation(case["messages"], case["tools"])
        config = render_config(template, chat_template_kwargs=own, now=case.get("now"))
        batch = Examples(SPLIT, 0, True, Outcomes(read=1), [Example(0, conversation, {}, False, b"{}")])
        batch = ParityChecker(config, parity="expand")(Renderer(config)(batch))
        refused, kept = refused + len(batch.outcomes.rejects), kept + bool(batch.texts)
        chat_template = load_template(config)
        turns = [number for number, message in enumerate(case["messages"]) if message["role"] == "assistant"]
        contexts = {
            chat_template.render(conversation, conversation.messages[:turn], add_generation_prompt=True)
            for turn in (turns if batch.texts else [])
        }
        found = [text.text[:start] for text in batch.texts for start, _ in text.spans]
        assert len(found) == len(set(found))
        assert set(found) <= contexts, case["case"]
    assert refused < 20 < 100 < kept  # refused: a generation prompt that goes further than any history shows
