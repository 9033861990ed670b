from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, render_config, user
from support.datasets import manifest_of, rows_of, write_jsonl
from support.paths import TOKENIZER
from support.templates import CHATML, GIVEN, MARKED, NOW, OPENS_REASONING, cases_of, templates_of_models
from transforms import Conversation, Example, Examples
from transforms.chat.rendering.template import load_template
from transforms.model.batches import Texts
from transforms.model.outcomes import Outcomes
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

# Like Qwen 3 and others: reasoning is printed after the last user message, and dropped before it.
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
# The text of every message depends on a word in the last message.
LOOKS_FOR_A_WORD = CHATML.replace(
    "message.content + '<|im_end|>", "message.content + ('!' if 'lo' in messages[-1].content else '') + '<|im_end|>"
)
REFUSES_NOTHING = "{%- if not messages -%}{{- raise_exception('no messages') -}}{%- endif -%}" + CHATML
BOTH_WAYS = pytest.mark.parametrize(
    "template", [DROPS_EARLIER, MARKED_DROPS_EARLIER], ids=["without_markers", "with_markers"]
)
NO_DIFFERENCE = {"parity_records_checked": 1, "parity_turns_checked": 3}

# The context of the second answer contains the reasoning of the first one, because no user message was between them.
WITH_A_TOOL = [
    user("2+2?"),
    assistant("add(2, 2)", reasoning_content="A sum."),
    {"role": "tool", "content": "4"},
    assistant("It is 4.", reasoning_content="The tool says 4."),
    user("And 4+4?"),
    assistant("8"),
]
PLAIN = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6"), user("4+4?"), assistant("8")]


def rendered(template: str, *conversations: Conversation, **options: Any) -> Texts:
    examples = [Example(number, content, {}, False, b"{}") for number, content in enumerate(conversations)]
    batch = Examples(SPLIT, 0, True, Outcomes(read=len(examples)), examples)
    return Renderer(render_config(template, **options))(batch)


def checked(template: str, *conversations: Any, parity: str = "report", **options: Any) -> Texts:
    conversations = tuple(c if isinstance(c, Conversation) else Conversation(c) for c in conversations)
    checker = ParityChecker(render_config(template, **options), parity=parity)
    return checker(rendered(template, *conversations, **options))


def parity_notes(batch: Texts) -> dict[str, int]:
    return {name: count for name, count in batch.outcomes.notes.items() if name.startswith("parity_")}


def trained(batch: Texts) -> list[list[str]]:
    return [[text.text[start:stop] for start, stop in text.spans] for text in batch.texts]


@BOTH_WAYS
def test_turns_with_another_context_are_counted_and_the_first_is_shown(template):
    batch = checked(template, PLAIN, WITH_A_TOOL)
    assert parity_notes(batch) == {
        "parity_records_checked": 2,
        "parity_turns_checked": 6,
        "parity_turns_differing": 2,
        "parity_turns_context": 1,
        "parity_turns_reasoning_dropped": 1,
        "parity_records_differing": 1,
    }
    position, how = batch.outcomes.first_examples["parity_records_differing"]
    assert position == 1
    assert how == "messages[1]: the training text leaves out the reasoning before the answer"
    assert batch.texts == rendered(template, Conversation(PLAIN), Conversation(WITH_A_TOOL)).texts
    assert not batch.outcomes.rejects


def test_first_difference_of_the_contexts_is_shown():
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
def test_conversation_without_an_answer_has_no_turn_to_check(parity):
    batch = checked(CHATML, PLAIN[:1], PLAIN, parity=parity)
    assert parity_notes(batch) == NO_DIFFERENCE
    assert len(batch.texts) == 2


def test_off_checks_nothing():
    batch = checked(DROPS_EARLIER, WITH_A_TOOL, parity="off")
    assert batch == rendered(DROPS_EARLIER, Conversation(WITH_A_TOOL))


def test_turn_is_not_expandable_if_no_history_prints_its_generation_prompt():
    assert checked(OPENS_REASONING, PLAIN).outcomes.notes["parity_turns_differing"] == 3
    batch = checked(OPENS_REASONING, PLAIN, parity="expand")
    assert [reject.reason for reject in batch.outcomes.rejects] == ["not_expandable"]
    assert "<think>" in batch.outcomes.rejects[0].detail
    assert not batch.texts


def test_turn_differs_if_the_template_refuses_its_context():
    greeting = [assistant("Hello."), *PLAIN]
    assert parity_notes(checked(CHATML, greeting)) == {"parity_records_checked": 1, "parity_turns_checked": 4}
    batch = checked(REFUSES_NOTHING, greeting)
    assert batch.outcomes.notes["parity_turns_differing"] == 1
    assert (
        "messages[0]: no message precedes this answer, and the template refuses"
        in batch.outcomes.first_examples["parity_records_differing"][1]
    )


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


@pytest.mark.parametrize("template", [DROPS_EARLIER, MARKED_DROPS_EARLIER], ids=["unmarked", "marked"])
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_white_space_after_the_end_of_a_turn_is_no_difference_and_is_not_trained_in_expanded_rows(template, engine):
    options = {"engine": engine, "after_end": "mask"}
    as_usual = {"engine": engine, "after_end": "train"}
    notes = parity_notes(checked(template, PLAIN, WITH_A_TOOL, **options))
    assert notes == parity_notes(checked(template, PLAIN, WITH_A_TOOL, **as_usual))
    rows = trained(checked(template, PLAIN, WITH_A_TOOL, parity="expand", **options))
    expected = trained(checked(template, PLAIN, WITH_A_TOOL, parity="expand", **as_usual))
    assert rows == [[span.removesuffix("\n") for span in spans] for spans in expected] != expected


def test_completion_is_one_context():
    good = Conversation(PLAIN[:2], completion_start=1)
    assert parity_notes(checked(CHATML, good, loss_on="completion")) == {
        "parity_records_checked": 1,
        "parity_turns_checked": 1,
    }
    bad = Conversation(WITH_A_TOOL, completion_start=1)
    assert checked(DROPS_EARLIER, good, bad, loss_on="completion").outcomes.notes["parity_records_differing"] == 1
    batch = checked(DROPS_EARLIER, good, bad, loss_on="completion", parity="expand")
    assert [(reject.position, reject.reason) for reject in batch.outcomes.rejects] == [(1, "not_expandable")]
    assert len(batch.texts) == 1


def test_marked_turn_without_trained_text_does_not_differ():
    template = MARKED.replace(
        "{{- message.content + '<|im_end|>\\n' -}}{%- endgeneration", "{{- message.content -}}{%- endgeneration"
    )
    empty = [user("2+2?"), assistant(""), *PLAIN]
    notes = checked(template, empty).outcomes.notes
    assert notes["parity_turns_checked"] == 4 and "parity_turns_differing" not in notes


def test_reasoning_and_answer_in_separate_blocks_are_one_turn():
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
    assert parity_notes(checked(template, messages)) == {"parity_records_checked": 1, "parity_turns_checked": 2}


def test_all_conversations_that_are_compared_by_signature_are_checked():
    for template in (CHATML, DROPS_EARLIER, MARKED_DROPS_EARLIER):
        notes = checked(template, *[PLAIN] * 100, WITH_A_TOOL).outcomes.notes
        assert notes["parity_records_checked"] == 101
        assert "parity_records_not_checked" not in notes


def test_report_compares_a_sample_of_the_others_and_counts_the_rest():
    loud = [*PLAIN[:-1], assistant("so loud")]
    notes = checked(LOOKS_FOR_A_WORD, *[PLAIN] * 20, *[loud] * 80).outcomes.notes
    assert notes["parity_records_checked"] == 24
    assert notes["parity_records_not_checked"] == 76
    assert notes["parity_records_differing"] == 4
    notes = checked(LOOKS_FOR_A_WORD, *[PLAIN] * 20, *[loud] * 80, parity="reject").outcomes.notes
    assert notes["parity_records_checked"] == 100
    assert notes["parity_records_differing"] == 80
    # Those that have reasoning are all compared.
    thought = [*PLAIN[:-1], assistant("<think>So.</think>loud")]
    assert checked(LOOKS_FOR_A_WORD, *[thought] * 80).outcomes.notes["parity_records_checked"] == 80


LAST = "loop.last and message.role == 'assistant'"
HISTORY = "message.role == 'assistant' and not loop.last"
ADDS_A_DEFAULT = CHATML.replace("+ message.content +", f"+ ('<think></think>' if {LAST} else '') + message.content +")
EOS_AT_THE_END = CHATML.replace("'<|im_end|>\\n' -}}", f"('<eos>' if {LAST} else '\\n') -}}}}", 1)
OTHER_END = CHATML.replace("'<|im_end|>\\n' -}}", f"('<|return|>' if {LAST} else '<|end|>') -}}}}", 1)
OTHER_WORDS = CHATML.replace(
    "+ message.content +", f"+ ('#' + (message.content | upper) if {HISTORY} else message.content) +"
)
TRIMS_HISTORY = CHATML.replace(
    "+ message.content +", f"+ ((message.content | trim) if {HISTORY} else message.content) +"
)
ENDS_WITH_A_LINE_BREAK = CHATML.replace(
    "'<|im_end|>\\n' -}}", f"'<|im_end|>' -}}}}{{%- if not ({LAST}) -%}}{{{{- '\\n' -}}}}{{%- endif -%}}", 1
)
KINDS = {
    "default_added": ADDS_A_DEFAULT,
    "other_end": OTHER_END,
    "other_end of the text": EOS_AT_THE_END,
    "other_text": OTHER_WORDS,
}


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize(("kind", "template"), KINDS.items())
def test_kind_of_a_difference_is_counted_and_expand_makes_each_turn_right(kind, template, engine):
    kind = kind.partition(" ")[0]
    words = [user("two and two?"), assistant("four"), user("three and three?"), assistant("six")]
    batch = checked(template, words, engine=engine)
    assert parity_notes(batch) == {
        "parity_records_checked": 1,
        "parity_turns_checked": 2,
        "parity_records_differing": 1,
        "parity_turns_differing": 1,
        f"parity_turns_{kind}": 1,
    }
    detail = batch.outcomes.first_examples["parity_records_differing"][1]
    assert detail.startswith("messages[1]: the training text of the turn has ")
    assert "four" in detail.lower()
    expanded = checked(template, words, parity="expand", engine=engine)
    chat_template = load_template(render_config(template))
    assert [text.text for text in expanded.texts] == [
        chat_template.render(Conversation(words[:2])),
        chat_template.render(Conversation(words)),
    ]
    assert all(len(text.spans) == 1 for text in expanded.texts)
    assert len(checked(template, words, parity="reject", engine=engine).outcomes.rejects) == 1


def test_comparison_of_a_signature_holds_only_for_texts_that_are_printed_alike():
    plain = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]
    spaced = [user("2+2?"), assistant(" 4"), user("3+3?"), assistant("6")]
    notes = checked(TRIMS_HISTORY, *[plain] * 10, *[spaced] * 10, *[plain] * 10).outcomes.notes
    assert notes["parity_records_checked"] == 30
    assert notes["parity_records_differing"] == 10


# The text of each message begins with the last question: two conversations of one signature differ in other turns.
REPEATS_THE_QUESTION = (
    "{%- set asked = messages | selectattr('role', 'equalto', 'user') | list | last -%}"
    "{{- '<q>' + asked.content + '</q>' -}}" + CHATML
)


# Only the generation prompt depends on a word.
PROMPT_LOOKS_FOR_A_WORD = CHATML + "{%- if add_generation_prompt and 'lo' in messages[-1].content -%}!{%- endif -%}"


@pytest.mark.parametrize("lengths", [(6, 2, 4), (2, 4, 6)])
def test_guards_hold_for_a_conversation_whose_beginning_was_traced_for_another(lengths):
    with_word = [user("hello"), *PLAIN[1:]]
    conversations = [messages[:length] for length in lengths for messages in (PLAIN, with_word)]
    notes = parity_notes(checked(PROMPT_LOOKS_FOR_A_WORD, *conversations, engine="auto"))
    assert notes == {
        "parity_records_checked": 6,
        "parity_turns_checked": 12,
        "parity_records_differing": 3,
        "parity_turns_differing": 3,
        "parity_turns_context": 3,
    }


def test_comparison_does_not_depend_on_the_template_by_which_a_conversation_was_rendered_before():
    thinking = [user("2+2?"), assistant("<think>So.</think>4"), user("3+3?"), assistant("<think>So.</think>6")]
    looks = CHATML.replace("message.content +", "message.content.split('</think>')[-1] +")
    batch = rendered(looks, *(Conversation([dict(message) for message in thinking]) for _ in range(3)))
    assert all(text.signature.cut for text in batch.texts)
    for template in (CHATML, looks):
        fresh = checked(template, *[thinking] * 3)
        kept = dataclasses.replace(
            fresh,
            texts=[
                msgspec.structs.replace(new, example=old.example, signature=old.signature)
                for new, old in zip(fresh.texts, batch.texts, strict=True)
            ],
            outcomes=batch.outcomes,
        )
        assert parity_notes(ParityChecker(render_config(template))(kept)) == parity_notes(fresh)


@pytest.mark.parametrize("printed", ["message.content +", "message.content.split('</think>')[-1] +"])
def test_texts_are_pickled_with_their_signatures(printed):
    template = CHATML.replace("message.content +", printed)
    texts = rendered(template, Conversation([user("2+2?"), assistant("<think>So.</think>4")])).texts
    assert texts[0].signature
    copies = pickle.loads(pickle.dumps(texts))
    assert copies == texts
    assert copies[0].signature.cut is texts[0].signature.cut


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_texts_that_are_equal_make_turns_right_that_differ_with_other_texts_of_the_signature(engine):
    others = [[user(f"{n}?"), assistant("yes"), user(f"{n}!"), assistant("no")] for n in range(6)]
    same = [user("continue"), assistant("yes"), user("continue"), assistant("no")]
    notes = checked(REPEATS_THE_QUESTION, *others, same, engine=engine).outcomes.notes
    assert (notes["parity_records_checked"], notes["parity_records_differing"]) == (7, 6)
    rejecting = checked(REPEATS_THE_QUESTION, *others, same, parity="reject", engine=engine)
    assert [text.example.position for text in rejecting.texts] == [6]
    assert len(rejecting.outcomes.rejects) == 6
    expanded = checked(REPEATS_THE_QUESTION, *others, same, parity="expand", engine=engine)
    assert len(expanded.texts) == 13


# Earlier answers end with a word of the template, and the last one with its content again.
AT_THE_END = f"('|yes' if {HISTORY} else '|' + message.content)"
ENDS_WITH_A_WORD = CHATML.replace(
    "+ message.content +", f"+ message.content + ({AT_THE_END} if '</think>' not in message.content else '') +"
)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_answer_that_is_the_word_of_the_template_makes_its_turn_right(engine):
    def answered(answer: str) -> list[dict[str, Any]]:
        return [user("2+2?"), assistant(answer), user("3+3?"), assistant("six")]

    batch = checked(ENDS_WITH_A_WORD, *map(answered, ("four", "no", "yes")), parity="reject", engine=engine)
    assert [text.example.position for text in batch.texts] == [2]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_kind_of_a_difference_is_that_of_the_texts_of_each_record(engine):
    def thought(reasoning: str) -> list[dict[str, Any]]:
        messages = [user("2+2?"), assistant("four", reasoning_content=reasoning), user("3+3?"), assistant("six")]
        return messages

    # Without the reasoning the turn has the empty block alone, and "think" is in that.
    batch = checked(ADDS_A_DEFAULT, *[thought("So.")] * 6, *[thought("think")] * 3, unprinted="report", engine=engine)
    kinds = {name: count for name, count in batch.outcomes.notes.items() if name.startswith("parity_turns_")}
    assert kinds == {
        "parity_turns_checked": 18,
        "parity_turns_differing": 9,
        "parity_turns_default_added": 6,
        "parity_turns_reasoning_dropped": 3,
    }


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_turn_with_parts_that_are_not_trained_on_is_compared_as_a_whole(engine):
    def parts(*texts: tuple[str, int]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text} | ({} if weight else {"weight": 0}) for text, weight in texts]

    messages = [
        {**user(""), "content": "2+2?"},
        {**assistant(""), "content": parts(("think ", 0), ("answer", 1))},
        user("3+3?"),
        {**assistant(""), "content": parts(("A", 1), ("B", 0))},
    ]
    notes = checked(CHATML, messages, engine=engine).outcomes.notes
    assert notes["parity_turns_checked"] == 2 and "parity_turns_differing" not in notes
    assert len(checked(CHATML, messages, parity="reject", engine=engine).texts) == 1
    expanded = checked(ADDS_A_DEFAULT, messages, parity="expand", engine=engine)
    spans = [span for row in trained(expanded) for span in row]
    assert len(expanded.texts) == 2
    assert not [span for span in spans if "think " in span or "B" in span]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_only_keys_of_reasoning_hold_reasoning(engine):
    turns = [user("2+2?"), assistant("four", status="return"), user("3+3?"), assistant("six", status="return")]
    notes = checked(OTHER_END, turns, engine=engine).outcomes.notes
    assert notes["parity_turns_other_end"] == 1
    assert "parity_turns_reasoning_dropped" not in notes


def test_white_space_at_the_end_of_a_turn_is_no_difference():
    assert parity_notes(checked(ENDS_WITH_A_LINE_BREAK, PLAIN)) == NO_DIFFERENCE


@settings(max_examples=150)
@given(st.data())
def test_each_expanded_turn_is_trained_on_once_in_its_context_of_inference(data):
    template = data.draw(st.sampled_from([DROPS_EARLIER, MARKED_DROPS_EARLIER, CHATML]))
    conversation = Conversation(data.draw(_dialogues()))
    chat_template = load_template(render_config(template))
    batch = checked(template, conversation, parity="expand")
    contexts = {
        chat_template.render(conversation.with_messages(conversation.messages[:number]), True): message
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
    """Exchanges: a user message and one or more answers, with tool results between them."""

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


def test_record_of_several_rows_has_one_outcome():
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
    # The longer row of the record with the tool is dropped, so this record counts as truncated.
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
    assert "1 trained turn not as at inference: context 1, as chats.jsonl, byte " in ended.err
    assert "--parity expand writes each context" in ended.err
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


def test_expand_trains_in_the_context_of_inference_under_real_templates():
    refused = kept = 0
    for case in cases_of("masks"):
        template, conversation = (
            templates_of_models()[case["template"]],
            Conversation(case["record"]["messages"], case["record"].get("tools")),
        )
        config = render_config(template, chat_template_kwargs=GIVEN, now=NOW, unprinted="report")
        batch = Examples(SPLIT, 0, True, Outcomes(read=1), [Example(0, conversation, {}, False, b"{}")])
        batch = ParityChecker(config, parity="expand")(Renderer(config)(batch))
        refused, kept = refused + len(batch.outcomes.rejects), kept + bool(batch.texts)
        chat_template = load_template(config)
        turns = [number for number, message in enumerate(conversation.messages) if message["role"] == "assistant"]
        contexts = {
            chat_template.render(conversation.with_messages(conversation.messages[:turn]), True)
            for turn in (turns if batch.texts else [])
        }
        found = [text.text[:start] for text in batch.texts for start, _ in text.spans]
        assert len(found) == len(set(found))
        assert set(found) <= contexts, case["name"]
    assert refused < 20 < 100 < kept  # refused: the generation prompt is longer than the header in history


def test_what_a_batch_compares_does_not_depend_on_the_engine():
    contents = [" " * (number % 20 + 1) + "a" for number in range(320)]  # of more signatures than a batch compares
    conversations = [[user("q"), assistant(content), user("q"), assistant("b")] for content in contents]
    template = CHATML.replace("message.content", "message.content.split('</think>')[-1].lstrip()")
    auto, reference = (
        parity_notes(checked(template, *conversations, engine=engine)) for engine in ("auto", "reference")
    )
    assert auto == reference and auto["parity_records_not_checked"]
