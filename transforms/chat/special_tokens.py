"""Special tokens that were typed: those in the contents of a record, which the chat template did not print.

Most records have none, which the first characters of the tokens show for all contents at once. Where the template
printed the contents is needed only to encode typed tokens as plain text.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from transforms.base.errors import RecordError, UserError
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.stop_tokens import TurnRules, longest_match_regex
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Conversation, PlainText, PromptCompletion, Text
from transforms.records.json_text import strings_in
from transforms.tokens.plain import STAND_INS, make_placeholders

_ADVICE = "with special_tokens_in_content plain it would be encoded as plain text"
# The most lists of tools for which the tokens that were found in them are kept.
_KEPT = 1024
# Markers of ordinary text, such as [INST].
_MARKER = r"(?:<[^<>\s]{1,40}>|\[/?[A-Za-z_]{1,40}\])"
# Templates open and close the reasoning before an answer. A model writes these itself.
_REASONING = re.compile("think|thought|reason", re.IGNORECASE)


class Content(NamedTuple):
    """A text that a record gives, of a message with its role, of the tools, or of the arguments of the template.

    Attributes:
        place: where it is, such as `messages[1]`.
        role: of its message; the same as place if it is in none.
        text: the text.
    """

    place: str
    role: str
    text: str


# A content and the special tokens in it.
Typed: TypeAlias = tuple[Content, list[str]]


class TypedTokens:
    """Finds special tokens in the contents of records, and does with them what the configuration says.

    Args:
        mode: RenderConfig.special_tokens_in_content, but not `allow`.
        tokenizer: of transformers.
        template: the chat template.
        rules: what else is known about turns.
    """

    def __init__(self, mode: str, tokenizer: Any, template: ChatTemplate, rules: TurnRules):
        self._mode = mode
        self._template = template
        self._rules = rules
        self._special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._stand_ins = make_placeholders(tokenizer)
        self._tools: dict[int, tuple[Any, tuple[list[Typed], bool]]] = {}

    def check(self, text: Text, strings: Sequence[str] | None = None) -> tuple[Text, Sequence[Typed]]:
        """Check a text for special tokens in the contents that it was made of.

        Args:
            text: the text.
            strings: all that are in the messages of its conversation; None if they are not known.

        Returns:
            The text, with stand-ins if not all of its added tokens are to be encoded as such; and each content that has
            special tokens.

        Raises:
            RecordError: if its record is to be rejected.
        """
        typed = self._typed(text, strings)
        if typed and self._mode == "reject":
            raise RecordError("special_tokens_in_content", f"{described(typed[0])}; {_ADVICE}")
        if typed and self._mode == "report":
            self._check_answers(typed)
        if self._mode == "plain" and (typed or self._may_be_completed(text)):
            text = self._with_stand_ins(text, bool(typed))
        return text, typed

    def with_stand_ins(self, printed: str) -> str:
        """Return what is printed, and no text of a record, with stand-ins for its added tokens."""
        return self._any_added.sub(lambda match: self._stand_ins[match[0]], printed)

    def _check_answers(self, typed: Sequence[Typed]) -> None:
        """Raise RecordError if a message of the assistant ends or begins a turn."""
        for content, tokens in typed:
            if content.role == "assistant" and (forged := [token for token in tokens if token in self._turn_tokens]):
                why = "which ends or begins a turn under the chat template, so what follows would be another turn"
                raise RecordError("forged_turn", f"{described((content, forged))}, {why}")

    def _typed(self, text: Text, strings: Sequence[str] | None) -> list[Typed]:
        """Each content that has special tokens. strings: as of `check`."""
        content = text.example.content
        if not isinstance(content, Conversation):  # whose contents are the text
            return self._search(_list_contents(content)) if self._strings.are_in(text.text) else []
        typed = self._search(_list_contents(content)) if self._may_be_in_messages(content, strings) else []
        if content.tools:
            typed += self._search_tools(content.tools)[0]
        if content.template_kwargs:  # as few have
            typed += self._search(_contents_in("chat_template_kwargs", content.template_kwargs))
        return typed

    def _may_be_in_messages(self, conversation: Conversation, strings: Sequence[str] | None) -> bool:
        """Whether special tokens may be in messages, which is known in a fraction of the time."""
        try:
            return self._in_json.are_in("".join(strings or conversation.texts or (_json(conversation.messages),)))
        except (ValueError, TypeError, RecursionError):  # a formatter's values may not be JSON
            return True

    def _search(self, contents: Iterable[Content]) -> list[Typed]:
        strings = self._strings
        return [(content, strings.findall(content.text)) for content in contents if strings.are_in(content.text)]

    def _search_tools(self, tools: list[Any]) -> tuple[list[Typed], bool]:
        """The special tokens in tools, and whether one of their texts may be completed to one."""
        if id(tools) not in self._tools:  # conversations of the same tools share them
            if len(self._tools) >= _KEPT:
                self._tools = {}
            contents = [*_contents_in("tools", tools)]
            may_be_completed = self._mode == "plain" and any(self._plain.may_be_at_edge(one.text) for one in contents)
            self._tools[id(tools)] = tools, (self._search(contents), may_be_completed)
        return self._tools[id(tools)][1]

    @functools.cached_property
    def _turn_tokens(self) -> frozenset[str]:
        """What the template prints where a turn ends and another one begins, such as `<|im_end|>`; and stop tokens.

        These are the special tokens, and the markers, between the contents of a dialogue; and the special tokens around
        the answer of a tool.
        """
        try:
            facts = TurnFinder(self._template).facts(Conversation([]))
            between, around = facts.between_contents(), facts.around_result()
        except UserError:  # the chat template is too long, or there is no moment that it prints
            between = around = ""
        special = re.compile(longest_match_regex(self._special))
        printed = {*special.findall(between), *re.findall(_MARKER, between), *special.findall(around)}
        return frozenset({token for token in printed if not _REASONING.search(token)} | {*self._rules.stop_tokens})

    @functools.cached_property
    def _strings(self) -> _Strings:
        return _Strings(self._special | self._turn_tokens)

    @functools.cached_property
    def _in_json(self) -> _Strings:
        """The same strings, as they are and as they are written in JSON."""
        return _Strings({*self._strings.strings, *(_json(string)[1:-1] for string in self._strings.strings)})

    # What follows is needed for plain text alone.

    @functools.cached_property
    def _plain(self) -> _Strings:
        """The added tokens that are not found in contents."""
        return _Strings(self._strings.strings & self._stand_ins.keys())

    @functools.cached_property
    def _any_added(self) -> re.Pattern[str]:
        return re.compile(longest_match_regex(self._stand_ins))

    def _may_be_completed(self, text: Text) -> bool:
        """Whether a content may be a special token together with what is printed next to it."""
        content = text.example.content
        if not isinstance(content, Conversation):
            return self._plain.are_in(text.text)
        if content.tools and self._search_tools(content.tools)[1]:
            return True
        contents = chain(_list_contents(content), _contents_in("", content.template_kwargs))
        return any(self._plain.may_be_at_edge(one.text) for one in contents)

    def _with_stand_ins(self, text: Text, is_typed: bool) -> Text:
        """The text with stand-ins for its added tokens, but for the special ones that have a character of a content.

        is_typed: whether one is in a content, which the template may print in another context if it does not here.
        """
        content, whole = text.example.content, text.text
        if stand_in := re.search(STAND_INS, whole):
            raise _unknown(f"the text holds U+{ord(stand_in[0]):X}, which stands for a token of the template")
        is_content = np.ones(len(whole), bool)
        if isinstance(content, Conversation):
            rendering = self._template.render_with_sources(content)
            if rendering.text != whole:
                raise _unknown("the template prints another text")
            is_content[:] = False
            for (start, stop), pieces in groupby(rendering.texts, key=lambda piece: piece[:2]):
                is_content[start:stop] = True
                added = Counter(self._plain.findall(whole[start:stop]))
                for piece in pieces:
                    added -= Counter(self._plain.findall(piece.key[3][piece.first : piece.last]))
                if added:
                    raise _unknown(f"the template prints {next(iter(added))} in a piece that it makes of contents")
        is_plain = {
            match.start(): match[0] in self._plain.strings and bool(is_content[match.start() : match.end()].any())
            for match in self._any_added.finditer(whole)
        }
        if not is_typed and not any(is_plain.values()):
            return text
        with_stand_ins = self._any_added.sub(
            lambda match: match[0] if is_plain[match.start()] else self._stand_ins[match[0]], whole
        )
        return msgspec.structs.replace(text, with_stand_ins=with_stand_ins)


def _unknown(why: str) -> RecordError:
    return RecordError("special_tokens_in_content", f"{why}, so it is unknown which of its special tokens are its own")


def _list_contents(content: Any) -> Iterator[Content]:
    """The contents of the messages of a conversation, in their order, or of what is not rendered."""
    if isinstance(content, PromptCompletion):
        yield Content("prompt", "prompt", content.prompt)
        yield Content("completion", "completion", content.completion)
    elif isinstance(content, PlainText):
        yield Content("text", "text", content.text)
    elif isinstance(content, Conversation):
        for number, message in enumerate(content.messages):
            for key, value in message.items():
                if key != "role":
                    texts = (value,) if type(value) is str else strings_in(value, with_names=True)
                    yield from (Content(f"messages[{number}]", message["role"], text) for text in texts)


def _contents_in(place: str, value: Any) -> Iterator[Content]:
    """The contents in a value that is in no message: all strings in it."""
    return (Content(place, place, text) for text in strings_in(value, with_names=True))


def described(typed: Typed) -> str:
    """Return what was found, such as `messages[1] (user) holds <|im_end|>`."""
    content, tokens = typed
    place = content.place if content.place == content.role else f"{content.place} ({content.role})"
    return f"{place} holds {', '.join(dict.fromkeys(tokens))}"


class _Strings:
    """Searches texts for strings.

    Attributes:
        strings: the strings.
        findall: finds all in a text, the longest at each place.
    """

    def __init__(self, strings: Iterable[str]):
        self.strings = frozenset(filter(None, strings))
        self._pattern = re.compile(longest_match_regex(self.strings))
        self.findall = self._pattern.findall
        self._firsts = {string[0] for string in self.strings}

    def are_in(self, text: str) -> bool:
        """Return whether one of them is in a text."""
        for first in self._firsts:  # most texts have none of these characters
            if first in text:
                return self._pattern.search(text) is not None
        return False

    def may_be_at_edge(self, text: str) -> bool:
        """Return whether a text, without the white space around it, begins or ends with a part of one of them."""
        text, (tails, reversed_heads) = text.strip(), self._parts
        return bool(tails.match(text) or reversed_heads.match(text[: -self._longest - 1 : -1]))

    @functools.cached_property
    def _parts(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Match what each ends with, and what each begins with in reverse, but for all of it."""
        cuts = [(string, at) for string in self.strings for at in range(1, len(string))]
        parts = {string[at:] for string, at in cuts}, {string[:at][::-1] for string, at in cuts}
        return re.compile(longest_match_regex(parts[0])), re.compile(longest_match_regex(parts[1]))

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self.strings), default=0)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
