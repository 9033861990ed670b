"""How conversations are rendered: one value that the steps share which render them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from transforms.base.errors import ParameterError
from transforms.base.options import (
    Configuration,
    Flag,
    Moment,
    Names,
    String,
    json_object,
    one_name,
    option,
    some_names,
)
from transforms.model.examples import RESERVED_TEMPLATE_KWARGS
from transforms.rows.parts import PARTS

ENGINES = ("auto", "reference")
LOSSES = ("auto", "assistant", "last_assistant", "completion", "all")
AFTER_END = ("train", "mask")
UNPRINTED = ("reject", "report")
SPECIAL_TOKENS_IN_CONTENT = ("report", "plain", "allow", "reject")
# Before one of eot_tokens: it is appended to a last answer that the template does not close.
APPENDED = "+"
PARITIES = ("report", "expand", "reject", "off")

Engine = Annotated[str, one_name(ENGINES)]
TemplateKwargs = Annotated[Mapping[str, Any], json_object(RESERVED_TEMPLATE_KWARGS)]


@dataclass(frozen=True, kw_only=True)
class RenderOptions(Configuration):
    """How conversations are rendered, and what of them is trained on.

    Raises:
        ParameterError: for a value that an option does not take; if parts are chosen and the loss is on everything.
    """

    chat_template_kwargs: TemplateKwargs | None = option(
        "Tokenizer and template",
        'variables that the template reads besides messages and tools, such as {"enable_thinking": false}',
        per_source=True,
    )
    loss_on: Annotated[str, one_name(LOSSES)] = option(
        "Rows",
        "what is trained on; auto: the completion of a prompt and completion (of several messages, the assistant's), "
        "the assistant's turns of a conversation, all of a plain text",
        "auto",
        common=True,
        per_source=True,
    )
    eot_tokens: Names = option(
        "Rows",
        "texts with which the model ends its turn, such as <|user|>,<|observation|>; one that follows an answer is "
        "trained on; with + before it, such as +<|user|>, also appended to a last answer that the template does not "
        "close",
        (),
        metavar="TEXT,..",
        default_help="the eos_token_id of generation_config.json next to the tokenizer, if there is one",
    )
    after_end: Annotated[str, one_name(AFTER_END)] = option(
        "Rows",
        "what to do with white space that the chat template prints after the end-of-turn token of an answer, such as "
        "the line break after <|im_end|>, which no model writes; train: train on it, as TRL does; mask: do not",
        "train",
    )
    train_parts: Annotated[tuple[str, ...], some_names(PARTS)] | None = option(
        "Rows",
        "the parts of a turn that are trained on; template: what the chat template prints itself between the others; "
        "end: what ends the turn; after_end: white space after that",
        metavar=",".join(PARTS),
        default_help="all of them",
        per_source=True,
    )
    unprinted: Annotated[str, one_name(UNPRINTED)] = option(
        "Rows",
        "what to do with a conversation whose content, tool calls or tools the chat template omits; "
        "reject: reject the record; report: keep the record and count it",
        "reject",
        common=True,
        per_source=True,
    )
    special_tokens_in_content: Annotated[str, one_name(SPECIAL_TOKENS_IN_CONTENT)] = option(
        "Rows",
        "what to do with special tokens that were typed into a message, a tool or a text, such as <|im_end|>; report: "
        "encode them as transformers does, count them, and reject a record in which the assistant's text ends or "
        "begins a turn; plain: encode them as plain text; allow: do not look for them; reject: reject the record",
        "report",
        common=True,
        per_source=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(text.removeprefix(APPENDED).strip() for text in self.eot_tokens):
            raise ParameterError("eot_tokens", self.eot_tokens, "expected texts that are not white space alone.")
        if self.train_parts and self.loss_on == "all":
            problem = "loss_on all trains on everything, and not on parts of turns. Give loss_on auto."
            raise ParameterError("train_parts", self.train_parts, problem)


@dataclass(frozen=True, kw_only=True)
class ParityOptions(Configuration):
    """What is compared with inference."""

    parity: Annotated[str, one_name(PARITIES)] = option(
        "Rows",
        "what to do if a trained turn, or the text before it, differs from inference, for example because the "
        "template drops earlier reasoning; report: count such turns; expand: write a row for each context; reject: "
        "reject the record; off: do not compare",
        "report",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions(Configuration):
    """How texts are encoded."""

    strip_bos: Flag = option("Tokenizer and template", "remove a BOS token from the start of each row", False)


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

    tokenizer: String
    chat_template: String | None = None
    now: Moment | None = None
    engine: Engine = "auto"
    part_columns: Flag = False

    @property
    def trained_parts(self) -> tuple[str, ...] | None:
        """Those of PARTS that are trained on; None if the parts of turns need not be known."""
        return self.train_parts or (PARTS if self.part_columns else None)
