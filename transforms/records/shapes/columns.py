"""The columns of shapes: names that datasets give them, and values that they can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.records.json_text import NOT_JSON
from transforms.records.names import (
    ANSWERS,
    DIALOGS,
    QUESTIONS,
    REASONINGS,
    SYSTEMS,
    TOOLS,
    plain_name,
)
from transforms.records.reading import ROLE_NAMES, SWITCHES
from transforms.records.shapes import Column
from transforms.records.turns import is_message, messages_of_turns, turn_forms, without_nulls
from transforms.records.unread import ReadTexts


def decoded(value: Any) -> Any:
    """Return the list or the object of which a text is the JSON; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        found = msgspec.json.decode(value)
    except NOT_JSON:
        return value
    return found if isinstance(found, (list, dict)) else value


def is_text(value: Any) -> bool:
    """Return whether a value is a text that says something."""
    return isinstance(value, str) and not value.isspace() and value != "" and value not in SWITCHES


def is_dialog(value: Any) -> bool:
    """Return whether a value is a list of turns that one of the forms reads, or the JSON of one."""
    turns = decoded(value)
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, dict) for turn in turns):
        return False
    given = without_nulls(turns)
    return all(map(is_message, turns)) or any(form.recognizes(given) for form in turn_forms())


def is_open(turns: Any) -> bool:
    """Return whether a dialog ends with a turn that is to be answered."""
    try:
        last = messages_of_turns(decoded(turns), "the dialog").messages[-1]
    except RecordError:  # which is found again when it is read
        return False
    name = last.get("role", last.get("from")) if isinstance(last, dict) else None
    return ROLE_NAMES.get(str(name).lower()) in ("user", "tool", "system", "developer")


def in_turn(*dialogs: Any) -> dict[str, Any]:
    """Return the messages of dialogs, one after another, and the tools in them, as columns of a record."""
    found = [messages_of_turns(decoded(turns), "the dialog") for turns in dialogs]
    tools = [tool for each in found for tool in each.tools]
    return {"messages": [message for each in found for message in each.messages], **({"tools": tools} if tools else {})}


def is_tools(value: Any) -> bool:
    """Return whether a value is a list of tools, or the JSON of one."""
    tools = decoded(value)
    return isinstance(tools, list) and all(isinstance(tool, dict) or decoded(tool) is not tool for tool in tools)


def is_switch(value: Any) -> bool:
    """Return whether a value says that the model is to reason, or that it is not."""
    return isinstance(value, str) and value in SWITCHES


def one_answer(found: Mapping[str, Any]) -> list[str]:
    """Choose the answer of several: the one that has all the others in it; otherwise it is not certain."""
    longest = max(found, key=lambda name: len(found[name]))
    read = ReadTexts([found[longest]])
    return [longest] if all(read.have(text) for text in found.values()) else []


def one_question(found: Mapping[str, Any]) -> list[str]:
    """Choose the question: an instruction and its input together, as in Alpaca; otherwise it is not certain."""
    names = {plain_name(name): name for name in found}
    if len(found) == 2 and "input" in names and not {"instruction", "question", "query", "problem"}.isdisjoint(names):
        return sorted(found, key=lambda name: plain_name(name) == "input")
    return []


DIALOG = Column(DIALOGS, is_dialog)
TOOL_LIST = Column(TOOLS, is_tools)
SYSTEM = Column(SYSTEMS, is_text)
QUESTION = Column(QUESTIONS, is_text, one_question)
ANSWER = Column(ANSWERS, is_text, one_answer)
REASONING = Column(REASONINGS, is_text)
SWITCH = Column(("reasoning", "thinking", "enable_thinking"), is_switch)
FLAG = Column(("enable_thinking",), lambda value: isinstance(value, bool))


def user(text: Any) -> dict[str, Any]:
    """Return a message of the user; of several texts, each on a new line."""
    return {"role": "user", "content": text if isinstance(text, str) else "\n".join(text)}


def assistant(text: str, reasoning: Any = None) -> dict[str, Any]:
    """Return a message of the assistant, with its reasoning if there is some."""
    message = {"role": "assistant", "content": text}
    return {**message, "reasoning_content": reasoning} if reasoning else message


def further(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a known schema that go with any messages: tools, the system message, whether to reason."""
    names = {
        "tools": "tools",
        "system": "system",
        "reasoning_switch": "reasoning",
        "enable_thinking": "enable_thinking",
    }
    return {column: values[what] for what, column in names.items() if what in values}
