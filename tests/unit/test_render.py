from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from support.chats import SPLIT, assistant, examples_of, render_config, user
from support.paths import CHATS, TOKENIZER
from support.templates import CHATML, DROPS_REASONING, MARKED, OPENS_REASONING
from transforms import (
    Conversation,
    Example,
    Examples,
    ParameterError,
    PlainText,
    PromptCompletion,
    RecordError,
    TokenRow,
)
from transforms.chat.config import ENGINES
from transforms.chat.spans.turn_search import merged
from transforms.model.batches import Records
from transforms.model.examples import Record, Span, Text
from transforms.model.outcomes import Outcomes
from transforms.steps.label import build_labels
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

BOTH_WAYS = pytest.mark.parametrize("template", [CHATML, MARKED], ids=["without_markers", "with_markers"])

# For templates that print no contents.
PRINTS_LITTLE: dict[str, Any] = {"loss_on": "all", "unprinted": "report"}

HELLO = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "<|im_start|>assistant\nHello<|im_end|>\n"},
    {"role": "assistant", "content": "Bye"},
]


def chatml(messages: list[dict[str, Any]]) -> str:
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def render(content: Any, template: str | None = CHATML, folder: Path | str = TOKENIZER, **arguments: Any) -> Text:
    """Render one example. A list of messages is a conversation. Raises RecordError."""
    content = Conversation(content) if isinstance(content, list) else content
    return Renderer(render_config(folder=folder, chat_template=template, **arguments)).render(
        Example(0, content, {}, False, b"{}")
    )


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(RecordError) as refused:
        render(*arguments, **options)
    return refused.value.reason


def trained(text: Text) -> list[str]:
    """Return the parts of a text that its spans select."""
    return [text.text[start:stop] for start, stop in text.spans]


@functools.cache
def support() -> list[tuple[int, dict[str, Any]]]:
    """Return the valid records of the example corpus, with their positions."""
    records = []
    for position, line in enumerate((CHATS / "support.jsonl").read_bytes().splitlines()):
        try:
            records.append((position, json.loads(line)))
        except ValueError:
            continue
    return records


@functools.cache
def parsed() -> Examples:
    records = [Record(position, json.dumps(record).encode()) for position, record in support()]
    batch = Records(split=SPLIT, part=0, last=True, outcomes=Outcomes(read=len(records)), records=records)
    return Parser()(batch)


@functools.cache
def reference() -> Any:
    return AutoTokenizer.from_pretrained(TOKENIZER)


def weighted(record: dict[str, Any]) -> bool:
    return any(message.get("weight") == 0 for message in record["messages"])


# Templates with generation markers.


def masks_of(record: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the ids and the assistant mask of a record in transformers."""
    encoded = reference().apply_chat_template(
        record["messages"], tools=record.get("tools"), return_dict=True, return_assistant_tokens_mask=True
    )
    return encoded["input_ids"], encoded["assistant_masks"]


def without_turns_of_no_weight(record: dict[str, Any], mask: list[int]) -> list[int]:
    """Return the mask without the turns of weight 0. Each turn is one run of ones."""
    edges = np.flatnonzero(np.diff([0, *mask, 0])).reshape(-1, 2).tolist()
    turns = [message for message in record["messages"] if message["role"] == "assistant"]
    for turn, (start, stop) in zip(turns, edges, strict=True):
        if turn.get("weight") == 0:
            mask = mask[:start] + [0] * (stop - start) + mask[stop:]
    return mask


def test_real_conversations_have_the_ids_and_the_masks_of_transformers():
    batch = parsed()
    by_position = dict(support())
    expected: dict[int, tuple[list[int], list[int]]] = {}
    for example in batch.examples:
        record = by_position[example.position]
        ids, mask = masks_of(record)
        if weighted(record):
            mask = without_turns_of_no_weight(record, mask)
        if any(mask):
            expected[example.position] = ids, [i if m else -100 for i, m in zip(ids, mask, strict=True)]
    # Otherwise there would be little to compare.
    assert len(expected) > 390
    assert sum(weighted(by_position[position]) for position in expected) > 10

    labels = build_labels(Encoder(str(TOKENIZER))(Renderer(render_config())(batch)))

    rows = [slice(start, stop) for start, stop in pairwise(labels.offsets.tolist())]
    ours = {
        position: (labels.ids[row].tolist(), labels.labels[row].tolist())
        for position, row in zip(labels.source.positions.tolist(), rows, strict=True)
    }
    assert ours == expected
    assert labels.outcomes.dropped == {"no_trained_tokens": len(batch.examples) - len(expected)}
    assert labels.outcomes.rejects == batch.outcomes.rejects  # only malformed records are rejected


def test_spans_of_real_conversations_are_the_same_with_and_without_markers():
    """Without its markers, the template prints the same text, and the spans are found from prefixes."""
    template = (TOKENIZER / "chat_template.jinja").read_text("utf-8")
    unmarked = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)
    assert "generation -%}" in template
    assert "generation -%}" not in unmarked
    some = Examples(split=SPLIT, part=0, last=True, outcomes=Outcomes(), examples=parsed().examples[:150])

    with_markers, without = (Renderer(render_config(source))(some) for source in (template, unmarked))

    assert without.outcomes.rejects == ()
    assert [(text.text, text.spans) for text in without.texts] == [
        (text.text, text.spans) for text in with_markers.texts
    ]


def test_threads_that_render_at_the_same_time_have_separate_masks():
    """Runners process bundles in threads of one process, which share the compiled template."""
    conversations = [[user("Hi"), *(assistant(f"{n}, {i}") for i in range(20))] for n in range(200)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            texts = list(threads.map(lambda messages: render(messages, MARKED), conversations))
    finally:
        sys.setswitchinterval(before)
    for n, text in enumerate(texts):
        assert trained(text) == [f"{n}, {i}<|im_end|>\n" for i in range(20)]


def test_nested_markers_mark_the_same_text_as_the_outer_markers():
    inner = "{%- generation -%}{{- message.content -}}{%- endgeneration -%}"
    nested = MARKED.replace(
        "{%- generation -%}{{- message.content + '<|im_end|>\\n' -}}",
        "{%- generation -%}{{- 'So: ' -}}" + inner + "{{- '<|im_end|>\\n' -}}",
    )
    assert nested.count("{%- generation -%}") == 2
    assert trained(render(HELLO, nested)) == ["So: Hello<|im_end|>\n", "So: Bye<|im_end|>\n"]


# Only the content of a turn is marked.
MARKED_CONTENT = """
{%- for message in messages -%}
    {{- message.role + ': ' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}{{- message.content -}}{%- endgeneration -%}
    {%- else -%}
        {{- message.content -}}
    {%- endif -%}
    {{- '\\n' -}}
{%- endfor -%}
"""


def test_empty_generation_block_has_no_span():
    text = render([assistant(""), user("a"), assistant("b")], MARKED_CONTENT)
    assert (text.text, trained(text)) == ("assistant: \nuser: a\nassistant: b\n", ["b"])


def test_empty_generation_block_still_belongs_to_its_turn():
    messages = [assistant("", weight=0), user("a"), assistant("b"), assistant("c", weight=0)]
    assert trained(render(messages, MARKED_CONTENT)) == ["b"]


def test_blocks_that_touch_are_one_span():
    template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert render([assistant("ab"), assistant("cd")], template).spans == [(0, 4)]


@pytest.mark.parametrize(
    "tag", ["{% generation %}", "{%- generation -%}", "{%generation%}", "{%+ generation +%}", "{%\n generation\n%}"]
)
def test_markers_are_found_in_each_spelling(tag: str):
    template = "{% for m in messages %}a: " + tag + "{{ m.content }}{% endgeneration %}{% endfor %}"
    assert trained(render([assistant("b")], template)) == ["b"]


@pytest.mark.parametrize(
    "not_a_marker",
    ["{# No {% generation %} here. #}", "{%- set help = '{% generation %}' -%}", "{{- generation -}}"],
    ids=["comment", "string", "variable"],
)
def test_word_that_is_not_a_marker_marks_nothing(not_a_marker: str):
    text = render(HELLO, not_a_marker + CHATML)
    assert (text.text, trained(text)) == (chatml(HELLO), ["Hello<|im_end|>\n", "Bye<|im_end|>\n"])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda span: (span[0], span[0] + span[1]))))
def test_merged_spans_have_the_same_characters_and_are_ascending_and_separate(spans: list[Span]):
    def characters(these: list[Span]) -> set[int]:
        return {character for start, stop in these for character in range(start, stop)}

    result = merged(spans)
    assert characters(result) == characters(spans)
    assert all(start < stop for start, stop in result)
    assert all(before < after for (_, before), (after, _) in pairwise(result))


# Templates with and without markers.


@BOTH_WAYS
def test_assistant_turns_are_trained_with_their_closing_tokens(template: str):
    text = render(HELLO, template)
    assert text.text == chatml(HELLO)
    assert trained(text) == ["Hello<|im_end|>\n", "Bye<|im_end|>\n"]
    header = len("<|im_start|>assistant\n")
    assert text.spans == [(len(chatml(HELLO[:i])) + header, len(chatml(HELLO[: i + 1]))) for i in (2, 4)]
    assert (text.special_tokens, text.prompt) == (False, None)


@BOTH_WAYS
def test_turn_of_weight_0_is_not_trained(template: str):
    messages = [user("a"), assistant("b", weight=0), user("c"), assistant("d", weight=1), assistant("e")]
    text = render(messages, template)
    assert trained(text) == ["d<|im_end|>\n", "e<|im_end|>\n"]
    assert text.text == render([{k: v for k, v in m.items() if k != "weight"} for m in messages], template).text


@BOTH_WAYS
def test_only_the_last_turn_is_trained_with_last_assistant(template: str):
    assert trained(render(HELLO, template, loss_on="last_assistant")) == ["Bye<|im_end|>\n"]
    assert trained(render([*HELLO, user("?")], template, loss_on="last_assistant")) == ["Bye<|im_end|>\n"]
    assert trained(render([*HELLO, assistant("!", weight=0)], template, loss_on="last_assistant")) == []


@BOTH_WAYS
def test_conversation_without_an_assistant_has_no_span(template: str):
    for loss_on in ("assistant", "last_assistant"):
        assert render([user("a")], template, loss_on=loss_on).spans == []


TWO_BLOCKS = """
{%- for message in messages -%}
    {%- generation -%}{{- message.content -}}{%- endgeneration -%}{{- '.' -}}
    {%- generation -%}{{- '!' -}}{%- endgeneration -%}
{%- endfor -%}
"""


def test_each_block_belongs_to_the_turn_that_prints_it():
    assert trained(render([assistant("a"), assistant("b")], TWO_BLOCKS)) == ["a", "!b", "!"]
    assert trained(render([assistant("a"), assistant("b", weight=0)], TWO_BLOCKS)) == ["a", "!"]
    assert trained(render([assistant("a"), assistant("b")], TWO_BLOCKS, loss_on="last_assistant")) == ["b", "!"]


ONE_BLOCK = "{% generation %}{% for message in messages %}{{ message.content }}{% endfor %}{% endgeneration %}"


def test_block_of_several_turns_is_refused_if_not_all_of_them_are_trained():
    assert trained(render([assistant("a"), assistant("b")], ONE_BLOCK)) == ["ab"]
    assert refusal([assistant("a"), assistant("b", weight=0)], ONE_BLOCK) == "spans_not_established"


# Templates without markers.

REASONED = [user("a"), assistant("b", reasoning_content="why b"), user("c"), assistant("d", reasoning_content="why d")]


def test_turns_that_change_when_others_follow_are_trained_as_they_are_printed():
    assert trained(render(REASONED, DROPS_REASONING)) == ["b<|im_end|>\n", "<think>why d</think>d<|im_end|>\n"]
    assert trained(render([*REASONED, user("e")], DROPS_REASONING, loss_on="last_assistant")) == ["d<|im_end|>\n"]


def test_last_turn_has_its_span_if_only_earlier_turns_change():
    text = render(REASONED, DROPS_REASONING, loss_on="last_assistant")
    assert trained(text) == ["<think>why d</think>d<|im_end|>\n"]
    not_the_first = [REASONED[0], {**REASONED[1], "weight": 0}, *REASONED[2:]]
    assert render(not_the_first, DROPS_REASONING).spans == text.spans


def test_generation_prompt_that_is_longer_than_in_history_is_cut_at_the_header():
    assert trained(render(HELLO, OPENS_REASONING)) == ["Hello<|im_end|>\n", "Bye<|im_end|>\n"]


# All contents are printed again at the end, so each turn has two positions.
REPEATS = CHATML + "{% for message in messages %}{{ message.content }}{% endfor %}"


def test_record_without_established_spans_is_rejected_alone():
    contents = [Conversation([user("a")]), Conversation(HELLO), Conversation([user("b")])]
    examples = [Example(10 * i, content, {}, False, b"raw %d" % i) for i, content in enumerate(contents)]
    batch = Examples(split=SPLIT, part=0, last=True, outcomes=Outcomes(read=3), examples=examples)

    texts = Renderer(render_config(REPEATS))(batch)

    assert [text.example.position for text in texts.texts] == [0, 20]
    assert [(r.position, r.reason, r.record) for r in texts.outcomes.rejects] == [
        (10, "spans_not_established", b"raw 1")
    ]
    assert "messages[2] in 2 places" in texts.outcomes.rejects[0].detail


# Prompts and completions.


@BOTH_WAYS
def test_completion_begins_after_the_generation_prompt(template: str):
    text = render(Conversation(HELLO, completion_start=4), template)
    assert trained(text) == ["Bye<|im_end|>\n"]
    assert text.prompt == text.text[: text.spans[0][0]]
    assert text.prompt.endswith("<|im_start|>assistant\n")
    assert not text.special_tokens


def test_completion_is_all_that_follows_the_prompt_if_that_is_given():
    text = render(Conversation(HELLO, completion_start=2), loss_on="completion")
    assert trained(text) == [text.text[text.text.index("<|im_start|>assistant\n") + len("<|im_start|>assistant\n") :]]


def test_prompt_that_is_not_a_prefix_ends_at_the_answer_or_is_refused():
    text = render(Conversation(HELLO, completion_start=4), OPENS_REASONING)
    assert trained(text) == ["Bye<|im_end|>\n"]
    # A user turn cannot be a completion.
    assert refusal(Conversation(HELLO, completion_start=3), loss_on="completion") == "prompt_not_a_prefix"


PAIR = PromptCompletion("2 + 3 =", " 5")
WHOLE_PAIR = Text(Example(0, PAIR, {}, False, b"{}"), "2 + 3 = 5", [(-1, 10)], special_tokens=True)


def test_completion_of_plain_text_is_trained_with_the_special_tokens_after_it():
    text = render(PAIR)
    assert (text.text, text.spans, text.special_tokens, text.prompt) == ("2 + 3 = 5", [(7, 10)], True, "2 + 3 =")


def test_plain_text_is_trained_as_a_whole_with_its_special_tokens():
    text = render(PlainText("2 + 3"))
    assert (text.text, text.spans, text.special_tokens, text.prompt) == ("2 + 3", [(-1, 6)], True, None)


def test_tokenized_row_keeps_its_trained_tokens():
    row = TokenRow(np.array([7, 8, 9, 5, 6], np.int32), np.array([0, 1, 1, 0, 1], bool))
    text = render(row)
    assert (text.spans, text.text, text.special_tokens) == ([(1, 3), (4, 5)], "", False)
    assert text.token_ids is row.input_ids


# The trained part of each kind of record for each loss_on; None if the record is rejected.

CHAT = Conversation(HELLO)
TURNS, LAST = ["Hello<|im_end|>\n", "Bye<|im_end|>\n"], ["Bye<|im_end|>\n"]
HELLO_TEXT = chatml(HELLO)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("loss_on", "expected"),
    [("auto", TURNS), ("assistant", TURNS), ("last_assistant", LAST), ("completion", None), ("all", [HELLO_TEXT])],
)
def test_loss_on_selects_the_trained_part_of_messages(loss_on: str, expected: list[str] | None, template: str):
    if expected is None:
        assert refusal(CHAT, template, loss_on=loss_on) == "loss_not_applicable"
    else:
        text = render(CHAT, template, loss_on=loss_on)
        assert (text.text, trained(text), text.special_tokens) == (HELLO_TEXT, expected, False)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("loss_on", "expected"),
    [("auto", LAST), ("assistant", TURNS), ("last_assistant", LAST), ("completion", LAST), ("all", [HELLO_TEXT])],
)
def test_loss_on_selects_the_trained_part_of_prompt_and_completion_messages(
    loss_on: str, expected: list[str], template: str
):
    assert trained(render(Conversation(HELLO, completion_start=4), template, loss_on=loss_on)) == expected


@pytest.mark.parametrize(
    ("content", "loss_on", "expected"),
    [
        (PAIR, "auto", [(7, 10)]),
        (PAIR, "assistant", None),
        (PAIR, "last_assistant", None),
        (PAIR, "completion", [(7, 10)]),
        (PAIR, "all", [(-1, 10)]),
        (PlainText("abc"), "auto", [(-1, 4)]),
        (PlainText("abc"), "assistant", None),
        (PlainText("abc"), "last_assistant", None),
        (PlainText("abc"), "completion", None),
        (PlainText("abc"), "all", [(-1, 4)]),
        (TokenRow(np.array([5, 6], np.int32), np.array([0, 1], bool)), "assistant", [(1, 2)]),
        (TokenRow(np.array([5, 6], np.int32), np.array([0, 1], bool)), "all", [(0, 2)]),
    ],
)
def test_loss_on_selects_the_trained_part_of_texts_and_tokens(content: Any, loss_on: str, expected: list[Span] | None):
    if expected is None:
        assert refusal(content, loss_on=loss_on) == "loss_not_applicable"
    else:
        assert render(content, loss_on=loss_on).spans == expected


def test_prompt_and_completion_are_one_text_if_all_is_trained():
    assert render(PAIR, loss_on="all") == WHOLE_PAIR


# The variables of the template.


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate"),
        ("{{ messages[9].content.text }}", "UndefinedError"),
        ("{{ 1 + messages[0].content }}", "TypeError"),
    ],
)
def test_record_that_the_template_refuses_is_rejected_with_its_message(template: str, what: str):
    with pytest.raises(RecordError) as refused:
        render(HELLO, template)
    assert refused.value.reason == "template"
    assert what in refused.value.detail


def test_template_arguments_of_a_row_override_the_jobs_which_override_special_tokens():
    template = "{{ style }} {{ length }} {{ eos_token }} {{ pad_token }}"
    conversation = Conversation(HELLO, template_kwargs={"style": "row"})
    of_job = {"style": "job", "length": 3, "eos_token": "E"}
    assert render(conversation, template, chat_template_kwargs=of_job, **PRINTS_LITTLE).text == "row 3 E <|pad|>"


def test_arguments_of_a_row_do_not_affect_the_next_row():
    renderer = Renderer(render_config("{{ style }}", chat_template_kwargs={"style": "job"}, **PRINTS_LITTLE))
    conversations = [Conversation(HELLO, template_kwargs=kwargs) for kwargs in ({"style": "row"}, {})]
    texts = [renderer.render(Example(0, conversation, {}, False, b"")).text for conversation in conversations]
    assert texts == ["row", "job"]


def test_arguments_are_given_to_every_rendering_that_finds_spans():
    template = CHATML.replace("'<|im_start|>assistant\\n' -}}{%- endif", "'<|im_start|>' + name + '\\n' -}}{%- endif")
    template = template.replace("message.role", "(name if message.role == 'assistant' else message.role)")
    assert trained(render(HELLO, template, chat_template_kwargs={"name": "bot"})) == TURNS
    assert trained(render(Conversation(HELLO, None, {"name": "bot"}, 4), template)) == LAST


TOOLS = [{"type": "function", "function": {"name": "track_order", "parameters": {}}}]
WITH_TOOLS = "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}" + CHATML


def test_tools_are_given_to_the_template_in_every_rendering():
    text = render(Conversation(HELLO, TOOLS), WITH_TOOLS)
    assert text.text == "[track_order]" + HELLO_TEXT
    assert trained(text) == TURNS
    assert render(Conversation(HELLO, TOOLS, completion_start=4), WITH_TOOLS).prompt.startswith("[track_order]")
    assert render(Conversation(HELLO), WITH_TOOLS).text == HELLO_TEXT


def save_with_templates(folder: Path, template: str | None = None, named: dict[str, str] | None = None) -> Path:
    """Save the example tokenizer with these templates, in the format of transformers, and return its folder."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TOKENIZER / name).read_bytes())
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    for name, text in (named or {}).items():
        (folder / "additional_chat_templates").mkdir(exist_ok=True)
        (folder / "additional_chat_templates" / f"{name}.jinja").write_text(text)
    return folder


def test_named_template_for_tools_renders_conversations_with_tools(tmp_path: Path):
    folder = save_with_templates(tmp_path, MARKED, {"tool_use": "USES TOOLS" + CHATML})
    plain, with_tools = (
        render(Conversation(HELLO, tools), None, folder, unprinted="report") for tools in (None, TOOLS)
    )
    assert (plain.text, with_tools.text) == (HELLO_TEXT, "USES TOOLS" + HELLO_TEXT)
    assert trained(plain) == trained(with_tools) == TURNS


def test_given_template_overrides_the_templates_of_the_tokenizer(tmp_path: Path):
    folder = save_with_templates(tmp_path, "its own", {"tool_use": "its own"})
    for tools in (None, TOOLS):
        assert render(Conversation(HELLO, tools), CHATML, folder, unprinted="report").text == HELLO_TEXT


@pytest.mark.parametrize("named", [{}, {"tool_use": CHATML}], ids=["none", "only_for_tools"])
@pytest.mark.parametrize("engine", ENGINES)
def test_conversation_without_a_template_is_rejected_with_advice(tmp_path: Path, named: dict[str, str], engine: str):
    folder = save_with_templates(tmp_path, None, named)
    texts = Renderer(render_config(None, folder, engine=engine))(examples_of(PlainText("a"), HELLO, PlainText("b")))
    (reject,) = texts.outcomes.rejects
    assert (reject.position, reject.reason) == (1, "no_chat_template")
    assert re.search(r"no chat template.*give chat_template", reject.detail)
    assert [text.text for text in texts.texts] == ["a", "b"]


CLOCK = "{{ strftime_now('%d %B %Y, %H:%M') }}"


def test_template_that_prints_the_date_prints_the_date_of_the_job():
    renderers = [
        Renderer(render_config(CLOCK, now=now, **PRINTS_LITTLE)) for now in ("2024-07-26T09:30:00", "1999-12-31")
    ]
    example = Example(0, Conversation(HELLO), {}, False, b"{}")
    printed = [renderer.render(example).text for renderer in (*renderers, renderers[0])]
    assert printed == ["26 July 2024, 09:30", "31 December 1999, 00:00", "26 July 2024, 09:30"]


@pytest.mark.parametrize("template", [CLOCK, None], ids=["given", "of_the_tokenizer"])
def test_conversation_whose_template_prints_the_date_is_refused_if_now_is_not_given(
    template: str | None, tmp_path: Path
):
    """Otherwise each worker would print the time of its own clock."""
    folder = save_with_templates(tmp_path, CHATML, {"tool_use": CLOCK})
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    examples = examples_of(PlainText("no template is needed"), Conversation(HELLO, tools))
    for engine in ("reference", "auto"):
        config = render_config(template, folder, engine=engine)
        renderer = Renderer(config)
        texts = renderer(dataclasses.replace(examples, examples=examples.examples[:1]))
        assert ParityChecker(config)(texts).texts[0].text == "no template is needed"
        with pytest.raises(ParameterError, match=r"now=None: the chat template prints the date"):
            renderer(examples)


PARTS = [
    user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
    assistant([{"type": "text", "text": "three"}]),
]
READS_PARTS = CHATML.replace(
    "message.content",
    "(message.content if message.content is string else message.content|map(attribute='text')|join('+'))",
)


@pytest.mark.parametrize(
    "template",
    [CHATML, CHATML.replace("message.content", "(message.content|string)")],
    ids=["raises", "prints_the_list"],
)
def test_text_parts_are_joined_for_a_template_that_cannot_read_them(template: str):
    text = render(PARTS, template)
    assert text.text == "<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\nthree<|im_end|>\n"
    assert trained(text) == ["three<|im_end|>\n"]


def test_text_parts_are_joined_for_a_template_that_fails_the_check():
    """Without the argument `name` of the row, the template raises for texts and for parts alike."""
    template = CHATML.replace("message.role +", "name[message.role] +")
    names = {"name": {"user": "U", "assistant": "A"}}
    text = render(Conversation(PARTS, template_kwargs=names), template, loss_on="all")
    assert text.text == "<|im_start|>U\none\ntwo<|im_end|>\n<|im_start|>A\nthree<|im_end|>\n"


def test_text_parts_are_passed_on_to_a_template_that_reads_them():
    text = render(PARTS, READS_PARTS)
    assert text.text == "<|im_start|>user\none+two<|im_end|>\n<|im_start|>assistant\nthree<|im_end|>\n"


def test_record_itself_keeps_its_text_parts():
    messages = [dict(message) for message in PARTS]
    render(messages)
    assert messages == PARTS


def test_keys_of_a_message_that_are_null_are_left_out():
    template = "{% for m in messages %}{{ m.keys() | sort | join(',') }};{% endfor %}"
    messages = [{"role": "user", "content": "a", "name": None}, assistant(None, tool_calls=[{"id": None}])]
    assert render(messages, template, **PRINTS_LITTLE).text == "content,role;role,tool_calls;"
    keys = "{{ messages[0].tool_calls[0].keys() | join }}"
    # Like transformers, only the keys of the message itself count.
    assert render(messages[1:], keys, loss_on="all").text == "id"


@pytest.mark.parametrize(
    "content", [PlainText("a\ud800"), PromptCompletion("a", "\udfff"), Conversation([user("\ud83d")])]
)
def test_text_that_is_not_unicode_is_refused(content: Any):
    assert refusal(content) == "invalid_unicode"
