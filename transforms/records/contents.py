"""What is made of the fields of a record: conversations, texts, token rows.

Each function is that of a layout. It takes the reading of the record, and the values of the fields that the record has,
by their names there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from transforms.base.errors import RecordError
from transforms.model.examples import (
    REASONING_KEYS,
    RESERVED_TEMPLATE_KWARGS,
    Conversation,
    PlainText,
    PromptCompletion,
    TokenRow,
    in_parts,
)
from transforms.records.hints import formatter_hint
from transforms.records.json_text import decode_json, json_type, strings_in
from transforms.records.messages import read_messages
from transforms.records.preference import split_chosen
from transforms.records.reading import ROLE_NAMES, Reading
from transforms.records.token_rows import sampled_row
from transforms.records.tool_calls import leave_out_padding, read_tools
from transforms.records.turns import read_turns
from transforms.records.turns.marked import CHATML, LINES, find_speaker, marks_in, messages_in

# Messages that are plain, or in parts: their roles and texts, the messages if they are made, and the lengths of parts.
_Lazy: TypeAlias = tuple[tuple[str, ...], list[str], list[dict[str, Any]] | None, tuple[int, ...] | None]
_Messages: TypeAlias = list[dict[str, Any]] | _Lazy
_USER_ASSISTANT = ("user", "assistant")


def _conversation(reading: Reading, messages: _Messages, answers: int | None = None) -> Conversation:
    """Make the conversation of messages, of which some may be the completion, and of what the record has further."""
    further = reading.further
    if "system" in further:
        messages = _with_system(messages, further["system"])
    if not messages:
        raise RecordError("empty", "there are no messages")
    tools = read_tools(further["tools"], reading) if "tools" in further else None
    if reading.tools:
        in_turns = read_tools([*reading.tools], reading)
        if tools not in (None, in_turns):
            raise RecordError("bad_tools", "the record has tools, and its turns have others; expected one of them")
        tools = in_turns
    if tools:
        _fit_to_tools(messages, tools, reading)
    arguments = _template_arguments(reading) if further else {}
    start = None if answers is None else len(messages[0] if isinstance(messages, tuple) else messages) - answers
    return Conversation(messages, tools, arguments, start)


def _with_system(messages: _Messages, system: Any) -> _Messages:
    """Put the system message before messages that have none. Raises RecordError if they have another."""
    if isinstance(messages, tuple):
        roles, texts, _, lengths = messages
        if type(system) is str and not lengths and "system" not in roles and "developer" not in roles:
            return ("system", *roles), [system, *texts], None, None
        messages = Conversation(messages).messages
    contents = [message.get("content") for message in messages if message["role"] in ("system", "developer")]
    if contents and contents[0] != system:
        raise RecordError("bad_message", "the column system and the system message have different texts")
    return messages if contents else [_message("system", system), *messages]


def _fit_to_tools(messages: _Messages, tools: list[dict[str, Any]], reading: Reading) -> None:
    """Leave arguments out that the tools of their calls do not have. Raises RecordError if a text has tools, too."""
    content: Any
    if isinstance(messages, tuple):
        roles, texts, _, lengths = messages
        role, content = roles[0], texts[: lengths[0] if lengths else 1]
    else:
        role, content = messages[0]["role"], messages[0].get("content")
        if null := leave_out_padding(messages, tools):
            reading.notes["null_arguments_left_out"] = f"{null} of a call, which its tool does not have"
    if role == "system" and any("<tools>" in text for text in strings_in(content)):
        problem = "the system message has tools in its text, which a template would print again"
        raise RecordError("bad_tools", f"{problem}; {formatter_hint('hermes')}")


def _plain_turns(turns: list[Any], reading: Reading) -> _Lazy | None:
    """Return the plain messages of turns with a role and a text alone, in this order, as most have; None of others."""
    options = reading.options
    if options.message_fields:
        return None
    names, texts = [], []
    try:
        role_key, text_key = ("role", "content") if "content" in turns[0] else ("from", "value")
        if type(turns[0].get("content")) is list:
            parts = in_parts(turns)
            are_named = parts and options.roles_named(parts[0]) == parts[0]
            return (parts[0], parts[2], turns, parts[1]) if parts and are_named else None
        for turn in turns:  # faster than a comprehension for each
            first, second = turn
            text = turn[second]
            if first != role_key or second != text_key or type(text) is not str:
                return None
            names.append(turn[role_key])
            texts.append(text)
        return options.roles_named(tuple(names)), texts, None, None
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def _template_arguments(reading: Reading) -> dict[str, Any]:
    """Return the arguments of the template that a record has, as columns and as an object."""
    further = reading.further
    switch = {"enable_thinking": further["switch"]} if "switch" in further else {}
    columns = {name: further[name] for name in ("enable_thinking", "reasoning_effort") if name in further}
    arguments = further.get("template_kwargs")
    if isinstance(arguments, str):  # as tables have it if its type varies from row to row
        arguments = arguments.strip() and decode_json(arguments, "bad_template_kwargs", "chat_template_kwargs", reading)
    arguments = arguments or {}
    if not isinstance(arguments, dict):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs is {json_type(arguments)}; expected an object")
    arguments = {name: value for name, value in arguments.items() if value is not None}  # as Arrow gives to all
    if taken := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys()):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs has {', '.join(taken)}, which the job sets")
    return {**switch, **columns, **arguments}


def _message(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


def dialog(reading: Reading, turns: Any) -> Conversation:
    messages = _plain_turns(turns, reading) or read_messages(turns, reading.column("turns"), reading)
    return _conversation(reading, messages)


def prompt_completion(
    reading: Reading, prompt: Any, completion: Any, reasoning: str | None = None
) -> Conversation | PromptCompletion:
    if isinstance(prompt, str) and isinstance(completion, str):
        if reading.options.as_chat:
            return _conversation(reading, (_USER_ASSISTANT, [prompt, completion], None, None), 1)
        if not prompt and not completion:
            raise RecordError("empty", "prompt and completion are both empty")
        if lost := [reading.column(name) for name in reading.further if name in ("system", "tools", "template_kwargs")]:
            problem = f"prompt and completion are strings, and {' and '.join(lost)} has no place in plain text"
            raise RecordError("bad_prompt_completion", f"{problem}; expected messages, or as_chat")
        return PromptCompletion(prompt, completion)
    if isinstance(prompt, str):
        problem = f"prompt is a string, completion is {json_type(completion)}"
        raise RecordError("bad_prompt_completion", f"{problem}; expected strings, or lists of messages")
    if isinstance(completion, str):
        answers = [_message("assistant", completion)]
    elif not completion:
        raise RecordError("empty", "completion has no messages")
    elif not reasoning and (plain_messages := _plain_turns([*prompt, *completion], reading)):
        return _conversation(reading, plain_messages, len(completion))
    else:
        answers = read_messages(completion, reading.column("completion"), reading)
    if reasoning:
        if answers[0]["role"] != "assistant" or any(answers[0].get(key) for key in REASONING_KEYS):
            problem = (
                f"{reading.column('reasoning')} has reasoning, and the completion has no answer that it belongs to"
            )
            raise RecordError("bad_content", problem)
        answers = [{**answers[0], "reasoning_content": reasoning}, *answers[1:]]
    messages = [*read_messages(prompt, reading.column("prompt"), reading), *answers]
    return _conversation(reading, messages, len(answers))


def is_open(reading: Reading, values: Mapping[str, Any]) -> bool:
    """Return whether a prompt ends with a turn that is to be answered."""
    turns, apart = values["prompt"], Reading(reading.options, {})
    try:
        messages = read_messages(turns, "", apart)
        return bool(messages) and messages[-1]["role"] != "assistant"
    except RecordError:  # which is found again when it is read, if its last turn is to be answered
        with suppress(RecordError):
            turns = read_turns(turns, "", apart)
    role = str(turns[-1].get("role") or turns[-1].get("from")) if isinstance(turns[-1], dict) else ""
    roles = reading.options.roles
    return roles.get(role, roles.get(role.lower())) in ("user", "tool", "system", "developer")


def _asked(
    reading: Reading, question: str, input: str = "", context: str = "", history: Any = ()
) -> list[dict[str, Any]]:
    """Return the question, with its input and its context below it, and what was said before it."""
    before: list[dict[str, Any]] = []
    if history and isinstance(history[0], list):
        before = [_message(role, text) for pair in history for role, text in zip(_USER_ASSISTANT, pair, strict=True)]
    elif history:
        before = read_messages(history, reading.column("history"), reading)
    return [*before, _message("user", "\n".join(text for text in (question, input, context) if text))]


def question_answer(
    reading: Reading, question: str, answer: str, reasoning: str | None = None, choices: Any = None, **asked: Any
) -> Conversation:
    if choices:
        problem = f"{reading.column('choices')} has what the question offers, and nothing says how it is written"
        raise RecordError("bad_question_answer", f"{problem}; give a formatter")
    if not asked and not reasoning:
        return _conversation(reading, (_USER_ASSISTANT, [question, answer], None, None))
    reply = _message("assistant", answer) | ({"reasoning_content": reasoning} if reasoning else {})
    return _conversation(reading, [*_asked(reading, question, **asked), reply])


def question_calls(reading: Reading, question: str, calls: Any, **asked: Any) -> Conversation:
    reply = {**_message("assistant", ""), "tool_calls": calls}
    return _conversation(reading, read_messages([*_asked(reading, question, **asked), reply], "messages", reading))


def alternating_texts(reading: Reading, turns: list[Any]) -> Conversation:
    texts = turns
    if isinstance(turns[0], list):
        if all(role.lower() in ROLE_NAMES for role, _ in turns):
            return dialog(reading, [_message(role, text) for role, text in turns])
        texts = [text for pair in turns for text in pair]
    for i, text in enumerate(texts):
        if text.lstrip().startswith(("{", "[{")):
            raise RecordError("bad_message", f"text {i} looks like JSON; expected what is said")
        if speaker := find_speaker(text):
            problem = f"text {i} begins with {speaker!r}, the name of a speaker"
            raise RecordError("bad_message", f"{problem}; expected objects with role and content. Give a formatter")
        if not text.strip():
            raise RecordError("bad_message", f"text {i} is empty, so it is not certain who says the next one")
    roles = tuple(_USER_ASSISTANT[i % 2] for i in range(len(texts)))
    return _conversation(reading, (roles, texts, None, None))


def transcript(reading: Reading, text: str) -> Conversation:
    marks = marks_in(text) or LINES
    if marks is CHATML:
        reading.notes["rendered_text_as_messages"] = (
            "its text was rendered by a template of ChatML; its turns are rendered again, --schema text keeps the text"
        )
    return _conversation(reading, messages_in(text, marks, "the text"))


def text(reading: Reading, text: str) -> PlainText:
    if not text:
        raise RecordError("empty", "text is empty")
    return PlainText(text)


def one_message(reading: Reading, **fields: Any) -> PlainText:
    columns = " and ".join(map(reading.column, fields))
    advice = "Join the messages of each conversation in one record; or read each text as a document, with schema text"
    raise RecordError("one_message", f"the record has {columns}: it is one message of a conversation. {advice}")


def sampled(reading: Reading, completion: list[Any], prompt: Any = None, mask: Any = None) -> list[TokenRow]:
    """Make the row of the literal ids of a call of a model, or those of several calls."""
    if prompt is None:
        problem = "the record has token ids of a completion; expected those of its prompt, too"
        raise RecordError("unknown_schema", problem)
    if type(completion[0]) is not list:
        completion, prompt, mask = [completion], [prompt], [mask]
    prompts = prompt if type(prompt[0]) is list else [prompt]
    masks = mask or [None] * len(completion)
    if type(masks) is not list or not len(completion) == len(prompts) == len(masks):
        problem = f"there are {len(completion):,} completions for {len(prompts):,} prompts"
        raise RecordError("bad_tokens", f"{problem}; expected a prompt, and a mask if there are any, for each")
    return [sampled_row(*call, reading.column("mask")) for call in zip(prompts, completion, masks, strict=True)]


def pair(
    reading: Reading,
    chosen: Any = None,
    rejected: Any = (),
    prompt: Any = None,
    outputs: Any = None,
    turns: Any = None,
    **asked: Any,
) -> Conversation | PromptCompletion:
    """Make the content of a chosen and a rejected answer; of two outputs; or of turns, and another answer to them."""
    reading.notes["preference_chosen"] = None
    system = reading.further.get("system")
    if outputs:
        chosen, rejected = outputs
    if turns:
        chosen, rejected = turns, [*turns[:-1], _message("assistant", rejected)] if type(rejected) is str else rejected
    are_texts = isinstance(prompt, str) and isinstance(chosen, str)
    if are_texts and not asked and not system and reading.columns["prompt"][0] == "prompt":
        return prompt_completion(reading, prompt, chosen)
    if isinstance(prompt, dict):
        reading.further = {**({"tools": prompt["tools"]} if prompt.get("tools") else {}), **reading.further}
        prompt = prompt["messages"]
    before: Any = _asked(reading, prompt, **asked) if isinstance(prompt, str) else []
    if isinstance(prompt, list):
        before = read_messages(prompt, reading.column("prompt"), reading)
    before = _with_system(before, system) if system else before
    chosen = _pair_answer(reading, chosen, "turns" if turns else "chosen")
    messages, start = split_chosen(before, chosen, _pair_answer(reading, rejected, "rejected"))
    return _conversation(reading, messages, len(messages) - start)


def _pair_answer(reading: Reading, value: Any, field: str) -> list[dict[str, Any]]:
    """Return one answer of a pair: a text, messages, or a dialogue in one text."""
    if not isinstance(value, str):
        return read_messages(value, reading.column(field), reading)
    return messages_in(value, LINES, field) if value.lstrip().startswith("Human:") else [_message("assistant", value)]
