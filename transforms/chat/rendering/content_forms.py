"""Content forms: whether a chat template reads the content of a role as a string, as a list of text parts, or as both.

Templates of vision models read parts only, and print nothing for a string. Other templates read strings only, and print
a list as Python does. Which it is, is found by rendering messages of our own. vLLM searches the template for a loop
over contents, and does not see one in a macro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from transforms.chat.rendering.dialogues import CALL, INSTRUCTION, QUESTION, RESULTS, UP_TO_ROLE

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


def find_content_forms(role: str, printed: Callable[[list[dict[str, Any]], int], PrintedContent]) -> ContentForms:
    """Find the forms of content that a template reads in messages of a role.

    A string stays one if the template prints it in any form: it may write those of tools as JSON. So do parts, unless
    the template prints a list as such, with all keys of a part.

    Args:
        role: of the messages.
        printed: takes messages and the number of one of them; returns how the content of that one is printed.
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
