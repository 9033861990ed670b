"""The layouts of records: which columns are read together, the names that each may have, and what is made of them.

This is a table. One more dataset is one more name in it, or in `names.py`. `reader.py` reads records by it, and the
errors, the choices of `--columns` and a table of docs/records.md are read off it. tests/data/samples.jsonl has a record
of each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from transforms.model.examples import Content, TokenRow
from transforms.records import contents, kinds, names
from transforms.records.media import MEDIA_COLUMNS
from transforms.records.preference import LABELS
from transforms.records.reading import Reading
from transforms.records.token_rows import MASKS, PACKED_ROW_COLUMNS, token_row


class Field(NamedTuple):
    """A field of a layout.

    Attributes:
        names: that its column may have, as `plain_name` writes them, the preferred ones first.
        kind: of its values.
        own: how many of the names are ours: there, a value of another kind rejects the record.
    """

    names: tuple[str, ...]
    kind: kinds.Kind
    own: int = 0


class Layout(NamedTuple):
    """Columns that are read together.

    Attributes:
        name: by which it is counted.
        required: the fields that a record must have.
        make: makes the content, or several. Takes the reading, and the value of each field that the record has.
            Whatever it raises rejects the record.
        optional: further fields.
        fits: whether a record with these values has this layout, if its columns alone do not say so.
    """

    name: str
    required: Mapping[str, Field]
    make: Callable[..., Content | list[TokenRow]]
    optional: Mapping[str, Field] = {}
    fits: Callable[[Reading, Mapping[str, Any]], bool] | None = None

    @property
    def fields(self) -> dict[str, Field]:
        """All fields. A column that may be several is the first one that its value fits."""
        return {**self.required, **({} if self.name in _NO_DIALOGS else DIALOG), **self.optional}


CHOSEN = "chosen"
_NO_DIALOGS = ("tokenized", "one_message", "text")
# What a conversation may have besides its messages: `reading.further`.
DIALOG = {
    "system": Field(names.SYSTEMS, kinds.SYSTEM, own=1),
    "tools": Field(names.TOOLS, kinds.TOOLS, own=2),
    "template_kwargs": Field(("chat_template_kwargs",), kinds.ANY, own=1),
    "enable_thinking": Field(("enable_thinking",), kinds.ENABLED),
    "switch": Field(("reasoning", "thinking"), kinds.SWITCH),
    "reasoning_effort": Field(("reasoning_effort",), kinds.EFFORT),
}
_BESIDE_QUESTION = {
    "input": Field(("input",), kinds.TEXT, own=1),
    "context": Field(("context",), kinds.TEXT, own=1),
    "history": Field(names.HISTORIES, kinds.HISTORY, own=1),
}
_REASONING = {"reasoning": Field(names.REASONINGS, kinds.REASONING)}
_BESIDE_ANSWER = {**_BESIDE_QUESTION, **_REASONING, "choices": Field(("choices", "options"), kinds.ANY)}

_PAIR = {"chosen": Field(names.CHOSEN, kinds.COMPLETION), "rejected": Field(names.REJECTED, kinds.COMPLETION)}
_OUTPUTS = {"outputs": Field(("output",), kinds.OUTPUTS)}
_DIALOG = {"turns": Field(names.DIALOGS, kinds.TURNS, own=2)}
_DIALOG_CHOSEN = {"turns": Field(names.DIALOGS, kinds.TURNS)}
_OTHER_END = {"rejected": Field(names.REJECTED[1:], kinds.COMPLETION)}
_PROMPT = {"prompt": Field(("prompt", *names.QUESTIONS), kinds.PROMPT)}
_DIALOG_PROMPT = {"prompt": Field(names.DIALOGS, kinds.TURNS)}
_TURNS_PROMPT = {"prompt": Field((*names.QUESTIONS, *names.HISTORIES, "context"), kinds.TURNS)}
_COMPLETION = {"completion": Field((*names.ANSWERS, "completion", "choices"), kinds.ANSWER)}
_TEXTS = {"prompt": Field(("prompt",), kinds.PROMPT, 1), "completion": Field(("completion",), kinds.COMPLETION, 1)}
_TURNS = {"prompt": Field(("prompt",), kinds.TURNS), "completion": Field(("completion",), kinds.ANSWER)}
_QUESTION = {"question": Field(names.QUESTIONS, kinds.QUESTION, own=2)}
_ANSWER = {"answer": Field(names.ANSWERS, kinds.TEXT, own=2)}
_SPEAKERS = {"question": Field(names.USERS, kinds.TEXT), "answer": Field(names.ASSISTANTS, kinds.TEXT)}
_CALLS = {"calls": Field(names.CALLS, kinds.CALLS), "tools": Field(names.TOOLS, kinds.TOOLS)}
_IDS = {"input_ids": Field(("input_ids",), kinds.ANY, own=1)}
_BESIDE_IDS = {name: Field((name,), kinds.ANY) for name in ("labels", "loss_weights", *MASKS, *PACKED_ROW_COLUMNS)}
_SAMPLED = {"completion": Field(names.COMPLETION_IDS, kinds.IDS)}
_BESIDE_SAMPLED = {"prompt": Field(names.PROMPT_IDS, kinds.IDS), "mask": Field(names.SAMPLED_MASKS, kinds.ANY)}
_TEXT = {"text": Field(("text",), kinds.TEXT, own=1)}
_PART_OF_TREE = {"of": Field(names.ONE_MESSAGE_COLUMNS, kinds.PRESENT)}
_CONTENT = {"text": Field(("content", "value"), kinds.TEXT), "of": Field(("role", "from"), kinds.TEXT)}

LAYOUTS: tuple[Layout, ...] = (
    Layout(CHOSEN, {**_PAIR, **_PROMPT}, contents.pair, _BESIDE_QUESTION),
    Layout(CHOSEN, {**_PAIR, **_DIALOG_PROMPT}, contents.pair, _BESIDE_QUESTION),
    Layout(CHOSEN, _PAIR, contents.pair, _BESIDE_QUESTION),
    Layout(CHOSEN, {**_OUTPUTS, **_DIALOG_PROMPT}, contents.pair, _BESIDE_QUESTION),
    Layout(CHOSEN, {**_DIALOG_CHOSEN, **_OTHER_END}, contents.pair),
    Layout("tokenized", _IDS, token_row, _BESIDE_IDS),
    Layout("tokenized", _SAMPLED, contents.sampled, _BESIDE_SAMPLED),
    Layout(
        "prompt_completion", {**_DIALOG_PROMPT, **_COMPLETION}, contents.prompt_completion, _REASONING, contents.is_open
    ),
    Layout("prompt_completion", {**_TURNS, **_REASONING}, contents.prompt_completion),
    Layout("messages", _DIALOG, contents.dialog),
    Layout("prompt_completion", _TEXTS, contents.prompt_completion),
    Layout("question_answer", {**_QUESTION, **_ANSWER}, contents.question_answer, _BESIDE_ANSWER),
    Layout("question_answer", _SPEAKERS, contents.question_answer, _BESIDE_ANSWER),
    Layout(CHOSEN, {**_OUTPUTS, **_PROMPT}, contents.pair, _BESIDE_QUESTION),
    Layout(CHOSEN, _OUTPUTS, contents.pair, _BESIDE_QUESTION),
    Layout(
        "prompt_completion", {**_TURNS_PROMPT, **_COMPLETION}, contents.prompt_completion, _REASONING, contents.is_open
    ),
    Layout("question_and_calls", {**_QUESTION, **_CALLS}, contents.question_calls, _BESIDE_QUESTION),
    Layout("alternating_texts", {"turns": Field(names.SPOKEN, kinds.TEXTS)}, contents.alternating_texts),
    Layout("transcript", {"text": Field(("text", *names.SPOKEN), kinds.TRANSCRIPT)}, contents.transcript),
    Layout("one_message", {**_TEXT, **_PART_OF_TREE}, contents.one_message),
    Layout("one_message", {**_TEXT, "of": Field(("type",), kinds.MESSAGE)}, contents.one_message),
    Layout("one_message", _CONTENT, contents.one_message),
    Layout("text", _TEXT, contents.text),
)

# The names of --schema: the layout that each chooses, and the columns that it takes if they are there.
SCHEMA_COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    CHOSEN: (CHOSEN, ("chosen", "rejected")),
    "tokenized": ("tokenized", ("input_ids",)),
    "messages": ("messages", ("messages",)),
    "prompt_completion": ("prompt_completion", ("prompt", "completion")),
    "sharegpt": ("messages", ("conversations",)),
    "alpaca": ("question_answer", ("instruction", "output")),
    "text": ("text", ("text",)),
    "question_answer": ("question_answer", ("question", "answer")),
}
SCHEMAS = ("auto", *SCHEMA_COLUMNS)
_FIELDS = [field for layout in LAYOUTS if layout.name != "one_message" for field in layout.fields.values()]
# The names of columns that --columns knows.
INPUT_COLUMNS = (
    *dict.fromkeys(
        [
            *chain.from_iterable(columns for _, columns in SCHEMA_COLUMNS.values()),
            *chain.from_iterable(field.names[: max(field.own, 1)] for field in _FIELDS),
            *("system_prompt", "options", *LABELS, *MEDIA_COLUMNS),
        ]
    ),
)
