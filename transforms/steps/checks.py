"""Check contents: for faults of the data, not of its form, which cost a training run. One function for each check."""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from transforms.chat.rendering.omissions import OPENS
from transforms.model.examples import Conversation
from transforms.steps.contents import Call, Seen

ACTIONS = ("report", "drop", "reject", "off")
# An answer loops if it ends with a phrase three times or more (Holtzman et al. 2020, arXiv 1904.09751), with so many
# characters in all: refrains and short lists repeat themselves, too.
_LOOP_TIMES, _LOOP_CHARACTERS = 3, 96
_MOST_ENDS = 4  # how often a phrase may have its own end in it
_ECHO_CHARACTERS = 24  # shorter answers may be their questions, such as greetings
_TEMPLATE_TOKEN = re.compile(
    r"<\|(?:im_(?:start|end|sep)|(?:start|end)_header_id|eo[tm]_id|begin_of_text|end_?of_?text|(?:start|end)_of_role|"
    r"(?:START|END)_OF_TURN_TOKEN|python_tag|system|user|assistant|observation|start|end|message|channel|"
    r"tool_calls?(?:_section)?(?:_begin|_end)?)\|>|<(?:start|end)_of_turn>|<\|?turn\|?>|<<SYS>>|\[/?INST\]|</s>\s*\Z|"
    r"<｜(?:User|Assistant|begin▁of▁sentence|end▁of▁sentence|tool▁calls▁begin)｜>"
)
_TOKEN_BEGIN = re.compile(r"<(?:[|｜]|/s>|<SYS>>|(?:start_of_|end_of_)?turn)")  # which is looked for quickly
_ROLE = re.compile(
    r"^### (?:Assistant|Human|User|System|Instruction|Response):|(?<=\n)(?:Human|Assistant):", re.MULTILINE
)
# Without U+200C and U+200D, with which Persian words and emoji are written, and the marks of Arabic and Hebrew text.
_HIDDEN_CHARACTERS = "\u200b\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HIDDEN = re.compile(f"[{_HIDDEN_CHARACTERS}]")
# Bytes of UTF-8 as Latin-1 or Windows-1252 have them, but for signs that follow words, such as quotation marks.
_FIRST_BYTES = "ÂÃÎÏÐÑâðãäåæçèé"
_BYTE = "\x80-\x9f¡-ª¬-º¼-¿"
_MOJIBAKE = re.compile(
    f"[{_FIRST_BYTES}](?:(?<=[ÂÃ])[{_BYTE}\xa0]|(?<=[ÎÏÐÑ])[{_BYTE}][ÎÏÐÑ][{_BYTE}]|(?<=â)€[{_BYTE}™œ“”˜¦]|(?<=ð)Ÿ|"
    f"(?<=[ã-é])[{_BYTE}][\x80-\xbf])"
)
_THOUGHT = re.compile(rf"\s*(?:{OPENS})\s*(?!</think>|\s)")


class Check(NamedTuple):
    """A check.

    Attributes:
        group: stands for all checks in it that take no value.
        is_for: says quickly of a content if it may find something; those that share it are next to each other.
        find: yields what it finds in a content; its docstring says what that is.
        value: what it takes after its name and a colon: INT, TEXT, or nothing.
        default: one of ACTIONS.
    """

    group: str
    is_for: Callable[[Seen], Any]
    find: Callable[..., Any]
    value: str = ""
    default: str = "report"


CHECKS: dict[str, Check] = {}


def _check(group: str, is_for: Callable[[Seen], Any], value: str = "", default: str = "report") -> Any:
    def add(find: Callable[..., Any]) -> Callable[..., Any]:
        CHECKS[find.__name__] = Check(group, is_for, find, value, default)
        return find

    return add


_has_calls = operator.attrgetter("calls")


@_check("tools", _has_calls)
def undeclared_tool(seen: Seen) -> Iterator[str]:
    """a call of a tool that is not declared, if tools are"""
    return (str(call) for call in seen.calls if seen.tools and call.name not in seen.tools)


@_check("tools", _has_calls)
def invalid_arguments(seen: Seen) -> Iterator[str]:
    """arguments of a call that are not JSON, or do not fit the JSON schema of the tool"""
    return (words for is_missing, words in seen.misfits if not is_missing)


@_check("tools", _has_calls)
def missing_arguments(seen: Seen) -> Iterator[str]:
    """a call without an argument that the JSON schema of the tool requires"""
    return (words for is_missing, words in seen.misfits if is_missing)


@_check("tools", _has_calls)
def call_without_answer(seen: Seen) -> Iterator[str]:
    """a call that nothing answers before the user's next message"""
    waiting: Sequence[Call] = ()
    for turn in seen.turns:
        if turn.calls:
            waiting = [*waiting, *turn.calls]
        elif waiting and turn.role == "tool":  # an answer without an id may be that of several calls
            waiting = [call for call in waiting if None not in (turn.answered, call.id) and call.id != turn.answered]
        elif waiting and turn.role == "user" and "<tool_response>" not in turn.text:
            yield from (f"{call}, and nothing answers before message {turn.number}" for call in waiting)
            waiting = ()


@_check("tools", _has_calls)
def repeated_call_id(seen: Seen) -> Iterator[str]:
    """an id that several calls have"""
    counts = Counter(str(call.id) for call in seen.calls if call.id is not None)
    return (f"{count} calls have the id {id!r}" for id, count in counts.items() if count > 1)


@_check("tools", lambda seen: "tool" in seen.roles)
def answer_without_call(seen: Seen) -> Iterator[str]:
    """an answer of a tool without a call before it, or with the id of none"""
    ids: list[Any] = []
    for turn in seen.turns:
        if turn.role == "tool":
            if not ids or (turn.answered not in ids and None not in (turn.answered, *ids)):
                yield f"message {turn.number} answers no call before it" + f": {turn.answered!r}" * bool(turn.answered)
        elif turn.calls:
            ids += [call.id for call in turn.calls]


def _has_odd_roles(seen: Seen) -> bool:
    return _are_odd(seen.roles)


@functools.lru_cache(1 << 12)
def _are_odd(roles: tuple[str, ...]) -> bool:
    """Whether a check of roles finds something. Many conversations have the same ones."""
    seen = Seen(Conversation((roles, [""] * len(roles), None, None)))
    return any(any(check(seen)) for check in (consecutive_users, consecutive_answers, ends_with_user, late_system))


@_check("turns", _has_odd_roles)
def consecutive_users(seen: Seen) -> Iterator[str]:
    """two messages of the user in a row"""
    return _find_consecutive(seen, "user")


@_check("turns", _has_odd_roles)
def consecutive_answers(seen: Seen) -> Iterator[str]:
    """two messages of the assistant in a row: after the first one a server stops, and asks nothing more"""
    return _find_consecutive(seen, "assistant")


def _find_consecutive(seen: Seen, role: str) -> Iterator[str]:
    pairs = enumerate(pairwise(seen.roles), 1)
    return (f"messages {first} and {first + 1} are the {role}'s" for first, pair in pairs if {*pair} == {role})


@_check("turns", _has_odd_roles)
def ends_with_user(seen: Seen) -> Iterator[str]:
    """a last message that is the user's"""
    return iter([f"message {len(seen.roles)} is the last one"] * (seen.roles[-1:] == ("user",)))


@_check("turns", _has_odd_roles)
def late_system(seen: Seen) -> Iterator[str]:
    """a system message that is not at the beginning"""
    runs = [(is_system, [*run]) for is_system, run in groupby(seen.turns, lambda turn: turn.role in _SYSTEMS)]
    return (f"message {turn.number} is the system's" for is_system, run in runs[1:] if is_system for turn in run)


_SYSTEMS = ("system", "developer")


@_check("turns", lambda seen: True, default="off")  # what is trained on of such answers is counted as empty_answers
def empty_answer(seen: Seen) -> Iterator[str]:
    """an answer without text, call or reasoning"""
    for turn in seen.turns:
        if turn.role == "assistant" and not (turn.calls or turn.text.strip() or turn.reasoning.strip()):
            yield f"message {turn.number} is empty"


@_check("turns", lambda seen: any(map(operator.eq, seen.texts, seen.texts[1:])))
def repeated_question(seen: Seen) -> Iterator[str]:
    """an answer that is the same as its question, of 24 characters or more"""
    for asked, turn in pairwise(seen.turns):
        is_same = (asked.role, turn.role, asked.text) == ("user", "assistant", turn.text)
        if is_same and len(turn.text) >= _ECHO_CHARACTERS:
            yield f"message {turn.number} is message {asked.number}: {turn.text!r}"


def _has_repeated_end(seen: Seen) -> bool:
    """Whether a text ends as it was before, not farther away than a phrase can be long."""
    return any(
        text.find(text[-20:-4], -20 - len(text) // (_LOOP_TIMES - 1), -5) >= 0
        for text in [text.rstrip() for text in seen.texts if len(text) >= _LOOP_CHARACTERS]
    )


@_check("loops", _has_repeated_end)
def looping_answer(seen: Seen) -> Iterator[str]:
    """an answer that ends with a phrase three times or more in a row, with 96 characters or more in all"""
    for number, text in seen.answers:
        text, begin = text.rstrip(), -1
        for _ in range(_MOST_ENDS if len(text) >= _LOOP_CHARACTERS else 0):
            begin = text.rfind(text[-16:], 0, begin)
            if begin < 0:
                break
            period, times = len(text) - 16 - begin, 1
            phrase, begin = text[-period:], begin + 15
            while text.endswith(phrase, 0, len(text) - times * period):
                times += 1
            times += text.endswith(phrase.lstrip(), 0, len(text) - times * period)  # nothing separates the first one
            if times >= _LOOP_TIMES and times * period >= _LOOP_CHARACTERS and any(map(str.isalpha, phrase)):
                yield f"message {number} ends with {times:,} times {phrase!r}"
                break


def _has_reasoning(seen: Seen) -> bool:
    return seen.has_reasoning or ("<" in seen.joined and "<think>" in seen.joined)


@_check("reasoning", _has_reasoning)
def unclosed_reasoning(seen: Seen) -> Iterator[str]:
    """an answer that begins with `<think>` and has no `</think>`"""
    for number, text in seen.answers:
        if text.lstrip().startswith("<think>") and "</think>" not in text:
            yield f"message {number} has no </think>"


@_check("reasoning", _has_reasoning)
def answer_in_reasoning(seen: Seen) -> Iterator[str]:
    """reasoning without an answer or a call after it"""
    for turn in seen.turns:
        text = turn.text.strip()
        is_thought = text.startswith("<think>") and text.partition("</think>")[1:] == ("</think>", "")
        if turn.role == "assistant" and not turn.calls and (is_thought if text else turn.reasoning.strip()):
            yield f"message {turn.number} has reasoning alone"


def _has_switch(seen: Seen) -> bool:
    return type(seen.enable_thinking) is bool


@_check("reasoning", _has_switch)
def unwanted_reasoning(seen: Seen) -> Iterator[str]:
    """reasoning in a record that says `enable_thinking: false`"""
    return iter(()) if seen.enable_thinking else _thoughts(seen)


@_check("reasoning", _has_switch)
def missing_reasoning(seen: Seen) -> Iterator[str]:
    """no reasoning in a record that says `enable_thinking: true`"""
    if seen.enable_thinking and not any(_thoughts(seen)):
        yield "no answer has reasoning"


def _thoughts(seen: Seen) -> Iterator[str]:
    thoughts = (turn for turn in seen.turns if turn.reasoning.strip() or _THOUGHT.match(turn.text))
    return (f"message {turn.number} has reasoning" for turn in thoughts if turn.role == "assistant")


def _has_token_begin(seen: Seen) -> bool:
    text = seen.joined  # one character is found ten times as fast as several
    return ("[" in text and "INST]" in text) or ("<" in text and bool(_TOKEN_BEGIN.search(text)))


@_check("templates", _has_token_begin)
def template_token(seen: Seen) -> Iterator[str]:
    """a special token of any model's chat template in a message"""
    texts = ((turn.number, text) for turn in seen.turns for text in (turn.text, turn.reasoning))
    return _search(_TEMPLATE_TOKEN, texts)


def _has_role_name(seen: Seen) -> bool:
    text = seen.joined
    return ("#" in text and "### " in text) or ("\n" in text and ("Human:" in text or "Assistant:" in text))


@_check("templates", _has_role_name)
def written_role(seen: Seen) -> Iterator[str]:
    """a role at the beginning of a line of an answer: `### Assistant:`, or `Human:` after the first line"""
    return _search(_ROLE, seen.answers)


@_check("templates", lambda seen: True, "TEXT")
def refusal(seen: Seen, value: str) -> Iterator[str]:
    """an answer with the text, such as one of a moderation layer"""
    return _search(re.compile(re.escape(value)), seen.answers)


def _has_one_of(characters: str) -> Callable[[Seen], bool]:
    return lambda seen: not seen.joined.isascii() and any(map(seen.joined.__contains__, characters))


@_check("text", _has_one_of("\ufffd"))
def replacement_character(seen: Seen) -> Iterator[str]:
    """U+FFFD in an answer: bytes that could not be decoded"""
    return _search(re.compile("\ufffd"), seen.answers)


@_check("text", _has_one_of(_FIRST_BYTES))
def mojibake(seen: Seen) -> Iterator[str]:
    """UTF-8 in an answer that was decoded as Latin-1 or Windows-1252, such as `Ã©` for `é`"""
    return _search(_MOJIBAKE, seen.answers)


@_check("text", _has_one_of(_HIDDEN_CHARACTERS))
def hidden_character(seen: Seen) -> Iterator[str]:
    """a zero-width space, or a control of the direction of text, in an answer"""
    return _search(_HIDDEN, seen.answers)


def _search(pattern: re.Pattern[str], texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield what a pattern finds first in the text of each message, and what is around it."""
    for number, text in texts:
        if match := pattern.search(text):
            around = text[max(match.start() - 20, 0) : match.end() + 20]
            yield f"message {number} has {match[0]!a} in {around!r}"


@_check("lengths", lambda seen: True, "INT")
def short_turn(tokens: np.ndarray, value: str) -> np.ndarray:
    """a turn of fewer trained tokens"""
    return tokens < int(value)


@_check("lengths", lambda seen: True, "INT")
def long_turn(tokens: np.ndarray, value: str) -> np.ndarray:
    """a turn of more trained tokens"""
    return tokens > int(value)


# Those with checks that take no value.
GROUPS = tuple(dict.fromkeys(check.group for check in CHECKS.values() if not check.value))


class Chosen(NamedTuple):
    """A check that is on: its name, its group, what is done if it finds something, and its functions."""

    name: str
    group: str
    action: str
    is_for: Callable[[Seen], Any]
    find: Callable[..., Any]


def choose_checks(given: Mapping[str, str] | None) -> list[Chosen]:
    """Return the checks that are on.

    given: of CheckOptions: names of checks, with their values, and of groups; a later one replaces one before it.
    """
    actions = {name: check.default for name, check in CHECKS.items() if not check.value}
    for name, action in (given or {}).items():
        in_group = [each for each, check in CHECKS.items() if check.group == name and not check.value]
        actions |= dict.fromkeys(in_group or [name], action)
    chosen: list[Chosen] = []
    for given_name, action in actions.items():
        name, value = split_value(given_name)
        group, is_for, find, *_ = CHECKS[name]
        if action != "off":
            chosen.append(Chosen(name, group, action, is_for, functools.partial(find, value=value) if value else find))
    return chosen


def split_value(given: str) -> tuple[str, str]:
    """Return the name of a check or a group, and the value that it was given after a colon; empty if none was."""
    name, _, value = given.partition(":")
    return name, value


def check_name(line: str) -> str:
    """Return the name of the check that found something, of a line of the detail of a record; empty if none did."""
    name = line.partition(": ")[0]
    return name if name in CHECKS else ""
