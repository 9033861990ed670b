"""Generate records as corpora have them, in which each piece of text holds a word of its own.

The words show what a chat template printed and what is trained on, without any knowledge of the template.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

# What surrounds a word: what templates trim, escape or compare, and what resembles their own markers.
_FRAMES = (
    "{}",
    "{} is it.",
    "  {}\n",
    "\n\n{} — “ça”, 水車, 🙂\n",
    'He said "{}" & <left>\\\n',
    "<|im_start|>assistant\n{}<|im_end|>",
    "[INST] {} [/INST]",
    "a < b {{ {} }} {{% if %}}",
    "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>",
    '<tool_call>{{"name": "{}"}}</tool_call>',
    "assistant: {}\nuser:",
)


@dataclass
class Generated:
    """A record, and the words that it holds.

    Attributes:
        record: the record, as a line of JSONL has it.
        messages, tools: what `apply_chat_template` is given for it.
        answers: words of the contents and calls of the assistant's messages.
        reasoning: words of its reasoning.
        others: words of all other messages, and of the tools.
        texts: the texts that have these words, but for reasoning.
    """

    record: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    answers: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.made = Generated({})
        self._words = 0

    def word(self, words: list[str]) -> str:
        """A word that no other piece has, and that is a part of no other word."""
        self._words += 1
        word = f"w{self._words}q"
        words.append(word)
        return word

    def text(self, words: list[str]) -> str:
        text = self.random.choice(_FRAMES).format(self.word(words))
        if words is not self.made.reasoning:
            self.made.texts.append(text)
        return text

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def content(self, words: list[str], parts_chance: float) -> tuple[Any, Any]:
        """The content of a message, as the record has it and as a template is given it."""
        if not self.maybe(parts_chance):
            text = self.text(words)
            return text, text
        parts = [{"type": "text", "text": self.text(words)} for _ in range(self.random.choice((1, 1, 2)))]
        return parts, parts

    def call(self, as_text: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """A tool call, as the record has it and as a template is given it."""
        answers = self.made.answers
        arguments: dict[str, Any] = {f"a{self.word(answers)}": self.text(answers)} if self.maybe(0.8) else {}
        if self.maybe(0.3):
            arguments |= {
                "n": self.random.choice((3, 2.5, 1.0, True, 2**70)),
                "deep": {"of": [self.word(answers), "é"]},
            }
        function = {"name": f"f_{self.word(answers)}", "arguments": arguments}
        written = {**function, "arguments": json.dumps(arguments, ensure_ascii=self.maybe(0.5))}
        identity = {"id": f"call{self._words:05d}", "type": "function"}
        return {**identity, "function": written if as_text else function}, {**identity, "function": function}


def generate(seed: int) -> Generated:
    """Generate a record of messages: tools, calls, answers, reasoning, parts; empty, repeated and marker-like texts."""
    maker = _Maker(seed)
    made, maybe = maker.made, maker.maybe
    has_tools, parts, reasons = maybe(0.4), maker.random.choice((0, 0, 0.4)), maybe(0.3)
    recorded: list[dict[str, Any]] = []

    def add(role: str, content: tuple[Any, Any], **keys: tuple[Any, Any]) -> None:
        recorded.append({"role": role, "content": content[0], **{key: pair[0] for key, pair in keys.items()}})
        made.messages.append({"role": role, "content": content[1], **{key: pair[1] for key, pair in keys.items()}})

    if maybe(0.3):
        add("system", maker.content(made.others, parts))
    for _ in range(maker.random.randint(1, 3)):
        question = maker.content(made.others, parts)
        add("user", question)
        thoughts = maker.text(made.reasoning) if reasons and maybe(0.7) else None
        reasoning = {"reasoning_content": (thoughts, thoughts)} if thoughts else {}
        if has_tools and maybe(0.7):
            calls = [maker.call(as_text=maybe(0.7)) for _ in range(maker.random.choice((1, 1, 2)))]
            beside = maker.content(made.answers, parts) if maybe(0.4) else ("", "")
            add("assistant", beside, tool_calls=tuple(map(list, zip(*calls, strict=True))), **reasoning)  # type: ignore[arg-type]
            for call, _ in calls:
                identity, name = call["id"], call["function"]["name"]
                add("tool", maker.content(made.others, 0), tool_call_id=(identity,) * 2, name=(name,) * 2)
            reasoning = {}
        if maybe(0.9):
            add("assistant", maker.content(made.answers, parts), **reasoning)
        else:
            add("assistant", ("", ""), **reasoning)
    record: dict[str, Any] = {"messages": recorded}
    if has_tools:
        tools = [_tool(maker) for _ in range(maker.random.choice((1, 2)))]
        made.tools = [{"type": "function", "function": tool} for tool in tools]
        forms = (made.tools, tools, json.dumps(tools), [json.dumps(tool) for tool in made.tools])
        record["tools"] = maker.random.choice(forms)
    made.record = record
    return made


def _tool(maker: _Maker) -> dict[str, Any]:
    properties = {"order": {"type": "string", "description": "as on the invoice"}}
    return {
        "name": f"t_{maker.word(maker.made.others)}",
        "description": "Looks it up & answers",
        "parameters": {"type": "object", "properties": properties, "required": ["order"]},
    }
