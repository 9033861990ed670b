"""Corpora in the layouts that users have, of words of several scripts. A record depends on its number alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

# Of languages with spaces between words, with marks that combine, from right to left; and of those without spaces.
_SPACED = """
the wheel turns when rain comes and water falls on stone then it stops again don't isn't we've it's now
das Rad dreht sich wenn der Regen über die Straße fällt und größer wird dann hält es an Grüße Öl
le moulin n'est pas loin où l'eau coule après la forêt déjà naïve garçon cœur ça va être là
колесо крутится когда идёт дождь вода падает на камень потом снова тихо ещё объём день
العجلة تدور عندما يهطل المطر ثم يتوقف الماء على الحجر مرة أخرى
पहिया घूमता है जब बारिश आती और पानी पत्थर पर गिरता फिर रुकता
바퀴가 돈다 비가 오면 물이 돌 위로 떨어지고 다시 멈춘다
"""
_UNSPACED = [
    "水车下雨时转动石头上的河流你好吗再见请问博物馆门票多少钱",
    "水車は回る雨が降ると石の上に流れまたとまるカタカナ",
]
_LANGUAGES = [*((line.split(), " ") for line in _SPACED.split("\n") if line), *(([*text], "") for text in _UNSPACED)]
_STRANGE = [
    "👩‍👩‍👧",
    "🇨🇭",
    "e\u0301",
    "ﬁ",
    "3.14159",
    "1,048,576",
    "`x = f(y)`",
    "<b>",
    "</s>",
    "  ",
    "\n\n",
    "\t",
    "—",
]


class _Writer:
    def __init__(self, corpus: str, number: int):
        self.draw = random.Random(f"{corpus} {number}")
        self._words, self._space = self.draw.choice(_LANGUAGES)

    def sentence(self, most: int = 24) -> str:
        words = self.draw.choices(self._words, k=self.draw.randint(1, most))
        if self.draw.random() < 0.2:
            words.insert(self.draw.randrange(len(words) + 1), self.draw.choice(_STRANGE))
        ends = ("。", "？") if not self._space else (".", "?", "!", "")
        text = self._space.join(words)
        return text[:1].upper() + text[1:] + self.draw.choice(ends)

    def text(self, most: int = 3) -> str:
        between = self.draw.choice((" ", "\n", "\n\n"))
        return between.join(self.sentence() for _ in range(self.draw.randint(1, most)))

    def turns(self, user: str, assistant: str, key: str, value: str) -> list[dict[str, Any]]:
        roles = (user, assistant) * self.draw.randint(1, 6)
        return [{key: role, value: self.text()} for role in roles]


def _messages(writer: _Writer) -> dict[str, Any]:
    system = [{"role": "system", "content": writer.sentence()}] * (writer.draw.random() < 0.7)
    return {"messages": system + writer.turns("user", "assistant", "role", "content")}


def _prompt_completion(writer: _Writer) -> dict[str, Any]:
    steps = [f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}" for n in writer.draw.choices(range(10_000), k=3)]
    return {"prompt": writer.text(), "completion": "\n".join([writer.text(), *steps, f"#### {len(steps)}"])}


def _sharegpt(writer: _Writer) -> dict[str, Any]:
    return {"conversations": writer.turns("human", "gpt", "from", "value")}


def _tools(writer: _Writer) -> dict[str, Any]:
    """Of OpenAI: the arguments of a call are a string of JSON, and so is what the tool returns."""
    names = [f"Service_{writer.draw.randrange(9)}_Find{n}" for n in range(writer.draw.randint(1, 4))]
    messages: list[dict[str, Any]] = []
    for number in range(writer.draw.randint(1, 4)):
        messages.append({"role": "user", "content": writer.text()})
        if writer.draw.random() < 0.7:
            identity, name = f"call_{writer.draw.randbytes(12).hex()}", writer.draw.choice(names)
            arguments = json.dumps({"city": writer.sentence(3), "seats": f"{number}"}, ensure_ascii=number % 2 == 0)
            call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
            found = json.dumps([{"city": writer.sentence(3), "open": number % 2 == 0}] * number, ensure_ascii=False)
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": identity, "name": name, "content": found})
        messages.append({"role": "assistant", "content": writer.text()})
    return {"tools": [_tool(name, writer) for name in names], "messages": messages}


def _tool(name: str, writer: _Writer) -> dict[str, Any]:
    city = {"type": "string", "description": writer.sentence()}
    properties = {"city": city, "seats": {"type": "string", "enum": ["1", "2"]}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": writer.sentence(), "parameters": parameters}}


def _reasoning(writer: _Writer) -> dict[str, Any]:
    """In a key of its own, or in the content."""
    messages, in_content = _messages(writer)["messages"], writer.draw.random() < 0.5
    for message in messages:
        if message["role"] == "assistant" and in_content:
            message["content"] = f"<think>\n{writer.text()}\n</think>\n\n{message['content']}"
        elif message["role"] == "assistant":
            message["reasoning_content"] = writer.text()
    return {"messages": messages}


CORPORA: dict[str, Callable[[_Writer], dict[str, Any]]] = {
    "messages": _messages,
    "prompt_completion": _prompt_completion,
    "sharegpt": _sharegpt,
    "tools": _tools,
    "reasoning": _reasoning,
}


def make_record(corpus: str, number: int) -> dict[str, Any]:
    """Return a record of one of CORPORA."""
    return {"id": f"{corpus}-{number:05}", **CORPORA[corpus](_Writer(corpus, number))}


def line_of(corpus: str, number: int) -> str:
    return json.dumps(make_record(corpus, number), ensure_ascii=False) + "\n"
