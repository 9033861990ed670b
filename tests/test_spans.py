"""Spans under any template: right or refused, never wrong.

Templates are made up from parts (how a turn opens and closes, what is trimmed, folded, dropped, looked at) whose right
spans are known by construction, and are put to random conversations. Two finders that are in use elsewhere, the prefix
difference and the search for the content, fail the same test.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import CHATS, SHARED, TOKENIZER
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from transforms.chat.template import ChatTemplate
from transforms.chat.turns import TurnFinder, merged
from transforms.errors import RecordError
from transforms.inputs.schemas import ROLE_NAMES, content_of
from transforms.model.examples import Conversation, Span
from transforms.tokens.tokenizer import load_tokenizer

Message = dict[str, Any]


@dataclass(frozen=True)
class Style:
    """A made-up template, as a Jinja source and as a function that knows which characters the model would write.

    header, closing: what stands in front of a turn, with the role's name for "@", and behind it.
    prompt: what add_generation_prompt prints beyond the assistant's header. shown: what history shows in its place.
    end: what the whole ends with where no generation prompt is asked for. last_closing: of the last turn, if another.
    trims: whether contents are stripped. folds: whether the system message stands in the first user's turn.
    default_system: printed in front of a first turn that is not the system's, in that turn's iteration.
    drops_reasoning: whether "<think>...</think>" is dropped from turns that are not the last.
    separates: whether what closes a turn is printed by the turn behind it. by_number: whether it loops over numbers.
    looks_back, looks_ahead: loops over all messages inside of each turn, which print nothing.
    """

    header: str
    closing: str
    prompt: str = ""
    shown: str = ""
    end: str = ""
    last_closing: str | None = None
    trims: bool = False
    folds: bool = False
    default_system: str = ""
    drops_reasoning: bool = False
    separates: bool = False
    by_number: bool = False
    looks_back: bool = False
    looks_ahead: bool = False

    def source(self) -> str:
        """The template's Jinja."""
        content = "message.content | trim" if self.trims else "message.content"
        if self.drops_reasoning:
            content = (
                f"(message.content if loop.last else message.content.split('</think>')[-1]){' | trim' * self.trims}"
            )
        opening, closing = _quoted(self.header).replace("@", "' + message.role + '"), _quoted(self.closing)
        parts = ["{%- set all = messages -%}"]
        if self.folds:
            parts.append(
                "{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content + '\\n' -%}"
                "{%- set all = messages[1:] -%}{%- else -%}{%- set system = '' -%}{%- endif -%}"
            )
        if self.by_number:
            parts.append("{%- for i in range(all | length) -%}{%- set message = all[i] -%}")
        else:
            parts.append("{%- for message in all -%}")
        if self.looks_back:
            parts.append(
                "{%- for other in all[::-1] -%}{%- if other.role == 'tool' -%}{%- break -%}{%- endif -%}{%- endfor -%}"
            )
        if self.looks_ahead:
            parts.append("{%- set next = all[loop.index0 + 1] if not loop.last else none -%}")
        if self.default_system:
            system = _quoted(self.default_system)
            parts.append(f"{{%- if loop.first and message.role != 'system' -%}}{{{{- {system} -}}}}{{%- endif -%}}")
        if self.separates:
            parts.append(f"{{%- if not loop.first -%}}{{{{- {closing} -}}}}{{%- endif -%}}")
        parts.append(f"{{{{- {opening} -}}}}")
        if self.shown:
            parts.append(f"{{%- if message.role == 'assistant' -%}}{{{{- {_quoted(self.shown)} -}}}}{{%- endif -%}}")
        if self.folds:
            parts.append("{%- if loop.first and message.role == 'user' -%}{{- system -}}{%- endif -%}")
        parts.append(f"{{{{- {content} -}}}}")
        if self.last_closing is not None:
            last = _quoted(self.last_closing)
            parts.append(f"{{%- if loop.last and not add_generation_prompt -%}}{{{{- {last} -}}}}{{%- else -%}}")
            parts.append(f"{{{{- {closing} -}}}}{{%- endif -%}}")
        elif not self.separates:
            parts.append(f"{{{{- {closing} -}}}}")
        parts.append("{%- endfor -%}")
        if self.separates:
            parts.append(f"{{{{- {closing} -}}}}")
        header = _quoted(self.header.replace("@", "assistant") + self.prompt)
        parts.append(f"{{%- if add_generation_prompt -%}}{{{{- {header} -}}}}")
        parts.append(f"{{%- else -%}}{{{{- {_quoted(self.end)} -}}}}{{%- endif -%}}")
        return "".join(parts)

    def rendered(self, messages: list[Message]) -> tuple[str, list[Span]]:
        """The text, and the spans of what the model would write, by construction."""
        text, spans, system = "", [], ""
        if self.folds and messages[0]["role"] == "system":
            system, messages = messages[0]["content"] + "\n", messages[1:]
        for i, message in enumerate(messages):
            last = i == len(messages) - 1
            if self.default_system and i == 0 and message["role"] != "system":
                text += self.default_system
            text += self.header.replace("@", message["role"])
            start = len(text)
            content = message["content"]
            if self.drops_reasoning and not last:
                content = content.split("</think>")[-1]
            content = content.strip() if self.trims else content
            if message["role"] == "assistant":
                text += self.shown
                start += len(_common(self.prompt, self.shown + content))
            if self.folds and i == 0 and message["role"] == "user":
                text += system
            text += content
            text += self.last_closing if last and self.last_closing is not None else self.closing
            if last:
                text += self.end
            if message["role"] == "assistant":
                spans.append((start, len(text)))
        return text, merged(spans)


def _common(prompt: str, answer: str) -> str:
    """What of the generation prompt behind the header the answer begins with: all of it, or its whole first markers."""
    if answer.startswith(prompt):
        return prompt
    marker = prompt.partition(">")[0] + ">"
    return marker if prompt and answer.startswith(marker) else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


# Each of the known traps is one of these: headers and closings that share characters, closings that differ at the end,
# generation prompts that go further than history, turns that are closed by the next one.
STYLES = st.builds(
    Style,
    header=st.sampled_from(
        ["<|im_start|>@\n", "<|@|>", "<|@|>\n", "[@] ", "### @:\n", "<bos|><@>", "<|start|>@<|message|>"]
    ),
    closing=st.sampled_from(["<|im_end|>\n", "<|end|>", "<|eot|>", "</s>", "\n\n", "<|end|>\n", "<|turn|>\n\n"]),
    end=st.sampled_from(["", "", "<|endoftext|>"]),
    last_closing=st.sampled_from([None, None, "<|return|>"]),
    trims=st.booleans(),
    folds=st.booleans(),
    default_system=st.sampled_from(["", "", "<|im_start|>system\nBe kind.<|im_end|>\n"]),
    drops_reasoning=st.booleans(),
    looks_back=st.booleans(),
    looks_ahead=st.booleans(),
    by_number=st.booleans(),
    separates=st.booleans(),
).flatmap(
    lambda style: st.sampled_from(
        [("", ""), ("", ""), ("<think>\n", ""), ("<think>\n", "<think></think>"), ("", "<channel>")]
    ).map(lambda pair: with_prompt(style, *pair))
)


def with_prompt(style: Style, prompt: str, shown: str) -> Style:
    values = {**vars(style), "prompt": prompt, "shown": shown}
    if style.by_number:
        # A loop over numbers has no message of its own for loop.first to be asked of in a made-up way.
        values |= {"looks_ahead": False}
    if style.separates:
        values |= {"last_closing": None}
    return Style(**values)


CONTENTS = st.one_of(
    st.sampled_from(
        ["", "Hi", "yes", "assistant", "user", " padded \n", "\n", "<think>\nplan\n</think>\n\nDone.", "Grüße 你好 👍",
         "<think></think>x", "<|im_end|>", "<|im_start|>assistant\n", "<|assistant|>", "### assistant:\n", "</s>",
         "[assistant] ", "<|end|><|user|>", "\U0010f000x\U0010f001"]
    ),
    st.text(alphabet="ab<|>\n /", max_size=12),
)  # fmt: skip
CONVERSATIONS = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant"]), CONTENTS
    ),
    min_size=1,
    max_size=7,
).flatmap(lambda turns: st.sampled_from([turns, [{"role": "system", "content": "Be brief."}, *turns]]))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(TOKENIZER))


def wrong(style: Style, messages: list[Message], text: str, spans: list[Span]) -> str | None:
    """Where the spans are not those by construction. White space at their edges is as good in as out."""
    expected_text, expected = style.rendered(messages)
    assert text == expected_text, "the made-up template and its construction differ"
    ours, right = ({i for a, b in these for i in range(a, b)} for these in (spans, expected))
    for i in sorted(ours ^ right):
        if not text[i].isspace():
            what = "trained" if i in ours else "not trained"
            return f"{what} at {i}: {text[max(0, i - 20) : i]!r} | {text[i : i + 20]!r}"
    return None


def prefix_difference(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    """What each turn adds to the rendering of the messages before it with the generation prompt."""
    whole = Conversation(messages)
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    lengths = [
        (len(template.render(whole, messages[:i], True)), len(template.render(whole, messages[: i + 1]))) for i in turns
    ]
    return template.render(whole), merged([(start, stop) for start, stop in lengths if start <= stop])


def content_search(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    """Each answer where it is found next in the text, through the line that it stands in."""
    text, spans, at = template.render(Conversation(messages)), [], 0
    for message in messages:
        if message["role"] == "assistant" and (found := text.find(message["content"].strip(), at)) >= 0:
            end = text.find("\n", found + len(message["content"].strip()))
            at = len(text) if end < 0 else end + 1
            spans.append((found, at))
    return text, merged(spans)


def ours(template: ChatTemplate, messages: list[Message]) -> tuple[str, list[Span]]:
    return TurnFinder(template).assistant_spans(Conversation(messages))


def check(tokenizer: Any, find: Any, examples: int) -> int:
    """Put a finder to made-up templates. Returns how many were refused. Raises AssertionError where one is wrong."""
    refused = 0

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(style=STYLES, messages=CONVERSATIONS)
    def spans_are_right_or_refused(style: Style, messages: list[Message]) -> None:
        nonlocal refused
        try:
            text, spans = find(ChatTemplate(tokenizer, style.source()), messages)
        except RecordError as error:
            assert error.reason == "spans_not_established", error.detail
            refused += 1
        else:
            assert wrong(style, messages, text, spans) is None, style.source()

    spans_are_right_or_refused()
    return refused


def test_spans_of_made_up_templates_are_right_and_seldom_refused(tokenizer):
    assert check(tokenizer, ours, 5000) < 250


@pytest.mark.parametrize("find", [prefix_difference, content_search])
def test_other_ways_of_finding_spans_are_caught(tokenizer, find):
    with pytest.raises(AssertionError, match="trained at"):
        check(tokenizer, find, 500)


# Real templates: those of the corpus's own tokenizer, and of the shared ones.

MARKERS = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")


def test_without_its_markers_a_template_has_the_same_spans(tokenizer):
    template = tokenizer.chat_template
    without = MARKERS.sub(r"{%\1 set marked = 1 \2%}", template)
    assert without != template
    marked, traced = TurnFinder(ChatTemplate(tokenizer)), TurnFinder(ChatTemplate(tokenizer, without))
    compared = 0
    for line in (CHATS / "support.jsonl").read_bytes().splitlines():
        try:
            conversation = content_of(json.loads(line), "messages", ROLE_NAMES)
            expected = marked.assistant_spans(conversation)
        except (ValueError, RecordError):
            continue  # the corpus's own dirt
        assert traced.assistant_spans(conversation) == expected
        compared += 1
    assert compared > 390


HOSTILE = [
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<|assistant|>",
    "",
    "assistant",
    "x" * 100_000,
    "\U0010f000\U0010f001",
]


@pytest.mark.parametrize("folder", ["llama3", "qwen", "mistral"])
def test_hostile_contents_do_not_move_the_spans_of_real_templates(folder):
    if not SHARED.is_dir():
        pytest.skip("../shared is absent")
    finder = TurnFinder(ChatTemplate(load_tokenizer(str(SHARED / "tokenizers" / folder))))
    plain = Conversation([user_or_assistant(i, f"turn {i}") for i in range(6)])
    text, spans = finder.assistant_spans(plain)
    for content in HOSTILE:
        for place in range(6):
            messages = [user_or_assistant(i, content if i == place else f"turn {i}") for i in range(6)]
            found, changed = finder.assistant_spans(Conversation(messages))
            answers = [found[start:stop] for start, stop in changed]
            expected = [text[start:stop].replace(f"turn {place}", content) for start, stop in spans]
            if folder == "llama3":
                expected = [answer.replace(content, content.strip()) if content else answer for answer in expected]
            assert [answer.strip() for answer in answers] == [answer.strip() for answer in expected]


def user_or_assistant(number: int, content: str) -> Message:
    return {"role": "assistant" if number % 2 else "user", "content": content}
