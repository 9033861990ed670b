"""How conversations are rendered: one value that the steps share which render them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from transforms.checks import check_choice, check_count, check_sources, check_text
from transforms.errors import ParameterError
from transforms.model.examples import RESERVED_TEMPLATE_KWARGS

ENGINES = ("auto", "reference", "fast")
LOSSES = ("auto", "assistant", "last_assistant", "completion", "all")
SPANS = ("auto", "traced")
AFTER_END = ("train", "mask")
CONTENT_FORMATS = ("auto", "string", "openai")
UNPRINTED = ("reject", "report")
SPECIAL_TOKENS_IN_CONTENT = ("report", "plain", "allow", "reject")
PARITIES = ("report", "expand", "reject", "off")
AT_PROMPT_END = ("join", "split")
MAX_TEXT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class RenderConfig:
    """How conversations are rendered, and what of them is trained on.

    Args:
        tokenizer: folder of the tokenizer, at any url that fsspec opens. A name on the hub is resolved to such a folder
            by the command line, so that no worker asks the hub.
        chat_template: the text of a Jinja template; None is the tokenizer's own.
        chat_template_kwargs: what the template reads besides messages and tools. Those of a record take precedence.
        content_format: the form in which the template is given contents. `auto` is that of the record, or the other one
            if the template does not print it in messages of the role; `string` joins text parts with newlines;
            `openai` makes a list of one text part of each string. The names are those of vLLM.
        now: the moment that the template's `strftime_now` prints, in ISO 8601. A template that prints the date needs
            it.
        loss_on: what is trained on: `assistant`, `last_assistant`, `completion` or `all`. `auto` is `completion` for
            prompt and completion (of a completion with several messages, the assistant's), `assistant` for
            conversations, and `all` for plain text.
        eot_tokens: texts with which the model ends its turn. One that follows an answer is trained on. If there are
            none, they are read from `generation_config.json` next to the tokenizer.
        spans: `traced` derives what is trained on from the template, also if it has `{% generation %}` markers. `auto`
            follows the markers.
        after_end: whether white space that the template prints after the end-of-turn token of an answer, such as the
            line break after `<|im_end|>`, is trained on (`train`), as by TRL's templates, or not (`mask`).
        unprinted: what happens to a conversation if the template leaves out a content, a tool call or the tools:
            `reject` rejects the record; `report` keeps and counts it.
        special_tokens_in_content: what happens to special tokens in the contents of a record, and to markers that the
            template prints around turns. `report` encodes them as transformers does and counts them, and rejects a
            record in which a message of the assistant ends or begins a turn; `plain` encodes special tokens as the
            plain text that they are; `reject` rejects the record; `allow` does not look for them.
        engine: `reference` renders with transformers alone; `auto` renders faster and falls back to the reference if a
            sample differs; `fast` fails then. The output is the same.
        max_text_bytes: a conversation whose text has more is rejected.

    Raises:
        ParameterError: if a value is not one of those.
    """

    tokenizer: str
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    content_format: str = "auto"
    now: str | None = None
    loss_on: str = "auto"
    eot_tokens: tuple[str, ...] = ()
    spans: str = "auto"
    after_end: str = "train"
    unprinted: str = "reject"
    special_tokens_in_content: str = "report"
    engine: str = "auto"
    max_text_bytes: int = MAX_TEXT_BYTES

    def __post_init__(self) -> None:
        check_text("tokenizer", self.tokenizer)
        check_text("chat_template", self.chat_template, optional=True)
        check_choice("loss_on", self.loss_on, LOSSES)
        check_choice("content_format", self.content_format, CONTENT_FORMATS)
        check_choice("unprinted", self.unprinted, UNPRINTED)
        check_choice("special_tokens_in_content", self.special_tokens_in_content, SPECIAL_TOKENS_IN_CONTENT)
        check_choice("engine", self.engine, ENGINES)
        check_choice("spans", self.spans, SPANS)
        check_choice("after_end", self.after_end, AFTER_END)
        check_count("max_text_bytes", self.max_text_bytes)
        if isinstance(self.eot_tokens, str) or not all(isinstance(t, str) and t.strip() for t in self.eot_tokens):
            problem = 'expected a tuple of texts, such as ("<|user|>",), and none that is white space alone.'
            raise ParameterError("eot_tokens", self.eot_tokens, problem)
        if taken := sorted(RESERVED_TEMPLATE_KWARGS & (self.chat_template_kwargs or {}).keys()):
            problem = f"{', '.join(taken)} cannot be given: the job sets it."
            raise ParameterError("chat_template_kwargs", self.chat_template_kwargs, problem)
        try:
            datetime.fromisoformat(self.now or "2026-01-01")
        except (TypeError, ValueError):
            problem = "expected a moment in ISO 8601, such as 2026-11-20T12:00:00."
            raise ParameterError("now", self.now, problem) from None

    def of_sources(self, sources: Sequence[Mapping[str, Any]]) -> list[RenderConfig]:
        """Return the configuration of each source.

        Args:
            sources: for each source the fields that have another value; all but tokenizer and engine.

        Raises:
            ParameterError: if a value is not one that the field takes.
        """
        check_sources(sources, [field.name for field in fields(self) if field.name not in ("tokenizer", "engine")])
        return [replace(self, **source) for source in sources]
