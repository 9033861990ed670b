"""Defects that were in rendering and masks are put back one by one, and the property of templates finds each."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest

from support.cases import Case
from support.engines import failure_of
from transforms import RecordError
from transforms.chat.rendering import omissions
from transforms.chat.rendering.content_forms import PrintedContent, find_content_forms
from transforms.chat.rendering.omissions import Omissions, gaps_between
from transforms.chat.rendering.transformers_jinja import apply_chat_template as apply_chat_template_of_transformers
from transforms.chat.rendering.transformers_jinja import compile_template, with_reasoning_aliases
from transforms.chat.spans.turn_search import TurnSearch
from transforms.chat.traced.compiled import CompiledTemplate, TracingTemplate
from transforms.tokens.ids import IdEncoder
from transforms.tokens.utf8 import Utf8

pytestmark = pytest.mark.nightly

SECONDS = 900
Patch = pytest.MonkeyPatch


def replaced_everywhere(patch: Patch, function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Replace a function of the project under its name in all modules that imported it."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("transforms.") and getattr(module, function.__name__, None) is function:
            patch.setattr(module, function.__name__, other)


def false_rejects(patch: Patch) -> None:
    """Of a compiled template, every other conversation leaves something out."""
    render = CompiledTemplate.render

    def rendered(self: CompiledTemplate, texts: list[str], trimmed: list[str]) -> Any:
        found = render(self, texts, trimmed)
        return (*found[:2], Omissions(("a tool",))) if found and len("".join(texts)) % 2 else found

    patch.setattr(CompiledTemplate, "render", rendered)


def one_sentinel_for_stripped_and_raw(patch: Patch) -> None:
    """A text that is stripped in one place and not in another needs no guard."""
    patch.setattr(TracingTemplate, "has_both_forms", False)


def completion_by_prefix_of_characters(patch: Patch) -> None:
    """A completion begins where the prompt ends, if the text begins with the characters of the prompt."""
    patch.setattr(TurnSearch, "divides", lambda *_: True)


def contents_only(patch: Patch) -> None:
    """Of the texts of a turn, only contents have to be in it."""
    check = TurnSearch._check_texts

    def checked(*given: Any) -> None:
        try:
            check(*given)
        except RecordError as error:
            if "the template prints the content of" in error.detail:
                raise

    patch.setattr(TurnSearch, "_check_texts", checked)


def header_in_argument(patch: Patch) -> None:
    """The header of a first turn without content is searched for in all that is printed for the turn."""
    find = TurnSearch._header

    def found(self: TurnSearch, turn: int, start: int, content: int | None, stop: int) -> Any:
        header, usual = self._facts.header, self._facts.prompt_after("user")
        is_first = all(message["role"] == "system" for message in self._messages[:turn])
        if is_first and content is None and header and not self._text.startswith(usual or "\0", start, stop):
            at = self._text.rfind(header, start, stop)
            if at >= 0:
                return at, at + len(header)
        return find(self, turn, start, content, stop)

    patch.setattr(TurnSearch, "_header", found)


MARKER = r"(?:<[^<>\s]{1,40}>|\[/?[A-Za-z_]{1,40}\])"
BESIDE_MARKER = re.compile(rf"\s*{MARKER}|.*{MARKER}\s*\Z", re.DOTALL)


def excused_by_any_tag(patch: Patch) -> None:
    """What is not printed of a content is reasoning, if it begins or ends with a tag."""
    judge = omissions.lost_of_content

    def lost(text: str, ranges: Sequence[tuple[int, int]], is_answer: bool) -> str | None:
        found = judge(text, ranges, is_answer)
        gaps = [text[slice(*gap)] for gap in gaps_between(text, ranges) if text[slice(*gap)].strip()]
        return "reasoning" if found and ranges and all(map(BESIDE_MARKER.match, gaps)) else found

    patch.setattr(omissions, "lost_of_content", lost)


def parts_in_place_of_json(patch: Patch) -> None:
    """A template reads strings only if it prints them as they are."""

    def found(role: str, printed: Callable[..., PrintedContent]) -> Any:
        return find_content_forms(role, lambda *given: printed(*given)._replace(in_any_form=printed(*given).as_it_is))

    replaced_everywhere(patch, find_content_forms, found)


def reasoning_under_its_own_key(patch: Patch) -> None:
    """The reference is not apply_chat_template, so that reasoning is not copied to the keys that templates read."""

    def rendered(
        tokenizer: Any, source: str, messages: Any, tools: Any, add_generation_prompt: bool, arguments: Any, _: Any
    ) -> str:
        given = {**tokenizer.special_tokens_map, "documents": None, **arguments}
        given |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        return compile_template(source).render(**given)

    replaced_everywhere(patch, apply_chat_template_of_transformers, rendered)
    replaced_everywhere(patch, with_reasoning_aliases, lambda messages: messages)


def tokens_by_an_inexact_expression(patch: Patch) -> None:
    """The fast encoder cuts texts at line breaks, although white space after them may be a part of the token."""
    encode = IdEncoder.encode

    def encoded(self: IdEncoder, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        pieces = [texts.data[a:b].decode().splitlines(keepends=True) for a, b in pairwise(texts.offsets)]
        ids, offsets = encode(self, Utf8.of([piece for own in pieces for piece in own]))
        ends = np.cumsum([0, *map(len, pieces)])
        return ids, offsets[ends]

    patch.setattr(IdEncoder, "encode", encoded)


_ENGINES_DIFFER = r"record \d+: (fast|auto)|counts|a compiled template differs"
# For each defect the patches that put it back, the last of which is it; and what the fuzzer says.
DEFECTS: dict[str, tuple[Sequence[Callable[[Patch], None]], str]] = {
    "false_rejects": ([false_rejects], _ENGINES_DIFFER),
    "guards_for_stripped_texts": ([one_sentinel_for_stripped_and_raw], _ENGINES_DIFFER),
    "completion_by_prefix": ([completion_by_prefix_of_characters], r"is trained on"),
    "header_in_argument": ([contents_only, header_in_argument], r"is not trained on"),
    "calls_out_of_their_turn": ([contents_only], r"is (not )?trained on"),
    "excused_by_any_tag": ([excused_by_any_tag], r"is not printed|lose words"),
    "strings_become_parts": ([parts_in_place_of_json], r"transformers"),
    "reference_is_not_transformers": ([reasoning_under_its_own_key], r"transformers"),
    "tokens": ([tokens_by_an_inexact_expression], r"tokens|tokenizing"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_is_put_back_is_found(name: str, monkeypatch: Patch):
    patches, described = DEFECTS[name]
    end = time.monotonic() + SECONDS
    for seed in count():
        assert time.monotonic() < end, f"not found in {seed:,} templates"
        case = Case(seed)
        with monkeypatch.context() as context:
            for patch in patches:
                patch(context)
            failure = failure_of(case)
        if failure is None:
            continue
        with monkeypatch.context() as context:
            for patch in patches[:-1]:
                patch(context)
            if failure_of(case) is None:
                break
    assert re.search(described, failure), failure
    print(f"{name}: seed {seed}: {failure}")
