"""Runs of words that texts share with evaluation sets: words, their hashes, and what an index finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.contamination import words
from transforms.contamination.evaluations import (
    Evaluation,
    decode_evaluations,
    encode_evaluations,
    evaluation_of,
)
from transforms.contamination.index import MOST_RECORDS, EvaluationIndex, Match
from transforms.contamination.words import normalized, words_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't  STOP,\nnow_or-never: 3.5%", "don t stop now or never 3 5"),
        ("Straße ﬁne ＡＢＣ１ ½", "strasse fine abc1 1 2"),
        ("cafe\u0301 = café", "café café"),
        ("in\u00advis\u200bible ❤\ufe0f ok", "invisible ok"),
        ("对百雅轩798艺术中心有了解吗？", "对 百 雅 轩 798 艺 术 中 心 有 了 解 吗"),
        ("これはペンです。", "こ れ は ペ ン で す"),
        ("한국어 문장", "한국어 문장"),
        ("हिन्दी में", "हिन्दी में"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("…", ""),
    ],
)
def test_words_of_a_text(text, expected):
    assert b" ".join(normalized(text).split()).decode() == expected


@given(st.text(), st.integers(1, 40))
def test_normalizing_again_changes_no_word_of_ascii_and_words_are_found_in_pieces_of_any_size(text, at_once):
    content = normalized(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_AT_ONCE", at_once)
        found = words_of(content)
    assert [content[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)] == content.split()
    assert (found.hashes(1) == words_of(content).hashes(1)).all()


def test_a_run_has_the_same_hash_wherever_it_is():
    here, there = words_of(b"a bc d a bc"), words_of(b"xyz  a   bc dd")
    runs = here.hashes(2).tolist()
    assert runs[0] == runs[3] == there.hashes(2)[1] and len({*runs, *there.hashes(2).tolist()}) == 5


def test_evaluation_has_all_strings_and_no_keys_and_survives_its_file():
    record = {"question": "What is It?", "choices": ["A b", None, {"text": "A, b!"}], "number": 3, "ok": True, "": ""}
    found = evaluation_of("set.jsonl:7", record)
    assert found == Evaluation("set.jsonl:7", ("what is it", "a b"))
    assert decode_evaluations(encode_evaluations([found, found])) == [found, found]


def index_of(*texts: str, length: int = 13) -> EvaluationIndex:
    return EvaluationIndex([evaluation_of(f"e:{number}", {"q": text}) for number, text in enumerate(texts)], length)


def found_in(index: EvaluationIndex, *texts: str) -> list[Match]:
    return index.find([normalized(text) for text in texts])


QUESTION = "Mark has a garden with 10 yellow flowers, and he plants 80% more of those in purple."
WORDS = "mark has a garden with 10 yellow flowers and he plants 80 more"


def test_match_names_the_text_the_word_the_run_and_the_first_record_that_has_it():
    index = index_of("Something else that has nothing in common with it at all", QUESTION, QUESTION)
    assert found_in(index, "clean", f"Say: {QUESTION.upper()}") == [Match(1, 1, WORDS, "e:1", 5)]
    assert found_in(index, QUESTION.replace("yellow", "red")) == []


def test_a_run_does_not_go_from_one_text_to_the_next():
    first, second = QUESTION[:40], QUESTION[40:]
    index = index_of(f"{first}{second}", "and")
    assert found_in(index, first, second) == [] and len(found_in(index, first + second)) == 1


def test_short_text_is_found_as_a_whole_and_a_shorter_one_is_counted():
    index = index_of("one two three four five six seven eight", "too short", length=13)
    assert (index.runs, index.too_short, index.in_templates) == (1, 1, 0)
    assert found_in(index, "zero one two three four five six seven eight nine")[0].words.split()[-1] == "eight"
    assert found_in(index, "one two three four five six seven", "too short") == []


def test_of_two_runs_that_begin_with_one_word_the_longer_one_is_named():
    index = index_of("one two three four five six seven eight", "one two three four five six seven eight nine")
    assert found_in(index, "one two three four five six seven eight nine")[0].place == "e:1"


def test_a_run_of_many_records_is_taken_for_their_template():
    template = "Answer the following question and put the letter of the right choice on the last line:"
    many = [f"{template} {number} {QUESTION if number == 3 else ''}" for number in range(MOST_RECORDS + 1)]
    index = index_of(*many)
    assert found_in(index, template) == [] and index.in_templates == 4
    assert found_in(index, QUESTION)[0].place == "e:3"
    assert found_in(index_of(*many[1:]), template)[0].place == "e:0"


def test_a_run_that_one_record_repeats_is_of_one_record():
    index = index_of(" And: ".join([QUESTION] * (MOST_RECORDS + 1)))
    assert found_in(index, QUESTION)[0].place == "e:0" and index.in_templates == 0


def test_an_index_of_nothing_finds_nothing():
    assert found_in(index_of(), QUESTION) == [] == found_in(index_of("short"), QUESTION, "")


_texts = st.lists(st.lists(st.sampled_from("abc"), max_size=12).map(" ".join), max_size=6)


@given(_texts, _texts, st.integers(1, 10))
def test_what_is_found_is_what_sets_of_words_find(evaluations, texts, length):
    """The same as with tuples of words, one by one."""
    index = index_of(*evaluations, length=length)
    records: dict[tuple[str, ...], set[int]] = {}
    for number, text in enumerate(evaluations):
        of_text = text.split()
        size = min(length, len(of_text))
        if size >= min(length, 8):
            for first in range(len(of_text) - size + 1):
                records.setdefault(tuple(of_text[first : first + size]), set()).add(number)
    expected = []
    for number, text in enumerate(texts):
        of_text = text.split()
        runs = [
            (first, -size)
            for first in range(len(of_text))
            for size in range(1, length + 1)
            if tuple(of_text[first : first + size]) in records and first + size <= len(of_text)
        ]
        if runs:
            first, size = min(runs)
            run = tuple(of_text[first : first - size])
            place = f"e:{min(records[run])}"
            expected.append(Match(number, first, " ".join(run), place, len({first for first, _ in runs})))
    assert found_in(index, *texts) == expected
