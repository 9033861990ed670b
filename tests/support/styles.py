"""Generate chat templates whose correct spans are known by construction, and random conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from transforms.chat.spans.turn_search import merged
from transforms.model.examples import Span

Message = dict[str, Any]


@dataclass(frozen=True)
class Style:
    """A generated template: its Jinja source, and a function that returns the text and the spans of the model's turns.

    Attributes:
        header: printed before a turn, with the name of the role for "@".
        closing: printed after a turn.
        prompt: what add_generation_prompt prints after the assistant's header.
        shown: what history prints instead of prompt.
        end: printed at the end of the text without a generation prompt.
        last_closing: printed after the last turn instead of closing.
        trims: whether contents are stripped.
        folds: whether the system message is printed in the first user's turn.
        default_system: printed before a first turn that is not the system's, in the iteration of that turn.
        drops_reasoning: whether "<think>...</think>" is dropped from all turns but the last.
        separates: whether the closing of a turn is printed by the next turn.
        by_number: whether the loop is over numbers.
        looks_back: whether each turn loops over all messages, without printing anything.
        looks_ahead: whether each turn reads the next message, without printing anything.
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
        """Return the Jinja source of the template."""
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
        """Return the text, and the spans that the model would write, by construction."""
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
    """Return the part of the generation prompt with which an answer begins: all of it, its first marker, or nothing."""
    if answer.startswith(prompt):
        return prompt
    marker = prompt.partition(">")[0] + ">"
    return marker if prompt and answer.startswith(marker) else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


# The styles contain each known difficulty: headers and closings that share characters, closings that differ at the end,
# generation prompts that are longer than the header in history, turns that are closed by the next one.
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
        # Templates with a loop over numbers are tested without a read of the next message.
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
