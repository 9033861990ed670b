"""How conversations are rendered: one value that the steps share which render them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from transforms.base import kinds
from transforms.base.checks import check_choice, check_sources, check_text
from transforms.base.declaring import StepOptions, option
from transforms.base.errors import ParameterError
from transforms.model.examples import RESERVED_TEMPLATE_KWARGS
from transforms.rows.parts import PARTS

ENGINES = ("auto", "reference")
LOSSES = ("auto", "assistant", "last_assistant", "completion", "all")
AFTER_END = ("train", "mask")
UNPRINTED = ("reject", "report")
SPECIAL_TOKENS_IN_CONTENT = ("report", "plain", "allow", "reject")
PARITIES = ("report", "expand", "reject", "off")


@dataclass(frozen=True, kw_only=True)
class RenderOptions(StepOptions):
    """How conversations are rendered, and what of them is trained on.

    Raises:
        ParameterError: for a value that an option does not take; if parts are chosen and the loss is on everything.
    """

    chat_template_kwargs: Mapping[str, Any] | None = option(
        "Tokenizer and template",
        'variables that the template reads besides messages and tools, such as {"enable_thinking": false}',
        kinds.json_object(RESERVED_TEMPLATE_KWARGS),
        None,
        of_source=True,
    )
    loss_on: str = option(
        "Rows",
        "what is trained on; auto: the completion of a prompt and completion (of several messages, the assistant's), "
        "the assistant's turns of a conversation, all of a plain text",
        kinds.one_of(LOSSES),
        "auto",
        common=True,
        of_source=True,
    )
    eot_tokens: tuple[str, ...] = option(
        "Rows",
        "texts with which the model ends its turn, such as <|user|>,<|observation|>; one that follows an answer is "
        "trained on",
        kinds.list_of(),
        (),
        "TEXT,..",
        "the eos_token_id of generation_config.json next to the tokenizer, if there is one",
    )
    after_end: str = option(
        "Rows",
        "what to do with white space that the chat template prints after the end-of-turn token of an answer, such as "
        "the line break after <|im_end|>, which no model writes; train: train on it, as TRL does; mask: do not",
        kinds.one_of(AFTER_END),
        "train",
    )
    train_parts: tuple[str, ...] | None = option(
        "Rows",
        "the parts of a turn that are trained on; template: what the chat template prints itself between the others; "
        "end: what ends the turn; after_end: white space after that",
        kinds.list_of(PARTS),
        None,
        ",".join(PARTS),
        "all of them",
        of_source=True,
    )
    unprinted: str = option(
        "Rows",
        "what to do with a conversation whose content, tool calls or tools the chat template omits; "
        "reject: reject the record; report: keep the record and count it",
        kinds.one_of(UNPRINTED),
        "reject",
        of_source=True,
        common=True,
    )
    special_tokens_in_content: str = option(
        "Rows",
        "what to do with special tokens that were typed into a message, a tool or a text, such as <|im_end|>; report: "
        "encode them as transformers does, count them, and reject a record in which the assistant's text ends or "
        "begins a turn; plain: encode them as plain text; allow: do not look for them; reject: reject the record",
        kinds.one_of(SPECIAL_TOKENS_IN_CONTENT),
        "report",
        of_source=True,
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_parts and self.loss_on == "all":
            problem = "loss_on all trains on everything, and not on parts of turns. Give loss_on auto."
            raise ParameterError("train_parts", self.train_parts, problem)


@dataclass(frozen=True, kw_only=True)
class ParityOptions(StepOptions):
    """What is compared with inference."""

    parity: str = option(
        "Rows",
        "what to do if a trained turn, or the text before it, differs from inference, for example because the "
        "template drops earlier reasoning; report: count such turns; expand: write a row for each context; reject: "
        "reject the record; off: do not compare",
        kinds.one_of(PARITIES),
        "report",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions(StepOptions):
    """How texts are encoded."""

    strip_bos: bool = option(
        "Tokenizer and template", "remove a BOS token from the start of each row", kinds.flag, False
    )


@dataclass(frozen=True, kw_only=True)
class RenderConfig(RenderOptions):
    """How conversations are rendered, and what of them is trained on: besides the options, what a job finds for them.

    Args:
        tokenizer: folder of the tokenizer, at any url that fsspec opens. A name on the hub is resolved to such a folder
            by the command line, so that no worker asks the hub.
        chat_template: the text of a Jinja template; None is the tokenizer's own.
        now: the moment that the template's `strftime_now` prints, in ISO 8601. A template that prints the date needs
            it.
        engine: `reference` renders with transformers alone; `auto` renders faster. The output is the same.
        part_columns: whether it is written which part of a turn each token is.

    Raises:
        ParameterError: if a value is not one of those.
    """

    tokenizer: str
    chat_template: str | None = None
    now: str | None = None
    engine: str = "auto"
    part_columns: bool = False

    def __post_init__(self) -> None:
        check_text("tokenizer", self.tokenizer)
        check_text("chat_template", self.chat_template, optional=True)
        check_choice("engine", self.engine, ENGINES)
        if isinstance(self.eot_tokens, str) or not all(isinstance(t, str) and t.strip() for t in self.eot_tokens):
            problem = 'expected a tuple of texts, such as ("<|user|>",), and none that is white space alone.'
            raise ParameterError("eot_tokens", self.eot_tokens, problem)
        super().__post_init__()
        try:
            datetime.fromisoformat(self.now or "2026-01-01")
        except (TypeError, ValueError):
            problem = "expected a moment in ISO 8601, such as 2026-11-20T12:00:00."
            raise ParameterError("now", self.now, problem) from None

    @property
    def trained_parts(self) -> tuple[str, ...] | None:
        """Those of PARTS that are trained on; None if the parts of turns need not be known."""
        return self.train_parts or (PARTS if self.part_columns else None)

    def of_sources(self, sources: Sequence[Mapping[str, Any]]) -> list[RenderConfig]:
        """Return the configuration of each source.

        Args:
            sources: for each source the fields that have another value; all but tokenizer and engine.

        Raises:
            ParameterError: if a value is not one that the field takes.
        """
        check_sources(sources, [field.name for field in fields(self) if field.name not in ("tokenizer", "engine")])
        return [replace(self, **source) for source in sources]
