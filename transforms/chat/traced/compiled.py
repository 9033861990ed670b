"""Compile a chat template for one signature: evaluate it once for all conversations that differ in their texts only.

The signature of a conversation is what it is without its texts: the roles in order, and the keys of each message. Most
templates only print a text, perhaps stripped, perhaps after a search for a word such as </think>. Such a template
renders all conversations of one signature alike, except for the texts. So it is rendered once per signature, in
transformers' own Jinja environment, with traced texts (`tracer`). What they record are the guards under which another
conversation of the signature is rendered in the same way. The spans are found once per signature too.

This is partial evaluation with guards, as in a tracing compiler.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from transforms.chat.rendering.omissions import (
    MessageOmissions,
    Omissions,
    Printed,
    find_message_omissions,
    gaps_between,
    is_whole_tag,
    joined_omissions,
    may_complete_tag,
)
from transforms.chat.rendering.renderings import Key, Rendering, message_texts, message_with_sources, with_all_texts
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.template_facts import up_to_marker
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.signatures import Cut, Signature, traced_messages
from transforms.chat.traced.tracer import (
    LOWER,
    SENTINEL,
    STRIPPED,
    Guards,
    NotTraceable,
    TracedText,
    plain_text,
    print_form,
    sentinel,
    sentinel_number,
    traced_text,
    with_raw_texts,
)
from transforms.chat.traced.tracing_jinja import traceable_template
from transforms.model.examples import REASONING_KEYS, Conversation, Span

# A span of a skeleton: how many holes are before its start, and how many characters of literals; the same for its stop.
Edges: TypeAlias = tuple[int, int, int, int]
# What is rendered: the text alone, or with the spans of a kind of loss.
Target: TypeAlias = Literal["text", "assistant", "last_assistant", "completion", "completion_turns"]
# A text, its spans, and what of its conversation is not printed.
Rendered: TypeAlias = tuple[str, list[Span], Omissions]


@dataclass
class CompiledTemplate:
    """How conversations of one signature are rendered, and what of them is trained on.

    Attributes:
        guards: what must hold for the texts.
        skeleton: what the template prints, with the spans.
        unprinted: finds what is not printed.
        is_compared: whether it renders a conversation as the reference does. It may not be used before.
        notes: what is worth reporting of the turns of such conversations; None if nobody found it yet.
    """

    guards: Guards
    skeleton: Skeleton
    unprinted: Unprinted
    is_compared: bool = False
    notes: Any = None

    def render(self, signature: Signature) -> Rendered:
        """Render a conversation of this signature, for whose texts the guards hold.

        Returns:
            The text, its spans and what it leaves out.
        """
        text, spans = self.skeleton.filled(signature.texts, signature.trimmed)
        return text, spans, self.unprinted.omissions(signature.texts)


@dataclass(frozen=True)
class Skeleton:
    """What a template prints, without the texts of a conversation.

    Attributes:
        literals: what is printed before, between and after texts.
        holes: for each literal but the last, the number of the text after it, and whether that is stripped.
        edges: of its spans.
    """

    literals: list[str]
    holes: list[tuple[int, bool]]
    edges: Sequence[Edges] = ()

    @classmethod
    def of(cls, traced: str, spans: Sequence[Span] = ()) -> Skeleton:
        """Make the skeleton of what a template printed for traced texts. spans: of that text.

        Raises:
            NotTraceable: if a text is printed in lower case.
        """
        forms = [(sentinel_number(text), print_form(text)) for text in SENTINEL.findall(traced)]
        if any(form == LOWER for _, form in forms):
            raise NotTraceable("the template prints a text in lower case")
        before = [0, *accumulate(bool(SENTINEL.match(character)) for character in traced)] if spans else []
        edges = [(before[start], start - before[start], before[stop], stop - before[stop]) for start, stop in spans]
        return cls(SENTINEL.split(traced), [(number, form == STRIPPED) for number, form in forms], edges)

    @functools.cached_property
    def _strips_all(self) -> bool | None:
        """Whether all texts are stripped, or none is, if the texts are printed in order; None otherwise."""
        kinds = {strips for _, strips in self.holes}
        in_order = [number for number, _ in self.holes] == [*range(len(self.holes))]
        return kinds.pop() if in_order and len(kinds) == 1 else None

    def filled(self, texts: list[str], trimmed: list[str]) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the spans in it.

        Args:
            texts: its texts. Those after the last hole are not printed.
            trimmed: the same texts without the white space around them.
        """
        if self._strips_all is not None and len(texts) == len(self.holes):
            printed = trimmed if self._strips_all else texts
        else:
            printed = [trimmed[number] if strips else texts[number] for number, strips in self.holes]
        parts = self.literals * 2
        parts[::2] = self.literals
        parts[1:-1:2] = printed
        parts[-1] = ""
        if not self.edges:
            return "".join(parts), []
        lengths = [0, *accumulate(map(len, printed))]
        return "".join(parts), [(lengths[a] + i, lengths[b] + j) for a, i, b, j in self.edges]


class Unprinted:
    """Finds what is not printed of a conversation.

    What is found depends on the texts only if a text is in what is not printed: it may have tags of reasoning. It is
    then found with the texts themselves.

    Args:
        messages: traced messages, as ordinary strings.
        printed: what the template prints of them.
        keys: those of further texts that it prints.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], printed: Printed, keys: Collection[Key] = ()):
        self._messages, self._printed = messages, printed
        self._skeleton = functools.cache(lambda text, key: Skeleton.of(text, printed.get(key, ())))
        self._by_message = [
            find_message_omissions(number, message, printed, keys) for number, message in enumerate(messages)
        ]
        # Of further keys the name, the characters besides texts, and the numbers of these.
        self._unread = [
            (name, len(SENTINEL.sub("", text)), [*map(sentinel_number, SENTINEL.findall(text))])
            for message_omissions in self._by_message
            for name, text in message_omissions.unread
        ]
        self._usual = joined_omissions(messages, self._by_message)
        # The numbers of messages of which texts are not printed, and these texts; None if it is not enough to look at
        # each of them alone.
        self._doubtful = {
            number: texts for number in range(len(messages)) if (texts := self._dropped_texts(number)) != []
        }

    def _dropped_texts(self, number: int) -> list[int] | None:
        message, dropped = self._messages[number], list[int]()
        for key, text in message_texts(number, message):
            for start, stop in gaps_between(text, self._printed.get(key, ())):
                literals, numbers = SENTINEL.split(text[start:stop]), SENTINEL.findall(text, start, stop)
                if key[1] == "reasoning" and numbers and sum(name in message for name in REASONING_KEYS) > 1:
                    return None  # the texts may be the same
                if key[1] == "content" and numbers:
                    dropped += map(sentinel_number, numbers)
                    if not all(map(is_whole_tag, literals)):
                        return None
        return dropped

    def omissions(self, texts: list[str]) -> Omissions:
        """Find what is not printed of a conversation.

        Args:
            texts: its texts.
        """
        by_message = None
        for number, dropped in self._doubtful.items():
            if dropped is None or any(may_complete_tag(texts[text]) for text in dropped):
                by_message = by_message or [*self._by_message]
                by_message[number] = self._with_texts(number, texts)
        omissions = joined_omissions(self._messages, by_message) if by_message else self._usual
        if not self._unread:
            return omissions
        characters = Counter[str]()
        for name, literal, numbers in self._unread:
            characters[name] += literal + sum(len(texts[number]) for number in numbers)
        return replace(omissions, unread=tuple(sorted(characters.items())))

    def _with_texts(self, number: int, texts: list[str]) -> MessageOmissions:
        """What is not printed of a message that has these texts."""
        printed: dict[Key, list[tuple[int, int]]] = {}

        def inserted(text: str, key: Key) -> str:
            whole, ranges = self._skeleton(text, key).filled(texts, texts)
            if ranges:
                printed[key] = ranges
            return whole

        message = message_with_sources(number, self._messages[number], inserted)
        return find_message_omissions(number, message, printed)._replace(unread=self._by_message[number].unread)


class Trace:
    """A conversation of traced texts, and what a chat template prints of it.

    Args:
        template: the chat template.
        turns: finds turns under it.
        conversation: any conversation of a signature. What is compiled is the same for all of them.
        target: what is rendered of it.
        cut: as in `make_signature`.

    Attributes:
        guards: what must hold for the texts.
        conversation: the conversation of traced texts.
        template: renders it.
        turns: finds turns in its renderings.
        text: what the template prints, with the sentinels that the messages have.
        spans: what of it is trained on.

    Raises:
        NotTraceable: if it is unknown what is printed for other texts.
        RecordError: if the template refuses the conversation, or it is unknown what is trained on.
    """

    def __init__(self, template: ChatTemplate, turns: TurnFinder, conversation: Conversation, target: Target, cut: Cut):
        self.guards = Guards()
        messages, self._owners = traced_messages(conversation.messages, self.guards, cut)
        self.conversation = conversation.with_messages(messages)
        self.template = TracingTemplate(template)
        self.turns = TurnFinder(self.template, turns.rules, turns)
        self._rendering = self.template.rendering(self.conversation)
        self.text = self._rendering.text
        self.spans = [] if target == "text" else self.turns.trained_spans(self._rendering, target)
        self._target = target

    def compiled(self) -> CompiledTemplate:
        """Return what renders the conversations of the signature, as long as no guard is added. Raises NotTraceable."""
        reordered = [dict(reversed(message.items())) for message in self.conversation.messages]
        if self.template.render(self.conversation.with_messages(reordered)) != self.text:
            raise NotTraceable("the template depends on the order of a message's keys")
        if self._target != "text":
            self.guard_spans(self.text)
        # A text that is stripped in one place and not in another is the same only if it needs no stripping.
        forms = self.template.print_forms
        self.guards.trimmed |= len(dict(forms)) < len(forms)
        unprinted = Unprinted(self._rendering.messages, self._rendering.printed, self._rendering.keys)
        return CompiledTemplate(self.guards, self.skeleton(self.text, self.spans), unprinted)

    def skeleton(self, text: str, spans: Sequence[Span] = ()) -> Skeleton:
        """Return the skeleton of a text that the template printed, stripped where the template strips.

        Raises:
            NotTraceable: if a text is printed in lower case.
        """
        stripped = {ord(sentinel(number)): sentinel(number, form) for number, form in self.template.print_forms if form}
        return Skeleton.of(text.translate(stripped), spans)

    def guard_spans(self, text: str) -> None:
        """Add guards under which a text that the template printed has the same spans for other texts."""
        # If a text holds a stop token, the reference finds out which ones the template printed.
        self.guards.absent.update(self.turns.rules.stop_tokens)
        if isinstance(whole := traced_text(text, self.guards), TracedText):
            for token in self.turns.rules.stop_tokens:
                whole.located(token)
        skeleton, messages = Skeleton.of(text), self.conversation.messages
        for literal, (number, _) in zip(skeleton.literals, skeleton.holes, strict=False):
            is_answer = self._target == "completion" or messages[self._owners[number]]["role"] == "assistant"
            if is_answer and (continuations := {*self._continuations(literal)}):
                self.guards.edges[number, 0] |= continuations

    def _continuations(self, literal: str) -> Iterator[str]:
        """What of a generation prompt, up to its next marker, could follow a literal."""
        facts = self.turns.facts(self.conversation)
        for role in {"user", *(message["role"] for message in self.conversation.messages)}:
            prompt = facts.prompt_after(role) or ""
            if prompt and not literal.endswith(prompt):
                cuts = (cut for cut in range(len(prompt)) if literal.endswith(prompt[:cut]))
                yield from (up_to_marker(prompt[cut:]) for cut in cuts)


class TracingTemplate:
    """Renders conversations of traced texts as the chat template itself does; a `template_facts.Template`.

    Args:
        template: the chat template.

    Attributes:
        print_forms: the number of each text that was printed, and whether it was stripped.
    """

    def __init__(self, template: ChatTemplate):
        self._template = template
        self.print_forms: set[tuple[int, bool]] = set()

    def source(self, conversation: Conversation) -> str:
        return self._template.source(conversation)

    def has_generation_blocks(self, conversation: Conversation) -> bool:
        return self._template.has_generation_blocks(conversation)

    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """The text, with the same sentinels as the texts have. Raises RecordError, NotTraceable."""
        text = plain_text(self._template.render_with(traceable_template, conversation, add_generation_prompt))
        self.print_forms.update(Skeleton.of(text).holes)
        return with_raw_texts(text)

    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]:
        text, blocks = self._template.generation_blocks(_plain(conversation))
        return self._checked(text, conversation), blocks

    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering:
        """The rendering, with sentinels as the texts of its messages. Raises RecordError, NotTraceable."""
        rendering = self._template.rendering(_plain(conversation), add_generation_prompt)
        self._checked(rendering.text, conversation, add_generation_prompt)
        return replace(rendering, conversation=conversation)

    def _checked(self, text: str, *given: Any) -> str:
        """What the template prints for ordinary texts, if it prints it for traced ones too. Raises NotTraceable."""
        if self.render(*given) != text:
            raise NotTraceable("the template changes a text in a way that the tracer does not see")
        return text


def _plain(conversation: Conversation) -> Conversation:
    return conversation.with_messages(with_all_texts(conversation.messages, plain_text))
