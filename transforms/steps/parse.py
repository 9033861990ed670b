"""Parse: from a record of any known schema to an example."""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from transforms.checks import check_choice, check_fraction, check_type
from transforms.errors import ParameterError, RecordError, StoreError, call_user_function
from transforms.inputs.messages import ROLE_NAMES, ROLES, kind_of
from transforms.inputs.schemas import INPUT_COLUMNS, SCHEMAS, Content, content_of, plain_decoder
from transforms.model.batches import Examples, Records
from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, Record, attempt
from transforms.once import once
from transforms.steps.base import Step
from transforms.storage.files import read_bytes

Formatter = Callable[[dict[str, Any]], dict[str, Any] | str]


class Parser:
    """Makes an example of each record; a record that cannot be understood is rejected.

    Args:
        schema, columns, roles, formatter, keep_columns, validation_fraction, seed: as for ParseConversations.

    Raises:
        ParameterError: if a value is not one of those, or the formatter cannot be loaded.
    """

    def __init__(
        self,
        schema: str = "auto",
        columns: Mapping[str, str] | None = None,
        roles: Mapping[str, str] | None = None,
        formatter: str | None = None,
        keep_columns: Sequence[str] = (),
        validation_fraction: float = 0.0,
        seed: int = 0,
    ):
        _check_options(schema, columns, roles, formatter, keep_columns, validation_fraction, seed)
        self._schema = schema
        self._columns = dict(columns or {})
        self._roles = ROLE_NAMES | dict(roles or {})
        self._format = load_formatter(formatter) if formatter else None
        self._keep_columns = keep_columns
        self._validation_below = int(validation_fraction * 2**64)
        self._seed = str(seed).encode()
        only_messages = schema in ("auto", "messages") and not (columns or formatter or keep_columns)
        self._decode_plain = plain_decoder(self._roles) if only_messages else None

    def __call__(self, batch: Records) -> Examples:
        examples, rejects = attempt(batch.records, self.parse)
        outcomes = batch.outcomes.reject(rejects)
        missing = Counter(name for example in examples for name in example.missing_columns)
        for name, count in missing.items():  # a name may be mistyped
            outcomes = outcomes.note(f"records_without_{name}", count)
        return batch.succeeded_by(Examples, outcomes, examples=examples)

    def parse(self, record: Record) -> Example:
        """Make an example of a record. Raises RecordError."""
        if self._decode_plain and type(record.raw) is bytes:
            try:
                return self._example(record, self._decode_plain(record.raw), {}, ())
            except (ValueError, RecursionError):  # another kind of record, or an error, which is found below
                pass
        fields = _decoded(record.raw)
        kept = {name: _as_string(name, fields.get(name)) for name in self._keep_columns}
        missing = {name for name in kept if kept[name] is None}
        if self._format:
            # A copy, so that its changes are not in a rejected record. JSON was decoded for it alone.
            fields = self._formatted(copy.deepcopy(fields) if fields is record.raw else fields)
        if self._columns:
            named = {ours: fields[theirs] for ours, theirs in self._columns.items() if theirs in fields}
            taken = set(self._columns.values())
            missing |= {theirs for theirs in taken if fields.get(theirs) is None}
            fields = {name: value for name, value in fields.items() if name not in taken} | named
        fields = {name: value for name, value in fields.items() if value is not None}
        return self._example(record, content_of(fields, self._schema, self._roles), kept, tuple(sorted(missing)))

    def _example(
        self, record: Record, content: Content, columns: dict[str, str | None], missing: tuple[str, ...]
    ) -> Example:
        return Example(record.position, content, columns, self._is_validation(content), record.raw, missing)

    def _formatted(self, fields: dict[str, Any]) -> dict[str, Any]:
        assert self._format
        formatted = call_user_function(self._format, fields, "formatter")
        if isinstance(formatted, str):
            return {"text": formatted}
        if not isinstance(formatted, dict):
            raise RecordError("formatter", f"it returned {type(formatted).__name__}; expected a dict or a string")
        return formatted

    def _is_validation(self, content: Content) -> bool:
        if not self._validation_below:
            return False
        digest = hashlib.blake2b(_canonical(content), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big") < self._validation_below


def _decoded(raw: bytes | dict[str, Any]) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    try:
        fields = msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise RecordError("invalid_unicode", f"the record is not UTF-8: {error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError("invalid_json", f"the record is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RecordError("not_an_object", f"the record is {kind_of(fields)}; expected a JSON object")
    return fields


def _as_string(column: str, value: Any) -> str | None:
    """A string as it is, any other value as JSON, so that a column has one type in all shards."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError) as error:
        raise RecordError("bad_column", f"column {column} cannot be kept: {error}") from None


def _canonical(content: Content) -> bytes:
    """The content of an example; the same for duplicates with another schema, id, tools or order of keys."""
    if isinstance(content, Conversation) and content.plain:
        says: Any = [[role, text, None] for role, text in zip(*content.plain, strict=True)]
    elif isinstance(content, Conversation):
        says = [[message["role"], message.get("content"), _calls(message)] for message in content.messages]
    elif isinstance(content, PromptCompletion):
        says = content.prompt + content.completion
    elif isinstance(content, PlainText):
        says = content.text
    else:
        says = content.input_ids.tolist()
    try:
        return msgspec.json.encode(says, order="sorted")
    except UnicodeEncodeError as error:
        raise RecordError("invalid_unicode", f"the text is not Unicode: {error}") from None
    except (TypeError, RecursionError) as error:
        raise RecordError("formatter", f"it returned a value that is not valid JSON: {error}") from None


def _calls(message: dict[str, Any]) -> list[Any] | None:
    """The calls of a message without their ids, which differ between duplicates."""
    calls = message.get("tool_calls") or None
    return calls and [
        call.get("function", {key: value for key, value in call.items() if key != "id"}) for call in calls
    ]


def load_formatter(name: str) -> Formatter:
    """Load a formatter, once for each process and content of its file.

    Args:
        name: `module:function` or `file.py:function`, the file at any url.

    Returns:
        The function.

    Raises:
        ParameterError: if it cannot be loaded.
    """
    module, _, function = name.rpartition(":")
    try:
        source = read_bytes(module) if module.endswith(".py") else None
        names = vars(_load_module(module, source))
    except StoreError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is loaded
        raise ParameterError("formatter", name, f"{module or 'it'} cannot be loaded: {error}") from error
    if not callable(names.get(function)):
        problem = f"{module} has no function {function}. Expected module:function or file.py:function."
        raise ParameterError("formatter", name, problem)
    return names[function]


@once
def _load_module(name: str, source: bytes | None) -> types.ModuleType:
    """The module of a source, or the one that Python imports by the name."""
    if source is None:
        return importlib.import_module(name)
    # dataclasses and typing look up the module of a class in sys.modules, so it has to be there while it is run.
    module = sys.modules["formatter"] = types.ModuleType("formatter")
    module.__file__ = name
    exec(compile(source, name, "exec"), vars(module))
    return module


def _check_options(
    schema: str,
    columns: Mapping[str, str] | None,
    roles: Mapping[str, str] | None,
    formatter: str | None,
    keep_columns: Sequence[str],
    validation_fraction: float,
    seed: int,
) -> None:
    """Raise ParameterError for a value that is not one of those that ParseConversations takes."""
    check_type("columns", columns or {}, Mapping)
    check_type("roles", roles or {}, Mapping)
    check_type("seed", seed, int)
    check_choice("schema", schema, SCHEMAS)
    for name in columns or {}:
        check_choice("columns", name, INPUT_COLUMNS)
    for role in (roles or {}).values():
        check_choice("roles", role, ROLES)
    if formatter is not None and not all(formatter.rpartition(":")):
        raise ParameterError("formatter", formatter, "expected module:function or file.py:function.")
    if not isinstance(keep_columns, (list, tuple)):
        raise ParameterError("keep_columns", keep_columns, "expected a list of names.")
    check_fraction("validation_fraction", validation_fraction)


class ParseConversations(Step):
    """Make an example of each record: a conversation, a prompt and completion, a plain text, or a tokenized row.

    PCollection[Records] -> PCollection[Examples]. A record that cannot be understood is rejected, with the reason.

    Args:
        schema: what the records are: `messages`, `prompt_completion`, `sharegpt`, `alpaca`, `text` or `tokenized`;
            `auto` looks at the columns of each.
        columns: the name that the records have for a column, by the schema's name for it.
        roles: the role (system, developer, user, assistant, tool) that each further name stands for.
        formatter: `module:function` or `url.py:function`; the function takes each record as a dict and returns a record
            of a known schema, or a text.
        keep_columns: columns of the records to carry along, as strings; not with packing.
        validation_fraction: how much of the examples goes to the validation split, by a hash of their content.
        seed: another seed chooses other examples for validation.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Records, Examples

    def __init__(
        self,
        *,
        schema: str = "auto",
        columns: Mapping[str, str] | None = None,
        roles: Mapping[str, str] | None = None,
        formatter: str | None = None,
        keep_columns: Sequence[str] = (),
        validation_fraction: float = 0.0,
        seed: int = 0,
    ):
        _check_options(schema, columns, roles, formatter, keep_columns, validation_fraction, seed)
        super().__init__(
            Parser,
            schema=schema,
            columns=columns,
            roles=roles,
            formatter=formatter,
            keep_columns=tuple(keep_columns),
            validation_fraction=validation_fraction,
            seed=seed,
        )
