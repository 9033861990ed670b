"""How records are read, and what is noted of a record while it is read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from transforms.model.examples import Content

ROLES = ("system", "developer", "user", "assistant", "tool")
# ShareGPT's names, those of ms-swift and of function-calling sets on the hub, the one of OpenAI's older API, and those
# that mean one role wherever they are used. Others, such as agent, are of users in some datasets.
ROLE_NAMES = {role: role for role in ROLES} | {
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "ai", "bot", "chatbot", "chatgpt", "model"), "assistant"),
    **dict.fromkeys(("observation", "function", "function_response", "environment", "ipython"), "tool"),
    **dict.fromkeys(("tool_response", "tool_result", "tool_results"), "tool"),
}
TOOL_ARGUMENTS = ("parse", "keep")
# Whether the model is to reason, as NVIDIA's datasets say it, and how much.
SWITCHES = {"on": True, "off": False, "yes": True, "no": False, "true": True, "false": False}
LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_NOTHING: dict[str, Any] = {}


@dataclass(frozen=True)
class ReadOptions:
    """Those of a job's ParseOptions by which the content of its records is read. roles: of all names that are known."""

    roles: Mapping[str, str] = field(default_factory=lambda: ROLE_NAMES)
    message_fields: Mapping[str, str] = field(default_factory=dict)
    tool_arguments: str = "parse"
    train_field: str | None = None
    as_chat: bool = False

    @functools.cached_property
    def unchanged_roles(self) -> frozenset[str]:
        """The roles that are names of themselves."""
        return frozenset(role for role in ROLES if self.roles.get(role, role) == role)

    @functools.cached_property
    def roles_named(self) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
        """The roles of the messages of a conversation by their names: the same tuple for the same names."""
        return functools.lru_cache(1024)(lambda names: tuple([self.roles[name] for name in names]))


class Reading(msgspec.Struct, gc=False):
    """The reading of one record.

    Attributes:
        options: of the job.
        notes: what is worth reporting of the record, by name, in snake_case; with what was found, or None if the name
            says it. The manifest counts the records that have each, and shows the first.
        is_json: whether the record was JSON, so that all its values can be encoded as JSON and read again.
        columns: of each field of the layout by which it is read, the name of its column in the table, and the column.
        values: of the fields that it has.
        further: what a record of a conversation has besides its messages: the fields of layouts.DIALOG.
        forms: the names of the forms that its turns have, if they are not messages in the OpenAI form.
        tools: the tool definitions that were in its turns.
        schema: the name of the layout, and of the forms.
        contents: what was made of the record.
        unread: the characters of the columns that have text and that nothing takes.
    """

    options: ReadOptions
    notes: dict[str, str | None]
    is_json: bool = False
    columns: Mapping[str, tuple[str, str]] = _NOTHING
    values: Mapping[str, Any] = _NOTHING
    further: Mapping[str, Any] = _NOTHING
    forms: tuple[str, ...] = ()
    tools: tuple[Any, ...] = ()
    schema: str = ""
    contents: Sequence[Content] = ()
    unread: Mapping[str, int] = _NOTHING

    def column(self, field: str) -> str:
        """Return the column of a field, for errors."""
        return self.columns[field][1] if field in self.columns else field
