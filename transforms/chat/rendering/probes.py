"""Probes: messages of our own, which are rendered to find out what a chat template does with any others.

What a conversation says in a way that its template does not read is then said in a way that it reads. Templates of
vision models read contents as lists of parts, and print nothing for a string. Other templates read strings only, and
print a list as Python does. vLLM searches the template for a loop over contents, and does not see one in a macro.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from transforms.model.examples import Conversation, ParsedArguments

if TYPE_CHECKING:
    from transforms.chat.rendering.template import ChatTemplate

Message: TypeAlias = dict[str, Any]

INSTRUCTION: Message = {"role": "system", "content": "Be kind."}
QUESTION: Message = {"role": "user", "content": "Good morning."}
ANSWER: Message = {"role": "assistant", "content": "Hello there."}
SECOND_QUESTION: Message = {"role": "user", "content": "Thank you."}
SECOND_ANSWER: Message = {"role": "assistant", "content": "You are welcome."}
DIALOGUE = [QUESTION, ANSWER, SECOND_QUESTION]
TOOL: Message = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}


def _calls(*places: str) -> Message:
    """A turn with a call for each of some places, without text."""
    calls = [
        {"type": "function", "id": f"call0000{number}", "function": {"name": "look", "arguments": {"at": place}}}
        for number, place in enumerate(places)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


# The arguments of two calls show where each of them ends.
PLACES = FIRST, SECOND = "harbour", "mountain"
CALL, FIRST_CALL, TWO_CALLS = _calls("it"), _calls(FIRST), _calls(*PLACES)
RESULTS: list[Message] = [
    {"role": "tool", "tool_call_id": call["id"], "name": "look", "content": "seen"} for call in TWO_CALLS["tool_calls"]
]
# For each role but those of instructions, a conversation that ends with a message of it.
UP_TO_ROLE = {"user": [QUESTION], "assistant": [QUESTION, ANSWER], "tool": [QUESTION, CALL, RESULTS[0]]}
# A call has a text here, which is to be read in either form.
_TOOL = [QUESTION, {**CALL, "content": "I look."}, RESULTS[0]]


class ContentForms(NamedTuple):
    """The forms of content that a template is given.

    Attributes:
        strings: whether it is given strings as they are, and not as one part.
        parts: whether it is given text parts as they are, and not joined to a string.
    """

    strings: bool
    parts: bool


class PrintedContent(NamedTuple):
    """How a content is printed.

    Attributes:
        in_any_form: whether it is printed, as it is or in another form, such as in JSON.
        as_it_is: whether its characters are printed as they are.
        text: of the conversation; None if the template refuses it.
    """

    in_any_form: bool
    as_it_is: bool
    text: str | None


# Takes messages and the number of one of them; returns how the content of that one is printed.
Probe: TypeAlias = Callable[[list[Message], int], PrintedContent]


def prints_role(role: str, printed: Probe) -> bool:
    """Find whether a template prints what messages of a role say; not if it refuses them."""
    return printed([{**INSTRUCTION, "role": role}, QUESTION], 0).in_any_form


def find_content_forms(role: str, printed: Probe) -> ContentForms:
    """Find the forms of content that a template reads in messages of a role.

    A string stays one if the template prints it in any form: it may write those of tools as JSON. So do parts, unless
    the template prints a list as such, with all keys of a part.
    """
    others = UP_TO_ROLE.get(role, [{**INSTRUCTION, "role": role}, QUESTION])
    messages = _TOOL if role == "tool" else others
    number = next(at for at, message in enumerate(messages) if message["role"] == role)
    in_parts = [_in_parts(message) for message in messages]
    string, part = printed(messages, number), printed(in_parts, number)
    others = in_parts
    if not string.in_any_form and not part.in_any_form:
        # Some templates read the contents of other roles in another form.
        string = printed([*in_parts[:number], messages[number], *in_parts[number + 1 :]], number)
        part, others = printed([*messages[:number], in_parts[number], *messages[number + 1 :]], number), messages
    reads_parts = part.in_any_form
    if reads_parts and string.in_any_form and not part.as_it_is:
        with_key = [*others[:number], _in_parts(messages[number], of="no template"), *others[number + 1 :]]
        reads_parts = printed(with_key, number).text == part.text
    return ContentForms(strings=string.in_any_form or not reads_parts, parts=reads_parts)


def _in_parts(message: dict[str, Any], **further: str) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"], **further}]}


class CallForms(NamedTuple):
    """How a template is given messages that call tools.

    Attributes:
        strings: whether arguments are given as text, and not as objects.
        content: what is given as the content of a message without one; None if it is given none.
    """

    strings: bool
    content: str | None


def find_call_forms(printed: Probe) -> CallForms:
    """Find how a template reads messages that call tools: the first way in which it prints the arguments best."""
    called = _calls(FIRST)["tool_calls"]

    def goodness(forms: CallForms) -> int:
        message = {"role": "assistant", "tool_calls": called if not forms.strings else [*map(with_text, called)]}
        if forms.content is not None:
            message["content"] = forms.content
        text = printed([QUESTION, message, RESULTS[0]], 1).text
        if text is None or FIRST not in text:
            return int(text is not None)
        arguments = called[0]["function"]["arguments"]
        return 3 if (json.dumps(arguments) in text if forms.strings else repr(arguments) not in text) else 2

    return max((CallForms(strings, content) for content in (None, "") for strings in (False, True)), key=goodness)


def with_text(call: Any) -> Any:
    """Return a call with its arguments as text: that of the record, or their JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(given := function.get("arguments"), dict):
        return call
    text = given.text if isinstance(given, ParsedArguments) else json.dumps(given, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


# SmolLM3's argument of its template for tools.
_TOOLS = "xml_tools"
_SWITCH = "enable_thinking"


def adapted(conversation: Conversation, template: ChatTemplate) -> tuple[Conversation, dict[str, str | None]]:
    """Adapt a conversation to its chat template.

    A message of the developer becomes one of the system, if the template prints nothing of a developer or refuses it,
    and prints the system. SmolLM3's `xml_tools` become tools, if the template does not read them under that name.

    Args:
        conversation: the conversation.
        template: that renders it.

    Returns:
        The conversation, the same if nothing is to be changed; and what is worth reporting, by name, as notes.

    Raises:
        RecordError: if there is no template.
    """
    notes: dict[str, str | None] = {}
    arguments, has_developer = conversation.template_kwargs, _has_developer(conversation)
    if not arguments and not has_developer:
        return conversation, notes
    if _SWITCH in arguments and _SWITCH not in template.source(conversation):
        notes["enable_thinking_not_read"] = "the template does not read whether the model is to reason"
    if arguments.get(_TOOLS) and conversation.tools is None and _TOOLS not in template.source(conversation):
        tools = _tools(arguments[_TOOLS])
        if tools is not None:
            notes["xml_tools_as_tools"] = None
            rest = {name: value for name, value in arguments.items() if name != _TOOLS}
            conversation = msgspec.structs.replace(conversation, tools=tools, template_kwargs=rest)
    if has_developer and not template.prints(conversation, "developer"):
        if not template.prints(conversation, "system"):
            return conversation, notes
        notes["developer_as_system"] = None
        messages = [{**m, "role": "system"} if m["role"] == "developer" else m for m in conversation.messages]
        conversation = conversation.with_messages(messages)
    return conversation, notes


def _has_developer(conversation: Conversation) -> bool:
    messages = conversation.lazy_messages
    if isinstance(messages, tuple):
        return "developer" in messages[0]
    return any(message.get("role") == "developer" for message in messages)


def _tools(given: Any) -> list[Any] | None:
    """Tools in the OpenAI form, given as objects or as their JSON; None if they are something else."""
    tools = []
    for tool in given if isinstance(given, list) else [None]:
        if isinstance(tool, str):
            try:
                tool = msgspec.json.decode(tool)
            except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
                return None
        if not isinstance(tool, dict) or not isinstance((function := tool.get("function", tool)), dict):
            return None
        if not isinstance(function.get("name"), str):
            return None
        tools.append(tool if "function" in tool else {"type": "function", "function": tool})
    return tools
