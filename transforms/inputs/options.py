"""The options by which records become examples, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.checks import check_choice, check_count, check_flag, check_fraction, check_names, check_type
from transforms.errors import ParameterError
from transforms.inputs.reading import ROLE_NAMES, ROLES, TOOL_ARGUMENTS, ReadOptions
from transforms.inputs.schemas import INPUT_COLUMNS, SCHEMAS

FORMATTER_SECONDS = 60


@dataclass(frozen=True)
class ParseOptions:
    """The options of ParseConversations, which says what each is.

    Raises:
        ParameterError: if a value is not one of those.
    """

    schema: str = "auto"
    columns: Mapping[str, str] | None = None
    roles: Mapping[str, str] | None = None
    message_fields: Mapping[str, str] | None = None
    train_field: str | None = None
    tool_arguments: str = "parse"
    formatter: str | None = None
    formatter_seconds: int = FORMATTER_SECONDS
    as_chat: bool = False
    keep_columns: Sequence[str] = ()
    loss_weights: bool = False
    validation_fraction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("schema", self.schema, SCHEMAS)
        for name in ("columns", "roles", "message_fields"):
            check_type(name, getattr(self, name) or {}, Mapping)
        for column in self.columns or {}:
            check_choice("columns", column, INPUT_COLUMNS)
        for role in (self.roles or {}).values():
            check_choice("roles", role, ROLES)
        if self.train_field is not None and (
            not isinstance(self.train_field, str) or self.train_field in ("", "role", "content")
        ):
            raise ParameterError("train_field", self.train_field, "expected the name of a field of messages.")
        check_choice("tool_arguments", self.tool_arguments, TOOL_ARGUMENTS)
        if self.formatter is not None and not all(self.formatter.rpartition(":")):
            raise ParameterError("formatter", self.formatter, "expected module:function or file.py:function.")
        check_count("formatter_seconds", self.formatter_seconds)
        check_flag("as_chat", self.as_chat)
        check_names("keep_columns", self.keep_columns)
        check_flag("loss_weights", self.loss_weights)
        check_fraction("validation_fraction", self.validation_fraction)
        check_type("seed", self.seed, int)

    def read_options(self) -> ReadOptions:
        """Return those of them by which the content of a record is read."""
        return ReadOptions(
            roles=ROLE_NAMES | dict(self.roles or {}),
            as_chat=self.as_chat,
            message_fields=dict(self.message_fields or {}),
            train_field=self.train_field,
            tool_arguments=self.tool_arguments,
            loss_weights=self.loss_weights,
        )
