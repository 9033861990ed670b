"""The layouts of records: which columns are read together, the names that each may have, and what is made of them.

This is a table. One more dataset is one more name in it, or in `names.py`. `reader.py` reads records by it, and the
errors, the choices of `--columns` and a table of docs/records.md are read off it. tests/data/samples.jsonl has a record
of each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transforms.model.examples import Content, TokenRow
from transforms.records import contents, names
from transforms.records.kinds import (
    ANSWER,
    ANY,
    CALLS,
    COMPLETION,
    ENABLED,
    FLAG,
    HISTORY,
    IDS,
    MESSAGE,
    OUTPUTS,
    PRESENT,
    PROMPT,
    QUESTION,
    REASONING,
    SWITCH,
    SYSTEM,
    TEXT,
    TEXTS,
    TOOLS,
    TRANSCRIPT,
    TURNS,
    Kind,
)
from transforms.records.reading import Reading
from transforms.records.token_rows import MASKS, OF_PACKED_ROWS


class Field(NamedTuple):
    """A field of a layout.

    Attributes:
        names: that its column may have, as `plain_name` writes them, the preferred ones first.
        kind: of its values.
        own: how many of the names are ours: there, a value of another kind rejects the record.
    """

    names: tuple[str, ...]
    kind: Kind
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
    fits: Callable[[Reading, dict[str, Any]], bool] | None = None


CHOSEN = "chosen"

_OF_DIALOGS = {
    "system": Field(names.SYSTEMS, SYSTEM, own=1),
    "tools": Field(names.TOOLS, TOOLS, own=2),
    "template_kwargs": Field(("chat_template_kwargs",), ANY, own=1),
    "enable_thinking": Field(("enable_thinking",), ENABLED),
    "switch": Field(("reasoning", "thinking"), SWITCH),
    "reasoning_effort": Field(("reasoning_effort",), FLAG),
}
_OF_QUESTIONS = {
    "input": Field(("input",), TEXT, own=1),
    "context": Field(("context",), TEXT, own=1),
    "history": Field(names.HISTORIES, HISTORY, own=1),
    **_OF_DIALOGS,
}
_REASONING = {"reasoning": Field(names.REASONINGS, REASONING)}
_CHOICES = {"choices": Field(("choices", "options"), ANY)}
_QUESTION = {"question": Field(names.QUESTIONS, QUESTION, own=2)}
_ANSWERED = {"completion": Field((*names.ANSWERS, "completion", "choices"), ANSWER)}
_PAIR = {"chosen": Field(names.CHOSEN, COMPLETION), "rejected": Field(names.REJECTED, COMPLETION)}
_OUTPUTS = {"outputs": Field(("output",), OUTPUTS)}
_PAIR_PROMPTS: tuple[dict[str, Field], ...] = (
    {"prompt": Field(("prompt", *names.QUESTIONS), PROMPT)},
    {"prompt": Field(names.DIALOGS, TURNS)},
    {},
)

LAYOUTS: tuple[Layout, ...] = (
    *(Layout(CHOSEN, {**_PAIR, **prompt}, contents.pair, _OF_QUESTIONS) for prompt in _PAIR_PROMPTS),
    *(Layout(CHOSEN, {**_OUTPUTS, **prompt}, contents.pair_of_outputs, _OF_QUESTIONS) for prompt in _PAIR_PROMPTS),
    Layout(
        CHOSEN,
        {"turns": Field(names.DIALOGS, TURNS), "rejected": Field(names.REJECTED[1:], COMPLETION)},
        contents.judged_dialog,
        _OF_DIALOGS,
    ),
    Layout(
        "tokenized",
        {"input_ids": Field(("input_ids",), ANY, own=1)},
        contents.tokenized,
        {name: Field((name,), ANY) for name in ("labels", "loss_weights", *MASKS, *OF_PACKED_ROWS)},
    ),
    Layout(
        "tokenized",
        {"completion": Field(names.COMPLETION_IDS, IDS)},
        contents.sampled,
        {"prompt": Field(names.PROMPT_IDS, IDS), "mask": Field(names.SAMPLED_MASKS, ANY)},
    ),
    Layout(
        "prompt_completion",
        {"prompt": Field(names.DIALOGS, TURNS), **_ANSWERED},
        contents.prompt_completion,
        {**_OF_DIALOGS, **_REASONING},
        contents.is_open,
    ),
    Layout(
        "prompt_completion",
        {"prompt": Field(("prompt",), TURNS), "completion": Field(("completion",), ANSWER), **_REASONING},
        contents.prompt_completion,
        _OF_DIALOGS,
    ),
    Layout("messages", {"turns": Field(names.DIALOGS, TURNS, own=2)}, contents.dialog, _OF_DIALOGS),
    Layout(
        "prompt_completion",
        {"prompt": Field(("prompt",), PROMPT, own=1), "completion": Field(("completion",), COMPLETION, own=1)},
        contents.prompt_completion,
        _OF_DIALOGS,
    ),
    Layout(
        "question_answer",
        {**_QUESTION, "answer": Field(names.ANSWERS, TEXT, own=2)},
        contents.question_answer,
        {**_OF_QUESTIONS, **_REASONING, **_CHOICES},
    ),
    Layout(
        "question_answer",
        {"question": Field(names.USERS, TEXT), "answer": Field(names.ASSISTANTS, TEXT)},
        contents.question_answer,
        {**_OF_QUESTIONS, **_REASONING, **_CHOICES},
    ),
    Layout(
        "prompt_completion",
        {"prompt": Field((*names.QUESTIONS, *names.HISTORIES, "context"), TURNS), **_ANSWERED},
        contents.prompt_completion,
        {**_OF_DIALOGS, **_REASONING},
        contents.is_open,
    ),
    Layout(
        "question_and_calls",
        {**_QUESTION, "calls": Field(names.CALLS, CALLS), "tools": Field(names.TOOLS, TOOLS)},
        contents.question_calls,
        _OF_QUESTIONS,
    ),
    Layout("alternating_texts", {"turns": Field(names.SPOKEN, TEXTS)}, contents.alternating_texts, _OF_DIALOGS),
    Layout("transcript", {"text": Field(("text", *names.SPOKEN), TRANSCRIPT)}, contents.transcript, _OF_DIALOGS),
    *(
        Layout("one_message", {"text": Field(texts, TEXT), "of": Field(others, kind)}, contents.one_message)
        for texts, others, kind in (
            (("text",), names.OF_ONE_MESSAGE, PRESENT),
            (("text",), ("type",), MESSAGE),
            (("content", "value"), ("role", "from"), TEXT),
        )
    ),
    Layout("text", {"text": Field(("text",), TEXT, own=1)}, contents.text),
)
