"""The view of a text: what is trained on between ⟦ and ⟧, and nothing that a terminal would act on."""

from __future__ import annotations

import io
import sys
import unicodedata

import numpy as np
import pytest
from rich.console import Console
from tokenizers import Tokenizer

from pipeline.viewing.reject_view import Rejected, print_reject, reject_as_json
from pipeline.viewing.view import as_text, marked_spans, marked_tokens, shown_tokens, visible
from support.models import TOKENIZERS
from support.paths import TOKENIZER
from transforms.rows.parts import KINDS
from transforms.tokens.decoding import TokenDecoder


def printed(text, colour: bool = False) -> str:
    out = io.StringIO()
    Console(
        file=out,
        highlight=False,
        soft_wrap=True,
        emoji=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    ).print(text)
    return out.getvalue()


def test_what_is_trained_on_is_between_the_marks_with_and_without_colours():
    marked = marked_spans("<s>Hi</s>there", [(3, 9)], [(0, 3), (5, 9)])
    assert printed(as_text(marked)) == "<s>⟦Hi</s>⟧there\n"
    coloured = printed(as_text(marked), colour=True)
    assert "\x1b[1;32mHi\x1b[0m" in coloured and "⟦" in coloured and "\x1b[36m<s>\x1b[0m" in coloured


def test_parts_of_a_turn_have_their_colours():
    reasoning, content = (KINDS.index(part) for part in ("reasoning", "content"))
    marked = marked_spans("<t>Hm</t>No.<e>", [(9, 15)], [(12, 15)], [((0, 9), reasoning), ((9, 12), content)])
    assert printed(as_text(marked)) == "<t>Hm</t>⟦No.<e>⟧\n"
    assert "\x1b[2m<t>Hm</t>\x1b[0m" in printed(as_text(marked), colour=True)
    trained = marked_spans("<t>Hm</t>No.", [(0, 12)], [], [((0, 9), reasoning), ((9, 12), content)])
    assert "\x1b[1;35m<t>Hm</t>\x1b[0m\x1b[1;32mNo.\x1b[0m" in printed(as_text(trained), colour=True)


def test_escapes_stand_for_what_a_terminal_acts_on_or_does_not_show():
    hostile = "\x1b[31mred\x1b]8;;http://x\x07 \u202eevil\u2066\r\x00\x9b\u200b\U000e0041\udcf0 [bold]x[/] :smile:"
    expected = (
        "\\x1b[31mred\\x1b]8;;http://x\\x07 \\u202eevil\\u2066\\r\\x00\\x9b\\u200b\\U000e0041\\xf0 [bold]x[/] :smile:"
    )
    assert visible(hostile) == expected
    assert printed(as_text(marked_spans(hostile, []))) == f"{expected}\n"
    assert printed(as_text(marked_spans("a⟧b", [(0, 1)]))) == "⟦a⟧\\u27e7b\n"
    assert visible("emoji 👩‍👩‍👧, ये, tab\tand\nlines stay") == "emoji 👩‍👩‍👧, ये, tab\tand\nlines stay"


def test_no_control_or_format_character_is_left():
    """Of all characters: a new version of Unicode may have more of them."""
    kept = {"\n", "\t", "\u200c", "\u200d"}
    every = "".join(character for character in map(chr, range(sys.maxunicode + 1)) if character not in kept)
    left = [
        f"{ord(c):x}" for c in set(visible(every)) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    ]
    assert left == []


@pytest.mark.parametrize("folder", [*TOKENIZERS, TOKENIZER], ids=lambda folder: folder.name)
def test_character_of_several_tokens_is_marked_if_one_of_them_is_trained_on(folder):
    decoder, tokenizer = TokenDecoder.load(str(folder)), Tokenizer.from_file(str(folder / "tokenizer.json"))
    prefix, rest = "你好", "🦖饕!"
    ids = np.array(tokenizer.encode(prefix + rest, add_special_tokens=False).ids)
    decoded = decoder.decode(ids)
    first = next(i for i, stop in enumerate(decoded.stops) if stop > len(prefix))
    for last in range(first + 1, len(ids) + 1):
        trained = np.zeros(len(ids), bool)
        trained[first:last] = True
        start, stop = decoded.starts[first], decoded.stops[last - 1]
        text = decoded.text
        expected = f"{text[:start]}⟦{text[start:stop]}⟧{text[stop:]}\n"
        assert printed(as_text(marked_tokens(decoded, trained, decoder.is_added(ids)))) == expected
    assert text == prefix + rest


@pytest.mark.parametrize(
    ("first", "length", "expected"),
    [(0, 100, (0, 50)), (40, 100, (0, 50)), (60, 200, (36, 86)), (195, 200, (171, 200)), (5, 10, (0, 10))],
)
def test_it_begins_near_the_first_trained_token(first, length, expected):
    trained = np.arange(length) >= first
    shown = shown_tokens(trained, 50)
    assert (shown.start, shown.stop) == expected
    assert shown_tokens(np.zeros(length, bool), 50).start == 0


def reject_of(record: bytes, detail: str) -> tuple[str, list[str]]:
    """What is printed of a reject, and the places that are marked."""
    found = Rejected(3, "a.jsonl", 12, "bad", detail, record)
    out = io.StringIO()
    print_reject(Console(file=out, highlight=False, soft_wrap=True, emoji=False), found)
    return out.getvalue(), reject_as_json(found)["marked"]


def test_place_that_was_wrong_is_marked_in_the_record():
    record = b'{"id": "x", "messages": [{"role": "user", "content": "a"}, {"role": "narrator", "content": "b"}]}'
    text, marked = reject_of(record, 'messages[1].role is "narrator"; expected a known role')
    assert marked == ["messages[1].role"]
    assert [line for line in text.splitlines() if line.startswith("▶")] == ['▶       "role": "narrator",']
    assert text.startswith('reject 3: bad; a.jsonl:12\nmessages[1].role is "narrator"; expected a known role\n  {\n')


def test_key_that_is_missing_marks_the_message_it_is_missing_in():
    text, marked = reject_of(
        b'{"messages": [{"content": "a"}, {"role": "user"}]}', "messages[1].content: it is missing"
    )
    assert marked == ["messages[1]"]
    assert [line for line in text.splitlines() if line.startswith("▶")] == [
        "▶     {",
        '▶       "role": "user"',
        "▶     }",
    ]


def test_messages_of_another_column_are_marked():
    record = b'{"id": 1, "conversations": [{"from": "gpt", "value": "a"}, {"from": "x", "value": "b"}]}'
    assert reject_of(record, 'messages[1] has role "x"')[1] == ["conversations[1]"]


def test_column_is_marked_in_its_first_line():
    text, marked = reject_of(b'{"text": [1, 2]}', "text is a list; expected a string")
    assert marked == ["text"]
    assert [line for line in text.splitlines() if line.startswith("▶")] == ['▶   "text": [']


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (b'{"a": 1, "b": }', "▶ }"),
        (b'{"a": 1', "▶ (the record ends here)"),
        (b'{"a": "\xff\xfe"}', '▶ \\xff\\xfe"}'),
    ],
)
def test_what_is_not_json_is_marked_where_it_ends_to_be(record, line):
    text, marked = reject_of(record, "the record is not JSON")
    assert [shown for shown in text.splitlines() if shown.startswith("▶")] == [line]
    assert marked == []


def test_hostile_and_long_records_are_shown_safely():
    long = b'{"text": "' + b"a" * 10_000 + b'", "messages": [' + b", ".join([b'{"x": "\\u001b[31m"}'] * 100) + b"]}"
    text, marked = reject_of(long, "messages[70].x is odd")
    assert marked == ["messages[70].x"] and '▶       "x": "\\u001b[31m"' in text
    assert "lines before this; inspect --full shows all" in text and "lines after this" in text
    assert len(text.splitlines()) < 80 and max(map(len, text.splitlines())) < 1000
