"""A build of a stranger's corpus ends with the command that reads it, and this command does."""

from __future__ import annotations

import shlex

from support.chats import assistant, user
from support.datasets import manifest_of, rows_of, write_jsonl
from support.paths import TOKENIZER
from support.templates import CHATML
from transforms.publish.markdown import as_text


def command_in(err: str) -> list[str]:
    """The arguments of the command that is the last line of an output."""
    words = shlex.split(err.splitlines()[-1])
    return words[words.index("build") + 1 :]


def test_a_corpus_of_which_no_record_can_be_read_is_built_by_the_command_that_its_first_build_ends_with(
    build, tmp_path
):
    turns = [{"speaker": "Customer", "utterance": "Hi"}, {"speaker": "Agent", "utterance": "Hello"}]
    corpus = write_jsonl(tmp_path / "a stranger's.jsonl", [{"id": i, "talk": turns} for i in range(20)])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out"]

    first = build(*options, "--direct_num_workers=1")
    assert first.code == 1 and "more than max_reject_fraction" in first.err
    assert "\nRecords rejected as unknown_schema: this command reads them:\n" in first.err

    second = build(*command_in(first.err))
    assert (second.code, second.err) == (0, "")
    assert manifest_of(tmp_path / "out")["records"]["kept"] == len(rows_of(tmp_path / "out")) == 20


def test_a_finished_build_ends_with_the_command_that_keeps_what_was_rejected(build, tmp_path):
    records = [{"messages": [user("Hi"), assistant("Hello")]}] * 300
    records += [{"messages": [user("Hi"), {"role": "agent", "content": "Hello"}]}] * 2
    corpus = write_jsonl(tmp_path / "corpus.jsonl", records)

    first = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out")
    assert first.code == 0 and manifest_of(tmp_path / "out")["records"]["rejected"] == {"unknown_role": 2}
    assert "chatmill: Records rejected as unknown_role: this command reads them:\n" in first.err

    second = build(*command_in(first.err))
    assert (second.code, second.err) == (0, "")
    assert manifest_of(tmp_path / "out")["records"]["rejected"] == {}


def test_reasoning_under_another_name_is_kept_by_the_command_that_gives_it_the_usual_one(build, tmp_path):
    answer = {"role": "assistant", "content": "Listing.", "thought": "I should list"}
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": [user("ls"), answer]}] * 3)
    template = tmp_path / "template.jinja"
    template.write_text(CHATML.replace("message.content", "(message.reasoning_content or '') + message.content"))
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--chat_template={template}"]

    first = build(*options, "--output", tmp_path / "out")
    assert first.code == 1 and "--message_fields reasoning_content=thought" in first.err
    second = build(*command_in(first.err))
    assert (second.code, second.err) == (0, "")
    assert manifest_of(tmp_path / "out")["statistics"]["unread"] == {}


def test_what_is_read_and_what_is_not_is_in_the_summary_the_manifest_the_report_and_the_card(build, tmp_path):
    records = [{"messages": [user("Hi"), assistant("Hello", apis="BookTable")], "summary": "A greeting"}] * 3
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [*records, {"text": "A document"}])
    done = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out")
    assert done.code == 0
    expected = "summary (3 records, 30 characters), messages[].apis (3 records, 27 characters)"
    assert expected in " ".join(done.out.split())
    assert "records read 4 as messages 3, plain text 1" in " ".join(done.out.split())
    assert f"Not read: {as_text(expected)}." in (tmp_path / "out" / "README.md").read_text()
    assert f"Not read: {expected}." in (tmp_path / "out" / "report.html").read_text()
    statistics = manifest_of(tmp_path / "out")["statistics"]
    assert statistics["schemas"] == {"messages": 3, "text": 1}
    assert statistics["unread"]["messages[].apis"] == {"records": 3, "characters": 27}


def test_rejects_without_a_remedy_lead_to_the_list_of_reasons(build, tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"foo": 1}])
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out")
    assert ended.code == 1
    assert ended.err.endswith("\ndocs/records.md has what each reason means.\n")
