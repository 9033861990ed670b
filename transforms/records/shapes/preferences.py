"""Pairs of answers under other names than `chosen` and `rejected`."""

from __future__ import annotations

from typing import Any

from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape, Values
from transforms.records.shapes.columns import (
    DIALOG,
    QUESTION,
    SYSTEM,
    TOOL_LIST,
    decoded,
    is_dialog,
    is_text,
)
from transforms.records.turns import is_message
from transforms.records.turns.marked import LINES, messages_in


def _is_answer(value: Any) -> bool:
    return is_text(value) or is_message(value) or is_dialog(value)


def _is_marked(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith("Human:")


def _pair(values: Values) -> dict[str, Any]:
    record = {"chosen": decoded(values["chosen"]), "rejected": decoded(values["rejected"])}
    for what in ("messages", "tools", "system"):
        if what in values:
            record[what] = decoded(values[what])
    if "question" in values:
        record["messages"] = [{"role": "user", "content": values["question"]}]
    if "request" in values:
        record |= {name: values["request"][name] for name in ("messages", "tools") if values["request"].get(name)}
    return record


def _answered(values: Values) -> dict[str, Any]:
    """A conversation with its answer, and a rejected answer alone."""
    messages, rejected = decoded(values["messages"]), decoded(values["rejected"])
    if is_text(rejected):
        rejected = [*messages[:-1], {"role": "assistant", "content": rejected}]
    return {"chosen": messages, "rejected": rejected, **{k: values[k] for k in ("tools", "system") if k in values}}


def _marked(values: Values) -> dict[str, Any]:
    return {name: messages_in(values[name], LINES, name) for name in ("chosen", "rejected")}


_FURTHER = {"tools": TOOL_LIST, "system": SYSTEM}

SHAPES = (
    Shape(
        "answers of a pair",
        {
            "chosen": Column(
                ("chosen_response", "chosen_messages", "chosen_answer", "preferred_output", "preferred", "accepted"),
                _is_answer,
            ),
            "rejected": Column(
                ("rejected_response", "rejected_messages", "rejected_answer", "non_preferred_output", "dispreferred"),
                _is_answer,
            ),
        },
        _pair,
        "`chosen` and `rejected`",
        "`preferred_output` and `non_preferred_output`, `chosen_messages` and `rejected_messages` ..",
        Sample(
            {
                "input": {"messages": [{"role": "user", "content": "Hi"}], "tools": []},
                "preferred_output": [{"role": "assistant", "content": "Hello"}],
                "non_preferred_output": [{"role": "assistant", "content": "What"}],
            },
            "files for OpenAI's preference tuning",
            "https://platform.openai.com/docs/guides/direct-preference-optimization",
        ),
        schema="chosen",
        optional={
            **_FURTHER,
            "request": Column(("input",), lambda value: isinstance(value, dict) and is_dialog(value.get("messages"))),
            "messages": DIALOG,
            "question": QUESTION,
        },
    ),
    Shape(
        "dialog and rejected answer",
        {"messages": DIALOG, "rejected": Column(("rejected_response", "rejected_messages"), _is_answer)},
        _answered,
        "the dialog is `chosen`",
        "a dialog, and `rejected_response` or `rejected_messages`",
        Sample(
            {
                "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
                "rejected_response": "What",
            },
            "datasets of ms-swift",
            "https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html",
        ),
        schema="chosen",
        optional=_FURTHER,
    ),
    Shape(
        "marked pair",
        {"chosen": Column(("chosen",), _is_marked), "rejected": Column(("rejected",), _is_marked)},
        _marked,
        "`chosen` and `rejected` of messages",
        "`chosen` and `rejected`, texts with `Human:` and `Assistant:` before each turn",
        Sample(
            {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello", "rejected": "\n\nHuman: Hi\n\nAssistant: What"},
            "Anthropic/hh-rlhf",
            "https://huggingface.co/datasets/Anthropic/hh-rlhf",
        ),
        schema="chosen",
    ),
)
