"""Compile a chat template for one signature: evaluate it once for all conversations that differ in their texts only.

The signature of a conversation is what it is without its texts: the roles in order, and the keys of each message. Most
templates only print a text, perhaps stripped, perhaps after a search for a word such as </think>. Such a template
renders all conversations of one signature alike, except for the texts. So it is rendered once per signature, in
transformers' own Jinja environment, with traced texts (`tracer`). What they record are the guards under which another
conversation of the signature is rendered in the same way. The spans are found once per signature too.

This is partial evaluation with guards, as in a tracing compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from transforms.chat.rendering.omissions import Omissions
from transforms.chat.rendering.renderings import Rendering, with_all_texts
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.template_facts import up_to_marker
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.signatures import Cut, Signature, traced_messages
from transforms.chat.traced.skeleton import Skeleton
from transforms.chat.traced.tracer import NotTraceable, TracedText, plain_text, sentinel, traced_text, with_raw_texts
from transforms.chat.traced.tracing_jinja import traceable_template
from transforms.chat.traced.unprinted import Unprinted
from transforms.model.examples import Conversation, Span

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
                self.guards.edges.setdefault((number, 0), set()).update(continuations)

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
        traced, (text, blocks) = self.render(conversation), self._template.generation_blocks(_plain(conversation))
        return _checked(traced, text), blocks

    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering:
        """The rendering, with sentinels as the texts of its messages. Raises RecordError, NotTraceable."""
        traced = self.render(conversation, add_generation_prompt)
        found = self._template.rendering(_plain(conversation), add_generation_prompt)
        _checked(traced, found.text)
        return replace(found, conversation=conversation)


def _checked(traced: str, text: str) -> str:
    """What a template printed for traced texts, if it is what it prints for ordinary ones. Raises NotTraceable."""
    if traced != text:
        raise NotTraceable("the template changes a text in a way that the tracer does not see")
    return traced


def _plain(conversation: Conversation) -> Conversation:
    return conversation.with_messages(with_all_texts(conversation.messages, plain_text))
