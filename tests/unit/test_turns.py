"""What the model writes: stop tokens, turns in a completion, answers of tools within a turn, unclear headers."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from pipeline.job.tokenizer_source import check_stop_tokens
from support.chats import assistant, examples_of, render_config, user
from support.engines import of_any_engine
from support.paths import TOKENIZER
from support.templates import CHATML, MARKED
from support.tokenizers import save_tokenizer
from transforms import Conversation, RecordError, UserError
from transforms.chat.spans.stop_tokens import TurnRules, load_turn_rules
from transforms.chat.spans.template_facts import TemplateFacts
from transforms.model.examples import Text
from transforms.steps.render import Renderer
from transforms.tokens.tokenizer_files import fingerprint

# Nothing closes a turn but the marker of the next one, as in GLM-4.
NEXT_MARKER_CLOSES = """
{%- for message in messages -%}{{- '<|' + message.role + '|>\\n' + message.content -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
"""
MARKERS = ("<|user|>", "<|tool|>")

# The block leaves out the end of the turn.
MARKED_WITHOUT_END = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}{{- message.content -}}{%- endgeneration -%}{{- '<|im_end|>\\n' -}}
    {%- else -%}
        {{- message.content + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

# A turn prints its calls, the answers to them, and then its text, as in Gemma 4.
PRINTS_ANSWERS = """
{%- for message in messages -%}
    {%- if message.role != 'tool' -%}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
            {{- '<turn>' + message.role + '\\n' -}}
        {%- endif -%}
        {%- for call in message.tool_calls or [] -%}{{- '<call>' + call.function.name + '</call>' -}}{%- endfor -%}
        {%- set found = namespace(answer=false, stopped=false) -%}
        {%- if message.tool_calls -%}
            {%- for k in range(loop.index0 + 1, messages | length) -%}
                {%- if messages[k].role != 'tool' -%}{%- set found.stopped = true -%}
                {%- elif not found.stopped -%}
                    {%- set answer = messages[k] -%}
                    {{- '<response>' + answer.content + '</response>' -}}
                    {%- set found.answer = true -%}
                {%- endif -%}
            {%- endfor -%}
        {%- endif -%}
        {{- message.content -}}
        {%- if message.tool_calls and not found.answer -%}{{- '<response>' -}}
        {%- elif message.content -%}{{- '</turn>\\n' -}}{%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and messages[-1].role != 'tool' -%}{{- '<turn>assistant\\n' -}}{%- endif -%}
"""
CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}


def rendered(content: Any, template: str, folder: object = TOKENIZER, **options: Any) -> Text:
    """Render one example with both engines, which must agree. Raises RecordError."""
    content = Conversation(content) if isinstance(content, list) else content
    batches = [
        Renderer(render_config(template, folder, engine=one, **options))(examples_of(content))
        for one in ("reference", "auto")
    ]
    assert of_any_engine(batches[0]) == of_any_engine(batches[1])
    for reject in batches[0].outcomes.rejects:
        raise RecordError(reject.reason, reject.detail)
    return batches[1].texts[0]


def trained(content: Any, template: str, folder: object = TOKENIZER, **options: Any) -> list[str]:
    text = rendered(content, template, folder, **options)
    return [text.text[start:stop] for start, stop in text.spans]


def refusal(content: Any, template: str, **options: Any) -> str:
    with pytest.raises(RecordError) as refused:
        rendered(content, template, **options)
    return refused.value.reason


TWO_TURNS = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]


# Completions.


def test_only_the_assistants_messages_of_a_completion_are_trained():
    messages = [*TWO_TURNS, user("4+4?"), assistant("8")]
    assert trained(Conversation(messages, completion_start=3), CHATML) == ["6<|im_end|>\n", "8<|im_end|>\n"]
    assert trained(Conversation(messages, completion_start=3), MARKED) == ["6<|im_end|>\n", "8<|im_end|>\n"]
    # The header between two messages of the assistant is not written by the model.
    two = [user("2+2?"), assistant("4"), assistant("Four.")]
    assert trained(Conversation(two, completion_start=1), CHATML) == ["4<|im_end|>\n", "Four.<|im_end|>\n"]


def test_completion_that_is_given_trains_on_all_that_follows_the_prompt():
    conversation = Conversation(TWO_TURNS, completion_start=1)
    assert trained(conversation, CHATML, loss_on="completion") == [
        "4<|im_end|>\n<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant\n6<|im_end|>\n"
    ]


# The last message is trimmed only, so that a prompt is another text with an answer after it.
TRIMS_LAST = "{%- for m in messages -%}[{{ m.role }}]{{ m.content | trim if loop.last else m.content }}{%- endfor -%}"


@pytest.mark.parametrize("closing", ["", "|"])
def test_completion_begins_with_its_first_turn_if_the_prompt_is_printed_differently_before_it(closing):
    template = TRIMS_LAST.replace("{%- endfor", "{{ '' if loop.last else '" + closing + "' }}{%- endfor")
    for question in ("2+2?", "2+2?  \n"):
        conversation = Conversation([user(question), assistant("4")], completion_start=1)
        assert trained(conversation, template, loss_on="completion") == ["[assistant]4"]
        assert trained(conversation.messages, template) == ["[assistant]4"]


def test_completion_that_begins_with_a_tool_is_refused_if_its_prompt_is_printed_differently_before_it():
    messages = [user("2+2?  "), {"role": "tool", "content": "4"}, assistant("4")]
    template = TRIMS_LAST.replace("{%- endfor", "{{ '' if loop.last else '|' }}{%- endfor")
    for question in messages[0]["content"], "2+2?":
        conversation = Conversation([user(question), *messages[1:]], completion_start=1)
        assert refusal(conversation, template, loss_on="completion") == "prompt_not_a_prefix"
    # The same without white space at the end is a prefix.
    conversation = Conversation([user("2+2?"), *messages[1:]], completion_start=1)
    assert trained(conversation, TRIMS_LAST, loss_on="completion") == ["[tool]4[assistant]4"]


def test_completion_of_weight_0_is_not_trained():
    assert trained(Conversation([user("2+2?"), assistant("4", weight=0)], completion_start=1), CHATML) == []


def test_completion_of_one_answer_has_a_prompt_and_one_of_several_messages_has_none():
    assert rendered(Conversation(TWO_TURNS, completion_start=3), CHATML).prompt is not None
    assert rendered(Conversation(TWO_TURNS, completion_start=1), CHATML).prompt is None


def test_completion_of_several_messages_is_rendered_by_a_compiled_template():
    contents = [Conversation(TWO_TURNS, completion_start=start) for start in (1, 2, 3)]
    batch = Renderer(render_config(CHATML))(examples_of(*contents))
    assert batch.outcomes.rendered_by_reference == {}
    assert [len(text.spans) for text in batch.texts] == [2, 1, 1]


# Stop tokens.


def test_marker_of_the_next_message_is_trained_if_it_is_a_stop_token():
    assert trained(TWO_TURNS, NEXT_MARKER_CLOSES) == ["4", "6"]
    assert trained(TWO_TURNS, NEXT_MARKER_CLOSES, eot_tokens=MARKERS) == ["4<|user|>", "6"]
    called = [user("2+2?"), assistant("Wait"), {"role": "tool", "content": "4"}, assistant("4"), user("Thanks")]
    assert trained(called, NEXT_MARKER_CLOSES, eot_tokens=MARKERS) == ["Wait<|tool|>", "4<|user|>"]
    last = {"eot_tokens": MARKERS, "loss_on": "last_assistant"}
    assert trained(TWO_TURNS[:3], NEXT_MARKER_CLOSES, **last) == ["4<|user|>"]


def test_stop_token_after_white_space_is_trained_with_it():
    template = NEXT_MARKER_CLOSES.replace("message.content -}}", "message.content + '\\n' -}}")
    assert trained(TWO_TURNS, template, eot_tokens=MARKERS) == ["4\n<|user|>", "6\n"]


def test_turn_that_ends_with_a_stop_token_does_not_get_another_one():
    tokens = ("<|im_end|>", "<|im_start|>")
    assert trained(TWO_TURNS, CHATML, eot_tokens=tokens) == ["4<|im_end|>\n", "6<|im_end|>\n"]


def test_longest_stop_token_that_follows_is_trained():
    assert trained(TWO_TURNS, NEXT_MARKER_CLOSES, eot_tokens=("<|", "<|user|>")) == ["4<|user|>", "6"]


@pytest.mark.parametrize("content", ["<|user|>", "  <|user|> x", "Type <|user|>", "<|user|>\n2?"])
@pytest.mark.parametrize("position", range(4))
def test_stop_token_in_a_content_is_a_part_of_the_content(content, position):
    messages = [{**message, "content": content} if i == position else message for i, message in enumerate(TWO_TURNS)]
    expected = [messages[1]["content"] + "<|user|>", messages[3]["content"]]
    assert trained(messages, NEXT_MARKER_CLOSES, eot_tokens=MARKERS, special_tokens_in_content="allow") == expected
    # Without a marker, a user's text follows the answer.
    no_markers = "{% for m in messages %}{{ m.content + ('|' if m.role == 'user' else '') }}{% endfor %}"
    expected = [messages[1]["content"], messages[3]["content"]]
    assert trained(messages, no_markers, eot_tokens=MARKERS, special_tokens_in_content="allow") == expected


def test_stop_tokens_that_are_named_are_added_to_marked_turns():
    assert trained(TWO_TURNS, MARKED_WITHOUT_END) == ["4", "6"]
    found = trained(TWO_TURNS, MARKED_WITHOUT_END, eot_tokens=("<|im_end|>",))
    assert found == ["4<|im_end|>", "6<|im_end|>"]


def folder_with(tmp_path: Path, generation_config: str) -> Path:
    folder = Path(save_tokenizer(tmp_path / "tokenizer"))
    (folder / "generation_config.json").write_text(generation_config)
    return folder


@pytest.mark.parametrize("ids", [1, [1], [1, 100_000]])
def test_stop_tokens_are_read_from_the_generation_config(tmp_path, ids):
    folder = folder_with(tmp_path, json.dumps({"eos_token_id": ids, "temperature": 0.6}))
    assert load_turn_rules(render_config(folder=folder)) == TurnRules(("</s>",))
    template = NEXT_MARKER_CLOSES.replace("'<|' + message.role + '|>", "'</s>' + message.role + '")
    template = template.replace("<|assistant|>", "</s>assistant")
    assert trained(TWO_TURNS, template, folder) == ["4</s>", "6"]
    # Markers decide, if no stop token is named.
    marked = MARKED_WITHOUT_END.replace("<|im_end|>", "</s>")
    assert trained(TWO_TURNS, marked, folder) == ["4", "6"]


def test_generation_config_without_stop_tokens_changes_nothing(tmp_path):
    assert load_turn_rules(render_config(folder=folder_with(tmp_path, "{}"))) == TurnRules()


def test_stop_token_that_the_vocabulary_cannot_express_is_a_user_error():
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<|user|>": 1}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    check_stop_tokens(["<|user|>"], tokenizer)
    with pytest.raises(UserError, match=r"--eot_tokens <\|tool\|>: the tokenizer has no tokens for this text"):
        check_stop_tokens(["<|user|>", "<|tool|>"], tokenizer)


def test_fingerprint_changes_with_the_stop_tokens_and_not_with_the_temperature():
    one, same, other = (
        fingerprint({"tokenizer.json": b"{}", "generation_config.json": json.dumps(config).encode()})
        for config in ({"eos_token_id": 1}, {"eos_token_id": [1], "temperature": 1}, {"eos_token_id": 2})
    )
    assert one == same != other


# Turns that close with nothing.


def notes(template: str, *contents: Any, **options: Any) -> dict[str, int]:
    found = [
        Renderer(render_config(template, engine=engine, **options))(examples_of(*contents)).outcomes.notes
        for engine in ("reference", "auto")
    ]
    assert found[0] == found[1]
    return dict(found[0])


PAIR = Conversation([user("2+2?"), assistant("4")], completion_start=1)


@pytest.mark.parametrize(
    ("template", "options", "expected"),
    [
        (CHATML, {}, None),
        (MARKED, {}, None),
        (NEXT_MARKER_CLOSES, {}, 3),
        (NEXT_MARKER_CLOSES, {"eot_tokens": MARKERS}, 2),  # nothing follows the last turn of each record
        (NEXT_MARKER_CLOSES, {"loss_on": "last_assistant"}, 2),
        (NEXT_MARKER_CLOSES, {"loss_on": "all"}, None),
        (NEXT_MARKER_CLOSES.replace("message.content -}}", "message.content + '\n' -}}"), {}, 3),
        (MARKED_WITHOUT_END, {}, 3),
        (MARKED_WITHOUT_END, {"eot_tokens": ("<|im_end|>",)}, None),
    ],
)
def test_turns_that_close_with_nothing_are_counted(template, options, expected):
    assert notes(template, TWO_TURNS, PAIR, **options).get("turns_without_end") == expected


# A tool call is printed too, and nothing closes it but its own tag, as in GLM-4.
PRINTS_CALLS = NEXT_MARKER_CLOSES.replace(
    "{%- endfor -%}",
    "{%- for call in message.tool_calls or [] -%}"
    "{{- '<call>' + call.function.name + ' ' + call.function.arguments|tojson + '</call>' -}}{%- endfor -%}"
    "{%- endfor -%}",
)
RESULT = {"role": "tool", "content": "seen"}


@pytest.mark.parametrize(
    ("eot_tokens", "expected"),
    [((), 5), (("<|user|>",), 4), (MARKERS, 2), (("<|tool|>", "<|assistant|>"), 2), ((*MARKERS, "<|assistant|>"), 1)],
)
def test_turn_is_open_if_no_stop_token_follows_it_whatever_message_does(eot_tokens, expected):
    called = assistant("", tool_calls=[CALL])
    messages = [user("Look."), called, RESULT, assistant("A"), assistant("B"), user("Go."), called, RESULT]
    count = notes(PRINTS_CALLS, [*messages, assistant("C")], eot_tokens=eot_tokens).get("turns_without_end")
    assert count == expected


def test_tool_call_that_the_template_closes_is_not_open():
    closed = PRINTS_CALLS.replace("{%- endfor -%}{%- endfor -%}", "{%- endfor -%}{{- '<|end|>' -}}{%- endfor -%}")
    called = assistant("", tool_calls=[CALL, CALL])
    for messages in ([user("Look."), called], [user("Look."), called, RESULT, RESULT, assistant("A")]):
        assert notes(closed, messages) == {}
        assert notes(PRINTS_CALLS, messages)["turns_without_end"] == len(messages) // 2
    only_calls = PRINTS_CALLS.replace("message.content -}}", "message.content + '<|end|>' -}}")
    assert notes(only_calls, TWO_TURNS) == {}


def test_answer_before_a_tools_result_is_open_if_no_stop_token_follows_it():
    messages = [user("Look."), assistant("look()"), RESULT, user("Go.")]
    assert notes(NEXT_MARKER_CLOSES, messages, eot_tokens=("<|user|>",)) == {"turns_without_end": 1}
    assert notes(NEXT_MARKER_CLOSES, messages, eot_tokens=("<|tool|>",)) == {}


def test_template_that_ignores_the_generation_prompt_is_noted_only_if_a_turn_is_trained():
    ignores = CHATML.partition("{%- if add_generation_prompt")[0]
    noted = {"records_without_generation_prompt": 1}
    assert notes(ignores, TWO_TURNS, loss_on="all") == {}
    assert notes(ignores, [user("2+2?"), assistant("4", weight=0)]) == {}
    assert notes(ignores, TWO_TURNS, [user("2+2?")]) == noted
    conversation = Conversation([user("2+2?"), assistant("4"), user("Thanks.")], completion_start=2)
    assert notes(ignores, conversation, PAIR, loss_on="completion") == noted


def test_template_that_ignores_the_generation_prompt_is_noted():
    ignores = CHATML.partition("{%- if add_generation_prompt")[0]
    assert notes(ignores, TWO_TURNS, PAIR) == {"records_without_generation_prompt": 2}
    assert trained(TWO_TURNS, ignores) == [f"<|im_start|>assistant\n{n}<|im_end|>\n" for n in (4, 6)]
    no_headers = (
        "{% for m in messages %}{{ '[INST]' + m.content + '[/INST]' if m.role == 'user' else m.content + '</s>' }}"
        "{% endfor %}"
    )
    assert notes(no_headers, TWO_TURNS, PAIR) == {}


# White space after the end of a turn.


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, ["4<|im_end|>", "6<|im_end|>"]),
        (MARKED, ["4<|im_end|>", "6<|im_end|>"]),
        (MARKED_WITHOUT_END, ["4", "6"]),
        (CHATML.replace("<|im_end|>\\n", "<|im_end|>"), ["4<|im_end|>", "6<|im_end|>"]),
        (CHATML.replace("<|im_end|>\\n", "<|im_end|> \\n\\n"), ["4<|im_end|>", "6<|im_end|>"]),
        (CHATML.replace("<|im_end|>\\n", "\\n"), ["4\n", "6\n"]),  # nothing ends a turn, so that the line break may
    ],
)
def test_white_space_after_the_end_of_a_turn_is_not_trained_if_that_is_chosen(template: str, expected: list[str]):
    assert trained(TWO_TURNS, template, after_end="mask") == expected
    assert trained(TWO_TURNS, template, after_end="mask", loss_on="last_assistant") == expected[1:]
    as_usual = trained(TWO_TURNS, template)
    assert [text.rstrip() for text in as_usual] == [text.rstrip() for text in expected]
    assert trained([user("2+2?"), assistant("4 \n")], CHATML, after_end="mask") == ["4 \n<|im_end|>"]


def test_white_space_after_the_end_of_a_call_is_not_trained_if_that_is_chosen():
    template = looping(CALLS["in its turn"].replace("<|end|>", "{{ '\\n<|end|>\\n' }}"))
    assert trained(LOOKED, template, after_end="mask") == [
        '<call>look {"at": "Thun"}</call>\n<|end|>',
        "Done.\n<|end|>",
    ]
    # The next marker ends a turn, so that the line break before it is written by the model.
    template = looping("<|{{ m.role }}|>{{ m.content }}" + _CALLS.replace("CALLER", "m") + "{{ '\\n' }}")
    tokens = {"eot_tokens": ("<|tool|>", "<|user|>"), "after_end": "mask"}
    assert trained(LOOKED, template, **tokens) == ['<call>look {"at": "Thun"}</call>\n<|tool|>', "Done.\n"]


@pytest.mark.parametrize("text", ["<|im_end|>\n", "4<|im_end|>\n\n"])
def test_white_space_of_a_content_is_trained_also_after_a_text_that_ends_turns(text: str):
    end = "'' if 'im_end' in message.content else '<|im_end|>\\n'"
    template = CHATML.replace("message.content + '<|im_end|>\\n'", f"message.content + ({end})")
    assert template != CHATML
    options = {"after_end": "mask", "special_tokens_in_content": "allow"}
    assert trained([user("2+2?"), assistant(text), *TWO_TURNS[2:]], template, **options) == [text, "6<|im_end|>"]


def test_white_space_after_the_end_of_a_completion_is_not_trained_if_that_is_chosen():
    conversation = Conversation(TWO_TURNS, completion_start=1)
    for template in (CHATML, MARKED):
        assert trained(conversation, template, after_end="mask") == ["4<|im_end|>", "6<|im_end|>"]
        whole = trained(conversation, template, after_end="mask", loss_on="completion")
        assert whole == ["4<|im_end|>\n<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant\n6<|im_end|>"]
        question = Conversation(TWO_TURNS[:3], completion_start=1)
        assert trained(question, template, after_end="mask", loss_on="completion")[0].endswith("3+3?<|im_end|>\n")
        assert trained(TWO_TURNS, template, after_end="mask", loss_on="all")[0].endswith("6<|im_end|>\n")


# Weights.


WEIGHTS = pytest.mark.parametrize("template", [CHATML, MARKED], ids=["unmarked", "marked"])


@WEIGHTS
@pytest.mark.parametrize("loss_on", ["auto", "completion"])
def test_completion_trains_on_the_turns_of_its_messages_if_one_has_a_weight(loss_on: str, template: str):
    def completion(*messages: Any) -> Text:
        return rendered(Conversation([user("2+2?"), *messages], completion_start=1), template, loss_on=loss_on)

    assert completion(assistant("4", weight=0)).spans == []
    text = completion(assistant("4", weight=0), user("3+3?"), assistant("6"), user("4+4?"), assistant("8", weight=1))
    assert [text.text[a:b] for a, b in text.spans] == ["6<|im_end|>\n", "8<|im_end|>\n"]
    text = completion(assistant([{"type": "text", "text": "Hm.", "weight": 0}, {"type": "text", "text": "4"}]))
    assert [text.text[a:b] for a, b in text.spans] == ["\n4<|im_end|>\n"]


def test_weight_in_the_prompt_changes_nothing_of_the_completion():
    messages = [user("2+2?"), assistant("4", weight=0), *TWO_TURNS]
    conversation = Conversation(messages, completion_start=3)
    everything = trained(conversation, CHATML, loss_on="completion")
    assert everything == trained(
        Conversation([*TWO_TURNS[:2], *TWO_TURNS], completion_start=3), CHATML, loss_on="completion"
    )
    assert "<|im_start|>user\n3+3?" in everything[0]


@WEIGHTS
@pytest.mark.parametrize(
    "answer",
    [
        assistant("4", weight=0),
        assistant([{"type": "text", "text": "4"}, {"type": "text", "text": "!", "weight": 0}]),
    ],
)
def test_record_with_a_weight_is_refused_if_everything_is_trained(answer: dict[str, Any], template: str):
    assert refusal([user("2+2?"), answer], template, loss_on="all") == "loss_not_applicable"
    assert len(trained([user("2+2?"), assistant("4", weight=1)], template, loss_on="all")) == 1


# Parts that are not trained on.

READS_PARTS = CHATML.replace(
    "message.content +",
    "(message.content if message.content is string else message.content | map(attribute='text') | join('')) +",
)


def parts(*texts: str | tuple[str, int]) -> list[dict[str, Any]]:
    pairs = [(text, {}) if isinstance(text, str) else (text[0], {"weight": text[1]}) for text in texts]
    return [{"type": "text", "text": text, **weight} for text, weight in pairs]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (parts(("Hm. ", 0), "4"), ["4<|im_end|>\n"]),
        (parts("4", (" it is", 0)), ["4", "<|im_end|>\n"]),
        (parts("4", (" it is ", 0), "so", ("!", 0)), ["4", "so", "<|im_end|>\n"]),
        (parts("4", ("4", 0), "4"), ["4", "4<|im_end|>\n"]),
        (parts("4", (" ", 0)), ["4 <|im_end|>\n"]),
    ],
)
def test_parts_of_weight_0_are_not_trained(content, expected):
    messages = [user("2+2?"), assistant(content), *TWO_TURNS[2:]]
    assert trained(messages, READS_PARTS) == [*expected, "6<|im_end|>\n"]
    assert trained(messages, READS_PARTS, loss_on="last_assistant") == ["6<|im_end|>\n"]
    assert trained(Conversation(messages[:2], completion_start=1), READS_PARTS) == expected


def test_parts_of_weight_0_are_not_trained_if_the_template_reads_strings_only_or_has_markers():
    messages = [user("2+2?"), assistant(parts(("Hm.", 0), "4"))]
    for template in (CHATML, MARKED):
        assert trained(messages, template) == ["\n4<|im_end|>\n"]


def test_turn_of_whose_parts_another_text_is_made_is_refused():
    quotes = CHATML.replace("message.content +", "(message.content | tojson) +")
    assert refusal([user("2+2?"), assistant(parts("4, that is: ", ("four", 0)))], quotes) == "spans_not_established"


def test_part_of_weight_0_of_which_a_piece_is_printed_is_not_trained():
    cuts = CHATML.replace("message.content +", "message.content[:11] +")
    messages = [user("2+2?"), assistant(parts("4, yes: ", ("four", 0)))]
    assert trained(messages, cuts, unprinted="report") == ["4, yes: \n", "<|im_end|>\n"]
    cuts = CHATML.replace("message.content +", "message.content[-6:] +")
    assert trained(messages, cuts, unprinted="report") == [" \n", "<|im_end|>\n"]


# Answers of tools within a turn.


def test_answers_that_are_printed_within_a_turn_are_not_trained_and_what_opens_them_is():
    called = [user("Look."), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "seen"}, assistant("Done.")]
    assert trained(called, PRINTS_ANSWERS) == ["<call>look</call><response>", "Done.</turn>\n"]
    assert trained(called[:2], PRINTS_ANSWERS) == ["<call>look</call><response>"]


def test_each_piece_of_a_turn_around_the_answers_is_trained():
    called = [user("Look."), assistant("I look.", tool_calls=[CALL]), {"role": "tool", "content": "seen"}]
    first = ["<call>look</call><response>", "I look.</turn>\n"]
    assert trained(called, PRINTS_ANSWERS) == first
    assert trained([*called, assistant("Done.")], PRINTS_ANSWERS) == [first[0], first[1] + "Done.</turn>\n"]


def test_answer_that_is_printed_as_a_part_of_the_turn_is_refused():
    template = PRINTS_ANSWERS.replace("{%- set answer = messages[k] -%}", "")
    template = template.replace("answer.content", "messages[k].content")
    called = [user("Look."), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "seen"}, assistant("Done.")]
    assert refusal(called, template) == "spans_not_established"
    # The template compares contents, so that it is unknown where they are.
    template = template.replace("{{- message.content -}}", "{{- 'yes' if message.content == 'Done.' -}}")
    assert refusal(called, template) == "spans_not_established"


# Texts in the turns that they belong to.

_CALL = "<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
_CALLS = "{%- for c in CALLER.tool_calls or [] -%}" + _CALL + "{%- endfor -%}"
CALLS = {
    "in its turn": "<|{{ m.role }}|>{{ m.content }}" + _CALLS.replace("CALLER", "m") + "<|end|>",
    "before the header": _CALLS.replace("CALLER", "m") + "<|{{ m.role }}|>{{ m.content }}<|end|>",
    "in the header": "<|{{ m.role }}" + _CALLS.replace("CALLER", "m") + "|>{{ m.content }}<|end|>",
    "in the tool's message": (
        "<|{{ m.role }}|>{% if m.role == 'tool' %}"
        + _CALLS.replace("CALLER", "messages[loop.index0 - 1]")
        + "{% endif %}{{ m.content }}<|end|>"
    ),
    "the name again in the tool's message": (
        "<|{{ m.role }}|>{% if m.role == 'tool' %}{{ messages[loop.index0 - 1].tool_calls[0].function.name }}: "
        "{% endif %}{{ m.content }}" + _CALLS.replace("CALLER", "m") + "<|end|>"
    ),
    "in the next answer": (
        "<|{{ m.role }}|>{% if m.role == 'assistant' and loop.index0 > 1 %}"
        + _CALLS.replace("CALLER", "messages[loop.index0 - 2]")
        + "{% endif %}{{ m.content }}<|end|>"
    ),
}
AT_THE_END = "{%- for m in messages -%}" + _CALLS.replace("CALLER", "m") + "{%- endfor -%}"
THINKS = "<think>{{ REASONER.reasoning_content }}</think>"


def looping(body: str, after: str = "") -> str:
    prompt = "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    return "{%- for m in messages -%}" + body + "{%- endfor -%}" + after + prompt


LOOKS = {"type": "function", "function": {"name": "look", "arguments": {"at": "Thun"}}}
LOOKED = [user("Look."), assistant("", tool_calls=[LOOKS]), {"role": "tool", "content": "560 m"}, assistant("Done.")]


@pytest.mark.parametrize("where", [*CALLS, "at the end"])
def test_call_is_trained_in_its_turn_or_the_record_is_refused(where: str):
    template = looping(CALLS.get(where, CALLS["in its turn"].replace(_CALLS.replace("CALLER", "m"), "")))
    if where == "at the end":
        template = template.replace("{%- if add_", AT_THE_END + "{%- if add_")
    if where in ("in its turn", "the name again in the tool's message"):
        expected = ['<call>look {"at": "Thun"}</call><|end|>', "Done.<|end|>"]
        assert trained(LOOKED, template) == expected
    else:
        assert refusal(LOOKED, template) == "spans_not_established"


@pytest.mark.parametrize(
    "body",
    [
        "{% if m.role == 'assistant' %}" + THINKS.replace("REASONER", "m") + "{% endif %}<|{{ m.role }}|>"
        "{{ m.content }}<|end|>",
        "<|{{ m.role }}|>{% if loop.index0 == 2 %}" + THINKS.replace("REASONER", "messages[1]") + "{% endif %}"
        "{{ m.content }}<|end|>",
    ],
    ids=["before the header", "in the next question"],
)  # fmt: skip
def test_reasoning_is_trained_in_its_turn_or_the_record_is_refused(body: str):
    messages = [user("2+2?"), assistant("4", reasoning_content="A sum."), user("3+3?")]
    assert refusal(messages, looping(body)) == "spans_not_established"
    in_turn = "<|{{ m.role }}|>{% if m.role == 'assistant' %}" + THINKS.replace("REASONER", "m") + "{% endif %}"
    spans = trained(messages, looping(in_turn + "{{ m.content }}<|end|>"))
    assert spans == ["<think>A sum.</think>4<|end|>"]


WORDS = looping("{{ m.role | capitalize }}: {{ m.content }}" + _CALLS.replace("CALLER", "m") + "</s>")


@pytest.mark.parametrize("prompt", ["Assistant:", "Assistant: ", "Assistant: <think>\n"])
@pytest.mark.parametrize("first", [[{"role": "system", "content": "Be kind."}], [user("Look.")], []])
def test_header_is_never_found_in_a_text_of_the_record(first: list[dict[str, Any]], prompt: str):
    template = WORDS.replace("<|assistant|>{%- endif", "{{ '" + prompt + "' }}{%- endif")
    function = {"name": "Assistant:", "arguments": {"Assistant:": "Assistant: <think>\n Assistant:"}}
    messages = [*first, assistant("", tool_calls=[{**LOOKS, "function": function}]), *LOOKED[2:]]
    found = trained(messages, template, chat_template_kwargs={"prompt": prompt})
    expected = '<call>Assistant: {"Assistant:": "Assistant: <think>\\n Assistant:"}</call></s>'
    assert [text.lstrip() for text in found] == [expected, "Done.</s>"]


# Headers.


def test_answer_whose_header_is_shorter_than_the_generation_prompt_is_trained_as_a_whole():
    """The template of Nemotron 3 prints `<think></think>` before an answer without these."""
    template = CHATML.replace("<|im_start|>assistant\\n", "<|im_start|>assistant\\n<think>\\n").replace(
        "message.content",
        "('<think></think>' if message.role == 'assistant' and 'think>' not in message.content else '') "
        "+ message.content",
    )
    for content in ("A sum.</think>4", "</think>4", "Is <think> a tag?"):
        messages = [user("2+2?"), assistant(content), *TWO_TURNS[2:]]
        assert trained(messages, template) == [f"{content}<|im_end|>\n", "</think>6<|im_end|>\n"]
        assert trained(messages[1:2], template) == [f"{content}<|im_end|>\n"]


def test_answers_in_a_row_that_the_template_prints_as_one_turn_are_trained():
    """As in Gemma 4."""
    joins = looping(
        "{%- if m.role != 'assistant' or loop.first or loop.previtem.role != 'assistant' -%}<|{{ m.role }}|>"
        "{%- endif -%}{{ m.content }}" + _CALLS.replace("CALLER", "m") + "{%- if m.role != 'assistant' or loop.last or "
        "loop.nextitem.role != 'assistant' -%}<|end|>{%- endif -%}"
    )
    messages = [user("2+2?"), assistant("Four"), assistant(", or 4", tool_calls=[LOOKS]), assistant("!"), user("So.")]
    call = '<call>look {"at": "Thun"}</call>'
    assert trained(messages, joins) == [f"Four, or 4{call}!<|end|>"]
    messages[1]["weight"] = 0
    assert trained(messages, joins) == [f", or 4{call}!<|end|>"]
    messages[2] = assistant("", tool_calls=[LOOKS])
    assert trained(messages, joins) == [f"{call}!<|end|>"]
    assert trained([user("2+2?"), assistant("4"), assistant("Four")], joins) == ["4Four<|end|>"]
    # A template that prints no header at all does not join anything.
    bare = looping("{{ '' if m.role == 'assistant' else m.role }}{{ m.content }}<|end|>")
    assert refusal([user("2+2?"), assistant("4"), assistant("Four")], bare) == "spans_not_established"


@pytest.mark.parametrize("prompt", ["\\nRemember to answer:", "\\nRemember the rules.\\n", "<|assistant|>"])
def test_header_of_white_space_is_refused_if_the_generation_prompt_is_another_text(prompt):
    template = (
        "{% for m in messages %}{{ '\\n' + m.content + '\\n' if m.role == 'assistant' else 'Q: ' + m.content + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '" + prompt + "' }}{% endif %}"
    )
    assert refusal(TWO_TURNS[:2], template) == "spans_not_established"
    assert refusal(TWO_TURNS, template) == "spans_not_established"


@pytest.mark.parametrize("prompt", ["", "{% if add_generation_prompt %}{{ '\\n' }}{% endif %}"])
def test_answer_without_a_header_is_trained_if_there_is_no_generation_prompt(prompt):
    template = (
        "{% for m in messages %}{{ '\\n' + m.content + '</s>' if m.role == 'assistant' "
        "else '[INST]' + m.content + '[/INST]' }}{% endfor %}" + prompt
    )
    assert [part.strip() for part in trained(TWO_TURNS, template)] == ["4</s>", "6</s>"]


_TURN = "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}"
_TURN += "{%- for call in message.tool_calls or [] -%}{{- call.function.name -}}{%- endfor -%}{{- '<|im_end|>\\n' -}}"
_PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
_LAST = f"{{%- set message = messages[-1] -%}}{_TURN}{_PROMPT}"
PRINTS_OUTSIDE_OF_THE_LOOP = {
    "the last message": f"{{%- for message in messages[:-1] -%}}{_TURN}{{%- endfor -%}}{_LAST}",
    "a text that was collected": (
        "{%- set found = namespace(text='') -%}{%- for message in messages -%}{%- if message.role == 'assistant' -%}"
        "{%- set found.text = message.content or message.tool_calls[0].function.name -%}{%- else -%}"
        f"{_TURN}{{%- endif -%}}{{%- endfor -%}}{{{{- 'A: ' + found.text -}}}}{_PROMPT}"
    ),
}


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("template", PRINTS_OUTSIDE_OF_THE_LOOP.values(), ids=PRINTS_OUTSIDE_OF_THE_LOOP)
@pytest.mark.parametrize("is_call", [False, True], ids=["answer", "call"])
def test_turn_that_is_printed_outside_of_the_loop_is_not_left_out_of_the_mask(template, engine, is_call):
    call = {"type": "function", "function": {"name": "weather", "arguments": {}}}
    last = assistant("", tool_calls=[call]) if is_call else assistant("Sunny.")
    conversations = [[user(f"Question {number}"), last] for number in range(3)]
    texts = Renderer(render_config(template, engine=engine, unprinted="report"))(examples_of(*conversations))
    assert [reject.reason for reject in texts.outcomes.rejects] == ["spans_not_established"] * 3
    assert "messages[1] outside of a loop over the messages" in texts.outcomes.rejects[0].detail


def test_what_is_kept_of_template_arguments_is_bounded():
    renderer = Renderer(render_config(CHATML + "{{ suffix }}"))
    turns = [user("2+2?"), assistant("4")]
    contents = [Conversation(turns, template_kwargs={"suffix": f"{number}"}) for number in range(150)]
    texts = renderer(examples_of(*contents)).texts
    assert [text.text[-3:].strip() for text in texts[-2:]] == ["148", "149"]
    gc.collect()
    assert sum(isinstance(each, TemplateFacts) for each in gc.get_objects()) < 150
