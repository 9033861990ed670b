"""The summary of a build: one screen, which says what was lost, why, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from pipeline.viewing.summary import warnings
from support.chats import assistant, user
from support.datasets import manifest_of, write_jsonl
from support.paths import CHATS, TOKENIZER
from transforms.base.phrases import most_of
from transforms.publish.concerns import concerns

WIDTH, HEIGHT = 80, 24
TOOL = {"type": "function", "function": {"name": "search", "description": "word " * 300, "parameters": {}}}


def lines_on_screen(text: str) -> int:
    return sum(max(-(-cell_len(line.rstrip()) // WIDTH), 1) for line in text.splitlines())


@pytest.fixture
def summary_of(build, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def run(source: Path, *options: object) -> tuple[str, str]:
        output = [f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}", "--direct_num_workers=1"]
        ended = build(f"--input={source}", *output, *options)
        assert ended.code == 0, ended.err
        return ended.out, ended.err

    return run


def test_the_summary_of_a_usual_corpus_fits_one_screen(summary_of, tmp_path):
    out, err = summary_of(CHATS, "--packing=bfd", "--max_length=256", "--as_chat")
    shown = [line for line in (out + err).splitlines() if not line.endswith(" tokens/s")]  # progress, of a slow machine
    assert lines_on_screen("\n".join(shown).replace(str(tmp_path), "")) <= HEIGHT
    manifest = manifest_of(tmp_path / "out")
    lost = manifest["trained_tokens_lost"]
    share = lost / (lost + manifest["trained_tokens"])
    assert f"truncated), {share:.1%} of trained tokens lost.\n" in out
    beyond = manifest["statistics"]["limits"]["2048"]["trained_tokens"]
    assert f"to --max_length 256 (2048 loses {beyond:,}, --truncation windows loses none)\n" in err


def test_the_preview_of_tool_data_begins_near_the_first_trained_token(summary_of, tmp_path):
    chat = {"tools": [TOOL], "messages": [user("Find it.\n" * 5), assistant("I did.\nHere it is.")]}
    out, _ = summary_of(write_jsonl(tmp_path / "tools.jsonl", [chat]), "--unprinted=report")
    preview = out.partition("near its first trained token")[2]
    assert "⟦I did.↵Here it is.<|im_end|>↵⟧" in preview.replace("\n", "")
    assert "All 1 record in the dataset.\n" in out


def test_outcomes_that_no_record_has_take_no_line(summary_of, tmp_path):
    chat = {"messages": [user("Hi"), assistant("Hello")]}
    out, err = summary_of(write_jsonl(tmp_path / "corpus.jsonl", [chat] * 3))
    assert out.startswith("All 3 records in the dataset.\nrecords read ")
    assert "truncated" not in out and "dropped" not in out and "rejected" not in out
    assert err == ""


def test_the_share_of_answers_that_are_labelled_as_bad_is_a_warning(summary_of, tmp_path):
    chat = {"messages": [user("Hi"), assistant("Hello")]}
    records = [{**chat, "label": label} for label in (False, True, True, True, True, True, 0, 1)]
    _, err = summary_of(write_jsonl(tmp_path / "corpus.jsonl", records))
    assert err == ("chatmill: warning: 1 record dropped (12.5%) whose label or kto_tag is false (docs/records.md)\n")
    manifest = manifest_of(tmp_path / "out")
    assert manifest["records"]["dropped"] == {"undesirable": 1} and manifest["records"]["kept"] == 7
    assert manifest["notes"]["label_not_understood"] == 1


def lines_of(manifest: dict[str, Any]) -> list[str]:
    return [*warnings(manifest, [concern for concern in concerns(manifest, 0.01) if not concern.is_rare])]


def manifest_with(**more: Any) -> dict[str, Any]:
    manifest = {
        "records": {"read": 100_000_000},
        "notes": {},
        "first_examples": {},
        "special_tokens_in_content": {},
        "trained_tokens_lost": 0,
        "statistics": {"limits": {}},
        "layout": {"max_length": 4096, "packing": "bfd"},
        "job": {"options": {"parity": "report"}},
    }
    return manifest | more


COUNT = 1_234_567
EVERYTHING = manifest_with(
    records={"read": 100_000_000, "dropped": {"undesirable": COUNT}},
    notes={
        "compiled_template_differs": COUNT,
        "turns_without_end": COUNT,
        "records_without_generation_prompt": COUNT,
        "not_printed": COUNT,
        "last_reasoning_not_printed": COUNT,
        "records_with_special_tokens_in_content": COUNT,
        "parity_turns_differing": COUNT,
        "parity_turns_context": COUNT,
        "parity_turns_default_added": COUNT,
        "parity_turns_other_end": COUNT,
        "parity_turns_other_text": COUNT,
        "records_that_lost_trained_tokens": COUNT,
    },
    first_examples={"not_printed": {}},
    special_tokens_in_content={f"assistant <|{name}|>": COUNT for name in ("im_end", "im_start", "endoftext", "pad")},
    rendered_by_reference={f"reason_{number}": COUNT for number in range(9)},
    trained_tokens_lost=COUNT,
    statistics={"limits": {str(1 << power): {"trained_tokens": 1 << 30 - power} for power in range(11, 16)}},
)


@pytest.mark.parametrize("parity", ["report", "expand", "reject"])
def test_each_concern_is_one_line_that_says_where_to_read_more(parity):
    options = EVERYTHING["job"]["options"] | {"parity": parity}
    lines = lines_of(EVERYTHING | {"job": {"options": options}})
    assert len(lines) == 11
    assert all("\n" not in line and len(f"chatmill: {line}") <= 170 for line in lines), lines
    assert all("docs/" in line or "--max_length" in line or "manifest.json" in line for line in lines)


def test_nothing_is_a_concern_of_a_dataset_without_notes():
    assert lines_of(manifest_with()) == []


def test_turns_that_differ_in_a_sample_are_those_of_a_sample():
    notes = {"parity_turns_differing": 3, "parity_turns_context": 3, "parity_records_checked": 20}
    [of_all] = lines_of(manifest_with(notes=notes))
    [of_sample] = lines_of(manifest_with(notes=notes | {"parity_records_not_checked": 5_000}))
    assert of_all.startswith("warning: 3 trained turns not as at inference: context 3 (--parity expand ")
    assert of_sample.startswith("warning: 3 trained turns of 20 of 5,020 records not as at inference: context 3 (")


def test_reasoning_that_is_lost_is_a_concern_if_it_is_lost_in_many_records():
    def lines(**notes: int) -> list[str]:
        return lines_of(manifest_with(records={"read": 198}, notes=notes))

    [line] = lines(reasoning_not_printed=198, last_reasoning_not_printed=198)
    assert line.startswith(
        "warning: 198 records with a last answer whose reasoning the template does not print: a model does not learn"
    )
    assert lines(reasoning_not_printed=198) == lines(reasoning_not_printed=198, last_reasoning_not_printed=1) == []


def test_a_thousand_sources_that_are_rejected_take_a_few_lines():
    source = {"name": "a", "records": {"read": 9, "rejected": {"template": 9}}, "rows": 0}
    assert len(lines_of(manifest_with(sources=[source] * 1000))) == 5


def test_the_largest_counts_are_named_and_the_others_counted():
    assert most_of({"a": 1, "b": 30, "c": 4, "d": 4, "e": 2}) == "b 30, c 4 and 3 more"
    assert most_of({"a": 1}) == "a 1"


def test_names_are_shown_as_they_are_also_those_that_look_like_markup(build, tmp_path):
    record = {"messages": [user("Hi"), assistant("Hello")]}
    source, output = write_jsonl(tmp_path / "a.jsonl", [record] * 3), tmp_path / "x[" / "o]"
    options = [f"--input={source}", f"--tokenizer={TOKENIZER}", "--keep_columns=[/b]", "--direct_num_workers=1"]
    ended = build(*options, f"--output={output}")
    assert ended.code == 0 and "records without [/b]" in ended.out
    assert f"The dataset is in {output}. Load it with:" in ended.out
