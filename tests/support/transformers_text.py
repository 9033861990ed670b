"""What `apply_chat_template` of the installed transformers prints, untouched but for the clock.

Nothing of `transforms` is used, so that what is wrong there is not wrong here too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

_CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": {"at": "x7"}}}
_CALLED = {"role": "assistant", "tool_calls": [_CALL]}


@functools.cache
def open_tokenizer(folder: Path | str) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


class TransformersText:
    """Renders messages with `apply_chat_template`.

    Args:
        template: the chat template.
        folder: of the tokenizer.
        now: what the template takes for the time.
    """

    def __init__(self, template: str, folder: Path | str, now: datetime):
        self._template, self._now = template, now
        self._tokenizer = open_tokenizer(folder)
        self._reads: dict[str, tuple[bool, bool]] = {}

    def apply(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any = None,
        add_generation_prompt: bool = False,
        **kwargs: Any,
    ) -> str | None:
        """Return what apply_chat_template prints; None if the template refuses the messages."""
        try:
            compiled = chat_template_utils._compile_jinja_template(self._template)
            compiled.environment.globals["strftime_now"] = self._now.strftime
            return self._tokenizer.apply_chat_template(
                list(messages),
                tools=tools,
                chat_template=self._template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **kwargs,
            )
        except Exception:  # a template may raise anything
            return None

    def prepared(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return messages without nulls, in the form that the template reads (docs/records.md)."""
        given = [{key: value for key, value in message.items() if value is not None} for message in messages]
        if any(message.get("tool_calls") for message in given):
            given = [_in_call_form(message, *self._call_form) for message in given]
        return [
            {**message, "content": self._in_form(message["role"], message["content"])}
            if "content" in message
            else message
            for message in given
        ]

    def _in_form(self, role: str, content: Any) -> Any:
        if not isinstance(content, list) and not (isinstance(content, str) and content):
            return content
        strings, parts = self._forms(role)
        if isinstance(content, list) and not parts:
            return "\n".join(part["text"] for part in content)
        if isinstance(content, str) and parts and not strings:
            return [{"type": "text", "text": content}]
        return content

    @functools.cached_property
    def _call_form(self) -> tuple[bool, bool]:
        """Whether arguments are to be text, and calls need a content: the first form that is printed best."""
        best = 0, (False, False)
        answer = {"role": "tool", "tool_call_id": "call00001", "content": "x9"}
        for needs_content in (False, True):
            for strings in (False, True):
                message = _in_call_form(_CALLED, strings, needs_content)
                text = self.apply([{"role": "user", "content": "x1"}, message, answer])
                is_whole = text and ('{"at": "x7"}' in text if strings else "{'at': 'x7'}" not in text)
                value = 0 if text is None else 1 if "x7" not in text else 3 if is_whole else 2
                best = max(best, (value, (strings, needs_content)), key=lambda each: each[0])
        return best[1]

    def _forms(self, role: str) -> tuple[bool, bool]:
        """Whether the template prints contents of a role that are strings, and those that are parts."""
        if role not in self._reads:
            before = [] if role in ("user", "system", "developer") else [{"role": "user", "content": "x1"}]
            forms = self._printed_forms(role, before)
            if role == "tool" and not any(forms):  # some templates print it after its call alone
                forms = self._printed_forms(role, [*before, _in_call_form(_CALLED, *self._call_form)])
            self._reads[role] = forms
        return self._reads[role]

    def _printed_forms(self, role: str, before: Sequence[Mapping[str, Any]]) -> tuple[bool, bool]:
        """Whether a string and a part are printed as the content of a role, after some messages."""
        after = [{"role": "user", "content": "x1"}] if role in ("system", "developer") else []
        more = {"tool_call_id": "call00001"} if role == "tool" else {}
        printed = []
        for content in ("x8", [{"type": "text", "text": "x8"}]):
            text = (self.apply([*before, {"role": role, "content": content, **more}, *after]) or "").lower()
            printed.append("x8" in text and not any(f"{mark}type{mark}" in text for mark in ("'", '"')))
        return printed[0], printed[1]


def _in_call_form(message: dict[str, Any], strings: bool, needs_content: bool) -> dict[str, Any]:
    """Return a message with its calls' arguments as text, and with an empty content, if these are needed."""
    if not message.get("tool_calls"):
        return message
    if needs_content:
        message = {"content": "", **message}
    if not strings:
        return message
    calls = [dict(call, function=_with_text(call["function"])) for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


class Arguments(dict[str, Any]):
    """Arguments of a call that a record has as JSON in a string."""

    def __init__(self, text: str):
        super().__init__(json.loads(text))
        self.text = text


def _with_text(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    if isinstance(arguments, Arguments):
        return {**function, "arguments": arguments.text}
    return {
        **function,
        "arguments": json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments,
    }
