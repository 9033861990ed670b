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
from typing import Literal, TypeAlias

from transforms.base.errors import RecordError
from transforms.chat.rendering.omissions import Omissions, omissions_of
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.rendering.texts import with_all_texts
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.template_facts import up_to_marker
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.signatures import Cut, traced_messages
from transforms.chat.traced.skeleton import Edges, Skeleton, edges_of, spans_of
from transforms.chat.traced.tracer import (
    UNSEEN,
    NotTraceable,
    TracedText,
    in_other_alphabet,
    plain_text,
    split_at_texts,
    traced_text,
    with_raw_texts,
)
from transforms.chat.traced.tracing_jinja import traceable_template
from transforms.chat.traced.unprinted import Unprinted
from transforms.model.examples import Conversation, Span

# What is rendered: the text alone, or with the spans of a kind of loss.
Target: TypeAlias = Literal["text", "assistant", "last_assistant", "completion", "completion_turns"]
# A text, its spans, and what of its conversation is not printed.
Rendered: TypeAlias = tuple[str, list[Span], Omissions]


@dataclass(frozen=True, slots=True)
class SlowPath:
    """A conversation is not rendered by a compiled template, but for itself.

    Attributes:
        difference: what its compiled template renders in another way than the reference; empty if there is none for it,
            or its guards do not hold.
    """

    difference: str = ""


@dataclass
class CompiledTemplate:
    """How conversations of one signature are rendered, and what of them is trained on.

    Attributes:
        guards: what must hold for the texts.
        traced: what the template prints, with a sentinel for each text.
        skeleton: the same without the texts.
        spans: of what is trained on, in the traced text.
        edges: the same in the skeleton.
        unprinted: finds what is not printed.
        is_compared: whether it renders a conversation as the reference does. It may not be used before.
    """

    guards: Guards
    traced: str
    skeleton: Skeleton
    spans: Sequence[Span]
    edges: Sequence[Edges]
    unprinted: Unprinted
    is_compared: bool = False

    def render(self, texts: list[str], trimmed: list[str]) -> Rendered | None:
        """Render a conversation of this signature.

        Args:
            texts: its texts.
            trimmed: the same texts without the white space around them.

        Returns:
            The text, its spans and what it leaves out; None if the guards do not hold.
        """
        if not self.guards.hold(texts, trimmed):
            return None
        printed = self.skeleton.printed(texts, trimmed)
        return self.skeleton.text(printed), spans_of(self.edges, printed), self.unprinted.omissions(texts)


class TemplateCompiler:
    """Compiles one chat template for signatures.

    Args:
        template: the chat template.
        rules: what else is known about turns.
        reference: finds turns under the template, by the same rules; None if there is none yet.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules | None = None, reference: TurnFinder | None = None):
        self._template = template
        self._rules = rules
        self._reference = reference or TurnFinder(template, rules)
        self._turns = TurnFinder(TracingTemplate(template), rules)
        self._stop_tokens = rules.stop_tokens if rules else ()

    def compile(
        self, conversation: Conversation, target: Target, cut: Cut | None = None
    ) -> CompiledTemplate | SlowPath:
        """Compile the template for the signature of a conversation.

        Args:
            conversation: any conversation of the signature.
            target: what is rendered of it.
            cut: as in `signature_of`.

        Returns:
            The compiled template, if there is one. It is the same for all conversations of the signature.
        """
        try:
            return self._compile(conversation, target, cut)
        except (NotTraceable, RecordError):
            return SlowPath()

    def compare(
        self, compiled: CompiledTemplate, conversation: Conversation, target: Target, rendered: Rendered
    ) -> SlowPath | None:
        """Compare what a compiled template makes of a conversation with the reference, `apply_chat_template`.

        Args:
            compiled: the compiled template; it is noted in it if nothing is different.
            conversation: the first one for which its guards hold.
            target: what is rendered of it.
            rendered: by the compiled template.

        Returns:
            What is different; None if nothing is, or it was compared already.
        """
        if compiled.is_compared:
            return None
        try:
            rendering = self._template.rendering(conversation)
            spans = [] if target == "text" else self._reference.trained_spans(rendering, target)
            expected = self._template.apply(conversation), spans, omissions_of(rendering)
        except RecordError as error:
            return SlowPath(f"the reference refuses it: {error.reason}: {error.detail}")
        for what, one, other in zip(("text", "spans", "omissions"), rendered, expected, strict=True):
            if one != other:
                return SlowPath(f"other {what}")
        compiled.is_compared = True
        return None

    def _compile(self, conversation: Conversation, target: Target, cut: Cut | None) -> CompiledTemplate:
        guards = Guards()
        messages, owners = traced_messages(conversation.messages, guards, cut)
        traced = conversation.with_messages(messages)
        tracing = TracingTemplate(self._template)
        rendering = tracing.rendering(traced)
        spans = [] if target == "text" else self.turn_finder(tracing).trained_spans(rendering, target)
        text = tracing.trace(traced)
        self._trace_again(conversation, cut, text, guards)
        guards.trimmed |= tracing.has_both_forms
        if target != "text":
            self.guard_answers(guards, traced, text, None if target == "completion" else owners)
        unprinted = Unprinted(rendering.messages, rendering.printed, rendering.keys)
        return CompiledTemplate(guards, text, Skeleton.of(text), spans, edges_of(text, spans), unprinted)

    def turn_finder(self, tracing: TracingTemplate) -> TurnFinder:
        """Return what finds turns in renderings of traced conversations."""
        return TurnFinder(tracing, self._rules, self._turns)

    def guard_answers(self, guards: Guards, traced: Conversation, text: str, owners: Sequence[int] | None) -> None:
        """Add guards under which spans have the same edges for other texts.

        Args:
            guards: takes them.
            traced: the conversation of traced texts.
            text: what the template prints.
            owners: for each text the number of its message; None if all are trained on.
        """
        # If a text holds a stop token, the reference finds out which ones the template printed.
        guards.absent.update(self._stop_tokens)
        if isinstance(whole := traced_text(text, guards), TracedText):
            for token in self._stop_tokens:
                whole.located(token)
        for literal, (number, _) in zip(*split_at_texts(text), strict=False):
            is_answer = owners is None or traced.messages[owners[number]]["role"] == "assistant"
            if is_answer and (continuations := {*self._continuations(traced, literal)}):
                guards.starts.setdefault(number, set()).update(continuations)

    def _trace_again(self, conversation: Conversation, cut: Cut | None, text: str, guards: Guards) -> None:
        """Trace with other sentinels and orders of keys. Raises NotTraceable if the text differs."""
        messages = traced_messages(conversation.messages, guards, cut, alphabet=1)[0]
        reordered = conversation.with_messages([dict(reversed(message.items())) for message in messages])
        again = TracingTemplate(self._template).trace(reordered)
        if in_other_alphabet(again) != text:
            raise NotTraceable("the template depends on the order of a message's keys, or prints a sentinel itself")

    def _continuations(self, traced: Conversation, literal: str) -> Iterator[str]:
        """What of a generation prompt, up to its next marker, could follow a literal."""
        facts = self._turns.facts(traced)
        for role in {"user", *(message["role"] for message in traced.messages)}:
            prompt = facts.prompt_after(role) or ""
            if prompt and not literal.endswith(prompt):
                for length in range(len(prompt)):
                    if literal.endswith(prompt[:length]):
                        yield up_to_marker(prompt[length:])


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

    @property
    def stripped(self) -> set[int]:
        """The numbers of the texts that were printed stripped."""
        return {number for number, is_stripped in self.print_forms if is_stripped}

    @property
    def has_both_forms(self) -> bool:
        """Whether a text was stripped in one place and not in another: the same only if it needs no stripping."""
        return any(number in self.stripped for number, is_stripped in self.print_forms if not is_stripped)

    def source(self, conversation: Conversation) -> str:
        return self._template.source(conversation)

    def has_generation_blocks(self, conversation: Conversation) -> bool:
        return self._template.has_generation_blocks(conversation)

    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """The text, with the same sentinels as the texts have. Raises RecordError, NotTraceable."""
        return with_raw_texts(self.trace(conversation, add_generation_prompt))

    def trace(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """The text, with other sentinels for stripped texts. Raises RecordError, NotTraceable."""
        traced = self._template.render_with(traceable_template, conversation, add_generation_prompt)
        text = plain_text(traced)
        self.print_forms.update(split_at_texts(text)[1])
        return text

    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]:
        self.render(conversation)
        return self._template.generation_blocks(_plain_conversation(conversation))

    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering:
        """The rendering, with sentinels as the texts of its messages. Raises RecordError, NotTraceable."""
        text = self.render(conversation, add_generation_prompt)
        found = self._template.rendering(_plain_conversation(conversation), add_generation_prompt)
        if found.text != text:
            raise NotTraceable(UNSEEN)
        return replace(found, conversation=conversation)


def _plain_conversation(conversation: Conversation) -> Conversation:
    return conversation.with_messages(with_all_texts(conversation.messages, plain_text))
