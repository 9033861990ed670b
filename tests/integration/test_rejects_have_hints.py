"""A build that rejects records, and inspect, say after each reason what to try; what is not read is listed."""

from __future__ import annotations

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.paths import TOKENIZER

ROLES = "hint for unknown_role: --roles YOURS=assistant says which role it is (docs/records.md)."


def test_a_build_that_fails_and_one_that_ends_have_a_hint_for_each_reason_and_what_it_names_reads_the_records(
    build, capfd, tmp_path
):
    other = [{"messages": [user("Hi"), {"role": "agent", "content": "Hello"}]}] * 2
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl", [{"foo": 1}, *other, {"messages": [user("Hi"), assistant("Hello")]}]
    )
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out"]
    schema = (
        "hint for unknown_schema: --columns messages=YOURS or text=YOURS names the column, --formatter reads what "
        "fits no schema (docs/records.md)."
    )
    failed = build(*options)
    assert failed.code == 1
    assert failed.err.splitlines()[-2:] == [ROLES, schema]
    done = build(*options, "--max_reject_fraction=0.9")
    assert done.code == 0
    assert done.err.splitlines()[-2:] == [f"chatmill: {ROLES}", f"chatmill: {schema}"]
    assert chatmill("inspect", tmp_path / "out", "--reason=unknown_role") == 0
    assert capfd.readouterr().out.count(f"\n{ROLES}\n") == 2
    again = build(*options, "--max_reject_fraction=0.9", "--roles=agent=assistant", "--overwrite")
    assert again.code == 0
    assert read_manifest(tmp_path / "out")["records"]["rejected"] == {"unknown_schema": 1}


def test_what_is_read_and_what_is_not_is_in_the_summary_the_manifest_the_report_and_the_card(build, tmp_path):
    records = [{"messages": [user("Hi"), assistant("Hello", apis="BookTable")], "summary": "A greeting"}] * 3
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [*records, {"text": "A document"}])
    done = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--output", tmp_path / "out")
    assert done.code == 0
    expected = "summary (3 records, 30 characters), messages[].apis (3 records, 27 characters)"
    assert expected in " ".join(done.out.split())
    assert "records read 4 as messages 3, plain text 1" in " ".join(done.out.split())
    assert f"Not read: {expected}." in (tmp_path / "out" / "README.md").read_text().replace("\\", "")
    assert f"Not read: {expected}." in (tmp_path / "out" / "report.html").read_text()
    statistics = read_manifest(tmp_path / "out")["statistics"]
    assert statistics["schemas"] == {"messages": 3, "text": 1}
    assert statistics["unread"]["messages[].apis"] == {"records": 3, "characters": 27}
