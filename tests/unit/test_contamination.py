"""Runs of words that texts share with evaluation sets: what words are, and which runs a build finds.

Each text is a record of plain text; what it shares with an evaluation record is the detail of its line in records/.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import read_exceptions, read_manifest, write_jsonl
from support.paths import TOKENIZER

# A run of words in more evaluation records than these is taken for their template.
MOST_RECORDS = 10
QUESTION = "Mark has a garden with 10 yellow flowers, and he plants 80% more of those in purple."
WORDS = "mark has a garden with 10 yellow flowers and he plants 80 more"


def lengths_to_offsets(path: Path) -> list[int]:
    """Where the lines of a file begin."""
    offsets = [0]
    for line in path.read_bytes().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets[:-1]


def found_in(folder: Path, evaluations: Sequence[Any], texts: Sequence[str], length: int = 13) -> list[str | None]:
    """Build a dataset of texts, and return what each shares with evaluation records, None if it is nothing.

    An evaluation record is named by its number, from 0.
    """
    sets = write_jsonl(folder / "e.jsonl", list(evaluations))
    chats = write_jsonl(folder / "texts.jsonl", [{"text": text} for text in texts])
    options = ["--direct_num_workers=1", "--report=none", "--decontaminate", sets, "--decontaminate_words", length]
    assert chatmill("build", "--input", chats, "--tokenizer", TOKENIZER, "--output", folder / "out", *options) == 0
    number_at = {offset: number for number, offset in enumerate(lengths_to_offsets(sets))}
    details = {}
    for line in read_exceptions(folder / "out"):
        if line["detail"] and line["outcome"] == "kept":
            place, _, run = line["detail"].partition(": ")
            details[line["origin_position"]] = f"{number_at[int(place.removeprefix('e.jsonl:'))]}: {run}"
    return [details.get(offset) for offset in lengths_to_offsets(chats)]


def of_job(folder: Path) -> tuple[int, int, int]:
    """What the job says of the evaluation sets: how many runs, records that are too short, and runs of templates."""
    evaluations = read_manifest(folder / "out")["job"]["evaluations"]
    return evaluations["runs"], evaluations["too_short"], evaluations["in_templates"]


def test_words_of_a_text(tmp_path):
    find_words = {
        "Don't  STOP,\nnow_or-never: 3.5%": "don t stop now or never 3 5",
        "Straße ﬁne ＡＢＣ１ ½": "strasse fine abc1 1 2",
        "cafe\u0301 = café": "café café",
        "in\u00advis\u200bible ❤\ufe0f ok": "invisible ok",
        "对百雅轩798艺术中心有了解吗？": "对 百 雅 轩 798 艺 术 中 心 有 了 解 吗",
        "これはペンです。": "こ れ は ペ ン で す",
        "한국어 문장": "한국어 문장",
        "हिन्दी में": "हिन्दी में",
        "…": "",
    }
    # A text of an evaluation record that has fewer words than asked for is one run.
    ends = [" ".join(f"{letter}{number}" for letter in "abcdefgh") for number in range(len(find_words))]
    evaluations = [{"q": f"{text} {end}"} for text, end in zip(find_words, ends, strict=True)]
    expected = [f"{words} {end}".strip() for words, end in zip(find_words.values(), ends, strict=True)]
    assert found_in(tmp_path, evaluations, expected, 40) == [f"{n}: {words}" for n, words in enumerate(expected)]


def test_which_runs_are_found(tmp_path):
    template = "Answer the following question and put the letter of the right choice on the last line:"
    first_ten = "In less than two words say why it is so hard to find good ones today"
    repeated = "what one record has again and again is of one record and no template"
    eight, nine = "eins zwei drei vier funf sechs sieben acht", "eins zwei drei vier funf sechs sieben acht neun"
    halves = "one half of this run of words", "and the other half of this run"
    nested = "a run of at least eight words deep inside of it"
    evaluations = [
        *({"q": f"{template} {n}", "of ten": first_ten if n else ""} for n in range(MOST_RECORDS + 1)),
        {"question": QUESTION, "the keys of a record are not looked for however long they may be": 1},
        {"q": QUESTION, "short": "too short"},
        {"q": " And: ".join([repeated] * (MOST_RECORDS + 1))},
        {"q": eight},
        {"q": nine},
        {"q": halves[0], "r": halves[1]},
        {"q": " ".join(["two", *halves, "three"])},
        {"q": ["A", None, {"text": nested}], "number": 3, "ok": True},
        {"q": "too short"},
    ]
    texts = {
        "clean": None,
        f"Say: {QUESTION.upper()}": f"11: {WORDS}; 5 runs of words in all",
        QUESTION.replace("yellow", "red"): None,
        "the keys of a record are not looked for however long they may be": None,
        template: None,
        first_ten: "1: in less than two words say why it is so hard to find; 4 runs of words in all",
        repeated: "13: what one record has again and again is of one record and no; 2 runs of words in all",
        f"null {eight}": f"14: {eight}",
        nine: f"15: {nine}",
        eight.rpartition(" ")[0]: None,
        # A run does not go from one text to the next.
        halves[0]: None,
        halves[1]: None,
        f"one {nested} two": f"18: {nested}",
        "too short": None,
    }
    assert found_in(tmp_path, evaluations, [*texts]) == [*texts.values()]
    assert of_job(tmp_path)[1:] == (2, 4)


def test_an_evaluation_set_of_short_records_finds_nothing(tmp_path):
    assert found_in(tmp_path, [{"q": "short"}], ["short", QUESTION]) == [None, None]
    assert of_job(tmp_path) == (0, 1, 0)


def test_words_of_a_long_text_are_whole(tmp_path):
    """Texts are hashed some 32 KiB at once."""
    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdé", k=drawn.randint(1, 30))) for _ in range(9_000)]
    words[4_000] = "z" * 70_000
    texts = [" ".join(words), " ".join(words[1:])]
    found = found_in(tmp_path, [{"q": " ".join(words[500:])}], texts)
    assert found == [f"0: {' '.join(words[500:513])}; 8,488 runs of words in all"] * 2


@pytest.mark.parametrize("length", [1, 3, 8, 10])
def test_what_is_found_is_what_sets_of_words_find(tmp_path, length):
    """The same as with tuples of words, one by one."""
    drawn = random.Random(length)
    vocabulary, weights = [f"w{number}" for number in range(40)], [0.8**number for number in range(40)]

    def text() -> list[str]:
        words = drawn.choices(vocabulary, weights, k=drawn.randint(1, 12))
        return words[:1] * len(words) if drawn.random() < 0.2 else words

    evaluations, texts = [text() for _ in range(60)], [text() for _ in range(300)]
    texts += [[*text(), *drawn.choice(evaluations), *text()] for _ in range(100)]
    records: dict[tuple[str, ...], set[int]] = {}
    for number, words in enumerate(evaluations):
        size = min(length, len(words))
        if size >= min(length, 8):
            for first in range(len(words) - size + 1):
                records.setdefault(tuple(words[first : first + size]), set()).add(number)
    runs = {run: min(numbers) for run, numbers in records.items() if len(numbers) <= MOST_RECORDS}
    expected: list[str | None] = []
    for words in texts:
        inside = [
            (first, -size)
            for first in range(len(words))
            for size in range(1, length + 1)
            if first + size <= len(words) and tuple(words[first : first + size]) in runs
        ]
        firsts = {first for first, _ in inside}
        first, size = min(inside, default=(0, 0))
        run = tuple(words[first : first - size])
        more = f"; {len(firsts)} runs of words in all" if len(firsts) > 1 else ""
        expected.append(f"{runs[run]}: {' '.join(run)}{more}" if inside else None)
    assert (
        found_in(
            tmp_path, [{"q": " ".join(words)} for words in evaluations], [" ".join(words) for words in texts], length
        )
        == expected
    )
    too_short = sum(len(words) < min(length, 8) for words in evaluations)
    assert of_job(tmp_path) == (len(runs), too_short, len(records) - len(runs))
    assert expected.count(None) not in (0, len(expected))
