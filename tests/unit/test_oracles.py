"""Records become the texts and masks that were written by hand (tests/data/oracles), or no row where that is said."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from support.datasets import read_rows
from support.paths import TOKENIZER
from support.templates import GIVEN, make_cases, models_and_odd
from support.tokenizers import with_special_tokens

pytestmark = pytest.mark.slow

OPTIONS = ["--loss_on=assistant", "--parity=off", "--packing=none", "--max_length=100000", "--unprinted=reject"]
OPTIONS += ["--max_reject_fraction=1", "--provenance", "--special_tokens_in_content=allow"]


def groups() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The cases that one build can have: those of one oracle, template and options."""
    found = defaultdict(list)
    for oracle in ("masks", "real", "odd"):
        for case in make_cases(oracle):
            more = [option for option in case["options"] if option not in OPTIONS]
            more += ["--unprinted=report"] * (oracle == "masks")
            found[case["template"], " ".join(more)].append(case)
    return dict(found)


GROUPS = groups()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ["<|start_header_id|>", "<|end_header_id|>"]
    return with_special_tokens(TOKENIZER, tmp_path_factory.mktemp("tokenizer"), GIVEN, more)


@pytest.mark.parametrize(("template", "more"), GROUPS, ids=lambda value: value.replace("/", "_") or "plain")
def test_each_record_becomes_what_was_written_down(template: str, more: str, folder: Path, build: Any, tmp_path: Path):
    cases = GROUPS[template, more]
    lines = [json.dumps(case["record"], ensure_ascii=False).encode() + b"\n" for case in cases]
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "template.jinja").write_text(models_and_odd()[template])
    given = [*more.split()]
    names = {option.partition("=")[0] for option in given}
    given += [option for option in OPTIONS if option.partition("=")[0] not in names]
    paths = {"input": "records.jsonl", "chat_template": "template.jinja", "output": "out"}
    given += [f"--{name}={tmp_path}/{path}" for name, path in paths.items()]
    ended = build(*given, f"--tokenizer={folder}")
    assert ended.code == 0 or "were dropped or rejected" in ended.err
    position, rows = 0, defaultdict(list)
    for row in read_rows(tmp_path / "out") if ended.code == 0 else []:
        rows[row["origin_position"]].append(row)
    wrong, alike = {}, set()
    for case, line in zip(cases, lines, strict=True):
        why, answers = judged(case["expect"], folder, rows[position])
        position += len(line)
        alike.update((case["kind"], answer) for answer in answers)
        if why:
            wrong[case["name"]] = why
    assert wrong == {}
    assert len(alike) == len({kind for kind, _ in alike})


def judged(expect: dict[str, Any], folder: Path, rows: list[dict[str, Any]]) -> tuple[str | None, set[bool]]:
    """What is wrong with the rows that a record became, if anything, and whether what is `alike` is trained on."""
    if "not_kept" in expect:
        return f"is kept: {expect['not_kept']}" if rows else None, set()
    if not rows:
        return None if expect.get("or_not_kept") else "has no row", set()
    expected, answers = expect.get("rows", [expect]), set()
    if len(rows) != len(expected):
        return f"has {len(rows)} rows; expected {len(expected)}", answers
    left = list(rows)
    for one in expected:
        verdicts = [verdict(one, folder, row) for row in left]
        fits = [number for number, (why, _) in enumerate(verdicts) if why is None]
        if not fits:
            return verdicts[0][0], answers
        answers |= verdicts[fits[0]][1]
        del left[fits[0]]
    return None, answers


def verdict(expect: dict[str, Any], folder: Path, row: dict[str, Any]) -> tuple[str | None, set[bool]]:
    """What is wrong with a row, if anything, and whether tokens well inside of what is `alike` are trained on.

    A token of which one character must be trained on has a label, and one of which none may be has none.
    """
    text, ids = expect["text"], row["input_ids"]
    encoded = open_tokenizer(folder)(text, add_special_tokens=False, return_offsets_mapping=True)
    if list(ids) != encoded["input_ids"]:
        return f"has another text: {open_tokenizer(folder).decode(ids)}", set()
    trained, free = [False] * len(text), free_characters(expect)
    for start, stop in expect["spans"]:
        trained[start:stop] = [True] * (stop - start)
    for start, stop in expect.get("either", []) + expect.get("alike", []):
        free[start:stop] = [True] * (stop - start)
    alike = set()
    for (start, stop), token, label in zip(encoded["offset_mapping"], ids, row["labels"], strict=True):
        characters = range(start, max(stop, start + 1))
        must = any(trained[at] and not free[at] for at in characters)
        may = any(trained[at] or free[at] for at in characters)
        is_trained = label != -100
        if label not in (-100, token) or (must and not is_trained) or (is_trained and not may):
            return f"has label {label} for {text[start:stop]!r} after {text[max(0, start - 30) : start]!r}", alike
        if any(first <= start and stop < last for first, last in expect.get("alike", [])):
            alike.add(is_trained)
    return None, alike


def free_characters(expect: dict[str, Any]) -> list[bool]:
    """For each character, whether either answer is right: those of the cue, and white space at the end of a turn."""
    text, cue = expect["text"], expect["cue"]
    free = [False] * len(text)
    for start, stop in expect["spans"]:
        for first in range(max(0, start - len(cue)), start + 1):
            length = 0
            while length < len(cue) and first + length < stop and text[first + length] == cue[length]:
                length += 1
            ends = length == len(cue) or (length > 2 and cue[length - 1] in ">]\n")
            if first + length > start and (first < start or ends):
                free[first : first + length] = [True] * length
        last = stop
        while last > start and text[last - 1].isspace():
            last -= 1
        while stop < len(text) and text[stop].isspace():
            stop += 1
        free[last:stop] = [True] * (stop - last)
    return free


@functools.cache
def open_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)
